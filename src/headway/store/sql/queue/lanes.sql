-- Lanes, targets and reservations. All three change under the claim lock only, so that every claim happens either
-- before a change or after it.

-- name: read_setting
select value, version from hw_setting where name = :name;

-- name: save_setting
insert into hw_setting (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value, version = hw_setting.version + 1 returning version;

-- name: lane_by_name
select id, capacity, version from hw_lane where tenant_id = :tenant_id and kind = :kind and name = :name;

-- name: add_lane
insert into hw_lane (tenant_id, kind, name, capacity) values (:tenant_id, :kind, :name, cast(:capacity as integer))
on conflict (tenant_id, kind, name) do nothing returning id;

-- name: set_lane_capacity
update hw_lane set capacity = cast(:capacity as integer), version = version + 1 where id = :id returning version;

-- name: lanes
select id, tenant_id, kind, name, capacity, version from hw_lane order by id;

-- name: lanes_named
-- The lanes of one kind, of the installation and of a tenant, by name; with `q`, only names that contain that text.
select id, tenant_id, kind, name, capacity, version from hw_lane
where tenant_id in (0, :tenant_id) and kind = :kind and (cast(:q as text) is null or lower(name) like :q escape '!')
order by name, id limit :limit;

-- name: count_lanes
select count(*) from hw_lane
where tenant_id in (0, :tenant_id) and kind = :kind and (cast(:q as text) is null or lower(name) like :q escape '!');

-- name: lane_versions
select coalesce(sum(version), 0) from hw_lane where tenant_id in (0, :tenant_id);

-- name: buckets_of_tenant
select id, tenant_id, task, lanes, on_target from hw_bucket where tenant_id = :tenant_id order by id limit :limit;

-- name: running_per_bucket
select bucket_id, group_id, stage, count(*) from hw_job where status = {RUNNING} group by bucket_id, group_id, stage;

-- name: ready_per_bucket
-- The number of ready jobs in these buckets, each up to a bound.
select i.id, (select count(*) from (select 1 from hw_job j where j.bucket_id = i.id and j.gate = 1 limit :most) w) from {ids} i;

-- name: pauses
-- The pause of a tenant, and the pause of all queues (0).
select id, paused_at, paused_until, pause_note from hw_tenant
where id in (0, :tenant_id) and paused_at is not null and (paused_until is null or paused_until > {now}) order by id;

-- name: reset_streaks
update hw_lane set streak = 0 where id in {ids} and streak > 0;

-- name: raise_streaks
update hw_lane set streak = streak + 1 where id in {ids};

-- name: reset_target_streaks
-- Resets the streaks of the targets of these jobs.
update hw_target set streak = 0 where id in (select j.target_id from {ids} i join hw_job j on j.id = i.id) and streak > 0;

-- name: end_target_streak
update hw_target set streak = 0 where id = :id and streak > 0;

-- name: raise_target_streak
update hw_target set streak = streak + 1 where id = :id;

-- name: target_by_name
select id, name, created_at, paused_at, pause_note, version from hw_target where tenant_id = :tenant_id and name = :name;

-- name: add_target
insert into hw_target (tenant_id, name, created_at) values (:tenant_id, :name, {now}) on conflict (tenant_id, name) do nothing returning id;

-- name: pause_target
update hw_target set paused_at = {now}, pause_note = cast(:note as text), version = version + 1 where id = :id returning version;

-- name: resume_target
update hw_target set paused_at = null, pause_note = null, version = version + 1 where id = :id and paused_at is not null returning version;

-- name: touch
-- Marks targets whose jobs changed: the next claim chooses their first jobs anew.
insert into hw_touched (target_id) select id from {ids} as r;

-- name: take_touched
delete from hw_touched returning target_id;

-- name: target_queues
-- Each target with its pause, its holder and the holder's state, the first job of its queue, and its open job.
select t.id, t.paused_at, h.id, h.status,
  (select j.id from hw_job j where j.target_id = t.id and j.target_id is not null and j.status = {QUEUED}
    order by j.priority desc, j.position, j.created_at, j.id limit 1),
  (select j.id from hw_job j where j.target_id = t.id and j.target_id is not null and j.gate = 1)
from {ids} i join hw_target t on t.id = i.id
left join hw_job h on h.target_id = t.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0));

-- name: open_jobs_of
-- The open jobs of targets.
select j.id, j.target_id from {ids} i join hw_job j on j.target_id = i.id and j.target_id is not null and j.gate = 1;

-- name: targets_after
-- A tenant's targets by name, after a given one.
select id, name, paused_at, pause_note from hw_target where tenant_id = :tenant_id and name > :after order by name limit :limit;

-- name: targets_by_id
select id, name, paused_at, pause_note from hw_target where id in {ids};

-- name: target_holders
-- The jobs that hold these targets (running, held, or resumed and waiting for their next claim), and since when.
select h.target_id, h.id, h.status,
  case when h.status = {RUNNING} then h.claimed_at when h.status = {QUEUED} then h.queued_at else
    (select max(e.at) from hw_event e where e.thing_id = h.id and e.thing = 'job' and e.kind in ('job.paused', 'job.error')) end,
  h.reason
from {ids} i join hw_job h on h.target_id = i.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0));

-- name: waiting_on_targets
-- The number of jobs queued on these targets, each up to a bound. A resumed job holds its target and is not counted.
select i.id, (select count(*) from (
  select 1 from hw_job j where j.target_id = i.id and j.target_id is not null and j.status = {QUEUED} and j.fence = 0 limit :most) w)
