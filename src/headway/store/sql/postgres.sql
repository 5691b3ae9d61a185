-- Statements for PostgreSQL only: data-modifying CTEs, lateral joins, advisory locks, pinned plans.

-- name: lock_schema
select pg_advisory_xact_lock(7236838301);

-- name: claim_lock
-- One claim at a time makes limits exact. The lock needs a statement of its own, because a statement's snapshot is
-- older than any lock it waits for.
select pg_advisory_xact_lock(7236838302);

-- name: try_claim_lock
select pg_try_advisory_xact_lock(7236838302);

-- name: job_numbers
select last_value from hw_job_id;

-- name: raise_job_numbers
select setval('hw_job_id', greatest(cast(:number as bigint), (select last_value from hw_job_id)));

-- name: pin_plans
-- For this transaction only, because a pooler may share the session. Statistics of a queue are always out of date, and
-- these settings keep the planner on the indexes made for these statements.
select set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
  set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('enable_material', 'off', true);

-- name: lock_tenant
-- Not `for update`: rows that refer to the tenant (a reservation, a bucket) are created under the claim lock and would
-- wait.
select id, name, paused_at, paused_until, pause_note, version from hw_tenant where id = :id for no key update;

-- name: notify
select pg_notify('headway', '');

-- name: notify_others
-- The sender, `by`, has woken its own process already. A hint need not be durable: a synced commit would queue with
-- those of jobs and delay the wake-up.
select set_config('synchronous_commit', 'off', true), pg_notify('headway', :by);

-- name: first_places
select b.id, -j.priority, j.position, j.created_at, j.id, j.group_id, j.stage from {ids} b cross join lateral (
  select k.priority, k.position, k.created_at, k.id, k.group_id, k.stage from hw_job k where k.bucket_id = b.id and k.gate = 1
  order by k.priority desc, k.position, k.created_at, k.id limit :limit) j;

-- name: next_position
select nextval('hw_job_id') << 20;

-- name: enqueue
-- Jobs of one statement need not get neighbouring ids here, so each is returned as a run of one.
with t as materialized (
  select t.now, t.start, case when cast(:hold as integer) = 1 then {WAITING} when t.start > t.now then {SCHEDULED} else {QUEUED} end as status
  from (select {now} as now, coalesce(cast(:not_before as bigint), {now} + cast(:delay as bigint)) as start) t
), r as materialized (
  select nextval('hw_job_id') as id, case when jsonb_typeof(r.item) = 'string' then r.item #>> '{}' else r.item ->> 0 end as params,
    case when jsonb_typeof(r.item) = 'array' then (r.item ->> 1)::bigint end as target_id
  from jsonb_array_elements(:params::jsonb) as r(item)
), j as (
  insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, hold, target_id, template_id, not_before,
    expires_at, queued_at, key, task, params, options, created_by)
  select r.id, :tenant_id, :bucket_id, t.status, case when t.status = {QUEUED} and r.target_id is null then 1 else 0 end, :priority, r.id << 20,
    t.now, :hold, r.target_id, cast(:template_id as bigint), t.start, cast(:expires_at as bigint), case when t.status = {QUEUED} then t.now end, cast(:key as text), :task,
    r.params, :options, :actor
  from r, t where exists (select 1 from hw_tenant n where n.id = :tenant_id and n.active = 1
    and (n.max_queued is null or cast(:admitted as integer) = 1))
  on conflict (tenant_id, task, key) where key is not null and status {is_unfinished} do nothing
  returning id, status, created_at
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
  select :tenant_id, 'job', id, 1, 'job.created', status, created_at, :actor from j
)
select id, 1 from j order by id;

-- name: insert_retry
with j as (
  insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, attempt, retry_auto, retry_of, target_id,
    group_id, stage, step, unfilled, template_id, not_before, queued_at, key, task, params, options, created_by)
  select nextval('hw_job_id'), j.tenant_id, j.bucket_id, case when :delay > 0 then 1 else 2 end,
    case when :delay > 0 or j.target_id is not null then 0 else 1 end,
    coalesce(cast(:priority as smallint), j.priority), coalesce(cast(:position as bigint), j.position), {now}, j.attempt + 1, :auto, j.id,
    j.target_id, case when :in_group = 1 then j.group_id end, case when :in_group = 1 then j.stage end, case when :in_group = 1 then j.step end, case when :in_group = 1 then case when cast(:params as text) is null then j.unfilled else cast(:unfilled as text) end end,
  j.template_id, case when :delay > 0 then {now} + :delay end, case when :delay > 0 then null else {now} end,
    j.key, j.task, coalesce(cast(:params as text), j.params), coalesce(cast(:options as text), j.options), :actor
  from hw_job j where j.id = :id
  returning id, tenant_id, status, retry_of
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
  select tenant_id, 'job', id, 1, 'job.created', status, {now}, :actor, json_build_object('retry_of', retry_of)::text from j
)
select id from j;

