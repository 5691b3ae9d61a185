-- The claim: which buckets have ready jobs, what room their lanes have, the first jobs of each, and the taking.

-- name: claim_view
-- All a claim has to know before it looks at jobs, in one answer of (kind, id, number):
-- 0 non-empty buckets, by one probe each however many jobs they hold; 1 limited lanes and their capacity;
-- 2 running jobs per bucket; 3 paused tenants; 4 the next waiting time; 5 the next expiry; 6 the time by the same clock.
with recursive filled(bucket_id) as (
  select (select j.bucket_id from hw_job j where j.gate = 1 order by j.bucket_id limit 1)
  union all
  select (select j.bucket_id from hw_job j where j.gate = 1 and j.bucket_id > filled.bucket_id order by j.bucket_id limit 1)
  from filled where filled.bucket_id is not null
)
select 0, bucket_id, cast(null as bigint) from filled where bucket_id is not null
union all select 1, id, capacity from hw_lane where capacity is not null
union all select 2, bucket_id, count(*) from hw_job where status = 3 group by bucket_id
union all select 3, id, null from hw_tenant where paused_at is not null and (paused_until is null or paused_until > {now})
union all select 4, 0, min(not_before) from hw_job where status = 1
union all select 5, 0, min(expires_at) from hw_job where expires_at is not null and status <= 2 and fence = 0
union all select 6, 0, {now};

-- name: bucket_places
-- The next places of one bucket, in queue order. `+ 0`, or SQLite plans anew for every value.
select bucket_id, -priority, position, created_at, id from hw_job
where bucket_id = :bucket_id + 0 and gate = 1 order by priority desc, position, created_at, id limit (:limit + 0) offset (:skip + 0);

-- name: buckets_by_id
select id, tenant_id, task, lanes from hw_bucket where id in {ids};

-- name: all_buckets
select id, tenant_id, task, lanes from hw_bucket order by id;

-- name: find_bucket
select id, tenant_id, task, lanes from hw_bucket where tenant_id = :tenant_id and task = :task and lanes = :lanes;

-- name: add_bucket
insert into hw_bucket (tenant_id, task, lanes) values (:tenant_id, :task, :lanes) on conflict (tenant_id, task, lanes) do nothing;

-- name: stop_requests
-- What this worker has been asked to stop.
select id, fence, stop from hw_job where worker_id = :worker_id and status = 3 and stop is not null;

-- name: own_claims
-- What this worker holds, as the database knows it.
select id, fence, slot, task, params, options, attempt, ran, carries from hw_job where worker_id = :worker_id and status = 3;

-- name: carried
-- What earlier claims and jobs of the chain left behind.
select job_id, checkpoint, spent from hw_report where job_id in {ids};
