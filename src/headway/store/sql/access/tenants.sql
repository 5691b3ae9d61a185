-- Tenants and their limits. Number 0 is the installation itself.

-- name: tenant_named
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version, allow
from hw_tenant where name = :name and id > 0;

-- name: tenant_names
select id, name from hw_tenant where id in {ids};

-- name: tenant_numbered
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version, allow
from hw_tenant where id = :id and id > 0;

-- name: tenants_after
-- Tenants by name, after a given name.
select id, name, created_at, active, max_queued, max_running, max_schedules, paused_at, paused_until, version, allow
from hw_tenant where name > :after and id > 0 order by name limit :limit;

-- name: add_tenant
insert into hw_tenant (name, created_at, max_queued, max_running, max_schedules, allow)
values (:name, {now}, cast(:max_queued as bigint), cast(:max_running as bigint), cast(:max_schedules as bigint), :allow)
on conflict (name) do nothing returning id;

-- name: save_tenant
-- Stores everything about a tenant but its pause.
update hw_tenant set active = :active, max_queued = cast(:max_queued as bigint), max_running = cast(:max_running as bigint),
  max_schedules = cast(:max_schedules as bigint), allow = cast(:allow as text), version = version + 1
where id = :id returning version;

-- name: tenant_bounds
-- Those of these tenants that are inactive or have max_queued.
select id, name, active, max_queued from hw_tenant where id in {ids} and (active = 0 or max_queued is not null) order by id;

-- name: count_queued
-- Counts a tenant's waiting jobs up to a bound, in the order of an index.
select count(*) from (select 1 as one from hw_job where tenant_id = :tenant_id and status {is_unclaimed}
  order by priority desc, position, created_at, id limit :most) w;

-- name: schedule_bound
select name, max_schedules from hw_tenant where id = :id and max_schedules is not null;

-- name: count_schedules
select count(*) from (select 1 as one from hw_schedule where tenant_id = :tenant_id and deleted_at is null limit :most) w;

-- name: tenant_terms
-- A tenant's max_running, and since when it is inactive; no row if neither applies.
select t.name, t.active, t.max_running, case when t.active = 0 then (select max(e.at) from hw_event e
  where e.thing_id = t.id and e.thing = 'tenant' and e.kind = 'tenant.deactivated') end
from hw_tenant t where t.id = :id and (t.active = 0 or t.max_running is not null);

-- name: wall_state_postgres
-- The state of row-level security: the role exists, this user is a member, the grants, and the policies of the tables.
select count(r.oid), coalesce(bool_or(pg_has_role(current_user, r.oid,
    case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end)), false),
  coalesce(bool_or(has_table_privilege(r.oid, 'hw_job', 'select')), false),
  (select relrowsecurity from pg_class where oid = 'hw_job'::regclass), current_user
from pg_roles r where r.rolname = 'headway_tenant';
