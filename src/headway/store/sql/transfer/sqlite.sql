-- Statements about the source of `headway db promote`, and its seal.

-- name: columns
-- Headway's tables with their columns.
select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c
where t.type = 'table' and t.name like 'hw\_%' escape '\' order by t.name, c.cid;

-- name: count
select count(*) from {table};

-- name: rows
select {columns} from {table};

-- name: last_job
select value from hw_counter where name = 'job';

-- name: callers
-- Active reservations, each with the process that holds it, if there is one.
select r.id, r.expires_at, w.id, w.host, w.boot, w.pid, w.process_start, w.slots, w.tasks, w.state, w.started_at, w.beat_at,
  w.lease_until, w.gone_at
from hw_reservation r left join hw_worker w on w.id = r.worker_id where r.finished_at is null order by r.id;

-- name: being_sent
select id from hw_delivery where lease_by is not null and due_at > :now order by id;

-- name: sealed
select 1 from sqlite_schema where type = 'table' and name = 'hw_moved';

-- name: make_seal
-- A single row, written before PostgreSQL commits. `done_at` records that PostgreSQL committed.
create table if not exists hw_moved (
  one integer primary key default 1 check (one = 1),
  id text not null,
  url text not null,
  began_at integer not null,
  done_at integer
);

-- name: guard
-- The guard also refuses writes of processes that have the file open already, and of other versions of Headway.
create trigger hw_moved_{verb}_{table} before {verb} on {table} when exists (select 1 from hw_moved)
begin select raise(abort, {message}); end;

-- name: guards
select name from sqlite_schema where type = 'trigger' and name like 'hw\_moved\_%' escape '\';

-- name: drop_guard
drop trigger {guard};

-- name: close
insert into hw_moved (one, id, url, began_at) values (1, :id, :url, :began_at);

-- name: seal
select id, url, began_at, done_at from hw_moved;

-- name: conclude
update hw_moved set done_at = coalesce(done_at, :now) where id = :id returning id;

-- name: drop_seal
drop table hw_moved;
