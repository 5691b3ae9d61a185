-- Statements for SQLite only. It has no data-modifying CTE, so a block is several statements over the same parameters;
-- it has one writer, so nothing changes between them.

-- name: lock_schema
-- `begin immediate` is the lock.

-- name: claim_lock
-- `begin immediate` is the lock.

-- name: try_claim_lock
-- Not used here: with one writer, every write transaction has the lock.
select 1;

-- name: pin_plans
-- SQLite plans from the schema alone.

-- name: notify
-- Other processes watch the log file.

-- name: notify_others

-- name: first_places
-- The first places of several buckets at once.
select j.bucket_id, -j.priority, j.position, j.created_at, j.id, j.group_id, j.stage from json_each(:ids) b join hw_job j on j.id in (
  select k.id from hw_job k where k.bucket_id = b.value and k.gate = 1
  order by k.priority desc, k.position, k.created_at, k.id limit (:limit + 0));

-- name: job_numbers
-- The last number that was given to a job.
select value from hw_counter where name = 'job';

-- name: raise_job_numbers
-- Goes on after this number at least.
update hw_counter set value = max(value, :number) where name = 'job';

-- name: next_position
-- The end of the queue, without a search.
update hw_counter set value = value + 1 where name = 'job' returning value << 20;

-- name: enqueue
-- Creates jobs that differ only in params and target, with their first events, and skips a job whose key is taken.
-- `:params` is an array of `:count` texts; on a target, of [text, target id]. It creates none for an inactive tenant,
-- nor, unless they are admitted, for a tenant with max_queued; the caller then finds out which it is. Returns the first
-- new id and the count, because `returning` would first store each row in a temporary table.
update hw_counter set value = value + :count where name = 'job';
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, hold, target_id, template_id, not_before,
  expires_at, queued_at, key, task, params, options, created_by)
select c.first + r.key, :tenant_id, :bucket_id, c.status, c.status = {QUEUED} and r.type = 'text', :priority, (c.first + r.key) << 20, :now,
  :hold, case when r.type <> 'text' then r.value ->> 1 end, :template_id, c.start, :expires_at, case when c.status = {QUEUED} then :now end, :key, :task,
  case when r.type = 'text' then r.value else r.value ->> 0 end, :options, :actor
from (select value - :count + 1 as first, coalesce(:not_before, :now + :delay) as start,
        case when :hold = 1 then {WAITING} when coalesce(:not_before, :now + :delay) > :now then {SCHEDULED} else {QUEUED} end as status
      from hw_counter where name = 'job') c
cross join json_each(:params) r
where exists (select 1 from hw_tenant n where n.id = :tenant_id + 0 and n.active = 1 and (n.max_queued is null or :admitted = 1))
on conflict (tenant_id, task, key) where key is not null and status {is_unfinished} do nothing;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
select j.tenant_id, 'job', j.id, 1, 'job.created', j.status, j.created_at, :actor
from hw_counter c join hw_job j on j.id > c.value - :count where c.name = 'job';
select c.value - :count + 1, :count from hw_counter c where c.name = 'job' and changes() > 0;

-- name: insert_retry
-- Creates a job in the place of a failed one: a copy of everything but id, state, times and run.
update hw_counter set value = value + 1 where name = 'job';
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, attempt, retry_auto, retry_of, target_id,
  group_id, stage, step, unfilled, template_id, not_before, queued_at, key, task, params, options, created_by)
select c.value, j.tenant_id, j.bucket_id, case when :delay > 0 then 1 else 2 end, case when :delay > 0 or j.target_id is not null then 0 else 1 end,
  coalesce(:priority, j.priority), coalesce(:position, j.position), :now, j.attempt + 1, :auto, j.id, j.target_id,
  case when :in_group = 1 then j.group_id end, case when :in_group = 1 then j.stage end, case when :in_group = 1 then j.step end, case when :in_group = 1 then case when cast(:params as text) is null then j.unfilled else cast(:unfilled as text) end end,
  j.template_id, case when :delay > 0 then :now + :delay end, case when :delay > 0 then null else :now end,
  j.key, j.task, coalesce(:params, j.params), coalesce(:options, j.options), :actor
