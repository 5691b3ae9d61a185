-- What somebody asks who examines an installation: of all tenants, and nothing is changed.

-- name: pauses_of_all
-- Tenants whose queue is paused now; number 0 is everybody.
select id, name, paused_until, pause_note from hw_tenant
where paused_at is not null and (paused_until is null or paused_until > {now}) order by id limit :limit;

-- name: paused_targets_of_all
select t.name, n.name, t.pause_note from hw_target t join hw_tenant n on n.id = t.tenant_id where t.paused_at is not null order by t.id limit :limit;

-- name: holders_of_all
-- Some of the PAUSED and ERROR jobs that keep a target.
select j.id, j.status, t.name from hw_job j join hw_target t on t.id = j.target_id where j.status between 4 and 5 limit :limit;

-- name: opened_endpoints
-- Webhooks that fail so that nothing is sent to them but now and then.
select {endpoint_columns} from hw_endpoint e where e.deleted_at is null and e.enabled = 1 and e.opened_at is not null order by e.opened_at limit :limit;

-- name: oldest_due_delivery
-- Since when a delivery could be on its way and nobody has it in hand, of so many that are pending; and the time now.
select min(w.due_at), {now} from (
  select d.due_at from hw_delivery d left join hw_endpoint e on e.id = d.endpoint_id
  where d.status = 'PENDING' and d.lease_by is null and (e.id is null or (e.opened_at is null and e.enabled = 1)) limit :most) w;

-- name: enabled_schedules
select {schedule_columns} from hw_schedule s where s.enabled = 1 and s.deleted_at is null order by s.id limit :limit;

-- name: server_postgres
select current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('default_transaction_read_only'),
  current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on', current_user::text;

-- name: connections_postgres
-- How many there are, and how many there may be for those who are no superuser.
select (select coalesce(sum(numbackends), 0)::integer from pg_stat_database),
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
  - coalesce(current_setting('reserved_connections', true), '0')::integer;

-- name: closed_tables_postgres
-- Tables of ours that this user may not use as Headway does.
select c.relname::text from pg_class c where c.relkind = 'r' and c.relname like 'hw\_%' and pg_table_is_visible(c.oid) and not (
  has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
  and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')) order by 1;

-- name: unvacuumed_tables_postgres
select c.relname::text from pg_class c where c.relkind = 'r' and c.relname like 'hw\_%' and pg_table_is_visible(c.oid)
  and 'autovacuum_enabled=false' = any (c.reloptions) order by 1;

-- name: oldest_transaction_postgres
-- As far as this user may see those of others.
select pid, extract(epoch from now() - xact_start)::double precision, coalesce(nullif(application_name, ''), usename::text, '') from pg_stat_activity
where xact_start is not null and pid <> pg_backend_pid() and datname = current_database() order by xact_start limit 1;

-- name: knock_postgres
-- A hint need not be durable.
select set_config('synchronous_commit', 'off', true), pg_notify(:channel, '');
