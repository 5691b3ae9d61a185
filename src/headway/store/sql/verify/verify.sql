-- Statements of `headway verify`: one snapshot, in pages by number, and a few questions about the whole. Names that end
-- in a dialect run on that database only.

-- name: verify_jobs
-- A page of jobs, each with its run. Params are only compared here, not returned.
select j.id, j.tenant_id, j.bucket_id, j.status, j.gate, j.priority, j.position, j.fence, j.version, j.retry_auto, j.exhausted,
  j.retry_of, j.target_id, j.started_at, j.stop, j.key, j.task, j.group_id,
  r.tenant_id, r.task, r.started_at, r.status, case when r.params = j.params then 1 else 0 end
from hw_job j left join hw_run r on r.job_id = j.id where j.id > :after order by j.id limit :limit;

-- name: verify_job_events
-- The events of a page of jobs, and of ids in between that have no job.
select e.thing_id, e.version, e.kind, e.status, e.at, e.actor, e.fence, e.data, e.tenant_id
from hw_event e where e.thing_id > :after and e.thing_id <= :upto and e.thing = 'job' order by e.thing_id, e.thing, e.version;

-- name: verify_links
-- Each retry of a page with the job it retries and how that one ended.
select c.id, p.id, p.tenant_id, p.status, p.failure_kind, p.priority, p.position, p.task, p.key, p.target_id, p.options,
  case when p.params = c.params then 1 else 0 end, e.at, e.data
from hw_job c left join hw_job p on p.id = c.retry_of
left join hw_event e on e.thing_id = p.id and e.thing = 'job' and e.status {is_finished}
  and e.kind in ('job.completed', 'job.failed', 'job.skipped', 'job.cancelled', 'job.resolved')
where c.id > :after and c.id <= :upto and c.retry_of is not null order by c.id, e.version;

-- name: verify_paid
-- The failures that used up an attempt before each automatic retry. `union` ends even if the links form a ring.
with recursive up(origin, id, retry_of, retry_auto) as (
  select c.id, c.id, c.retry_of, c.retry_auto from hw_job c where c.id > :after and c.id <= :upto and c.retry_auto = 1
  union
  select up.origin, p.id, p.retry_of, p.retry_auto from up join hw_job p on p.id = up.retry_of where up.retry_auto = 1
)
select up.origin, count(*) from up join hw_job p on p.id = up.id
where up.id <> up.origin and coalesce(p.failure_kind, '') <> 'INTERRUPTED' group by up.origin;

-- name: verify_children
-- Retries of the jobs of a page, in two halves, each with a partial index of its own.
select retry_of, retry_auto, count(*) from hw_job where retry_auto = 1 and retry_of > :after and retry_of <= :upto group by retry_of, retry_auto
union all
select retry_of, retry_auto, count(*) from hw_job
where retry_of is not null and retry_auto = 0 and retry_of > :after and retry_of <= :upto group by retry_of, retry_auto;

-- name: verify_stream
-- A page of all events in order, with what the replays need of their jobs.
select e.id, e.thing, e.thing_id, e.version, e.kind, e.status, e.at, e.actor, e.data,
  j.bucket_id, j.target_id, j.group_id, j.stage, j.priority, j.position, j.created_at, j.expires_at
from hw_event e left join hw_job j on j.id = e.thing_id and e.thing = 'job' where e.id > :after order by e.id limit :limit;

-- name: verify_places
-- Jobs whose place in the queue may have changed, with the version since which it is the current one.
select thing_id, max(version) from hw_event
where thing = 'job' and (kind in ('job.moved', 'job.edited') or (kind = 'job.promoted' and data is not null)) group by thing_id;

-- name: verify_things
-- Things other than jobs whose versions have a gap.
select thing, thing_id, min(version), max(version), count(*) from hw_event where thing <> 'job'
group by thing, thing_id having count(*) <> max(version) - min(version) + 1 order by thing, thing_id;

