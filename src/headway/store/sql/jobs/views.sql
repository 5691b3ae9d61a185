-- Read-only statements for pages of jobs and runs, the queue in order, workers and history. The cost of a page is
-- bounded: a `walk_…` statement reads a bounded number of ids from an index, then a `pick_…` statement filters their
-- rows. Ids are returned as one text, because SQLite's driver switches threads at every row, and a thousand switches
-- cost fifty times the statement.

-- name: schema_found_sqlite
-- Returns 1 if this is a database of Headway's.
select count(*) from sqlite_schema where type = 'table' and name = 'hw_schema';

-- name: schema_found_postgres
select count(to_regclass('hw_schema'));

-- name: walk_jobs
-- The newest jobs of all tenants. No index covers a single tenant's, and a walk past the others is bounded too.
select {json_ids} from (select id from hw_job where id < :before and id >= :floor order by id desc limit :limit) w;

-- name: walk_waiting
-- WAITING, SCHEDULED and QUEUED jobs: all of them by the index of the queue, then sorted. Only where they are few.
select {json_ids} from (select id from (select id from hw_job where tenant_id = :tenant_id and status {is_unclaimed} limit :most) a
  where id < :before and id >= :floor order by id desc limit :limit) w;

-- name: walk_running
-- At most as many rows as there are slots.
select {json_ids} from (
  select id from (select id from hw_job where status = {RUNNING} and tenant_id = :tenant_id order by worker_id, slot limit 100000) a
  where id < :before and id >= :floor order by id desc limit :limit) w;

-- name: walk_held
select {json_ids} from (select id from hw_job
  where tenant_id = :tenant_id and status {is_held} and status = :status and id < :before and id >= :floor
  order by id desc limit :limit) w;

-- name: walk_failed
select {json_ids} from (select id from hw_job where tenant_id = :tenant_id and status = {FAILED} and id < :before and id >= :floor
  order by id desc limit :limit) w;

-- name: walk_group
-- The members of a group, sorted; the size of a group is bounded.
select {json_ids} from (select id from hw_job where group_id = :group_id and group_id is not null and id < :before and id >= :floor
  order by id desc limit :limit) w;

-- name: walk_schedule
-- The jobs of a schedule's executions, sorted. Only where they are few.
select {json_ids} from (select j.id from hw_group g join hw_job j on j.group_id = g.id and j.group_id is not null
  where g.schedule_id = :schedule_id and g.schedule_id is not null and j.id < :before and j.id >= :floor order by j.id desc limit :limit) w;

-- name: count_of_schedule
select count(*) from (select 1 as one from hw_group g join hw_job j on j.group_id = g.id and j.group_id is not null
  where g.schedule_id = :schedule_id and g.schedule_id is not null limit :most) w;

-- name: walk_runs
-- The newest runs of all tenants, in any state; no index covers failed runs.
select {json_ids} from (select job_id as id from hw_run where job_id < :before and job_id >= :floor order by job_id desc limit :limit) w;

-- name: job_from
-- The first job at or after an id. Ids and creation times rise together, so bisection finds a time.
select id, created_at from hw_job where id >= :id order by id limit 1;

-- name: last_job
select id from hw_job order by id desc limit 1;

-- name: pick_jobs
-- Those of these jobs that match.
select {json_ids} from (select j.id from hw_job j where j.id in {ids} and j.tenant_id = :tenant_id and {filter_of_both} and {filter_of_jobs}
order by j.id desc limit :limit) w;

-- name: pick_first_jobs
-- Those of these jobs with one of two tasks that begin a chain: they retry no job, and no step of another group.
select {json_ids} from (select j.id from hw_job j left join hw_group g on g.id = j.group_id where j.id in {ids} and j.tenant_id = :tenant_id
  and j.task in (:story, :research) and j.retry_of is null and g.retry_of is null order by j.id desc limit :limit) w;

-- name: chain_ends
-- The newest retry, automatic or manual, of each of these jobs; the job itself if there is none.
with recursive down(origin, id) as (
  select j.id, j.id from hw_job j where j.id in {ids}
  union all
  select down.origin, c.id from down join hw_job c on c.retry_of = down.id and c.retry_of is not null
)
select origin, max(id) from down group by origin;

-- name: steps_again
-- The first job of the same step in the newest group that retries the group of each of these jobs.
select j.id, max(c.id) from hw_job j join hw_group g on g.retry_of = j.group_id and g.retry_of is not null
join hw_job c on c.group_id = g.id and c.group_id is not null and c.step = j.step and c.retry_of is null
where j.id in {ids} and j.group_id is not null group by j.id;

-- name: first_members
-- The first job of each member of a group, by stage.
select id from hw_job where group_id = :group_id and group_id is not null and retry_of is null order by stage, id;

