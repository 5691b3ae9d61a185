-- The source of `headway db promote`: what it has, and the seal that is put on it.

-- name: columns
-- Every table of ours with its columns.
select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c
where t.type = 'table' and t.name like 'hw\_%' escape '\' order by t.name, c.cid;

-- name: count
select count(*) from {table};

-- name: rows
select {columns} from {table};

-- name: last_job
select value from hw_counter where name = 'job';

-- name: make_seal
-- One row, there from before PostgreSQL commits; `done_at` says that it did.
create table if not exists hw_moved (
  id text not null,
  url text not null,
  place text not null,
  began_at integer not null,
  done_at integer
);

-- name: guard
-- Also whoever has the file open already, or has another Headway, writes nothing into it any more.
create trigger if not exists hw_moved_{verb}_{table} before {verb} on {table} when exists (select 1 from hw_moved)
begin select raise(abort, {said}); end;

-- name: guards
select name from sqlite_schema where type = 'trigger' and name like 'hw\_moved\_%' escape '\';

-- name: drop_guard
drop trigger {guard};

-- name: close
insert into hw_moved (id, url, place, began_at) values (:id, :url, :place, :began_at);

-- name: seal
select id, url, place, began_at, done_at from hw_moved;

-- name: conclude
update hw_moved set done_at = :now where id = :id;

-- name: drop_seal
drop table hw_moved;