from hw_job j join hw_counter c on c.name = 'job' where j.id = :id;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
select j.tenant_id, 'job', j.id, 1, 'job.created', j.status, :now, :actor, json_object('retry_of', j.retry_of)
from hw_counter c join hw_job j on j.id = c.value where c.name = 'job';
select c.value from hw_counter c where c.name = 'job';

-- name: take
-- Makes the picked jobs RUNNING, each with its run and its event. `:picks` is {job id: slot}. All three statements
-- require that the job is ready and has not expired, and that the worker was not given up. `:worker_id + 0` and `x -
-- :now > 0` are deliberate: a bare parameter beside a column of a partial index makes SQLite read its value and plan
-- anew at every call, which costs forty times the statement itself.
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)
select j.id, j.tenant_id, j.task, j.params, :worker_id, :now from json_each(:picks) r join hw_job j on j.id = cast(r.key as integer)
where j.fence = 0 and j.gate + 0 = 1 and (j.expires_at is null or j.expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null);
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
select j.tenant_id, 'job', j.id, j.version + 1, 'job.claimed', {RUNNING}, :now, :actor, j.fence + 1
from json_each(:picks) r join hw_job j on j.id = cast(r.key as integer)
where j.gate + 0 = 1 and (j.expires_at is null or j.fence > 0 or j.expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null);
update hw_job set status = {RUNNING}, gate = 0, fence = fence + 1, version = version + 1, worker_id = :worker_id, slot = r.value,
  claimed_at = :now, started_at = coalesce(started_at, :now), reason = null, failure_kind = null
from json_each(:picks) r where hw_job.id = cast(r.key as integer) and gate + 0 = 1
  and (expires_at is null or fence > 0 or expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null)
returning id, fence, slot, task, params, options, attempt, ran, carries, target_id, group_id, stage;

-- name: take_one
-- `take` for the single job `:id` into `:slot`. In a commit with one job, list tables would be a large part of the
-- cost.
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)
select j.id, j.tenant_id, j.task, j.params, :worker_id, :now from hw_job j
where j.id = :id + 0 and j.fence = 0 and j.gate + 0 = 1 and (j.expires_at is null or j.expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null);
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
select j.tenant_id, 'job', j.id, j.version + 1, 'job.claimed', {RUNNING}, :now, :actor, j.fence + 1 from hw_job j
where j.id = :id + 0 and j.gate + 0 = 1 and (j.expires_at is null or j.fence > 0 or j.expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null);
update hw_job set status = {RUNNING}, gate = 0, fence = fence + 1, version = version + 1, worker_id = :worker_id, slot = :slot,
  claimed_at = :now, started_at = coalesce(started_at, :now), reason = null, failure_kind = null
where id = :id + 0 and gate + 0 = 1 and (expires_at is null or fence > 0 or expires_at - :now > 0)
  and exists (select 1 from hw_worker w where w.id = :worker_id + 0 and w.gone_at is null)
returning id, fence, slot, task, params, options, attempt, ran, carries, target_id, group_id, stage;

-- name: complete
-- Completes many jobs at once. `:ended` is {job id: fence}, `:results` {job id: [fence, result]}, `:codes` {job id: exit
-- code}. Returns the ids that landed.
insert into hw_result (job_id, body)
select j.id, r.value ->> 1 from json_each(:results) r join hw_job j on j.id = cast(r.key as integer)
where j.fence = r.value ->> 0 and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence, data)
select j.tenant_id, 'job', j.id, j.version + 1, 'job.completed', {COMPLETED}, :now, :actor, j.fence,
  '{"exit_code": ' || (:codes ->> ('$.' || json_quote(r.key))) || '}'
