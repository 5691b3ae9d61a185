-- The outbox: a transaction that writes an event with subscribers also creates the deliveries. On SQLite this trigger
-- exists only while there are subscribers, because a table with triggers makes writes half as expensive again.
create trigger if not exists hw_event_outbox after insert on hw_event
when new.kind in ('job.completed', 'job.resolved', 'job.failed', 'job.skipped', 'job.cancelled', 'job.paused', 'job.error',
    'job.exhausted', 'group.finished', 'execution.finished', 'execution.held', 'schedule.tick.skipped', 'schedule.tick.missed')
begin
  insert into hw_delivery (tenant_id, endpoint_id, event_id, event, job_id, max_tries, due_at, created_at)
  select new.tenant_id, e.id, new.id, n.name, case when new.thing = 'job' then new.thing_id end, e.max_tries, new.at, new.at
  from (
    select case new.kind when 'job.completed' then 'job.run.completed' when 'job.resolved' then 'job.run.completed'
      when 'job.failed' then 'job.run.failed' when 'job.skipped' then 'job.run.skipped' else new.kind end as name
    union all
    select 'job.exhausted' where new.kind = 'job.failed' and new.data ->> 'exhausted' = 1
    union all
    select 'target.held' from hw_job j where new.kind in ('job.paused', 'job.error') and j.id = new.thing_id and j.target_id is not null
  ) n
  join hw_endpoint e on e.tenant_id = new.tenant_id and e.deleted_at is null and e.enabled = 1
  where e.events = '[]' or exists (select 1 from json_each(e.events) f where f.value = n.name
    or (substr(f.value, -1) = '*' and substr(n.name, 1, length(f.value) - 1) || '*' = f.value));
  insert into hw_delivery (tenant_id, endpoint_id, event_id, event, job_id, url, max_tries, due_at, created_at)
  select new.tenant_id, 0, new.id, n.name, k.id, k.options ->> 'webhook_url', 4, new.at, new.at
  from hw_job k join (
    select case new.kind when 'job.completed' then 'job.run.completed' when 'job.resolved' then 'job.run.completed'
      when 'job.failed' then 'job.run.failed' when 'job.skipped' then 'job.run.skipped' else new.kind end as name
    union all
    select 'job.exhausted' where new.kind = 'job.failed' and new.data ->> 'exhausted' = 1
    union all
    select 'target.held' from hw_job j where new.kind in ('job.paused', 'job.error') and j.id = new.thing_id and j.target_id is not null
  ) n
  where new.thing = 'job' and k.id = new.thing_id and instr(k.options, '"webhook_url"') > 0
    and k.options ->> 'webhook_url' is not null  -- a meter may have that name, too
    and (k.options -> 'webhook_events' is null or exists (select 1 from json_each(k.options, '$.webhook_events') f where f.value = n.name
      or (substr(f.value, -1) = '*' and substr(n.name, 1, length(f.value) - 1) || '*' = f.value)));
end;
