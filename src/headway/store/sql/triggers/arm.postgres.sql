-- Somebody is to be told. The lock is waited for a moment only: whoever writes an event meanwhile queues behind us. But a
-- vacuum that is under way gives way to those alone who have waited for a second.
select set_config('lock_timeout', case when exists (select 1 from pg_locks where relation = 'hw_event'::regclass
  and database = (select oid from pg_database where datname = current_database())
  and mode = 'ShareUpdateExclusiveLock' and granted) then '1500ms' else '100ms' end, true);
alter table hw_event enable trigger hw_event_outbox;