from json_each(:ended) r join hw_job j on j.id = cast(r.key as integer)
where j.fence = r.value and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id;
update hw_run set status = {COMPLETED}, finished_at = :now, exit_code = :codes ->> ('$.' || json_quote(r.key))
from json_each(:ended) r join hw_job j on j.id = cast(r.key as integer)
where hw_run.job_id = j.id and j.fence = r.value and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id;
update hw_job set status = {COMPLETED}, finished_at = :now, version = version + 1, ran = ran + :now - claimed_at, worker_id = null, slot = null,
  stop = null, stop_by = null, reason = null
from json_each(:ended) r
where hw_job.id = cast(r.key as integer) and hw_job.fence = r.value and status + 0 = {RUNNING} and worker_id + 0 = :worker_id
returning id;

-- name: result_of_one
-- Stores the result, if there is one, before `complete_one`.
insert into hw_result (job_id, body) select j.id, :result from hw_job j
where j.id = :id + 0 and j.fence = :fence + 0 and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id;

-- name: complete_one
-- `complete` for the single job `:id`, held under `:fence`.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence, data)
select j.tenant_id, 'job', j.id, j.version + 1, 'job.completed', {COMPLETED}, :now, :actor, j.fence, '{"exit_code": ' || :exit_code || '}' from hw_job j
where j.id = :id + 0 and j.fence = :fence + 0 and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id;
update hw_run set status = {COMPLETED}, finished_at = :now, exit_code = :exit_code where job_id = :id + 0 and exists (
  select 1 from hw_job j where j.id = :id + 0 and j.fence = :fence + 0 and j.status + 0 = {RUNNING} and j.worker_id + 0 = :worker_id);
update hw_job set status = {COMPLETED}, finished_at = :now, version = version + 1, ran = ran + :now - claimed_at, worker_id = null, slot = null,
  stop = null, stop_by = null, reason = null
where id = :id + 0 and fence = :fence + 0 and status + 0 = {RUNNING} and worker_id + 0 = :worker_id
returning id;

-- name: promote
-- SCHEDULED jobs that are due.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
select tenant_id, 'job', id, version + 1, 'job.promoted', {QUEUED}, :now, :actor
from (select * from hw_job where status = {SCHEDULED} and not_before <= :now order by not_before, id limit 500);
update hw_job set status = {QUEUED}, gate = (target_id is null), queued_at = :now, version = version + 1
where id in (select id from hw_job where status = {SCHEDULED} and not_before <= :now order by not_before, id limit 500) returning id, target_id;

-- name: expire
-- Jobs past their expiry that have not started.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
select tenant_id, 'job', id, version + 1, 'job.skipped', {SKIPPED}, :now, :actor, '{"reason":"expired"}'
from (select * from hw_job where expires_at is not null and status {is_unclaimed} and fence = 0 and expires_at <= :now order by expires_at, id limit 500);
update hw_job set status = {SKIPPED}, gate = 0, finished_at = :now, reason = 'expired', hold = 0, version = version + 1
where id in (select id from hw_job where expires_at is not null and status {is_unclaimed} and fence = 0 and expires_at <= :now order by expires_at, id limit 500)
returning id, target_id;

-- name: close_gates
update hw_job set gate = 0 where id in {ids} and gate = 1 returning id;

-- name: open_gates
update hw_job set gate = 1 where id in {ids} and gate = 0 and status = {QUEUED} returning id;

-- name: add_members
-- Creates the jobs of a group, with their first events. `:rows` is an array of objects. Members of later stages wait.
update hw_counter set value = value + json_array_length(:rows) where name = 'job';
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, hold, target_id, group_id, stage, step,
  unfilled, template_id, not_before, queued_at, task, params, options, created_by)
select m.id, :tenant_id, m.bucket_id, m.status, m.status = {QUEUED} and m.target_id is null, m.priority, m.id << 20, :now, m.hold, m.target_id,
  :group_id, m.stage, m.step, m.unfilled, m.template_id, m.start, case when m.status = {QUEUED} then :now end, m.task, m.params, m.options, :actor
