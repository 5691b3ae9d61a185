-- A bucket also says whether its jobs have a target. SQLite cannot change a constraint, so the table is made anew.
create table hw_bucket_new (
  id integer primary key,
  tenant_id bigint not null references hw_tenant (id),
  task text not null,
  on_target smallint not null default 0,
  lanes text not null,
  unique (tenant_id, task, on_target, lanes)
);
insert into hw_bucket_new (id, tenant_id, task, lanes) select id, tenant_id, task, lanes from hw_bucket;
drop table hw_bucket;
alter table hw_bucket_new rename to hw_bucket;
