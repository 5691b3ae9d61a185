-- What `headway verify` reads: one snapshot, in pages by number, and a few questions about the whole.
-- Names that end in a dialect are run on that database only.

-- name: verify_jobs
-- A page of jobs, each with its run. Params stay here: only whether they agree is of interest.
select j.id, j.tenant_id, j.bucket_id, j.status, j.gate, j.priority, j.position, j.fence, j.version, j.retry_auto, j.exhausted,
  j.retry_of, j.target_id, j.started_at, j.stop, j.key, j.task,
  r.tenant_id, r.task, r.started_at, r.status, case when r.params = j.params then 1 else 0 end
from hw_job j left join hw_run r on r.job_id = j.id where j.id > :after order by j.id limit :limit;

-- name: verify_job_events
-- The events of a page of jobs, and of numbers in between that have no job.
select e.thing_id, e.version, e.kind, e.status, e.at, e.actor, e.fence, e.data, e.tenant_id
from hw_event e where e.thing_id > :after and e.thing_id <= :upto and e.thing = 'job' order by e.thing_id, e.thing, e.version;

-- name: verify_links
-- Each retry of a page with the job it retries and how that one ended.
select c.id, p.id, p.tenant_id, p.status, p.failure_kind, p.priority, p.position, p.task, p.key, p.target_id, p.options,
  case when p.params = c.params then 1 else 0 end, e.at, e.data
from hw_job c left join hw_job p on p.id = c.retry_of
left join hw_event e on e.thing_id = p.id and e.thing = 'job' and e.status >= 6
  and e.kind in ('job.completed', 'job.failed', 'job.skipped', 'job.cancelled', 'job.resolved')
where c.id > :after and c.id <= :upto and c.retry_of is not null order by c.id, e.version;

-- name: verify_paid
-- How many failures that used up an attempt led to each automatic retry. `union` ends even where links form a ring.
with recursive up(origin, id, retry_of, retry_auto) as (
  select c.id, c.id, c.retry_of, c.retry_auto from hw_job c where c.id > :after and c.id <= :upto and c.retry_auto = 1
  union
  select up.origin, p.id, p.retry_of, p.retry_auto from up join hw_job p on p.id = up.retry_of where up.retry_auto = 1
)
select up.origin, count(*) from up join hw_job p on p.id = up.id
where up.id <> up.origin and coalesce(p.failure_kind, '') <> 'INTERRUPTED' group by up.origin;

-- name: verify_children
-- Retries of the jobs of a page; in two halves, each with a partial index of its own.
select retry_of, retry_auto, count(*) from hw_job where retry_auto = 1 and retry_of > :after and retry_of <= :upto group by retry_of, retry_auto
union all
select retry_of, retry_auto, count(*) from hw_job
where retry_of is not null and retry_auto = 0 and retry_of > :after and retry_of <= :upto group by retry_of, retry_auto;

-- name: verify_stream
-- A page of all events in the order they were made, with what the replays need of their jobs.
select e.id, e.thing, e.thing_id, e.version, e.kind, e.status, e.at, e.actor, e.data,
  j.bucket_id, j.target_id, j.group_id, j.stage, j.priority, j.position, j.created_at, j.expires_at
from hw_event e left join hw_job j on j.id = e.thing_id and e.thing = 'job' where e.id > :after order by e.id limit :limit;

-- name: verify_places
-- Jobs whose place in the queue may have changed, and by which version it was what it is now.
select thing_id, max(version) from hw_event
where thing = 'job' and (kind in ('job.moved', 'job.edited') or (kind = 'job.promoted' and data is not null)) group by thing_id;

-- name: verify_things
-- Things other than jobs whose versions have a gap.
select thing, thing_id, min(version), max(version), count(*) from hw_event where thing <> 'job'
group by thing, thing_id having count(*) <> max(version) - min(version) + 1 order by thing, thing_id;

-- name: verify_keys
-- Neighbours under one uniqueness key that were unfinished at the same time, or that stand between a job and its retry.
select id, task, key, retry_of, created_at, before_id, before_end from (
  select j.id, j.task, j.key, j.created_at, j.retry_of, j.retry_auto, lag(j.id) over w as before_id, lag(j.finished_at) over w as before_end
  from hw_job j where j.key is not null window w as (partition by j.tenant_id, j.task, j.key order by j.id)
) k
where before_id is not null
  and (before_end is null or before_end > created_at + :settle or (retry_auto = 1 and before_id <> retry_of))
order by id;

-- name: verify_running
-- Every RUNNING job with its owner.
select j.id, j.worker_id, j.slot, j.claimed_at, w.id, w.slots, w.beat_at, w.lease_until, w.gone_at
from hw_job j left join hw_worker w on w.id = j.worker_id where j.status = 3 order by j.id;

-- name: verify_observer
-- Since when somebody has been there to notice a lost claim.
select min(started_at) from hw_worker where gone_at is null and lease_until >= {now};

-- name: verify_workers
select id, slots from hw_worker;

-- name: verify_lanes
select id, tenant_id, kind, name, capacity, version from hw_lane order by id;

-- name: verify_lane_events
select e.thing_id, e.version, e.data from hw_event e where e.thing = 'lane' and e.kind = 'lane.changed' order by e.thing_id, e.version;

-- name: verify_tenants
select id from hw_tenant;

-- name: verify_loose_runs
-- Runs whose job does not exist.
select r.job_id from hw_run r where not exists (select 1 from hw_job j where j.id = r.job_id) order by r.job_id;

-- name: verify_tally
-- What pruning says it took away.
select name, sum(count) from hw_tally group by name order by name;

-- name: verify_pruning
select active from hw_pruning;

-- name: verify_numbers_sqlite
-- How many job numbers were ever given.
select value from hw_counter where name = 'job';

-- name: verify_numbers_postgres
select last_value from hw_job_id;

-- name: verify_guards_sqlite
-- Triggers and unique indexes that are in force.
select name from sqlite_schema where type = 'trigger' or (type = 'index' and sql like 'create unique%');

-- name: verify_guards_postgres
select tgname from pg_trigger where not tgisinternal and tgenabled in ('O', 'A')
  and tgrelid in ('hw_job'::regclass, 'hw_run'::regclass, 'hw_event'::regclass)
union all
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indisunique and i.indisvalid and i.indrelid = 'hw_job'::regclass;

-- name: verify_together_sqlite
-- Automatic retries of a page that were made in the transaction that ended their parent: it has one time.
select c.id from hw_job c join hw_event b on b.thing_id = c.id and b.thing = 'job' and b.version = 1
join hw_event e on e.thing_id = c.retry_of and e.thing = 'job' and e.status >= 6 and e.at = b.at
where c.id > :after and c.id <= :upto and c.retry_auto = 1;

-- name: verify_together_postgres
-- Here each statement has a time of its own, and the transaction a number.
select c.id from hw_job c join hw_event b on b.thing_id = c.id and b.thing = 'job' and b.version = 1
join hw_event e on e.thing_id = c.retry_of and e.thing = 'job' and e.status >= 6 and (e.xmin = b.xmin or e.at = b.at)
where c.id > :after and c.id <= :upto and c.retry_auto = 1;
