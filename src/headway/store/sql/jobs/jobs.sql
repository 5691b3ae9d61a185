-- Single jobs: reading, changing, and their retry chains.

-- name: lock_job
-- Locks a job until this transaction ends.
select {job_columns} from hw_job j where j.id = :id {for_update};

-- name: lock_jobs
select {job_columns} from hw_job j where j.id in {ids} order by j.id {for_update};

-- name: read_job
select {job_columns} from hw_job j where j.id = :id;

-- name: read_jobs
select {job_columns} from hw_job j where j.id in {ids};

-- name: end_unrun
-- Ends jobs that never ran and end alike.
update hw_job set status = :status, gate = 0, hold = 0, finished_at = :finished_at, reason = :reason, version = version + 1
where id in {ids} and status {is_unclaimed} and fence = 0 returning id;

-- name: save_job
-- Stores every field of a job that may change; the version proves that no other change came in between.
update hw_job set status = :status, gate = :gate, priority = :priority, position = :position, version = :version + 1,
  exhausted = :exhausted, hold = :hold, not_before = cast(:not_before as bigint), expires_at = cast(:expires_at as bigint),
  queued_at = cast(:queued_at as bigint), finished_at = cast(:finished_at as bigint), worker_id = cast(:worker_id as bigint),
  slot = cast(:slot as integer), ran = :ran, carries = :carries, stop = cast(:stop as text), stop_by = cast(:stop_by as text),
  failure_kind = cast(:failure_kind as text), reason = cast(:reason as text), params = :params, unfilled = cast(:unfilled as text), options = :options
where id = :id and version = :version returning id;

-- name: close_run
-- Closes a run, once.
update hw_run set status = :status, finished_at = {now}, exit_code = cast(:exit_code as integer), error = cast(:error as text),
  artifacts = (select {json_names} from hw_artifact a where a.job_id = :job_id)
where job_id = :job_id and finished_at is null returning job_id;

-- name: open_run
-- Creates a missing run, for recovery.
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)
select id, tenant_id, task, params, coalesce(worker_id, 0), coalesce(started_at, {now}) from hw_job where id = :job_id
on conflict (job_id) do nothing returning job_id;

-- name: read_run
select {run_columns} from hw_run r join hw_job j on j.id = r.job_id left join hw_result s on s.job_id = r.job_id where r.job_id = :job_id;

-- name: save_result
insert into hw_result (job_id, body) values (:job_id, :body) on conflict (job_id) do update set body = excluded.body;

-- name: chain_failures
-- The failures that led to this job by automatic retries; a manual retry starts a new count.
with recursive chain(id, retry_of, retry_auto, depth) as (
  select id, retry_of, retry_auto, 0 from hw_job where id = :id
  union all
  select p.id, p.retry_of, p.retry_auto, chain.depth + 1 from chain join hw_job p on p.id = chain.retry_of where chain.retry_auto = 1
)
select p.failure_kind from chain join hw_job p on p.id = chain.id where chain.depth > 0;

-- name: chain
-- All jobs of a chain, from first to last, by automatic and manual retries.
with recursive up(id, retry_of) as (
  select id, retry_of from hw_job where id = :id
  union all
  select p.id, p.retry_of from up join hw_job p on p.id = up.retry_of
), down(id) as (
  select id from up where retry_of is null
  union all
  select c.id from down join hw_job c on c.retry_of = down.id
)
select {job_columns} from hw_job j where j.id in (select id from down) order by j.id;

-- name: chain_without_params
-- All jobs of a chain, from first to last, by automatic and manual retries.
with recursive up(id, retry_of) as (
  select id, retry_of from hw_job where id = :id
  union all
  select p.id, p.retry_of from up join hw_job p on p.id = up.retry_of
), down(id) as (
  select id from up where retry_of is null
  union all
  select c.id from down join hw_job c on c.retry_of = down.id
)
select {job_columns_without_params} from hw_job j where j.id in (select id from down) order by j.id;

-- name: chain_page
-- The jobs of a chain after an id, from first to last, by automatic and manual retries.
with recursive up(id, retry_of) as (
  select id, retry_of from hw_job where id = :id
  union all
  select p.id, p.retry_of from up join hw_job p on p.id = up.retry_of
), down(id) as (
  select id from up where retry_of is null
  union all
  select c.id from down join hw_job c on c.retry_of = down.id
)
select {job_columns} from hw_job j where j.id in (select id from down) and j.id > :after order by j.id limit :limit;

