-- The stream of events as it grows, for those who follow it. `event_writers` is in the dialects' own files.

-- name: newest_event
select coalesce(max(id), 0) from hw_event;

-- name: events_between
-- By number, after one and up to another.
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
where id > :after and id <= :upto order by id limit :limit;

-- name: tenant_events_between
-- One tenant's among them. By number too: the caller asks for a stretch that is soon gone through.
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
where id > :after and id <= :upto and tenant_id = :tenant_id order by id limit :limit;

-- name: event_ids_after
select id from hw_event where id > :after order by id;

-- name: event_time
select at from hw_event where id = :id;

-- name: pruned_until
select pruned_until from hw_pruning;

-- name: note_pruning
-- From here on nobody can be told everything that happened before this instant.
update hw_pruning set pruned_until = :before where pruned_until < :before;
