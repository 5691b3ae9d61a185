-- The claim: which buckets have ready jobs, what room their lanes have, the first jobs of each, and the taking.

-- name: ready_buckets
-- Non-empty buckets, by one probe each however many jobs they hold.
with recursive filled(bucket_id) as (
  select (select j.bucket_id from hw_job j where j.gate = 1 order by j.bucket_id limit 1)
  union all
  select (select j.bucket_id from hw_job j where j.gate = 1 and j.bucket_id > filled.bucket_id order by j.bucket_id limit 1)
  from filled where filled.bucket_id is not null
)
select bucket_id from filled where bucket_id is not null;

-- name: lane_limits
-- Only limited lanes; the others never say no.
select id, capacity from hw_lane where capacity is not null;

-- name: running_counts
select bucket_id, count(*) from hw_job where status = 3 group by bucket_id;

-- name: paused_tenants
select id from hw_tenant where paused_at is not null and (paused_until is null or paused_until > {now});

-- name: bucket_places
-- The next places of one bucket, in queue order.
select bucket_id, -priority, position, created_at, id from hw_job
where bucket_id = :bucket_id and gate = 1 order by priority desc, position, created_at, id limit :limit offset :skip;

-- name: buckets_by_id
select id, tenant_id, task, lanes from hw_bucket where id in {ids};

-- name: all_buckets
select id, tenant_id, task, lanes from hw_bucket order by id;

-- name: find_bucket
select id, tenant_id, task, lanes from hw_bucket where tenant_id = :tenant_id and task = :task and lanes = :lanes;

-- name: add_bucket
insert into hw_bucket (tenant_id, task, lanes) values (:tenant_id, :task, :lanes) on conflict (tenant_id, task, lanes) do nothing;

-- name: next_due
-- When the next waiting time or expiry comes.
select (select min(not_before) from hw_job where status = 1),
       (select min(expires_at) from hw_job where expires_at is not null and status <= 2 and fence = 0);

-- name: stop_requests
-- What this worker has been asked to stop.
select id, fence, stop from hw_job where worker_id = :worker_id and status = 3 and stop is not null;

-- name: own_claims
-- What this worker holds, as the database knows it.
select id, fence, slot, task, params, options, attempt, ran, carries from hw_job where worker_id = :worker_id and status = 3;

-- name: carried
-- What earlier claims and jobs of the chain left behind.
select job_id, checkpoint, spent from hw_report where job_id in {ids};