-- name: take
-- `(select {now})` is evaluated once; the bare time is evaluated for every row and takes a tenth of the whole
-- statement.
with p as materialized (select key::bigint as id, value::integer as slot from jsonb_each_text(:picks::jsonb)),
k as materialized (
  select j.id, p.slot from p join hw_job j on j.id = p.id
  where j.gate + 0 = 1 and (j.expires_at is null or j.fence > 0 or j.expires_at > (select {now}))
    and exists (select 1 from hw_worker w where w.id = :worker_id and w.gone_at is null) for update of j skip locked
), u as (
  update hw_job j set status = {RUNNING}, gate = 0, fence = j.fence + 1, version = j.version + 1, worker_id = :worker_id, slot = k.slot,
    claimed_at = (select {now}), started_at = coalesce(j.started_at, (select {now})), reason = null, failure_kind = null
  from k where j.id = k.id
  returning j.id, j.fence, j.slot, j.task, j.params, j.options, j.attempt, j.ran, j.carries, j.target_id, j.group_id, j.stage, j.tenant_id, j.version
), r as (
  insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)
  select id, tenant_id, task, params, :worker_id, (select {now}) from u where fence = 1
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
  select tenant_id, 'job', id, version, 'job.claimed', {RUNNING}, (select {now}), :actor, fence from u
)
select id, fence, slot, task, params, options, attempt, ran, carries, target_id, group_id, stage from u;

-- name: complete
with d as materialized (
  select key::bigint as id, value::integer as fence, :results::jsonb -> key ->> 1 as result, (:codes::jsonb ->> key)::integer as exit_code
  from jsonb_each_text(:ended::jsonb)),
u as (
  update hw_job j set status = {COMPLETED}, finished_at = (select {now}), version = j.version + 1, ran = j.ran + (select {now}) - j.claimed_at,
    worker_id = null, slot = null, stop = null, stop_by = null, reason = null
  from d where j.id = d.id and j.fence = d.fence and j.status + 0 = {RUNNING} and j.worker_id = :worker_id
  returning j.id, j.tenant_id, j.version, j.fence, d.result, d.exit_code
), s as (
  insert into hw_result (job_id, body) select id, result from u where result is not null
), r as (
  update hw_run set status = {COMPLETED}, finished_at = (select {now}), exit_code = u.exit_code from u where hw_run.job_id = u.id
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence, data)
  select tenant_id, 'job', id, version, 'job.completed', {COMPLETED}, (select {now}), :actor, fence, '{"exit_code": ' || exit_code || '}' from u
)
select id from u;

-- name: take_one
-- Used on SQLite only; here a list of one is as fast.

-- name: result_of_one

-- name: complete_one

-- name: promote
with k as materialized (
  select id from hw_job where status = {SCHEDULED} and not_before <= {now} order by not_before, id limit 500 for update skip locked
), u as (
  update hw_job j set status = {QUEUED}, gate = case when j.target_id is null then 1 else 0 end, queued_at = {now}, version = j.version + 1
  from k where j.id = k.id returning j.id, j.tenant_id, j.version, j.target_id
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
  select tenant_id, 'job', id, version, 'job.promoted', {QUEUED}, {now}, :actor from u
)
select id, target_id from u;

-- name: expire
with k as materialized (
  select id from hw_job where expires_at is not null and status {is_unclaimed} and fence = 0 and expires_at <= {now}
  order by expires_at, id limit 500 for update skip locked
), u as (
  update hw_job j set status = {SKIPPED}, gate = 0, finished_at = {now}, reason = 'expired', hold = 0, version = j.version + 1
  from k where j.id = k.id returning j.id, j.tenant_id, j.version, j.target_id
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
  select tenant_id, 'job', id, version, 'job.skipped', {SKIPPED}, {now}, :actor, '{"reason":"expired"}' from u
)
select id, target_id from u;

-- name: close_gates
-- The holder of the claim lock waits for no lock: a job that another transaction has locked is left alone.
with k as materialized (
  select j.id from {ids} i join hw_job j on j.id = i.id where j.gate + 0 = 1 for update of j skip locked
)
update hw_job j set gate = 0 from k where j.id = k.id returning j.id;

-- name: open_gates
with k as materialized (
  select j.id from {ids} i join hw_job j on j.id = i.id where j.gate + 0 = 0 and j.status + 0 = {QUEUED} for update of j skip locked
)
update hw_job j set gate = 1 from k where j.id = k.id returning j.id;

