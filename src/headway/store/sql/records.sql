-- The history: what ran, a line for each run, and what failed last. Each answer is one text: SQLite's driver gives other
-- threads a turn at every row.

-- name: pick_records
-- Of the runs of these jobs, those that are wanted. `mask` has a bit for each status of a job.
select {json_rows(w.id, w.task, w.status, w.started_at, w.finished_at, w.ran, w.attempt, w.exit_code, w.failure_kind, w.error, w.target_id, w.group_id)}
from (
  select j.id, j.task, j.status, r.started_at, j.finished_at, j.ran, j.attempt, r.exit_code, j.failure_kind,
    substr(coalesce(r.error, j.reason), 1, 300) as error, j.target_id, j.group_id
  from hw_run r join hw_job j on j.id = r.job_id
  where r.job_id in {ids} and r.tenant_id = :tenant_id
    and (cast(:mask as integer) >> cast(j.status as integer)) & 1 = 1
    and r.started_at >= :since and r.started_at < :until
    and (cast(:task as text) is null or r.task = :task)
    and (cast(:target_id as bigint) is null or j.target_id = :target_id)
    and (cast(:group_id as bigint) is null or j.group_id = :group_id)
    and (cast(:schedule_id as bigint) is null
      or exists (select 1 from hw_group g where g.id = j.group_id and g.schedule_id = :schedule_id))
    and (cast(:failure_kind as text) is null or j.failure_kind = :failure_kind)
    and (cast(:q as text) is null or lower(r.task) like :q escape '!' or lower(coalesce(r.error, j.reason)) like :q escape '!')
  order by j.id desc limit :limit) w;

-- name: latest_failures
-- The runs that failed last, with the beginning of their errors.
select {json_rows(w.id, w.task, w.failure_kind, w.finished_at, w.error)} from (
  select j.id, j.task, j.failure_kind, j.finished_at, substr(coalesce(r.error, j.reason, ''), 1, 500) as error
  from hw_job j join hw_run r on r.job_id = j.id
  where j.tenant_id = :tenant_id and j.status = 7 order by j.id desc limit :limit) w;