-- name: verify_keys
-- Neighbours under a uniqueness key that were unfinished at the same time, or that stand between a job and its retry.
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
from hw_job j left join hw_worker w on w.id = j.worker_id where j.status = {RUNNING} order by j.id;

-- name: verify_observer
-- Since when a process has been able to notice a lost claim. A process that makes direct calls only does not check.
select min(started_at) from hw_worker where gone_at is null and lease_until >= {now} and kind = 'worker';

-- name: verify_workers
select id, slots, tasks from hw_worker where kind = 'worker';

-- name: verify_buckets
select id, tenant_id, task, lanes, on_target from hw_bucket order by id;

-- name: verify_relaned
-- The earlier lanes of relaned jobs; the first change comes last.
select e.thing_id, e.data from hw_event e where e.thing = 'job' and e.kind = 'job.relaned' order by e.id desc;

-- name: verify_lanes
select id, tenant_id, kind, name, capacity, version from hw_lane order by id;

-- name: verify_lane_events
select e.thing_id, e.version, e.data from hw_event e
where e.thing = 'lane' and e.kind in ('lane.created', 'lane.changed') order by e.thing_id, e.version;

-- name: verify_settings
-- The version of the concurrency settings, and the last version in the events. The number of the thing is 0.
select s.version, (select coalesce(max(e.version), 0) from hw_event e where e.thing_id = 0 and e.thing = 'concurrency')
from hw_setting s where s.name = 'concurrency';

-- name: verify_aging
-- The history of the concurrency settings.
select e.data from hw_event e where e.thing_id = 0 and e.thing = 'concurrency' order by e.version;

-- name: verify_tenants
-- Number 0 is the installation itself.
select id from hw_tenant where id > 0;

-- name: verify_targets
-- Every target, and its state according to its events.
select t.id, t.tenant_id, t.version, max(e.version), min(e.tenant_id), max(e.tenant_id)
from hw_target t left join hw_event e on e.thing_id = t.id and e.thing = 'target' group by t.id, t.tenant_id, t.version order by t.id;

-- name: verify_shut
-- QUEUED jobs without a target that no claim can see.
select id from hw_job where status = {QUEUED} and gate = 0 and target_id is null order by id;

-- name: verify_lines
-- The queue of every target untouched since its first job was chosen: its pause, holder, first job and open job.
select t.id, t.paused_at, h.id, h.status,
  (select j.id from hw_job j where j.target_id = t.id and j.target_id is not null and j.status = {QUEUED}
    order by j.priority desc, j.position, j.created_at, j.id limit 1),
  (select min(j.id) from hw_job j where j.target_id = t.id and j.target_id is not null and j.gate = 1)
from hw_target t
left join hw_job h on h.target_id = t.id and h.target_id is not null and (h.status {is_claimed} or (h.status = {QUEUED} and h.fence > 0))
where not exists (select 1 from hw_touched u where u.target_id = t.id) order by t.id;

-- name: verify_active_reservations
-- Active reservations, each with the lease of its holder if it has one.
select r.id, r.expires_at, r.worker_id, w.id, w.beat_at, w.lease_until, w.gone_at, r.lanes, r.target_id
from hw_reservation r left join hw_worker w on w.id = r.worker_id where r.finished_at is null order by r.id;

-- name: verify_reservations
-- Reservations whose row differs from what their events say.
select * from (
  select r.id, r.status, r.version, count(e.id) as events, coalesce(max(e.version), 0) as last,
    coalesce(sum(case when e.kind = 'reservation.granted' then 1 end), 0) as granted, case when r.granted_at is null then 0 else 1 end as is_granted,
    coalesce(sum(case when e.kind = 'reservation.released' then 1 end), 0) as released,
    coalesce(sum(case when e.kind = 'reservation.expired' then 1 end), 0) as expired
  from hw_reservation r left join hw_event e on e.thing_id = r.id and e.thing = 'reservation'
  group by r.id, r.status, r.version, r.granted_at
) s
where events <> version or last <> version or granted <> is_granted
  or released <> case when status = 'RELEASED' then 1 else 0 end or expired <> case when status = 'EXPIRED' then 1 else 0 end