from {ids} i;

-- name: blocked_targets
-- A tenant's targets that are paused, or held by a PAUSED or ERROR job; the first by name.
select t.id, t.name, t.paused_at, t.pause_note from (
  select id from hw_target where tenant_id = :tenant_id and paused_at is not null
  union
  select h.target_id from (select target_id from hw_job where tenant_id = :tenant_id and status {is_held} limit :most) h
  where h.target_id is not null) b join hw_target t on t.id = b.id
order by t.name limit :limit;

-- name: count_blocked
select count(*) from (
  select id from hw_target where tenant_id = :tenant_id and paused_at is not null
  union
  select h.target_id from (select target_id from hw_job where tenant_id = :tenant_id and status {is_held} limit :most) h
  where h.target_id is not null) b;

-- name: paused_targets
select id, name, paused_at, pause_note from hw_target where tenant_id = :tenant_id and paused_at is not null order by name limit :limit;

-- name: count_paused_targets
select count(*) from hw_target where tenant_id = :tenant_id and paused_at is not null;

-- name: resumed_targets
-- Those of these targets whose holder was resumed and waits for its next claim.
select h.target_id from {ids} i join hw_job h on h.target_id = i.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0))
where h.status = {QUEUED};

-- name: busy_targets
-- Those of these targets that are paused or held by a job.
select t.id from {ids} i join hw_target t on t.id = i.id where t.paused_at is not null or exists (
  select 1 from hw_job h where h.target_id = t.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0)));

-- name: add_reservation
insert into hw_reservation (tenant_id, lanes, target_id, worker_id, holder, task, params, created_at, expires_at, ttl, created_by)
values (:tenant_id, :lanes, cast(:target_id as bigint), cast(:worker_id as bigint), :holder, cast(:task as text), cast(:params as text),
  {now}, {now} + cast(:ttl as bigint), cast(:ttl as bigint), :created_by)
returning id;

-- name: active_reservations
-- Active reservations in the order of their creation.
select id, tenant_id, lanes, target_id, granted_at, version, expires_at from hw_reservation where finished_at is null order by id;

-- name: waiting_reservations
-- The reservations that were not granted yet.
select id, tenant_id, task, lanes, target_id from hw_reservation
where finished_at is null and granted_at is null order by id;

-- name: relane_reservation
update hw_reservation set lanes = :lanes, version = version + 1 where id = :id and finished_at is null and granted_at is null
returning version;

-- name: lost_reservations
-- Reservations whose holder is a worker or caller that is gone.
select r.id, r.worker_id from hw_reservation r left join hw_worker w on w.id = r.worker_id
where r.finished_at is null and r.worker_id is not null and (w.id is null or w.gone_at is not null) order by r.id;

-- name: reservation
select {reservation_columns} from hw_reservation r where r.id = :id;

-- name: shown_reservations
-- Active reservations first, then those that ended last.
select {reservation_columns} from hw_reservation r where r.tenant_id = :tenant_id and r.finished_at is null
union all
select * from (select {reservation_columns} from hw_reservation r where r.finished_at is not null and r.tenant_id = :tenant_id
  order by r.finished_at desc limit :limit) e;

-- name: reservations_before
-- A tenant's reservations, newest first.
select {reservation_columns} from hw_reservation r where r.tenant_id = :tenant_id and r.id < :before
  and (cast(:status as text) is null or r.status = cast(:status as text)) order by r.id desc limit :limit;

-- name: grant_reservation
update hw_reservation set granted_at = {now}, version = version + 1 where id = :id and finished_at is null and granted_at is null
returning tenant_id, version;

-- name: renew_reservation
update hw_reservation set expires_at = {now} + ttl where id = :id and tenant_id = :tenant_id and finished_at is null and ttl is not null
returning expires_at;

-- name: end_reservation
update hw_reservation set status = :status, finished_at = {now}, outcome = cast(:outcome as text), error = cast(:error as text),
  version = version + 1
where id = :id and finished_at is null returning tenant_id, version;

-- name: ended_reservation
-- Returns a row if a reservation ended before an instant.
select id from hw_reservation where finished_at is not null and finished_at < :before
  and id < (select max(id) from hw_reservation) order by finished_at limit 1;

-- name: prune_reservations
-- The newest reservation stays: SQLite would reuse its number, and a program that still has it could release another's.
insert into hw_tally (tenant_id, name, count) select tenant_id, 'reservations', count(*) from hw_reservation where id in (
  select id from hw_reservation where finished_at is not null and finished_at < :before and id < (select max(id) from hw_reservation) order by finished_at, id limit 500) group by tenant_id
on conflict (tenant_id, name) do update set count = hw_tally.count + excluded.count;
delete from hw_event where thing = 'reservation' and thing_id in (
  select id from hw_reservation where finished_at is not null and finished_at < :before and id < (select max(id) from hw_reservation) order by finished_at, id limit 500);
delete from hw_wait where job_id = 0 and fence in (
  select id from hw_reservation where finished_at is not null and finished_at < :before and id < (select max(id) from hw_reservation) order by finished_at, id limit 500);
delete from hw_reservation where id in (
  select id from hw_reservation where finished_at is not null and finished_at < :before and id < (select max(id) from hw_reservation) order by finished_at, id limit 500) returning id;