-- name: automatic_retries
-- The automatic retries after a job. A job has at most one, so they are no more than a policy allows.
with recursive down(id) as (
  select c.id from hw_job c where c.retry_of = :id and c.retry_auto = 1
  union all
  select c.id from down join hw_job c on c.retry_of = down.id and c.retry_auto = 1
)
select {job_columns} from hw_job j where j.id in (select id from down) order by j.id;

-- name: edits_of_job
-- The events that may tell of new params, latest first.
select actor, data from hw_event where thing = 'job' and thing_id = :job_id and kind in ('job.edited', 'job.promoted')
  and data is not null order by id desc;

-- name: automatic_retry
select {job_columns} from hw_job j where j.retry_of = :id and j.retry_auto = 1;

-- name: job_with_key
select {job_columns} from hw_job j where j.tenant_id = :tenant_id and j.task = :task and j.key = :key and j.key is not null and j.status {is_unfinished};

-- name: copy_report
-- A retry starts from its parent's checkpoint and continues its meters.
insert into hw_report (job_id, at, spent, checkpoint)
select :to_id, {now}, spent, case when :with_checkpoint = 1 then checkpoint end from hw_report where job_id = :from_id
  and (spent is not null or (checkpoint is not null and :with_checkpoint = 1));

-- name: mark_carries
update hw_job set carries = 1 where id = :id and exists (select 1 from hw_report where job_id = :id);

-- name: read_report
select done, total, label, spent, checkpoint, at from hw_report where job_id = :job_id;

-- name: fenced
-- Locks those of these claims that are still held.
select j.id, j.version, j.tenant_id, j.status from {rows(id bigint, fence integer)} as r join hw_job j on j.id = r.id
where j.fence = r.fence and j.status + 0 = {RUNNING} and j.worker_id = :worker_id order by j.id {for_update_j};

-- name: save_progress
insert into hw_report (job_id, at, done, total, label)
select id, {now}, done, total, label from {rows(id bigint, done double precision, total double precision, label text)} as r where true
on conflict (job_id) do update set at = excluded.at, done = excluded.done, total = excluded.total, label = excluded.label;

-- name: save_spent
insert into hw_report (job_id, at, spent) select id, {now}, spent from {rows(id bigint, spent text)} as r where true
on conflict (job_id) do update set at = excluded.at, spent = excluded.spent;

-- name: save_checkpoint
insert into hw_report (job_id, at, checkpoint) values (:job_id, {now}, :checkpoint)
on conflict (job_id) do update set at = excluded.at, checkpoint = excluded.checkpoint;

-- name: forget_checkpoint
-- Other params make the checkpoint useless.
update hw_report set checkpoint = null where job_id = :job_id;

-- name: add_log
-- The chunks of a job are numbered in the order of its lines.
insert into hw_log (job_id, at, lines) select id, {now}, lines from {rows(id bigint, lines text)} as r order by n;

-- name: read_log
select id, at, lines from hw_log where job_id = :job_id and id > :after order by id limit :limit;

-- name: read_log_page
-- Chunks of a log. A page ends with the chunk with which its lines exceed :size.
select id, at, lines, found from (
  select id, at, lines, count(*) over () as found,
    sum(octet_length(lines)) over (order by id) - octet_length(lines) as before from (
    select id, at, lines from hw_log where job_id = :job_id and id > :after order by id limit :limit) p) s
where before <= :size order by id;

-- name: last_log
-- The last stored log lines of each of these jobs.
select l.job_id, l.lines from {ids} i join hw_log l on l.id = (select max(k.id) from hw_log k where k.job_id = i.id);

-- name: add_artifact
insert into hw_artifact (job_id, name, size, sha256, path, at) values (:job_id, :name, :size, :sha256, :path, {now})
on conflict (job_id, name) do update set size = excluded.size, sha256 = excluded.sha256, path = excluded.path, at = excluded.at;

-- name: artifacts
select name, size, sha256, path, at from hw_artifact where job_id = :job_id order by name;

-- name: neighbour_before
-- The last position before a given one, of unfinished jobs in the same priority of the same tenant.
select position from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority and id <> :moving
  and position < :position order by position desc limit 1;

-- name: neighbour_after
select position from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority and id <> :moving
  and position > :position order by position limit 1;

-- name: first_place
select min(position) from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority and id <> :moving;

-- name: last_place
select max(position) from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority and id <> :moving;

-- name: highest_priority
select max(priority) from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and id <> :moving;

