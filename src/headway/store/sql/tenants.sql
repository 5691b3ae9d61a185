-- Tenants, and what they may have. Number 0 is everybody, and nobody.

-- name: tenant_named
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version
from hw_tenant where name = :name and id > 0;

-- name: tenant_numbered
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version
from hw_tenant where id = :id and id > 0;

-- name: tenants_after
-- By name, after a given one.
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version
from hw_tenant where name > :after and id > 0 order by name limit :limit;

-- name: add_tenant
insert into hw_tenant (name, created_at, max_queued, max_running, max_schedules)
values (:name, {now}, cast(:max_queued as bigint), cast(:max_running as bigint), cast(:max_schedules as bigint))
on conflict (name) do nothing returning id;

-- name: save_tenant
-- Everything about a tenant that may change but its pause.
update hw_tenant set active = :active, max_queued = cast(:max_queued as bigint), max_running = cast(:max_running as bigint),
  max_schedules = cast(:max_schedules as bigint), version = version + 1
where id = :id returning version;

-- name: tenant_bounds
-- Those of these tenants that get no new jobs, or only so many.
select id, name, active, max_queued from hw_tenant where id in {ids} and (active = 0 or max_queued is not null) order by id;

-- name: count_queued
-- How many jobs of a tenant wait, of the first so many. By their order: there is an index for that.
select count(*) from (select 1 as one from hw_job where tenant_id = :tenant_id and status <= 2
  order by priority desc, position, created_at, id limit :most) w;

-- name: schedule_bound
select name, max_schedules from hw_tenant where id = :id and max_schedules is not null;

-- name: count_schedules
select count(*) from (select 1 as one from hw_schedule where tenant_id = :tenant_id and deleted_at is null limit :most) w;

-- name: tenant_terms
-- What a tenant as a whole may run, and since when nothing, if either is limited.
select t.name, t.active, t.max_running, case when t.active = 0 then (select max(e.at) from hw_event e
  where e.thing_id = t.id and e.thing = 'tenant' and e.kind = 'tenant.deactivated') end
from hw_tenant t where t.id = :id and (t.active = 0 or t.max_running is not null);

-- name: wall_state_postgres
-- Whether the role of the second wall is there, whether this user may become it, and whether the tables have the wall.
select count(r.oid), coalesce(bool_or(pg_has_role(current_user, r.oid,
    case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end)), false),
  coalesce(bool_or(has_table_privilege(r.oid, 'hw_job', 'select')), false),
  (select relrowsecurity from pg_class where oid = 'hw_job'::regclass), current_user
from pg_roles r where r.rolname = 'headway_tenant';
