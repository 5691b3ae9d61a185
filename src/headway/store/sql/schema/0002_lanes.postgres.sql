-- A bucket also says whether its jobs have a target.
alter table hw_bucket add column on_target smallint not null default 0;
alter table hw_bucket drop constraint hw_bucket_tenant_id_task_lanes_key;
alter table hw_bucket add unique (tenant_id, task, on_target, lanes);

-- Rows that live for one claim only.
alter table hw_touched set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