order by id;

-- name: verify_untimely
-- Reservations of external programs that were granted after their expiry, or expired before it. A renewal only adds
-- time.
select id, granted_at, expires_at, case when status = 'EXPIRED' then finished_at end from hw_reservation
where expires_at is not null and (granted_at > expires_at + :settle or (status = 'EXPIRED' and finished_at < expires_at)) order by id;

-- name: verify_loose_reservations
-- Reservations that only events know.
select distinct e.thing_id from hw_event e where e.thing = 'reservation'
  and not exists (select 1 from hw_reservation r where r.id = e.thing_id) order by e.thing_id;

-- name: verify_reserved
-- Reservations by tenant, lanes and target: the first number of each, and the tenants of their events.
select min(r.id), r.tenant_id, r.lanes, r.target_id, coalesce(min(e.tenant_id), r.tenant_id), coalesce(max(e.tenant_id), r.tenant_id)
from hw_reservation r left join hw_event e on e.thing_id = r.id and e.thing = 'reservation' group by r.tenant_id, r.lanes, r.target_id;

-- name: verify_loose_runs
-- Runs without a job.
select r.job_id from hw_run r where not exists (select 1 from hw_job j where j.id = r.job_id) order by r.job_id;

-- name: verify_tally
-- The tally of pruning.
select name, sum(count) from hw_tally group by name order by name;

-- name: verify_last_gap
-- The first event after the last gap that pruning left.
select max(id) from (select id, lag(id, 1, 0) over (order by id) as before from hw_event) e where id <> before + 1;

-- name: verify_pruning
select active from hw_pruning;

-- name: verify_longest_postgres
-- The longest time from a transaction's first event to its last, during which other transactions may not have seen it.
-- `headway db promote` copied its events in a single transaction, whenever they happened.
select max(span) from (select max(at) - min(at) as span from hw_event
  where xmin is distinct from (select xmin from hw_setting where name = 'promoted') group by xmin) t;

-- name: verify_numbers_sqlite
-- The number of job ids ever given.
select value from hw_counter where name = 'job';

-- name: verify_numbers_postgres
select last_value from hw_job_id;

-- name: verify_guards_sqlite
-- The triggers and unique indexes that exist.
select name from sqlite_schema where type = 'trigger' or (type = 'index' and sql like 'create unique%');

-- name: verify_guards_postgres
select tgname from pg_trigger where not tgisinternal and tgenabled in ('O', 'A')
  and tgrelid in ('hw_job'::regclass, 'hw_run'::regclass, 'hw_event'::regclass)
union all
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indisunique and i.indisvalid and i.indrelid = 'hw_job'::regclass;

-- name: verify_together_sqlite
-- Automatic retries of a page that were created in the transaction that ended their parent, which has a single time.
select c.id from hw_job c join hw_event b on b.thing_id = c.id and b.thing = 'job' and b.version = 1
join hw_event e on e.thing_id = c.retry_of and e.thing = 'job' and e.status {is_finished} and e.at = b.at
where c.id > :after and c.id <= :upto and c.retry_auto = 1;

-- name: verify_together_postgres
-- On PostgreSQL each statement has a time of its own, and the transaction a number; promoted rows have the times of
-- SQLite.
select c.id from hw_job c join hw_event b on b.thing_id = c.id and b.thing = 'job' and b.version = 1
join hw_event e on e.thing_id = c.retry_of and e.thing = 'job' and e.status {is_finished}
  and (e.at = b.at or (e.xmin = b.xmin and e.xmin is distinct from (select xmin from hw_setting where name = 'promoted')))
where c.id > :after and c.id <= :upto and c.retry_auto = 1;

