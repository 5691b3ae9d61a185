-- Keys belong to no tenant: behind the wall there are none.
alter table hw_key enable row level security;
create policy hw_wall on hw_key using (current_user <> 'headway_tenant');
