-- Work in several steps, and when it begins: groups, templates, schedules and the ledger of their ticks.

-- A group's jobs carry its number and their stage. An execution is a group of its own kind: one firing of a schedule.
-- `stage` is the open one; -1: it has not begun, because it waits for the end of the group in `after`.
create table hw_group (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  kind text not null default 'group' check (kind in ('group', 'execution')),
  name text not null,
  mode text not null check (mode in ('sequential', 'parallel', 'staged')),
  on_failure text not null,
  status text not null,
  stage integer not null,
  stages integer not null check (stages >= 1),
  after_id bigint,
  cancelled_by text,
  error text,
  schedule_id bigint,
  reason text check (reason in ('tick', 'manual', 'backfill', 'retry')),
  nominal_at bigint,
  retry_of bigint,
  created_at bigint not null,
  finished_at bigint,
  created_by text not null,
  version integer not null default 1,
  check (stage between -1 and stages - 1),
  check (stage >= 0 or after_id is not null or finished_at is not null),
  check ((kind = 'execution') = (schedule_id is not null and reason is not null)),
  check (case kind when 'group' then status in ('RUNNING', 'COMPLETED', 'PARTIAL', 'CANCELLED')
    else status in ('IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED') end),
  check ((status in ('RUNNING', 'IN_PROGRESS')) = (finished_at is null))
);
create index hw_group_open on hw_group (id) where finished_at is null;
-- By the word for it, so that no planner takes the index of all unfinished groups, or of all executions, instead.
create index hw_group_active on hw_group (schedule_id, status, id) where status = 'IN_PROGRESS';
create index hw_group_schedule on hw_group (schedule_id, id) where schedule_id is not null;
create index hw_group_after on hw_group (after_id) where after_id is not null and stage = -1;
create index hw_group_retries on hw_group (retry_of) where retry_of is not null;
create index hw_group_finished on hw_group (finished_at) where finished_at is not null;
create index hw_group_list on hw_group (tenant_id, kind, id);
-- One nominal time of a schedule fires once, whichever scheduler decides it.
create unique index hw_group_tick on hw_group (schedule_id, nominal_at) where schedule_id is not null and reason = 'tick';

-- A member's name in its group; its params as they were before results of earlier steps were filled in; its template.
alter table hw_job add column step text;
alter table hw_job add column unfilled text;
alter table hw_job add column template_id bigint;
create index hw_job_group on hw_job (group_id, stage, id) where group_id is not null;
create index hw_job_member on hw_job (group_id, stage) where group_id is not null and status <= 5;

-- Stored defaults for a task. `definition` is JSON. Archived, never deleted.
create table hw_template (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  name text not null,
  task text not null,
  definition text not null,
  created_at bigint not null,
  created_by text not null,
  archived_at bigint,
  version integer not null default 1
);
create unique index hw_template_name on hw_template (tenant_id, name) where archived_at is null;

-- `definition` is JSON: when it fires and what it runs. Every tick up to `decided_until` is decided; `next_at` is when
-- the next one is to be (its nominal time and its jitter), null while there is none. Deleted ones stay for the ledger.
create table hw_schedule (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  name text not null,
  definition text not null,
  enabled smallint not null default 1 check (enabled in (0, 1)),
  origin text not null check (origin in ('code', 'file', 'api')),
  decided_until bigint not null,
  next_at bigint,
  last_run_at bigint,
  created_at bigint not null,
  created_by text not null,
  deleted_at bigint,
  version integer not null default 1,
  check (next_at is null or (enabled = 1 and deleted_at is null))
);
create unique index hw_schedule_name on hw_schedule (tenant_id, name) where deleted_at is null;
create index hw_schedule_due on hw_schedule (next_at, id) where next_at is not null;

-- The ledger: each nominal time of a schedule decided once. Neighbours with the same decision may share a row.
create table hw_tick (
  id {pk},
  tenant_id bigint not null,
  schedule_id bigint not null references hw_schedule (id),
  nominal_at bigint not null,
  until bigint not null,
  count integer not null check (count >= 1),
  outcome text not null check (outcome in ('FIRED', 'SKIPPED', 'MISSED', 'COALESCED')),
  reason text,
  execution_id bigint,
  decided_at bigint not null,
  check (until >= nominal_at),
  check ((outcome = 'FIRED') = (execution_id is not null)),
  check (outcome <> 'FIRED' or (count = 1 and until = nominal_at))
);
create unique index hw_tick_fired on hw_tick (schedule_id, nominal_at) where outcome = 'FIRED';
create index hw_tick_ledger on hw_tick (schedule_id, nominal_at);
create index hw_tick_decided on hw_tick (decided_at, id);