-- name: verify_groups
-- A page of groups and executions, each with the tenants of what it names and the event that ended the group it waited
-- for.
select g.id, g.tenant_id, g.kind, g.on_failure, g.status, g.stage, g.after_id, case when g.cancelled_by is null then 0 else 1 end, g.error,
  g.finished_at, g.version, g.schedule_id, g.retry_of, s.tenant_id, r.tenant_id, a.tenant_id, e.id
from hw_group g left join hw_schedule s on s.id = g.schedule_id left join hw_group r on r.id = g.retry_of left join hw_group a on a.id = g.after_id
left join hw_event e on e.thing_id = a.id and e.thing = a.kind and e.version = a.version and a.finished_at is not null
where g.id > :after order by g.id limit :limit;

-- name: verify_group_events
select e.thing_id, e.id, e.thing, e.version, e.kind, e.at, e.data, e.tenant_id from hw_event e
where e.thing_id > :after and e.thing_id <= :upto and e.thing in ('execution', 'group') order by e.thing_id, e.version, e.id;

-- name: verify_members
-- The jobs of a page of groups, with the event numbers of their creation, release, claim and end.
select j.group_id, j.id, j.tenant_id, coalesce(j.stage, 0), j.step, j.status, j.hold, j.reason, j.options, j.retry_of,
  min(case when e.version = 1 then e.id end), min(case when e.version = 1 then e.at end), min(case when e.status {is_startable} then e.id end),
  min(case when e.kind = 'job.claimed' then e.id end), min(case when e.status {is_finished} then e.id end),
  coalesce(sum(case when e.kind = 'job.released' then 1 end), 0), min(case when e.kind = 'job.released' then e.at end)
from hw_job j left join hw_event e on e.thing_id = j.id and e.thing = 'job'
where j.group_id > :after and j.group_id <= :upto and j.group_id is not null group by j.id order by j.group_id, coalesce(j.stage, 0), j.id;

-- name: verify_loose_groups
-- Groups, executions and schedules that only events or jobs know.
select e.thing, e.thing_id, min(e.id) from hw_event e where (e.thing in ('execution', 'group')
  and not exists (select 1 from hw_group g where g.id = e.thing_id and g.kind = e.thing))
  or (e.thing = 'schedule' and not exists (select 1 from hw_schedule s where s.id = e.thing_id)) group by e.thing, e.thing_id
union all
select 'group', j.group_id, min(j.id) from hw_job j where j.group_id is not null and not exists (select 1 from hw_group g where g.id = j.group_id)
group by j.group_id order by 1, 2;

-- name: verify_schedules
select id, tenant_id, definition, enabled, decided_until, next_at, created_at, deleted_at, version from hw_schedule order by id;

-- name: verify_schedule_events
select e.thing_id, e.version, e.kind, e.at, e.data, e.tenant_id from hw_schedule s join hw_event e on e.thing_id = s.id and e.thing = 'schedule'
order by e.thing_id, e.version;

-- name: verify_ticks
-- A page of the ledger, each row with the execution that it names and the event of a tick that did not fire.
select t.schedule_id, t.nominal_at, t.id, t.tenant_id, t.until, t.count, t.outcome, t.reason, t.execution_id, t.decided_at,
  g.id, g.schedule_id, g.reason, g.nominal_at, e.id, t.tolerance
from hw_tick t left join hw_group g on g.id = t.execution_id
left join hw_event e on e.thing_id = t.id and e.thing = 'tick' and e.version = 1
  and e.kind = case t.outcome when 'SKIPPED' then 'schedule.tick.skipped' else 'schedule.tick.missed' end
where (t.schedule_id, t.nominal_at, t.id) > (:after_schedule, :after_at, :after_id) order by t.schedule_id, t.nominal_at, t.id limit :limit;

-- name: verify_untold_ticks
-- The last tick of the time in which missed ticks had no event.
select value from hw_setting where name = 'ticks_without_event';