-- name: move_bucket
-- Jobs that another transaction has locked get their lanes before they are claimed.
with k as materialized (select id from hw_job where status {is_unclaimed} and bucket_id = :from_id for update skip locked)
update hw_job j set bucket_id = :to_id, version = j.version + 1 from k where j.id = k.id returning j.id, j.tenant_id, j.version, j.status;

-- name: add_members
with r as materialized (
  select nextval('hw_job_id') as id, o.* from (
    select m.* from jsonb_array_elements(:rows::jsonb) with ordinality as a(item, n),
      jsonb_to_record(a.item) as m(stage integer, step text, task text, bucket_id bigint, target_id bigint, priority smallint, params text,
        unfilled text, options text, hold smallint, template_id bigint, not_before bigint, delay bigint)
    order by a.n) o
), s as materialized (
  select r.*, {now} as now, coalesce(r.not_before, {now} + r.delay) as start from r
), m as materialized (
  select s.*, case when s.hold = 1 or s.stage <> :open then {WAITING} when s.start > s.now then {SCHEDULED} else {QUEUED} end as status from s
), j as (
  insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, hold, target_id, group_id, stage, step,
    unfilled, template_id, not_before, queued_at, task, params, options, created_by)
  select id, :tenant_id, bucket_id, status, case when status = {QUEUED} and target_id is null then 1 else 0 end, priority, id << 20, now, hold, target_id,
    cast(:group_id as bigint), stage, step, unfilled, template_id, start, case when status = {QUEUED} then now end, task, params, options, :actor from m
  returning id, status, created_at
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
  select :tenant_id, 'job', id, 1, 'job.created', status, created_at, :actor from j
)
select id from j order by id;

-- name: release_stage
with k as materialized (
  select id from hw_job where group_id = :group_id and group_id is not null and stage = :stage and status {is_unfinished} and status = {WAITING} and hold = 0
  order by id for update
), u as (
  update hw_job j set status = case when j.not_before > {now} then {SCHEDULED} else {QUEUED} end,
    gate = case when j.not_before > {now} or j.target_id is not null then 0 else 1 end,
    queued_at = case when j.not_before > {now} then null else {now} end, version = j.version + 1
  from k where j.id = k.id and j.status = {WAITING} and j.hold = 0 returning j.id, j.tenant_id, j.version, j.status, j.target_id
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
  select tenant_id, 'job', id, version, 'job.released', status, {now}, :actor from u
)
select id, target_id from u;

-- name: end_waiting_members
with k as materialized (
  select id from hw_job where group_id = :group_id and group_id is not null and stage > :stage and status {is_unfinished} and status = {WAITING} order by id for update
), u as (
  update hw_job j set status = :status, hold = 0, finished_at = {now}, reason = :reason, version = j.version + 1
  from k where j.id = k.id and j.status = {WAITING} returning j.id, j.tenant_id, j.version
), e as (
  insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, data)
  select tenant_id, 'job', id, version, :kind, :status, {now}, :actor, :data from u
)
select id from u;

-- name: event_writers
-- Transactions that may have written events and have not ended. An insert holds this lock before it gets a number, and
-- until its transaction ends. The lock table is read as it is now, whatever snapshot the transaction has.
select virtualtransaction from pg_locks
where locktype = 'relation' and relation = 'hw_event'::regclass and mode = 'RowExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database());

-- name: count_events
select kind, data::json ->> 'failure_kind', count(*) from hw_event
where id > :after and id <= :upto and kind in (select value from json_array_elements_text(:kinds::json)) group by 1, 2;

-- name: count_ticks
select outcome, sum(times) from (
  select 'FIRED' as outcome, 1 as times from hw_event
  where id > :after and id <= :upto and kind = 'execution.created' and data::json ->> 'reason' = 'tick'
  union all
  select case kind when 'schedule.tick.skipped' then 'SKIPPED' else data::json ->> 'outcome' end, (data::json ->> 'count')::bigint from hw_event
  where id > :after and id <= :upto and kind in ('schedule.tick.skipped', 'schedule.tick.missed')
) t group by outcome;

-- name: note_pruned
-- Tells subscribers that the newest events were pruned. The sequence continues by itself.
insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)
select 0, 'history', 0, coalesce(max(version), 0) + 1, 'history.pruned', {now}, :actor
from hw_event where thing_id = 0 and thing = 'history';
delete from hw_event where thing_id = 0 and thing = 'history'
  and version < (select max(version) from hw_event where thing_id = 0 and thing = 'history');

-- name: outbox_armed
-- Returns a row if the trigger that creates deliveries is enabled.
select 1 from pg_trigger where tgrelid = 'hw_event'::regclass and tgname = 'hw_event_outbox' and tgenabled <> 'D';

-- name: database_size
select pg_database_size(current_database());
