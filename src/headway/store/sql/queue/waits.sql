-- Claims that wait for the end of a job.

-- name: record_wait
-- The fence is checked: a claim that has ended waits for nothing.
insert into hw_wait (job_id, fence, awaited_id)
select j.id, j.fence, cast(:awaited_id as bigint) from hw_job j where j.id = :job_id and j.fence = :fence and j.status = {RUNNING}
union all
select 0, r.id, cast(:awaited_id as bigint) from hw_reservation r where :job_id = 0 and r.id = :fence and r.finished_at is null
on conflict (job_id, fence) do update set awaited_id = excluded.awaited_id
returning awaited_id;

-- name: forget_wait
delete from hw_wait where job_id = :job_id and fence = :fence;

-- name: claims_that_wait
-- Waiting claims without a stop request whose worker lives, with the lanes they hold and the lanes that the awaited job
-- needs unless it runs. Jobs that are neither queued nor running, or may expire, can end by themselves.
-- `joins`: the awaited job's stage runs already.
select w.job_id, w.fence, h.worker_id, h.tenant_id, h.target_id, h.group_id, h.stage, b.lanes, h.options,
  j.id, j.status, j.tenant_id, j.target_id, n.lanes, exists (select 1 from hw_job s
    where s.group_id = j.group_id and s.stage = j.stage and s.group_id is not null and s.status = {RUNNING})
from hw_wait w join hw_job h on h.id = w.job_id and h.fence = w.fence and h.status = {RUNNING} and h.stop is null
join hw_bucket b on b.id = h.bucket_id join hw_worker o on o.id = h.worker_id and o.state = 'live' and o.lease_until >= {now}
join hw_job j on j.id = w.awaited_id and j.status in ({QUEUED}, {RUNNING}) and (j.expires_at is null or j.fence > 0)
join hw_bucket n on n.id = j.bucket_id
union all
select 0, r.id, r.worker_id, r.tenant_id, r.target_id, null, null, r.lanes, '',
  j.id, j.status, j.tenant_id, j.target_id, n.lanes, exists (select 1 from hw_job s
    where s.group_id = j.group_id and s.stage = j.stage and s.group_id is not null and s.status = {RUNNING})
from hw_wait w join hw_reservation r on w.job_id = 0 and r.id = w.fence and r.finished_at is null and r.granted_at is not null
join hw_worker o on o.id = r.worker_id and o.state = 'live' and o.lease_until >= {now}
join hw_job j on j.id = w.awaited_id and j.status in ({QUEUED}, {RUNNING}) and (j.expires_at is null or j.fence > 0)
join hw_bucket n on n.id = j.bucket_id;

-- name: wait_limits
select 'lane', id, capacity, kind from hw_lane where capacity is not null and id in {ids}
union all select 'tenant', id, max_running, 'tenant' from hw_tenant where max_running is not null;

-- name: waiting_jobs
-- The running jobs that wait for the end of another.
select w.job_id from hw_wait w join hw_job h on h.id = w.job_id and h.fence = w.fence and h.status = {RUNNING};
