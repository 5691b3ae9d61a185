-- A wait is its job's tenant's. Work records it on connections of its own; behind the wall it is only read.
alter table hw_wait enable row level security;
create policy hw_wall on hw_wait using (exists (select 1 from hw_job j where j.id = job_id) or current_user <> 'headway_tenant');
do $$
begin
  if exists (select 1 from pg_roles where rolname = 'headway_tenant') then
    grant select on hw_wait to headway_tenant;
  end if;
exception when insufficient_privilege then
  null;  -- there is no second wall then
end $$;
