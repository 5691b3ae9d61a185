-- Statements about the destination of `headway db promote`.

-- name: columns
-- Headway's tables with their columns.
select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace and c.relname like 'hw\_%' order by c.relname, a.attnum;

-- name: references
-- Foreign keys: each table with a table whose rows must come first.
select c.relname, r.relname from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_class r on r.oid = k.confrelid
where k.contype = 'f' and c.relnamespace = current_schema()::regnamespace and c.relname like 'hw\_%';

-- name: identities
-- Columns with numbers from PostgreSQL.
select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attidentity <> ''
where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace and c.relname like 'hw\_%' order by c.relname;

-- name: session
-- Settings of this transaction alone. It may be idle while the file is read, it waits for no lock, and its commit is on
-- disk. The server notices within a minute that the client has vanished; until then the promotion could be neither
-- finished nor undone. The transaction sees what was committed while it waited for its lock, whatever isolation this
-- role has by default.
set transaction isolation level read committed;
set local idle_in_transaction_session_timeout = 0;
set local statement_timeout = 0;
set local lock_timeout = '5s';
set local synchronous_commit = on;
set local client_min_messages = warning;
set local tcp_keepalives_idle = 30;
set local tcp_keepalives_interval = 10;
set local tcp_keepalives_count = 3;

-- name: last_step
-- From here on the transaction waits only for the seal.
set local idle_in_transaction_session_timeout = '{limit}';

-- name: standby
select 1 where pg_is_in_recovery();

-- name: who_locks
-- The process that holds `lock_schema`. PostgreSQL shows the lock's number in two halves.
select pid from pg_locks where locktype = 'advisory' and granted and objsubid = 1
and database = (select oid from pg_database where datname = current_database())
and classid::bigint = 7236838301 >> 32 and objid::bigint = 7236838301 & 4294967295;

-- name: lock
-- Other transactions neither read nor write the existing tables until this one ends.
lock table {tables} in access exclusive mode;

-- name: some
select 1 from {table} limit 1;

-- name: settled
-- The settings that a promotion itself has written do not count.
select 1 from hw_setting where name <> 'promoting' limit 1;

-- name: clear
-- Rows that a migration inserted come from the file instead.
delete from {table};

-- name: copy
copy {table} ({columns}) from stdin;

-- name: rows
select {columns} from {table};

-- name: highest
select coalesce(max({column}), 0) from {table};

-- name: restart_identity
-- Not `setval`, which a rollback does not undo.
alter table {table} alter column {column} restart with {number};

-- name: restart_jobs
alter sequence hw_job_id restart with {number};

-- name: analyze
-- Without statistics the first claims would be planned for empty tables.
analyze {table};
