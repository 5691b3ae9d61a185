-- The ids of the tenants that a worker serves, as a JSON list. Null stands for all tenants.
alter table hw_worker add column tenants text;
