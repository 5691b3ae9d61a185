-- The claim: which buckets have ready jobs, what room their lanes have, the first jobs of each, and the taking.

-- name: claim_view
-- All a claim has to know before it looks at jobs, in one answer of (kind, id, number, group, stage):
-- 0 non-empty buckets, by one probe each however many jobs they hold; 1 limited lanes and their capacity, those of the
-- policy with a group of 0; 2 running jobs per bucket, and of each stage there; 3 paused tenants (0: all) and until
-- when, and inactive ones; 4 lanes and 5 targets that direct calls had, and how many times in a row; 6 how many jobs
-- tenants may run; then single facts: 7 the time by the same clock; 8 the version of the concurrency settings; 9 whether
-- a target was touched; 10 whether reservations are active, and when the next of them expires (if one does: the largest
-- number there is); 11 the next waiting time; 12 the next expiry of a job.
-- From the back: the first entries of a queue are those of jobs that were taken, until a vacuum comes.
with recursive filled(bucket_id) as (
  select (select j.bucket_id from hw_job j where j.gate = 1 order by j.bucket_id desc limit 1)
  union all
  select (select j.bucket_id from hw_job j where j.gate = 1 and j.bucket_id < filled.bucket_id order by j.bucket_id desc limit 1)
  from filled where filled.bucket_id is not null
)
select 0, bucket_id, cast(null as bigint), cast(null as bigint), cast(null as integer) from filled where bucket_id is not null
union all select 1, id, capacity, case when kind = 'policy' then 0 end, null from hw_lane where capacity is not null
union all select 2, bucket_id, count(*), group_id, stage from hw_job where status = 3 group by bucket_id, group_id, stage
union all select 3, id, case when active = 1 then paused_until end, null, null from hw_tenant
  where (active = 0 or paused_at is not null) and (active = 0 or paused_until is null or paused_until > {now})
union all select 4, id, streak, null, null from hw_lane where streak > 0
union all select 5, id, streak, null, null from hw_target where streak > 0
union all select 6, id, max_running, null, null from hw_tenant where max_running is not null
union all select 7, 0, {now}, null, null
union all select 8, 0, version, null, null from hw_setting where name = 'concurrency'
union all select 9, 0, min(id), null, null from hw_touched
union all select 10, 0, min(coalesce(expires_at, 9223372036854775807)), null, null from hw_reservation where finished_at is null
union all select 11, 0, min(not_before), null, null from hw_job where status = 1
union all select 12, 0, min(expires_at), null, null from hw_job where expires_at is not null and status <= 2 and fence = 0;

-- name: turns
-- When these tenants had their last turns; by 0, the last number that was given.
select tenant_id, turn from hw_turn where tenant_id in {ids};

-- name: save_turns
-- Under the claim lock only.
insert into hw_turn (tenant_id, turn) select tenant_id, turn from {rows(tenant_id bigint, turn bigint)} as r where true
on conflict (tenant_id) do update set turn = excluded.turn;

-- name: bucket_places
-- The places of one bucket after a given one, in queue order. `+ 0`, or SQLite plans anew for every value.
select bucket_id, -priority, position, created_at, id, group_id, stage from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 and priority <= :priority + 0
  and (priority < :priority + 0 or (position, created_at, id) > (:position + 0, :created_at + 0, :id + 0))
order by priority desc, position, created_at, id limit (:limit + 0);

-- name: first_of_bucket
-- The first places of one bucket, in queue order.
select bucket_id, -priority, position, created_at, id, group_id, stage from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 order by priority desc, position, created_at, id limit (:limit + 0);

-- name: bucket_levels
-- The priorities at which the given buckets have ready jobs.
with recursive level(bucket_id, priority) as (
  select b.id, (select j.priority from hw_job j where j.bucket_id = b.id and j.gate = 1 order by j.priority desc limit 1) from {ids} b
  union all
  select l.bucket_id, (select j.priority from hw_job j where j.bucket_id = l.bucket_id and j.gate = 1 and j.priority < l.priority
    order by j.priority desc limit 1)
  from level l where l.priority is not null
)
select bucket_id, priority from level where priority is not null;

-- name: level_places
-- The places of one priority of one bucket after a given one, with the time since when they wait.
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
-- The first jobs of a tenant's queue, by the index of the queue as people see it.
select bucket_id, gate, -priority, position, created_at, id, group_id, stage from hw_job where tenant_id = :tenant_id + 0 and status <= 2
order by priority desc, position, created_at, id limit (:limit + 0);

-- name: ready_of_bucket
-- The first ready jobs of a bucket, but for those that somebody is changing right now.
select id from hw_job where bucket_id = :bucket_id and gate = 1 order by priority desc, position, created_at, id limit 1000 {skip_locked};

-- name: move_ready
-- Other lanes for jobs that are locked already.
update hw_job set bucket_id = :to_id, version = version + 1 where id in {ids} returning id, tenant_id, version, status;

-- name: move_bucket
-- Other lanes for all jobs of a bucket that nobody took yet.
update hw_job set bucket_id = :to_id, version = version + 1 where status <= 2 and bucket_id = :from_id
returning id, tenant_id, version, status;

-- name: stop_requests
-- What this worker has been asked to stop.
select id, fence, stop from hw_job where worker_id = :worker_id and status = 3 and stop is not null;

-- name: own_claims
-- What this worker holds, as the database knows it.
select id, fence, slot, task, params, options, attempt, ran, carries, target_id, group_id, stage from hw_job where worker_id = :worker_id and status = 3;

-- name: carried
-- What earlier claims and jobs of the chain left behind.
select job_id, checkpoint, spent from hw_report where job_id in {ids};
