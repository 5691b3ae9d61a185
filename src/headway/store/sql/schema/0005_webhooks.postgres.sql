-- The outbox: the transaction that writes an event makes its deliveries too. In force only while a webhook or a job
-- asks for deliveries: see triggers/arm.postgres.sql.
create function hw_fill_outbox() returns trigger language plpgsql as $$
begin
  insert into hw_delivery (tenant_id, endpoint_id, event_id, event, job_id, url, max_tries, due_at, created_at)
  select v.tenant_id, r.id, v.id, n.name, case when v.thing = 'job' then v.thing_id end, r.url, r.max_tries, v.at, v.at
  from fresh v
  cross join lateral (
    select case v.kind when 'job.completed' then 'job.run.completed' when 'job.resolved' then 'job.run.completed'
      when 'job.failed' then 'job.run.failed' when 'job.skipped' then 'job.run.skipped' else v.kind end as name
    union all
    select 'job.exhausted' where v.kind = 'job.failed' and v.data::jsonb ->> 'exhausted' = 'true'
    union all
    select 'target.held' from hw_job j where v.kind in ('job.paused', 'job.error') and j.id = v.thing_id and j.target_id is not null
  ) n
  cross join lateral (
    select e.id, null as url, e.events, e.max_tries from hw_endpoint e
    where e.tenant_id = v.tenant_id and e.deleted_at is null and e.enabled = 1
    union all
    select 0, j.options::jsonb ->> 'webhook_url', coalesce(j.options::jsonb ->> 'webhook_events', '[]'), 4 from hw_job j
    where v.thing = 'job' and j.id = v.thing_id and strpos(j.options, '"webhook_url"') > 0
      and j.options::jsonb ->> 'webhook_url' is not null  -- a meter may have that name, too
  ) r
  where v.kind in ('job.completed', 'job.resolved', 'job.failed', 'job.skipped', 'job.cancelled', 'job.paused', 'job.error',
      'job.exhausted', 'group.finished', 'execution.finished', 'execution.held', 'schedule.tick.skipped')
    and (r.events = '[]' or exists (select 1 from jsonb_array_elements_text(r.events::jsonb) f where f = n.name
      or (right(f, 1) = '*' and starts_with(n.name, left(f, -1)))))
  order by v.id;
  return null;
end $$;
create trigger hw_event_outbox after insert on hw_event referencing new table as fresh
  for each statement execute function hw_fill_outbox();
alter table hw_event disable trigger hw_event_outbox;

create trigger hw_delivery_frozen before update of body, message_id, event_id, event, endpoint_id, job_id, url on hw_delivery
  for each row when (old.body is not null)
  execute function hw_refuse('a delivery is sent as it was first sent: its body never changes');
