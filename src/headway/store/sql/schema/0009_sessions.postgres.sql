-- Looked up before it is known whose they are: beyond the wall, and behind it there are none.
alter table hw_session enable row level security;
create policy hw_wall on hw_session using (current_user <> 'headway_tenant');
