-- The claim: buckets with ready jobs, the capacity of their lanes, the first jobs of each, and the taking.

-- name: claim_view
-- The overview of a claim, as rows of (name, id, number, group, stage). Single facts have no id.
--   bucket                  a bucket with ready jobs, by one probe each however many jobs it holds
--   lane, policy_lane       a limited lane and its capacity
--   running, running_stage  a bucket and the number of its running jobs, those of each stage apart
--   paused                  a paused or inactive tenant (0 means all) and the end of the pause
--   lane_streak, target_streak    a lane or target and the number of direct calls in a row
--   tenant_limit            a tenant and its max_running
--   now                     the time by the same clock
--   policy_version          the version of the concurrency settings
--   touched                 present if a target was touched
--   reservation_expiry      present if reservations are active: the next expiry, or the largest number if none expires
--   next_due, next_expiry   the next due time of a SCHEDULED job, the next expiry of a job
-- Probes start from the back of the index, because its first entries are those of claimed jobs until a vacuum.
with recursive filled(bucket_id) as (
  select (select j.bucket_id from hw_job j where j.gate = 1 order by j.bucket_id desc limit 1)
  union all
  select (select j.bucket_id from hw_job j where j.gate = 1 and j.bucket_id < filled.bucket_id order by j.bucket_id desc limit 1)
  from filled where filled.bucket_id is not null
)
select 'bucket', bucket_id, cast(null as bigint), cast(null as bigint), cast(null as integer) from filled where bucket_id is not null
union all select case when kind = 'policy' then 'policy_lane' else 'lane' end, id, capacity, null, null from hw_lane where capacity is not null
union all select case when group_id is null then 'running' else 'running_stage' end, bucket_id, count(*), group_id, stage from hw_job
  where status = {RUNNING} group by bucket_id, group_id, stage
union all select 'paused', id, case when active = 1 then paused_until end, null, null from hw_tenant
  where (active = 0 or paused_at is not null) and (active = 0 or paused_until is null or paused_until > {now})
union all select 'lane_streak', id, streak, null, null from hw_lane where streak > 0
union all select 'target_streak', id, streak, null, null from hw_target where streak > 0
union all select 'tenant_limit', id, max_running, null, null from hw_tenant where max_running is not null
union all select 'now', null, {now}, null, null
union all select 'policy_version', null, version, null, null from hw_setting where name = 'concurrency'
union all select 'touched', null, min(id), null, null from hw_touched
union all select 'reservation_expiry', null, min(coalesce(expires_at, 9223372036854775807)), null, null from hw_reservation where finished_at is null
union all select 'next_due', null, min(not_before), null, null from hw_job where status = {SCHEDULED}
union all select 'next_expiry', null, min(expires_at), null, null from hw_job where expires_at is not null and status {is_unclaimed} and fence = 0;

-- name: turns
-- The last turns of these tenants; key 0 has the last number given.
select tenant_id, turn from hw_turn where tenant_id in {ids};

-- name: save_turns
-- Runs under the claim lock only.
insert into hw_turn (tenant_id, turn) select tenant_id, turn from {rows(tenant_id bigint, turn bigint)} as r where true
on conflict (tenant_id) do update set turn = excluded.turn;

-- name: bucket_places
-- The places of a bucket after a given one, in queue order. Without `+ 0`, SQLite would plan anew for every value.
select -priority, position, created_at, id, group_id, stage from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 and priority <= :priority + 0
  and (priority < :priority + 0 or (position, created_at, id) > (:position + 0, :created_at + 0, :id + 0))
order by priority desc, position, created_at, id limit (:limit + 0);

-- name: first_of_bucket
-- The first places of a bucket, in queue order.
select -priority, position, created_at, id, group_id, stage from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 order by priority desc, position, created_at, id limit (:limit + 0);

-- name: bucket_levels
-- The priorities at which these buckets have ready jobs.
with recursive level(bucket_id, priority) as (
  select b.id, (select j.priority from hw_job j where j.bucket_id = b.id and j.gate = 1 order by j.priority desc limit 1) from {ids} b
  union all
  select l.bucket_id, (select j.priority from hw_job j where j.bucket_id = l.bucket_id and j.gate = 1 and j.priority < l.priority
    order by j.priority desc limit 1)
  from level l where l.priority is not null
)
select bucket_id, priority from level where priority is not null;

-- name: level_places
-- The places of one priority of a bucket after a given one, with their `queued_at`.
select position, created_at, id, queued_at, group_id, stage from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 and priority = :priority + 0
  and (position, created_at, id) > (:position + 0, :created_at + 0, :id + 0)
order by position, created_at, id limit (:limit + 0);

-- name: buckets_by_id
select id, tenant_id, task, lanes, on_target from hw_bucket where id in {ids};

-- name: all_buckets
select id, tenant_id, task, lanes, on_target from hw_bucket order by id;

-- name: find_bucket
select id from hw_bucket where tenant_id = :tenant_id and task = :task and on_target = :on_target and lanes = :lanes;

-- name: add_bucket
insert into hw_bucket (tenant_id, task, on_target, lanes) values (:tenant_id, :task, :on_target, :lanes)
on conflict (tenant_id, task, on_target, lanes) do nothing;

-- name: front
-- The first jobs of a tenant's queue, by the index for lists.
select bucket_id, gate, -priority, position, created_at, id, group_id, stage from hw_job where tenant_id = :tenant_id + 0 and status {is_unclaimed}
order by priority desc, position, created_at, id limit (:limit + 0);

-- name: ready_of_bucket
-- The ready jobs of a bucket; skips rows that another transaction has locked.
select id from hw_job where bucket_id = :bucket_id and gate = 1 order by priority desc, position, created_at, id limit 1000 {skip_locked};

-- name: move_ready
-- Gives locked jobs other lanes.
update hw_job set bucket_id = :to_id, version = version + 1 where id in {ids} returning id, tenant_id, version, status;

-- name: move_bucket
-- Gives all unclaimed jobs of a bucket other lanes.
update hw_job set bucket_id = :to_id, version = version + 1 where status {is_unclaimed} and bucket_id = :from_id
returning id, tenant_id, version, status;

-- name: stop_requests
-- The stop requests for this worker's jobs.
select id, fence, stop from hw_job where worker_id = :worker_id and status = {RUNNING} and stop is not null;

-- name: own_claims
-- The claims that this worker holds in the database.
select id, fence, slot, task, params, options, attempt, ran, carries, target_id, group_id, stage from hw_job where worker_id = :worker_id and status = {RUNNING};

-- name: carried
-- Checkpoints and meters left by earlier claims and jobs of the chain.
select job_id, checkpoint, spent from hw_report where job_id in {ids};

-- name: tenants_of_jobs
-- The tenants of jobs, by name.
select j.id, t.name from hw_job j join hw_tenant t on t.id = j.tenant_id where j.id in {ids};
