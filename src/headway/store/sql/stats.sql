-- Figures about the installation and about one tenant. The cost of each is bounded: counts stop at `:most`, and waits
-- come from the first jobs only.

-- name: filled_buckets
-- Buckets with ready jobs, by one probe each, from the back as in `claim_view`.
with recursive filled(bucket_id) as (
  select (select j.bucket_id from hw_job j where j.gate = 1 order by j.bucket_id desc limit 1)
  union all
  select (select j.bucket_id from hw_job j where j.gate = 1 and j.bucket_id < filled.bucket_id order by j.bucket_id desc limit 1)
  from filled where filled.bucket_id is not null
)
select bucket_id from filled where bucket_id is not null;

-- name: oldest_of_buckets
-- The oldest `queued_at` among the first jobs of each priority, for each of these buckets.
with recursive level(bucket_id, priority) as (
  select b.id, (select j.priority from hw_job j where j.bucket_id = b.id and j.gate = 1 order by j.priority desc limit 1) from {ids} b
  union all
  select l.bucket_id, (select j.priority from hw_job j where j.bucket_id = l.bucket_id and j.gate = 1 and j.priority < l.priority
    order by j.priority desc limit 1)
  from level l where l.priority is not null
)
select l.bucket_id, min(j.queued_at) from level l join hw_job j on j.id = (
  select k.id from hw_job k where k.bucket_id = l.bucket_id and k.gate = 1 and k.priority = l.priority
  order by k.position, k.created_at, k.id limit 1)
where l.priority is not null group by l.bucket_id;

-- name: next_due_tick
-- The time of the most overdue tick, and the current time by the same clock.
select (select min(next_at) from hw_schedule where next_at is not null), {now};

-- name: worker_states
-- Workers that were not given up; a worker whose lease has passed is silent.
select case when lease_until < {now} then 'silent' else state end, count(*) from hw_worker
where gone_at is null and kind = 'worker' group by 1;

-- name: count_pending_deliveries
select count(*) from (select 1 as one from hw_delivery where status = 'PENDING' limit :most) w;

-- name: count_held_jobs
-- PAUSED and ERROR jobs of all tenants, which wait for a person.
select status, count(*) from (select status from hw_job where status {is_held} limit :most) w group by status;

-- name: throughput
-- Jobs that ended in each span since an instant, newest first, up to a bound.
select (finished_at - :since) / :span, status, count(*) from (
  select finished_at, status, tenant_id from hw_job where finished_at is not null and finished_at >= :since order by finished_at desc limit :most) w
where tenant_id = :tenant_id group by 1, 2;

-- name: waits
-- Waits of jobs that started in each span: count, sum and longest, of jobs that have ended.
select (started_at - :since) / :span, count(*), cast(sum(started_at - queued_at) as bigint), max(started_at - queued_at) from (
  select started_at, queued_at, tenant_id from hw_job where finished_at is not null and finished_at >= :since order by finished_at desc limit :most) w
where tenant_id = :tenant_id and started_at >= :since and queued_at <= started_at group by 1;

-- name: bound_of_ended
-- The end of the oldest job within the bound; no row if fewer jobs ended.
select finished_at from hw_job where finished_at is not null and finished_at >= :since order by finished_at desc limit 1 offset :most;

-- name: last_ended
-- Queue time, start and duration of the jobs that ended last.
select queued_at, started_at, ran from (
  select queued_at, started_at, ran, tenant_id, finished_at from hw_job where finished_at is not null order by finished_at desc limit :most) w
where tenant_id = :tenant_id and started_at is not null order by finished_at desc limit :limit;
