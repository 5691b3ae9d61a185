-- The audit list: events about administered things, and the actions of people on jobs, groups and deliveries.

-- name: walk_audit
-- Only the index made for this list has its order, by negative numbers: without statistics a planner would walk all events.
select {json_ids} from (select id from hw_event
  where tenant_id = :tenant_id and {is_audited} and -id > -cast(:before as bigint) and -id <= -cast(:floor as bigint)
  order by -id limit :limit) w;

-- name: walk_thing
-- The events of a single thing, newest first.
select {json_ids} from (select id from hw_event where thing_id = :thing_id and thing = :thing and tenant_id = :tenant_id
  and id < :before and id >= :floor order by version desc limit :limit) w;

-- name: deletions_of
-- The events that deleted, archived or revoked these things.
select e.thing_id, e.actor from {ids} i join hw_event e on e.thing_id = i.id and e.thing = :thing
where e.kind in ('schedule.deleted', 'webhook.deleted', 'token.revoked', 'template.archived') order by e.thing_id, e.version;

-- name: pick_events
-- Those of these events that match.
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
where id in {ids} and at >= :since and at < :until
  and (cast(:thing as text) is null or thing = :thing)
  and (cast(:kind as text) is null or kind = :kind)
  and (cast(:by_name as text) is null or actor like :by_name escape '!' or actor like :by_id escape '!')
order by id desc limit :limit;
