-- The history: runs by start time, and the latest failures. Each answer is a single text, because SQLite's driver
-- switches threads at every row.

-- name: walk_begun
-- A tenant's jobs that started within a range of events. No index covers start times; event numbers follow the order of
-- time.
select {json_rows(w.id, w.thing_id)} from (select id, thing_id from hw_event
  where id < :before and id >= :floor and kind = 'job.claimed' and fence = 1 and tenant_id = :tenant_id) w;

-- name: event_before
select id from hw_event where id < :before order by id desc limit 1;

-- name: event_from
-- The first event at or after a number. Numbers and times rise together, so bisection finds a time.
select id, at from hw_event where id >= :id order by id limit 1;

-- name: begun_of
-- The start times of these jobs' runs.
select {json_rows(w.started_at, w.job_id)} from (select job_id, started_at from hw_run where job_id in {ids}) w;

-- name: pick_records
-- The matching runs of these jobs. `mask` has a bit for each status of a job.
select {json_rows(w.id, w.task, w.status, w.started_at, w.finished_at, w.ran, w.attempt, w.exit_code, w.failure_kind, w.error, w.target_id, w.group_id, w.params)}
from (
  select j.id, j.task, j.status, r.started_at, j.finished_at, j.ran, j.attempt, r.exit_code, j.failure_kind,
    substr(coalesce(r.error, j.reason), 1, 300) as error, j.target_id, j.group_id, substr(r.params, 1, cast(:looked_at as integer)) as params
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
    and (cast(:stopping as integer) is null or j.stop is not null)
    and (cast(:exhausted as integer) is null or j.exhausted = :exhausted)
    and (cast(:q as text) is null or lower(r.task) like :q escape '!' or lower(coalesce(r.error, j.reason)) like :q escape '!'
      or lower(substr(r.params, 1, 2000)) like :q escape '!')
  order by j.id desc limit :limit) w;

-- name: latest_failures
-- The latest failed runs, with the beginning of their errors.
select {json_rows(w.id, w.task, w.failure_kind, w.finished_at, w.error)} from (
  select j.id, j.task, j.failure_kind, j.finished_at, substr(coalesce(r.error, j.reason, ''), 1, cast(:looked_at as integer)) as error
  from hw_job j join hw_run r on r.job_id = j.id
  where j.tenant_id = :tenant_id and j.status = {FAILED} order by j.id desc limit :limit) w;

-- name: latest_errors
-- Errors within a range of events that waited, or wait, for a person, and whose jobs did not end FAILED.
select {json_rows(w.thing_id, w.task, w.at, w.data, w.status)} from (
  select e.thing_id, j.task, e.at, e.data, j.status from hw_event e join hw_job j on j.id = e.thing_id
  where e.id >= :floor and e.kind = 'job.error' and e.tenant_id = :tenant_id and j.status <> {FAILED} order by e.id desc limit :limit) w;

-- name: standing_errors
-- The jobs that wait for a person now, with the latest error of each.
select {json_rows(w.id, w.task, w.at, w.data, w.status)} from (
  select j.id, j.task, e.at, e.data, j.status from hw_job j join hw_event e on e.id = (
    select l.id from hw_event l where l.thing_id = j.id and l.thing = 'job' and l.kind = 'job.error' order by l.version desc limit 1)
  where j.tenant_id = :tenant_id and j.status {is_held} and j.status = {ERROR} order by j.id desc limit :limit) w;

-- name: tries_after
-- The status of the retries of these jobs.
select {json_rows(w.retry_of, w.id, w.status)} from (
  select retry_of, id, status from hw_job where retry_of in {ids} and retry_of is not null) w;