-- name: verify_executions
-- A page of executions by schedule, with the event numbers of their creation, begin and end.
select g.schedule_id, g.id, g.reason, g.nominal_at, g.created_at, g.finished_at, c.id,
  case when c.data like '%"after_id"%' then 1 else 0 end,
  (select min(b.id) from hw_event b where b.thing_id = g.id and b.thing = 'execution' and b.kind = 'execution.begun'), f.id
from hw_group g left join hw_event c on c.thing_id = g.id and c.thing = 'execution' and c.version = 1
left join hw_event f on f.thing_id = g.id and f.thing = 'execution' and f.version = g.version and f.kind = 'execution.finished'
where g.schedule_id is not null and (g.schedule_id, g.id) > (:after_schedule, :after_id) order by g.schedule_id, g.id limit :limit;

-- name: verify_unticked
-- Executions of a tick that the ledger does not name, and backfills of a time that had fired before.
select g.schedule_id, g.id, g.nominal_at, g.reason from hw_group g where g.schedule_id is not null and g.reason = 'tick'
  and not exists (select 1 from hw_tick t where t.schedule_id = g.schedule_id and t.nominal_at = g.nominal_at and t.outcome = 'FIRED'
    and t.execution_id = g.id)
union all
select g.schedule_id, g.id, g.nominal_at, g.reason from hw_group g join hw_tick t on t.schedule_id = g.schedule_id and t.nominal_at = g.nominal_at
  and t.outcome = 'FIRED' and t.decided_at + :settle < g.created_at where g.schedule_id is not null and g.reason = 'backfill' order by 1, 2;

-- name: verify_foreign_ticks
-- Ticks, and events of ticks and schedules, of another tenant than the schedule's.
select 'tick', t.id, t.tenant_id, s.id, s.tenant_id from hw_tick t join hw_schedule s on s.id = t.schedule_id where t.tenant_id <> s.tenant_id
union all
select 'event', e.id, e.tenant_id, s.id, s.tenant_id from hw_schedule s join hw_event e on e.thing_id = s.id and e.thing = 'schedule'
where e.tenant_id <> s.tenant_id
union all
select 'event', e.id, e.tenant_id, s.id, s.tenant_id from hw_tick t join hw_schedule s on s.id = t.schedule_id
join hw_event e on e.thing_id = t.id and e.thing = 'tick' where e.tenant_id <> s.tenant_id;

-- name: verify_tenant_rows
select id, version, active, max_queued, max_running, max_schedules from hw_tenant where id > 0 order by id;

-- name: verify_tenant_events
select thing_id, version, kind, data from hw_event where thing = 'tenant' order by thing_id, version;

-- name: verify_switches
-- When tenants became inactive and active.
select thing_id, kind, at from hw_event where thing = 'tenant' and kind in ('tenant.activated', 'tenant.deactivated')
order by thing_id, version;

-- name: verify_foreign_things
-- Events of tokens and tries of deliveries with a wrong tenant, then things that belong to no tenant.
select 'token ' || k.id, coalesce(k.tenant_id, 0), 'its event', e.tenant_id from hw_token k
join hw_event e on e.thing_id = k.id and e.thing = 'token' where e.tenant_id <> coalesce(k.tenant_id, 0)
union all
select 'a try of delivery ' || t.delivery_id, t.tenant_id, 'the delivery', d.tenant_id from hw_try t
join hw_delivery d on d.id = t.delivery_id where d.tenant_id <> t.tenant_id
union all
select o.thing, o.tenant_id, null, null from (
  select 'an answer' as thing, tenant_id from hw_answer
  union select 'a secret', tenant_id from hw_signer
  union select 'a turn', tenant_id from hw_turn where tenant_id > 0
  union select 'a tally', tenant_id from hw_tally where tenant_id > 0
) o where not exists (select 1 from hw_tenant t where t.id = o.tenant_id);
