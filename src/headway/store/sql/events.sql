-- The event stream for subscribers. `event_writers` is in the dialects' own files.

-- name: newest_event
select coalesce(max(id), 0) from hw_event;

-- name: events_between
-- Events by number, after one and up to another. A page ends with the event with which its data exceed :size.
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id, found from (
  select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id, count(*) over () as found,
    sum(octet_length(coalesce(data, ''))) over (order by id) - octet_length(coalesce(data, '')) as before from (
    select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
    where id > :after and id <= :upto order by id limit :limit) p) s
where before <= :size order by id;

-- name: tenant_events_between
-- One tenant's events by number. The caller asks for a short range, so no index of the tenant's is needed.
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id, found from (
  select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id, count(*) over () as found,
    sum(octet_length(coalesce(data, ''))) over (order by id) - octet_length(coalesce(data, '')) as before from (
    select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
    where id > :after and id <= :upto and tenant_id = :tenant_id order by id limit :limit) p) s
where before <= :size order by id;

-- name: event_ids_after
select id from hw_event where id > :after order by id;

-- name: event_time
select at from hw_event where id = :id;

-- name: pruned_until
select pruned_until from hw_pruning;

-- name: note_pruning
-- From now on the history before this instant is incomplete.
update hw_pruning set pruned_until = :before where pruned_until < :before;