-- name: count_picked
-- The matching jobs, counted by state.
select j.status, count(*) from hw_job j where j.id in {ids} and j.tenant_id = :tenant_id and {filter_of_both} and {filter_of_jobs}
group by j.status;

-- name: pick_runs
-- The matching runs of these jobs. An open run has no status and counts as RUNNING (3).
select {run_columns} from hw_run r join hw_job j on j.id = r.job_id left join hw_result s on s.job_id = r.job_id
where r.job_id in {ids} and r.tenant_id = :tenant_id and {filter_of_both}
  and (cast(:mask as integer) >> cast(coalesce(r.status, {RUNNING}) as integer)) & 1 = 1
  and r.started_at >= :since and r.started_at < :until
  and (cast(:task as text) is null or r.task = :task)
  and (cast(:q as text) is null or lower(r.task) like :q escape '!' or lower(r.error) like :q escape '!')
order by r.job_id desc limit :limit;

-- name: runs_of
select {run_columns} from hw_run r join hw_job j on j.id = r.job_id left join hw_result s on s.job_id = r.job_id where r.job_id in {ids};

-- name: reports_of
select job_id, at, done, total, label, spent from hw_report where job_id in {ids};

-- name: leases_of
select id, lease_until from hw_worker where id in {ids};

-- name: paid_of
-- The attempts that the chains of these jobs used up before them.
with recursive up(origin, id, retry_of, retry_auto) as (
  select c.id, c.id, c.retry_of, c.retry_auto from hw_job c where c.id in {ids} and c.retry_auto = 1
  union
  select up.origin, p.id, p.retry_of, p.retry_auto from up join hw_job p on p.id = up.retry_of where up.retry_auto = 1
)
select up.origin, count(*) from up join hw_job p on p.id = up.id
where up.id <> up.origin and coalesce(p.failure_kind, '') <> 'INTERRUPTED' group by up.origin;

-- name: queue_order
-- The queued jobs at the beginning of a tenant's queue, in claim order.
select {json_ids} from (
  select id, status from hw_job where tenant_id = :tenant_id and status {is_unclaimed} order by priority desc, position, created_at, id limit :limit) w
where w.status = {QUEUED};

-- name: queue_jobs
select {job_columns} from hw_job j where j.tenant_id = :tenant_id and j.status {is_unclaimed}
order by j.priority desc, j.position, j.created_at, j.id limit :limit;

-- name: queue_rest
-- The jobs after a place in the queue, in its priority.
select {job_columns} from hw_job j where j.tenant_id = :tenant_id and j.status {is_unclaimed} and j.priority = :priority
  and (j.position, j.created_at, j.id) > (:position, :created_at, :id) order by j.position, j.created_at, j.id limit :limit;

-- name: queue_ahead
-- The job directly before a place in the queue, in its priority.
select j.id from hw_job j where j.tenant_id = :tenant_id and j.status {is_unclaimed} and j.priority = :priority
  and (j.position, j.created_at, j.id) < (:position, :created_at, :id) order by j.position desc, j.created_at desc, j.id desc limit 1;

-- name: queue_below
select {job_columns} from hw_job j where j.tenant_id = :tenant_id and j.status {is_unclaimed} and j.priority < :priority
order by j.priority desc, j.position, j.created_at, j.id limit :limit;

-- name: queue_places
-- The beginning of the queue, with the place of each job only.
select {json_rows(w.id, w.priority, w.position, w.created_at)} from (
  select id, priority, position, created_at from hw_job where tenant_id = :tenant_id and status {is_unclaimed}
  order by priority desc, position, created_at, id limit :limit) w;

-- name: queue_places_after
-- The places after a given one: the rest of its priority, then the lower priorities.
select {json_rows(w.id, w.priority, w.position, w.created_at)} from (
  select * from (select id, priority, position, created_at from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority
    and (position, created_at, id) > (:position, :created_at, :id) order by position, created_at, id limit :limit) a
  union all
  select * from (select id, priority, position, created_at from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority < :priority
    order by priority desc, position, created_at, id limit :limit) b
  order by priority desc, position, created_at, id limit :limit) w;

-- name: line
-- The beginning of a tenant's queue in claim order, with everything that decides when a job may start, as one text.
select {json_rows(w.id, w.status, w.bucket_id, w.priority, w.position, w.created_at, w.queued_at, w.not_before, w.expires_at, w.target_id, w.fence, w.ran, w.group_id, w.stage)}
from (select * from hw_job where tenant_id = :tenant_id and status {is_unclaimed} order by priority desc, position, created_at, id limit :limit) w;

-- name: tenants_in_line
-- The tenants with waiting jobs, by one probe each.
with recursive found(tenant_id) as (
  select (select j.tenant_id from hw_job j where j.status {is_unclaimed} order by j.tenant_id limit 1)
  union all
  select (select j.tenant_id from hw_job j where j.status {is_unclaimed} and j.tenant_id > found.tenant_id order by j.tenant_id limit 1)
  from found where found.tenant_id is not null
)
select tenant_id from found where tenant_id is not null;

