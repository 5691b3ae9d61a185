-- Enables the outbox trigger. The lock timeout is short, because transactions that write events meanwhile queue behind
-- this lock. A running vacuum yields only to a transaction that has waited for a second.
select set_config('lock_timeout', case when exists (select 1 from pg_locks where relation = 'hw_event'::regclass
  and database = (select oid from pg_database where datname = current_database())
  and mode = 'ShareUpdateExclusiveLock' and granted) then '1500ms' else '100ms' end, true);
alter table hw_event enable trigger hw_event_outbox;
