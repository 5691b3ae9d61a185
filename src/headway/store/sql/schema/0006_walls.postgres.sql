-- The second wall. A transaction of the API or the dashboard becomes the role `headway_tenant` and says which tenant it
-- is for; from then on it sees and writes rows of that tenant alone, whatever its statements forget. The owner of the
-- tables, as which the workers connect, is not concerned, nor is any other user: the policies name that role alone.
do $$
declare
  wall text := '(select nullif(current_setting(''headway.tenant_id'', true), '''')::bigint)';
  rule text;
  one record;
begin
  for one in
    select c.relname as name, bool_or(a.attname = 'tenant_id') as owned, bool_or(a.attname = 'job_id') as of_job
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace and c.relname like 'hw\_%' group by c.relname
  loop
    rule := case
      when one.name = 'hw_tenant' then format('coalesce(id = %s, current_user <> ''headway_tenant'')', wall)
      when one.name = 'hw_lane' then format('coalesce(tenant_id in (0, %s), current_user <> ''headway_tenant'')', wall)
      when one.owned then format('coalesce(tenant_id = %s, current_user <> ''headway_tenant'')', wall)
      -- A subquery of a policy is behind the wall itself.
      when one.of_job then 'exists (select 1 from hw_job j where j.id = job_id)'
    end;
    if rule is not null then
      execute format('alter table %I enable row level security', one.name);
      execute format('create policy hw_wall on %I using (%s)', one.name, rule);
    end if;
  end loop;
end $$;

-- Not every user may make roles. Without one there is no second wall, and `headway doctor` says so.
do $$
begin
  begin
    if not exists (select 1 from pg_roles where rolname = 'headway_tenant') then
      create role headway_tenant nologin;
    end if;
  exception when duplicate_object or unique_violation then
    null;  -- another database of this server was just made
  end;
  execute format('grant usage on schema %I to headway_tenant', current_schema());
  grant select on hw_answer, hw_artifact, hw_bucket, hw_delivery, hw_endpoint, hw_event, hw_group, hw_job, hw_lane, hw_log, hw_outbox,
    hw_pruning, hw_report, hw_reservation, hw_result, hw_run, hw_schedule, hw_schema, hw_setting, hw_signer, hw_tally, hw_target,
    hw_task, hw_template, hw_tenant, hw_tick, hw_token, hw_try, hw_worker to headway_tenant;
  grant insert, update on hw_answer, hw_delivery, hw_endpoint, hw_event, hw_group, hw_job, hw_report, hw_result, hw_run, hw_schedule,
    hw_signer, hw_target, hw_template, hw_tick, hw_token, hw_try to headway_tenant;
  grant insert on hw_touched to headway_tenant;
  grant update on hw_tenant, hw_outbox to headway_tenant;
  grant usage on sequence hw_job_id to headway_tenant;
  if current_setting('server_version_num')::integer >= 160000 then
    if not pg_has_role(current_user, 'headway_tenant', 'set') then
      execute 'grant headway_tenant to current_user with inherit false, set true';
    end if;
  elsif not pg_has_role(current_user, 'headway_tenant', 'member') then
    grant headway_tenant to current_user;
  end if;
exception when insufficient_privilege then
  raise notice 'this user may not make the role headway_tenant: there is no second wall between tenants';
end $$;

-- Written at every claim while several tenants have work.
alter table hw_turn set (fillfactor = 50);