from (select s.*, case when s.hold = 1 or s.stage <> :open then {WAITING} when s.start > :now then {SCHEDULED} else {QUEUED} end as status from (
  select c.value - json_array_length(:rows) + 1 + r.key as id, r.value ->> 'stage' as stage, r.value ->> 'step' as step,
    r.value ->> 'task' as task, r.value ->> 'bucket_id' as bucket_id, r.value ->> 'target_id' as target_id,
    r.value ->> 'priority' as priority, r.value ->> 'params' as params, r.value ->> 'unfilled' as unfilled,
    r.value ->> 'options' as options, r.value ->> 'hold' as hold, r.value ->> 'template_id' as template_id,
    coalesce(r.value ->> 'not_before', :now + (r.value ->> 'delay')) as start
  from hw_counter c cross join json_each(:rows) r where c.name = 'job') s) m;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
select j.tenant_id, 'job', j.id, 1, 'job.created', j.status, j.created_at, :actor
from hw_counter c join hw_job j on j.id > c.value - json_array_length(:rows) where c.name = 'job' order by j.id
returning thing_id;

-- name: release_stage
-- Releases the members of a stage that waited only for it.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
select tenant_id, 'job', id, version + 1, 'job.released', case when not_before > :now then 1 else 2 end, :now, :actor
from hw_job where group_id = :group_id and group_id is not null and stage = :stage and status {is_unfinished} and status = {WAITING} and hold = 0 order by id;
update hw_job set status = case when not_before > :now then {SCHEDULED} else {QUEUED} end,
  gate = case when not_before > :now or target_id is not null then 0 else 1 end,
  queued_at = case when not_before > :now then null else :now end, version = version + 1
where group_id = :group_id and group_id is not null and stage = :stage and status {is_unfinished} and status = {WAITING} and hold = 0 returning id, target_id;

-- name: end_waiting_members
-- Ends the members of the stages after one that failed.
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
select tenant_id, 'job', id, version + 1, :kind, :status, :now, :actor, :data
from hw_job where group_id = :group_id and group_id is not null and stage > :stage and status {is_unfinished} and status = {WAITING} order by id;
update hw_job set status = :status, hold = 0, finished_at = :now, reason = :reason, version = version + 1
where group_id = :group_id and group_id is not null and stage > :stage and status {is_unfinished} and status = {WAITING} returning id;

-- name: event_writers
-- With one writer at a time, events become visible in the order of their numbers.

-- name: count_events
-- Events between two numbers by kind; failures by failure kind too.
select kind, data ->> 'failure_kind', count(*) from hw_event
where id > :after and id <= :upto and kind in (select value from json_each(:kinds)) group by 1, 2;

-- name: count_ticks
-- Ticks decided between two event numbers, by outcome. A fired one is an execution; another event may stand for many.
select outcome, sum(times) from (
  select 'FIRED' as outcome, 1 as times from hw_event
  where id > :after and id <= :upto and kind = 'execution.created' and data ->> 'reason' = 'tick'
  union all
  select case kind when 'schedule.tick.skipped' then 'SKIPPED' else data ->> 'outcome' end, data ->> 'count' from hw_event
  where id > :after and id <= :upto and kind in ('schedule.tick.skipped', 'schedule.tick.missed')
) t group by outcome;

-- name: note_pruned
-- Tells subscribers that the newest events were pruned. This event has the next number, so that no number is reused.
insert into hw_event (id, tenant_id, thing, thing_id, version, kind, at, actor)
select :newest + 1, 0, 'history', 0, coalesce(max(version), 0) + 1, 'history.pruned', {now}, :actor
from hw_event where thing_id = 0 and thing = 'history';
delete from hw_event where thing_id = 0 and thing = 'history'
  and version < (select max(version) from hw_event where thing_id = 0 and thing = 'history');

-- name: outbox_armed
-- Returns a row if the trigger that creates deliveries exists.
select 1 from sqlite_schema where type = 'trigger' and name = 'hw_event_outbox';

-- name: database_size
select p.page_count * s.page_size from pragma_page_count() p, pragma_page_size() s;
