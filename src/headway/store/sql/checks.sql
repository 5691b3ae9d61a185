-- Read-only statements for the diagnosis of an installation, over all tenants.

-- name: pauses_of_all
-- Tenants whose queue is paused now; number 0 is the pause of all queues.
select id, name, paused_until, pause_note from hw_tenant
where paused_at is not null and (paused_until is null or paused_until > {now}) order by id limit :limit;

-- name: paused_targets_of_all
select t.name, n.name, t.pause_note from hw_target t join hw_tenant n on n.id = t.tenant_id where t.paused_at is not null order by t.id limit :limit;

-- name: holders_of_all
-- Some of the PAUSED and ERROR jobs that hold a target.
select j.id, j.status, t.name from hw_job j join hw_target t on t.id = j.target_id where j.status {is_held} limit :limit;

-- name: opened_endpoints
-- Webhooks with an open circuit breaker, which get probes only.
select {endpoint_columns} from hw_endpoint e where e.deleted_at is null and e.enabled = 1 and e.opened_at is not null order by e.opened_at limit :limit;

-- name: oldest_due_delivery
-- The earliest due time of deliveries that no process has leased, among a bounded number of pending ones, and the
-- current time.
select min(w.due_at), {now} from (
  select d.due_at from hw_delivery d left join hw_endpoint e on e.id = d.endpoint_id
  where d.status = 'PENDING' and d.lease_by is null and (e.id is null or (e.opened_at is null and e.enabled = 1)) limit :most) w;

-- name: held_executions
-- Some of the PAUSED and ERROR steps for which executions of enabled schedules wait.
select s.id, g.id, j.id, j.step, j.status, j.reason from hw_job j
join hw_group g on g.id = j.group_id join hw_schedule s on s.id = g.schedule_id
where j.status {is_held} and g.finished_at is null and s.enabled = 1 and s.deleted_at is null
  and (cast(:tenant_id as bigint) is null or s.tenant_id = :tenant_id) order by j.id limit :limit;

-- name: enabled_schedules
-- Of one tenant, or of all, each with the name of its tenant.
select {schedule_columns}, t.name from hw_schedule s join hw_tenant t on t.id = s.tenant_id
where s.enabled = 1 and s.deleted_at is null and (cast(:tenant_id as bigint) is null or s.tenant_id = :tenant_id) order by s.id limit :limit;

-- name: templates_numbered
select {template_columns} from hw_template t where t.id in {ids};

-- name: server_postgres
-- The initial settings of a session; Headway's own sessions set synchronous_commit themselves.
select current_setting('server_version_num')::integer, pg_is_in_recovery(),
  current_setting('fsync'), current_setting('full_page_writes'), (select reset_val from pg_settings where name = 'synchronous_commit'),
  current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on', current_user::text;

-- name: connections_postgres
-- Connections in use, and the number open to users that are no superuser.
select (select coalesce(sum(numbackends), 0)::integer from pg_stat_database),
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
  - coalesce(current_setting('reserved_connections', true), '0')::integer;

-- name: closed_tables_postgres
-- Headway's tables on which this user lacks a privilege.
select c.relname::text from pg_class c where c.relkind = 'r' and c.relname like 'hw\_%' and pg_table_is_visible(c.oid) and not (
  has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
  and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')) order by 1;

-- name: unvacuumed_tables_postgres
select c.relname::text from pg_class c where c.relkind = 'r' and c.relname like 'hw\_%' and pg_table_is_visible(c.oid)
  and 'autovacuum_enabled=false' = any (c.reloptions) order by 1;

-- name: oldest_transaction_postgres
-- Only transactions that this user may see.
select pid, extract(epoch from now() - xact_start)::double precision, coalesce(nullif(application_name, ''), usename::text, '') from pg_stat_activity
where xact_start is not null and pid <> pg_backend_pid() and datname = current_database() order by xact_start limit 1;

-- name: knock_postgres
-- A hint need not be durable.
select set_config('synchronous_commit', 'off', true), pg_notify(:channel, '');

-- name: lock_holders_postgres
-- Open transactions that hold the claim lock or have written, as far as this user may see them. A transaction is
-- Headway's own if it has the same user, and holds the claim lock, which only Headway takes, or has Headway's name.
select h.pid, h.name, h.client, h.state, h.seconds, h.claims, h.waits and h.seconds > :stalled as stalled, h.ours, h.mark from (
  select a.pid, coalesce(nullif(a.application_name, ''), a.usename::text, '') as name, coalesce(host(a.client_addr), 'the server itself') as client,
    case when a.state = 'active' and a.wait_event_type = 'Client' then 'waiting for its client' else coalesce(a.state, 'unknown') end as state,
    extract(epoch from clock_timestamp() - a.state_change)::double precision as seconds, a.xact_start, c.pid is not null as claims,
    a.state = 'idle in transaction' or (a.state = 'active' and a.wait_event_type = 'Client') as waits,
    a.usesysid = (select o.usesysid from pg_stat_activity o where o.pid = pg_backend_pid()) and pg_has_role(a.usesysid, 'usage')
      and (c.pid is not null or a.application_name like 'headway %') as ours,
    (extract(epoch from a.state_change) * 1000000)::bigint as mark
  from pg_stat_activity a left join (
    select distinct l.pid from pg_locks l where l.locktype = 'advisory' and l.granted and l.objsubid = 1
      and l.database = (select oid from pg_database where datname = current_database())
      and l.classid::bigint = 7236838302 >> 32 and l.objid::bigint = 7236838302 & 4294967295) c on c.pid = a.pid
  where a.datname = current_database() and a.pid <> pg_backend_pid() and (c.pid is not null or a.backend_xid is not null)) h
order by h.claims desc, h.xact_start limit 20;

-- name: end_holder_postgres
-- Ends the transaction only if its client has sent nothing since the check.
with a as materialized (
  select a.pid from pg_stat_activity a where a.pid = :pid and (extract(epoch from a.state_change) * 1000000)::bigint = :mark
    and (a.state = 'idle in transaction' or (a.state = 'active' and a.wait_event_type = 'Client')))
select a.pid, pg_terminate_backend(a.pid) from a;