-- name: running_jobs
-- Every running job with its owner; at most as many as there are slots.
select id, tenant_id, bucket_id, worker_id, slot, task, claimed_at, target_id, ran, group_id, stage
from hw_job where status = {RUNNING} order by worker_id, slot;

-- name: due_jobs
-- SCHEDULED jobs that are due, as many as a claim promotes at once.
select {queued_job_columns} from hw_job j where j.status = {SCHEDULED} and j.not_before <= {now} order by j.not_before, j.id limit 500;

-- name: lapsed_jobs
-- Jobs past their expiry that have not started, as many as a claim skips at once.
select id, target_id from hw_job
where expires_at is not null and status {is_unclaimed} and fence = 0 and expires_at <= {now} order by expires_at, id limit 500;

-- name: touched_targets
-- Targets whose first job the next claim chooses anew.
select distinct target_id from (select target_id from hw_touched order by id limit :limit) t;

-- name: target_fronts
-- Each target with its pause, its holder, the first job of its queue that has not expired, its open job, and its
-- holder's state.
select t.id, t.paused_at, h.id,
  (select j.id from hw_job j where j.target_id = t.id and j.target_id is not null and j.status = {QUEUED}
    and (j.expires_at is null or j.fence > 0 or j.expires_at > {now})
    order by j.priority desc, j.position, j.created_at, j.id limit 1),
  (select j.id from hw_job j where j.target_id = t.id and j.target_id is not null and j.gate = 1), h.status
from {ids} i join hw_target t on t.id = i.id
left join hw_job h on h.target_id = t.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0));

-- name: queued_jobs_of
select {queued_job_columns} from hw_job j where j.id in {ids};

-- name: held_since
-- Since when PAUSED and ERROR jobs are held.
select e.thing_id, max(e.at) from {ids} i join hw_event e on e.thing_id = i.id and e.thing = 'job'
where e.kind in ('job.paused', 'job.error') group by e.thing_id;

-- name: reservation_holders
-- Active reservations with their holders, in the order of their creation.
select id, tenant_id, lanes, target_id, created_at, granted_at, expires_at, holder, task from hw_reservation
where finished_at is null order by id;

-- name: past_runs
-- The durations of completed runs among the latest jobs that ended, as one text.
select {json_rows(w.tenant_id, w.task, w.ran)} from (
  select tenant_id, task, ran, status from hw_job where finished_at is not null order by finished_at desc limit :limit) w
where w.status = {COMPLETED};

-- name: shown_workers
-- Workers that live, or were given up within a given time.
select w.id, w.host, w.boot, w.pid, w.process_start, w.slots, w.tasks, w.state, w.started_at, w.beat_at, w.lease_until, w.gone_at, {now}, w.note, w.tenants
from hw_worker w where w.kind = 'worker' and (w.gone_at is null or w.gone_at > {now} - :within) order by w.started_at, w.id;

-- name: events_of
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event
where thing_id = :thing_id and thing = :thing and version > :after order by version limit :limit;

-- name: log_end
-- The last chunks of a log, newest first.
select id, at, lines from hw_log where job_id = :job_id order by id desc limit :limit;

-- name: count_waiting
-- Counts within the first jobs of the queue only, because a full count costs as much as the queue is long.
select status, count(*) from (
  select status from hw_job where tenant_id = :tenant_id and status {is_unclaimed} order by priority desc, position, created_at, id limit :most) w
group by status;

-- name: count_running
select count(*) from hw_job where status = {RUNNING} and tenant_id = :tenant_id;

-- name: count_held
select status, count(*) from (select status from hw_job where tenant_id = :tenant_id and status {is_held} limit :most) w group by status;

-- name: count_finished
-- Jobs that ended since a time, newest first.
select status, count(*) from (
  select status, tenant_id from hw_job where finished_at is not null and finished_at >= :since order by finished_at desc limit :most) w
where tenant_id = :tenant_id group by status;

-- name: longest_waits
-- The first ready job of each priority, which has waited longest there.
with recursive level(priority) as (
  select max(priority) from hw_job where tenant_id = :tenant_id and status {is_unclaimed}
  union all
  select (select max(j.priority) from hw_job j where j.tenant_id = :tenant_id and j.status {is_unclaimed} and j.priority < level.priority)
  from level where level.priority is not null
)
select j.id, j.queued_at from level join hw_job j on j.id = (
  select k.id from (
    select w.id, w.gate from hw_job w where w.tenant_id = :tenant_id and w.status {is_unclaimed} and w.priority = level.priority
    order by w.position, w.created_at, w.id limit 100) k
  where k.gate = 1 limit 1)
where level.priority is not null;