-- name: nth_queued
select id from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and status = {QUEUED} and id <> :moving
order by priority desc, position, created_at, id limit 1 offset :rank;

-- name: last_queued
select id from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and status = {QUEUED} and id <> :moving
order by priority, position desc, created_at desc, id desc limit 1;

-- name: window
-- The neighbourhood of a place: unfinished jobs around it, running and held ones included, each kind by its own index.
select id, position, created_at from hw_job where tenant_id = :tenant_id and status {is_unclaimed} and priority = :priority and id <> :moving
  and position between :low and :high
union all
select id, position, created_at from hw_job where status = {RUNNING} and tenant_id = :tenant_id and priority = :priority
  and position between :low and :high
union all
select id, position, created_at from hw_job where tenant_id = :tenant_id and status {is_held} and priority = :priority
  and position between :low and :high
order by position, created_at, id;

-- name: respace
update hw_job set position = (select r.position from {rows(id bigint, position bigint)} as r where r.id = hw_job.id),
  version = version + 1
where id in (select r.id from {rows(id bigint, position bigint)} as r) and status {is_unfinished} and priority = :priority
returning id, tenant_id, version, position, status, fence;

-- name: late_write_known
-- Returns a row if a stale fence was recorded already, because one event for it is enough.
select 1 from hw_event where thing_id = :id and thing = 'job' and kind = 'job.late_write_rejected' and fence = :fence limit 1;

-- name: bump_version
update hw_job set version = version + 1 where id = :id returning tenant_id, version, status;

-- name: mark_reason
-- Sets the reason of a running job and nothing else, fenced like every write of a worker.
update hw_job set reason = :reason, version = version + 1 where id = :id and fence = :fence and status + 0 = {RUNNING}
returning tenant_id, version;

-- name: try_lock_job
-- Locks a job, unless another transaction has locked it.
select {job_columns} from hw_job j where j.id = :id {skip_locked};

-- name: try_lock_jobs
-- Locks those of these jobs that no other transaction has locked.
select {job_columns} from hw_job j where j.id in {ids} order by j.id {skip_locked};

-- name: any_retry
select id from hw_job where retry_of = :id limit 1;

-- name: prunable
-- First jobs of chains that ended before the cutoff, oldest first, after a given one. Members are pruned with their
-- group.
select finished_at, id from hw_job where finished_at is not null and retry_of is null and group_id is null and finished_at < :before
  and finished_at >= :after_at and (finished_at > :after_at or id > :after_id) order by finished_at, id limit :limit;

-- name: retries_beyond
-- Those of these jobs that have a retry outside this list.
select distinct retry_of from hw_job where retry_of in {ids} and id not in {ids};

-- name: begin_pruning
update hw_pruning set active = 1;

-- name: end_pruning
update hw_pruning set active = 0;

-- name: prune
delete from hw_wait where job_id in {ids};
delete from hw_result where job_id in {ids};
delete from hw_report where job_id in {ids};
delete from hw_log where job_id in {ids};
delete from hw_artifact where job_id in {ids};
delete from hw_run where job_id in {ids};
delete from hw_event where thing = 'job' and thing_id in {ids};
delete from hw_job where id in {ids};

-- name: tally
insert into hw_tally (tenant_id, name, count) select tenant_id, 'jobs', count(*) from hw_job where id in {ids} group by tenant_id
on conflict (tenant_id, name) do update set count = hw_tally.count + excluded.count;

-- name: artifact_paths
select distinct path from hw_artifact where job_id in {ids};

-- name: artifact_in_use
select 1 from hw_artifact where path = :path limit 1;

-- name: prune_workers
-- Workers given up long ago, with their recorded processes, which a reboot has ended.
delete from hw_process where worker_id in (select id from hw_worker where gone_at is not null and gone_at < :before)
and not exists (select 1 from hw_job j where j.status = {RUNNING} and j.worker_id = hw_process.worker_id)
and not exists (select 1 from hw_reservation r where r.finished_at is null and r.worker_id = hw_process.worker_id);
delete from hw_worker where gone_at is not null and gone_at < :before
and not exists (select 1 from hw_job j where j.status = {RUNNING} and j.worker_id = hw_worker.id)
and not exists (select 1 from hw_reservation r where r.finished_at is null and r.worker_id = hw_worker.id)
and not exists (select 1 from hw_process p where p.worker_id = hw_worker.id);

-- name: unfinished_params
select params from hw_job where tenant_id = :tenant_id and task = :task and status {is_unfinished} order by id;
