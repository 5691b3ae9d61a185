-- Which jobs may run now: targets, lanes with a history, reservations, and a pause of all queues.

create table hw_target (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  name text not null,
  created_at bigint not null,
  paused_at bigint,
  pause_note text,
  streak integer not null default 0,
  version integer not null default 1,
  unique (tenant_id, name)
);

create index hw_target_streak on hw_target (id) where streak > 0;
create index hw_target_paused on hw_target (tenant_id) where paused_at is not null;

-- Targets whose jobs changed since their first job was chosen. Writers only add rows; the holder of the claim
-- lock chooses anew and deletes them, so a transaction that makes or changes a job waits for no other.
create table hw_touched (
  id {pk},
  target_id bigint not null
);

-- The next slot of some lanes, promised to a direct call or to a program outside. `lanes` is JSON, the ids of lanes.
-- A holder that we run has a worker's lease (`worker_id`); others live until `expires_at` unless they renew.
create table hw_reservation (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  status text not null default 'ACTIVE' check (status in ('ACTIVE', 'RELEASED', 'EXPIRED')),
  lanes text not null,
  target_id bigint,
  worker_id bigint,
  holder text not null,
  task text,
  params text,
  created_at bigint not null,
  granted_at bigint,
  finished_at bigint,
  expires_at bigint,
  ttl bigint,
  outcome text,
  error text,
  created_by text not null,
  version integer not null default 1,
  check ((status = 'ACTIVE') = (finished_at is null)),
  check ((worker_id is null) = (expires_at is not null)),
  check ((ttl is null) = (expires_at is null))
);
create index hw_reservation_active on hw_reservation (id) where finished_at is null;
create index hw_reservation_finished on hw_reservation (finished_at) where finished_at is not null;

-- How many direct calls in a row were granted since the last job: after some, one job goes first.
alter table hw_lane add column streak integer not null default 0;
-- A process that makes direct calls has a lease like a worker, and runs no jobs.
alter table hw_worker add column kind text not null default 'worker' check (kind in ('worker', 'caller'));

-- The queue of one target in order; the first of each free target is open (gate = 1), at most one.
create index hw_job_target on hw_job (target_id, priority desc, position, created_at, id) where target_id is not null and status = 2;
create unique index hw_job_target_head on hw_job (target_id) where target_id is not null and gate = 1;
-- The holder of a target: running, held, or resumed and waiting for its next claim.
drop index hw_job_target_hold;
create unique index hw_job_target_hold on hw_job (target_id)
  where target_id is not null and (status between 3 and 5 or (status = 2 and fence > 0));

-- Not a tenant: its pause closes all queues.
insert into hw_tenant (id, name, created_at) values (0, '*', 0);
