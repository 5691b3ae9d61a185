-- Statements about the installation itself.

-- name: create_schema_table
-- The record of migrations, the only table that exists before the first one.
create table if not exists hw_schema (version integer primary key, applied_at bigint not null);

-- name: schema_version
select coalesce(max(version), 0) from hw_schema;

-- name: record_migration
insert into hw_schema (version, applied_at) values (:version, {now});

-- name: ping
select 1;

-- name: time
select {now};

-- name: tenant_by_name
select id, name, paused_at, paused_until, pause_note, version from hw_tenant where name = :name and id > 0;

-- name: tenants
select id, name, paused_at, paused_until, pause_note, version from hw_tenant where id > 0 order by id;

-- name: lock_tenant
select id, name, paused_at, paused_until, pause_note, version from hw_tenant where id = :id {for_update};

-- name: pause_tenant
update hw_tenant set paused_at = {now}, paused_until = cast(:until as bigint), pause_note = cast(:note as text), version = version + 1
where id = :id returning version;

-- name: resume_tenant
update hw_tenant set paused_at = null, paused_until = null, pause_note = null, version = version + 1 where id = :id returning version;

-- name: add_events
-- One row per transition, in the transaction that made it.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence, data)
select tenant_id, thing, thing_id, version, kind, status, {now}, actor, fence, data
from {rows(tenant_id bigint, thing text, thing_id bigint, version integer, kind text, status integer, actor text, fence integer, data text)} as r;

-- name: know_tasks
-- Known tasks: read at enqueue, refreshed by every worker.
insert into hw_task (name, seen_at, priority, options)
select name, {now}, priority, options from {rows(name text, priority smallint, options text)} as r where true
on conflict (name) do update set seen_at = excluded.seen_at, priority = excluded.priority, options = excluded.options;

-- name: seen_tasks
-- Known tasks with the time when a worker last registered them.
select name, priority, options, seen_at from hw_task where seen_at > {now} - :within order by name;

-- name: known_tasks
select name, priority, options from hw_task where seen_at > {now} - :within order by name;
