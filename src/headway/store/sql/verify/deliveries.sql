-- Statements of `headway verify` about webhooks.

-- name: verify_hooked
-- The number of endpoints, the outbox's own counters, and whether a subscriber ever existed.
select (select count(*) from hw_endpoint where deleted_at is null), o.endpoints, o.jobs,
  case when exists (select 1 from hw_endpoint) or exists (select 1 from hw_delivery) then 1 else 0 end from hw_outbox o;

-- name: verify_deliveries
-- A page of deliveries, each with its event, its endpoint, its job and the delivery it replays.
select d.id, d.tenant_id, d.endpoint_id, d.event_id, d.event, d.status, d.tries, d.lost, d.max_tries, d.message_id, d.body, d.version,
  d.lease_by, d.replay_of, v.id, v.tenant_id, v.kind, e.tenant_id, j.tenant_id, o.id, o.message_id,
  case when o.body = d.body or (o.body is null and o.status <> 'PENDING') then 1 else 0 end
from hw_delivery d left join hw_event v on v.id = d.event_id left join hw_endpoint e on e.id = d.endpoint_id
left join hw_job j on j.id = d.job_id left join hw_delivery o on o.id = d.replay_of
where d.id > :after order by d.id limit :limit;

-- name: verify_tries
select t.delivery_id, t.number, t.status_code, t.error, t.message_id, t.digest from hw_try t
where t.delivery_id > :after and t.delivery_id <= :upto order by t.delivery_id, t.number;

-- name: verify_delivery_events
select thing_id, version, kind from hw_event where thing = 'delivery' and thing_id > :after and thing_id <= :upto order by thing_id, version;

-- name: verify_loose_tries
select t.delivery_id, count(*) from hw_try t where not exists (select 1 from hw_delivery d where d.id = t.delivery_id) group by t.delivery_id
union all
select v.thing_id, count(*) from hw_event v where v.thing = 'delivery' and not exists (select 1 from hw_delivery d where d.id = v.thing_id)
group by v.thing_id;

-- name: verify_webhook_events
select thing_id, id, at, kind, data, tenant_id from hw_event where thing = 'webhook' order by thing_id, version;

-- name: verify_news
-- A page of the events that may have subscribers, in order, with the webhook options of their jobs.
select v.id, v.tenant_id, v.kind, v.at, v.data, j.target_id, j.options
from hw_event v left join hw_job j on j.id = v.thing_id and v.thing = 'job'
where v.id > :after and v.kind in ('job.completed', 'job.resolved', 'job.failed', 'job.skipped', 'job.cancelled', 'job.paused', 'job.error',
  'job.exhausted', 'group.finished', 'execution.finished', 'execution.held', 'schedule.tick.skipped', 'schedule.tick.missed')
order by v.id limit :limit;

-- name: verify_told
-- The deliveries of a page of events, without those that a person requested.
select event_id, endpoint_id, event, count(*) from hw_delivery
where replay_of is null and event_id > :after and event_id <= :upto and event <> 'webhook.test' group by event_id, endpoint_id, event;
