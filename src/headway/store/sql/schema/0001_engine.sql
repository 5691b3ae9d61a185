-- The engine: tenants, workers, buckets, jobs, runs, events and what the work reports.
-- Instants are microseconds UTC, durations too. JSON is text. Status: 0 WAITING 1 SCHEDULED 2 QUEUED 3 RUNNING
-- 4 PAUSED 5 ERROR 6 COMPLETED 7 FAILED 8 SKIPPED 9 CANCELLED.

create table hw_tenant (
  id {pk},
  name text not null unique,
  created_at bigint not null,
  paused_at bigint,
  paused_until bigint,
  pause_note text,
  version integer not null default 1
);

create table hw_setting (
  name text primary key,
  value text not null,
  version integer not null default 1
);

create table hw_lane (
  id {pk},
  tenant_id bigint not null default 0,
  kind text not null check (kind in ('policy', 'resource', 'target')),
  name text not null,
  capacity integer check (capacity >= 0),
  version integer not null default 1,
  unique (tenant_id, kind, name)
);

-- Everything a claim filters on, interned: jobs of one bucket differ only in their place. Rows never change.
create table hw_bucket (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  task text not null,
  lanes text not null,
  unique (tenant_id, task, lanes)
);

create table hw_worker (
  id {pkp},
  host text not null,
  boot text not null,
  pid bigint not null,
  process_start bigint not null,
  slots integer not null check (slots >= 1),
  tasks text not null,
  state text not null default 'live' check (state in ('live', 'draining', 'stuck', 'gone')),
  started_at bigint not null,
  beat bigint not null default 0,
  beat_at bigint not null,
  lease_until bigint not null,
  gone_at bigint,
  version integer not null default 1,
  check ((state = 'gone') = (gone_at is not null))
);
create index hw_worker_alive on hw_worker (lease_until) where gone_at is null;

-- Processes that run user code, stored before they do, so that recovery can end what a dead worker left.
create table hw_process (
  tag text primary key,
  worker_id bigint not null references hw_worker (id),
  slot integer not null,
  pid bigint not null,
  process_start bigint not null
);
create index hw_process_worker on hw_process (worker_id);

-- Tasks that some worker has, with their own options, for those who enqueue by name alone.
create table hw_task (
  name text primary key,
  seen_at bigint not null,
  priority smallint not null,
  options text not null
);

-- No foreign keys on purpose: on PostgreSQL each would lock a row that all enqueues share. Tenants, buckets and
-- workers with jobs are never deleted, and `headway verify` looks.
create table hw_job (
  id {pkp},
  tenant_id bigint not null,
  bucket_id bigint not null,
  status smallint not null check (status between 0 and 9),
  gate smallint not null default 0 check (gate = 0 or (gate = 1 and status = 2)),
  priority smallint not null default 0 check (priority between 0 and 100),
  position bigint not null,
  created_at bigint not null,
  fence integer not null default 0,
  version integer not null default 1,
  attempt integer not null default 1,
  retry_auto smallint not null default 0,
  exhausted smallint not null default 0,
  hold smallint not null default 0,
  retry_of bigint,
  target_id bigint,
  group_id bigint,
  stage integer,
  not_before bigint,
  expires_at bigint,
  queued_at bigint,
  started_at bigint,
  finished_at bigint,
  worker_id bigint,
  slot integer,
  claimed_at bigint,
  ran bigint not null default 0,
  carries smallint not null default 0,
  stop text check (stop in ('cancel', 'interrupt')),
  stop_by text,
  failure_kind text,
  reason text,
  key text,
  task text not null,
  params text not null,
  options text not null,
  created_by text not null,
  check (status <> 3 or (worker_id is not null and slot is not null and claimed_at is not null and fence > 0)),
  check (status = 3 or (worker_id is null and slot is null and stop is null)),
  check ((status >= 6) = (finished_at is not null)),
  check (status <> 1 or not_before is not null),
  check (status <> 2 or queued_at is not null)
);
-- The claim reads this one: the ready jobs of each bucket in queue order.
create index hw_job_ready on hw_job (bucket_id, priority desc, position, created_at, id) where gate = 1;
-- The whole queue of a tenant in order, for people: listing, moving, rank.
create index hw_job_order on hw_job (tenant_id, priority desc, position, created_at, id) where status <= 2;
create index hw_job_due on hw_job (not_before) where status = 1;
create index hw_job_expiring on hw_job (expires_at) where expires_at is not null and status <= 2 and fence = 0;
create unique index hw_job_slot on hw_job (worker_id, slot) where status = 3;
create index hw_job_held on hw_job (tenant_id, status, id) where status between 4 and 5;
create unique index hw_job_target_hold on hw_job (target_id) where target_id is not null and status between 3 and 5;
create unique index hw_job_key on hw_job (tenant_id, task, key) where key is not null and status <= 5;
create unique index hw_job_auto_retry on hw_job (retry_of) where retry_auto = 1;
create index hw_job_retries on hw_job (retry_of) where retry_of is not null;
-- Failures that an automatic retry should have followed, for the check that it did.
create index hw_job_undecided on hw_job (id, finished_at) where status = 7 and exhausted = 0;
create index hw_job_failed on hw_job (tenant_id, id) where status = 7;
create index hw_job_finished on hw_job (finished_at) where finished_at is not null;

-- One run per job, and it has its job's number.
create table hw_run (
  job_id {pkp},
  tenant_id bigint not null,
  task text not null,
  params text not null,
  worker_id bigint not null,
  started_at bigint not null,
  status smallint check (status in (6, 7, 8)),
  finished_at bigint,
  exit_code integer,
  error text,
  artifacts text,
  check ((status is null) = (finished_at is null))
);

create table hw_result (
  job_id {pkp},
  body text not null
);

-- Reports of the work about itself: progress, meters over the whole chain, the last checkpoint.
create table hw_report (
  job_id {pkp},
  at bigint not null,
  done double precision,
  total double precision,
  label text,
  spent text,
  checkpoint text
);

create table hw_log (
  id {pk},
  job_id bigint not null,
  at bigint not null,
  lines text not null
);
create index hw_log_job on hw_log (job_id, id);

create table hw_artifact (
  job_id bigint not null,
  name text not null,
  size bigint not null,
  sha256 text not null,
  path text not null,
  at bigint not null,
  primary key (job_id, name)
);
-- Files are shared by their hash: pruning asks who else has one.
create index hw_artifact_path on hw_artifact (path);

-- Append-only. `version` is gapless per thing; `status` is the state the transition led to.
create table hw_event (
  id {pk},
  tenant_id bigint not null,
  thing text not null,
  thing_id bigint not null,
  version integer not null,
  kind text not null,
  status smallint,
  at bigint not null,
  actor text not null,
  fence integer,
  data text,
  unique (thing_id, thing, version)
);

create table hw_tally (
  tenant_id bigint not null,
  name text not null,
  count bigint not null default 0,
  primary key (tenant_id, name)
);

-- Raised inside a pruning transaction only, so that the triggers can tell pruning from tampering.
create table hw_pruning (
  active smallint not null
);
insert into hw_pruning (active) values (0);

insert into hw_tenant (name, created_at) values ('default', 0);
insert into hw_lane (tenant_id, kind, name, capacity) values (0, 'policy', 'global', 1);
