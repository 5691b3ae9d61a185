-- Groups and executions, their members and stages. A group's row is locked before its jobs are.

-- name: add_group
insert into hw_group (tenant_id, kind, name, mode, on_failure, status, stage, stages, after_id, schedule_id, reason, nominal_at, retry_of,
  created_at, created_by)
values (:tenant_id, :kind, :name, :mode, :on_failure, :status, :stage, :stages, cast(:after_id as bigint), cast(:schedule_id as bigint),
  cast(:reason as text), cast(:nominal_at as bigint), cast(:retry_of as bigint), {now}, :actor)
returning id;

-- name: lock_groups
select {group_columns} from hw_group g where g.id in {ids} order by g.id {for_update};

-- name: groups_of
-- The groups of the jobs that a list shows.
select {group_columns} from hw_group g where g.id in {ids};

-- name: read_group
select {group_columns} from hw_group g where g.id = :id;

-- name: retry_of_group
-- The unfinished group that retries this one.
select id from hw_group where retry_of = :id and retry_of is not null and finished_at is null limit 1;

-- name: group_of_job
select group_id from hw_job where id = :id;

-- name: active_groups
-- The unfinished executions of a schedule.
select {group_columns} from hw_group g where g.schedule_id = :schedule_id and g.status = 'IN_PROGRESS' order by g.id;

-- name: stage_is_open
-- Returns a row if a job of this stage is unfinished. A retry is created in the transaction that ends the job before
-- it, so a chain that goes on always has one.
select 1 from hw_job where group_id = :group_id and group_id is not null and stage = :stage and status {is_unfinished} limit 1;

-- name: ended_stages
-- Those of these groups whose open stage has no unfinished job, each with the members of that stage as `stage_members`
-- returns them, or with nulls if it has none. The groups are read first, by number, whatever the statistics say.
with g as materialized (
  select i.id, (select x.stage from hw_group x where x.id = i.id and x.finished_at is null and x.stage >= 0) as stage from {ids} i)
select g.id, m.id, m.step, m.stage, m.status, m.options, m.reason, r.error, m.fence from g
left join hw_job m on m.group_id = g.id and m.group_id is not null and m.stage = g.stage
  and not exists (select 1 from hw_job c where c.retry_of = m.id and c.retry_of is not null and c.group_id = m.group_id)
left join hw_run r on r.job_id = m.id
where g.stage is not null and not exists (
  select 1 from hw_job j where j.group_id = g.id and j.group_id is not null and j.stage = g.stage and j.status {is_unfinished})
order by g.id, m.id;

-- name: group_event
-- The event of the latest change of a group, with the version of its row.
insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor, data)
select g.tenant_id, g.kind, g.id, g.version, g.kind || '.' || :kind, {now}, :actor, :data from hw_group g where g.id = :id;

-- name: group_is_open
select 1 from hw_job where group_id = :group_id and group_id is not null and status {is_unfinished} limit 1;

-- name: first_stage
select min(stage) from hw_job where group_id = :group_id and group_id is not null;

-- name: group_members
-- The last job of each chain in the group, and how it ended.
select j.id, j.step, j.stage, j.status, j.options, j.reason, r.error, j.fence from hw_job j left join hw_run r on r.job_id = j.id
where j.group_id = :group_id and j.group_id is not null
  and not exists (select 1 from hw_job c where c.retry_of = j.id and c.retry_of is not null and c.group_id = j.group_id)
order by j.stage, j.id;

-- name: last_of_step
-- The last job of a member's chain is the one with the highest id.
select max(id) from hw_job where group_id = :group_id and group_id is not null and step = :step;

-- name: stage_members
-- The last job of each chain of one stage.
select j.id, j.step, j.stage, j.status, j.options, j.reason, r.error, j.fence from hw_job j left join hw_run r on r.job_id = j.id
where j.group_id = :group_id and j.group_id is not null and j.stage = :stage
  and not exists (select 1 from hw_job c where c.retry_of = j.id and c.retry_of is not null and c.group_id = j.group_id)
order by j.id;

-- name: unfinished_members
-- The unfinished members, in the order in which jobs are locked.
select {job_columns} from hw_job j where j.group_id = :group_id and j.group_id is not null and j.status {is_unfinished} order by j.id {for_update};

-- name: unfilled_members
-- The members of a stage whose params still name results.
select id, unfilled from hw_job where group_id = :group_id and group_id is not null and stage = :stage and status {is_unfinished} and unfilled is not null
  and fence = 0;

-- name: fill_params
update hw_job set params = (select r.params from {rows(id bigint, params text)} as r where r.id = hw_job.id)
where id in (select r.id from {rows(id bigint, params text)} as r) and fence = 0;

-- name: earlier_results
-- The results of the steps before a stage, of this group and of those it retries; the farthest group comes first.
with recursive g(id, depth) as (
  select cast(:group_id as bigint), 0
  union all
  select x.retry_of, g.depth + 1 from g join hw_group x on x.id = g.id where x.retry_of is not null
)
select j.step, s.body from g join hw_job j on j.group_id = g.id and j.group_id is not null and j.stage < :stage and j.status = {COMPLETED}
left join hw_result s on s.job_id = j.id order by g.depth desc, j.id;

-- name: group_steps
-- The steps of this group and of those it retries, with their stages.
with recursive g(id) as (
  select cast(:group_id as bigint)
  union all
  select x.retry_of from g join hw_group x on x.id = g.id where x.retry_of is not null
)
select distinct j.step, j.stage from g join hw_job j on j.group_id = g.id and j.group_id is not null;

-- name: flowing_steps
-- The steps of a group with their params before results were filled in, and the template that each is from.
select j.step, j.stage, j.task, coalesce(j.unfilled, j.params), t.definition from hw_job j left join hw_template t on t.id = j.template_id
where j.group_id = :group_id and j.group_id is not null and j.step is not null
  and (j.unfilled is not null or j.task not in ('command', 'powershell', 'sql', 'http')) order by j.id;

-- name: open_stage
update hw_group set stage = :stage, version = version + 1 where id = :id;

-- name: bump_group
update hw_group set version = version + 1 where id = :id;

-- name: mark_group_cancelled
update hw_group set cancelled_by = :by, version = version + 1 where id = :id and cancelled_by is null returning version;

-- name: end_group
update hw_group set status = :status, error = cast(:error as text), finished_at = {now}, version = version + 1
where id = :id and finished_at is null;

-- name: followers
-- The groups that wait for the end of this one.
select id from hw_group where after_id = :id and after_id is not null and stage = -1 and finished_at is null order by id;

-- name: follow_another
update hw_group set after_id = :after_id where id = :id;

-- name: stuck_groups
-- Unfinished groups that have begun and whose open stage has no unfinished job, and groups that wait for one that has
-- ended.
select g.id from hw_group g where g.finished_at is null and ((g.stage >= 0 and not exists (
    select 1 from hw_job j where j.group_id = g.id and j.group_id is not null and j.stage = g.stage and j.status {is_unfinished}))
  or (g.stage = -1 and not exists (select 1 from hw_group a where a.id = g.after_id and a.finished_at is null)))
order by g.id limit 200;

-- name: prunable_groups
-- Groups that ended before the cutoff, oldest first, after a given one. A group that another retries is kept, because
-- that one links to it. The newest group stays: SQLite would reuse its number, and ticks that name it would name
-- another.
select g.finished_at, g.id from hw_group g where g.finished_at is not null and g.finished_at < :before
  and g.finished_at >= :after_at and (g.finished_at > :after_at or g.id > :after_id)
  and not exists (select 1 from hw_group r where r.retry_of = g.id and r.retry_of is not null)
  and g.id < (select max(id) from hw_group)
order by g.finished_at, g.id limit :limit;

-- name: group_chains
-- All jobs of a group and their later retries, as (id, end).
with recursive j(id, finished_at) as (
  select id, finished_at from hw_job where group_id = :group_id and group_id is not null
  union
  select c.id, c.finished_at from j join hw_job c on c.retry_of = j.id and c.retry_of is not null
)
select id, finished_at from j order by id;

-- name: prune_group
delete from hw_event where thing_id = :id and thing in ('group', 'execution');
delete from hw_group where id = :id and not exists (select 1 from hw_group r where r.retry_of = :id and r.retry_of is not null);

-- name: tally_group
insert into hw_tally (tenant_id, name, count) select tenant_id, 'groups', 1 from hw_group where id = :id
on conflict (tenant_id, name) do update set count = hw_tally.count + excluded.count;

-- name: prune_ticks
-- Prunes ledger rows that were decided before the cutoff, except the last row of each schedule.
delete from hw_tick where id in (
  select t.id from hw_tick t where t.decided_at < :before
    and exists (select 1 from hw_tick n where n.schedule_id = t.schedule_id and n.nominal_at > t.nominal_at)
  order by t.decided_at, t.id limit 1000)
returning tenant_id, id;

-- name: old_tick
-- Returns a row if a tick can be pruned.
select t.id from hw_tick t where t.decided_at < :before
  and exists (select 1 from hw_tick n where n.schedule_id = t.schedule_id and n.nominal_at > t.nominal_at) order by t.decided_at, t.id limit 1;

-- name: prune_tick_events
delete from hw_event where thing = 'tick' and thing_id in {ids};

-- name: tally_ticks
insert into hw_tally (tenant_id, name, count) values (:tenant_id, 'ticks', :count)
on conflict (tenant_id, name) do update set count = hw_tally.count + excluded.count;

-- name: groups_before
-- A tenant's groups or executions, newest first.
select {group_columns} from hw_group g where g.tenant_id = :tenant_id and g.kind = :kind and g.id < :before
  and (cast(:status as text) is null or g.status = :status)
order by g.id desc limit :limit;

-- name: executions_before
-- The executions of one schedule, newest first.
select {group_columns} from hw_group g where g.schedule_id = :schedule_id and g.schedule_id is not null and g.tenant_id = :tenant_id
  and g.id < :before and (cast(:status as text) is null or g.status = :status)
order by g.id desc limit :limit;

-- name: group_steps_shown
-- The last job of each chain, of this group and of those it retries; the farthest group comes first.
with recursive g(id, depth) as (
  select cast(:group_id as bigint), 0
  union all
  select x.retry_of, g.depth + 1 from g join hw_group x on x.id = g.id where x.retry_of is not null
)
select g.depth, j.step, j.stage, j.task, j.id, j.status, j.hold, j.attempt, j.started_at, j.finished_at, j.reason, r.error, j.options
from g join hw_job j on j.group_id = g.id and j.group_id is not null left join hw_run r on r.job_id = j.id
where not exists (select 1 from hw_job c where c.retry_of = j.id and c.retry_of is not null and c.group_id = j.group_id)
order by g.depth desc, j.id;

-- name: count_steps
-- The steps of each of these groups by the state of their last jobs: count, and earliest start. Steps that a group did
-- not run again are counted as they are in the groups that it retries.
with recursive g(shown, id, depth) as (
  select i.id, i.id, 0 from {ids} i
  union all
  select g.shown, x.retry_of, g.depth + 1 from g join hw_group x on x.id = g.id where x.retry_of is not null
), s as (
  select g.shown, g.depth, j.status, j.started_at, row_number() over (partition by g.shown, j.step order by g.depth, j.id desc) as place
  from g join hw_job j on j.group_id = g.id and j.group_id is not null
)
select s.shown, s.status, count(*), min(case when s.depth = 0 then s.started_at end) from s where s.place = 1 group by s.shown, s.status;

-- name: steps_to_tell
-- The steps that a list of groups names: all that may wait for a person, and the first four that failed.
with t as (
  select j.*, row_number() over (partition by j.group_id, j.status order by j.stage, j.id) as place from {ids} i
  join hw_job j on j.group_id = i.id and j.group_id is not null and (j.status in ({PAUSED}, {ERROR}, {FAILED}) or (j.status = {WAITING} and j.hold = 1))
  where not exists (select 1 from hw_job c where c.retry_of = j.id and c.retry_of is not null and c.group_id = j.group_id)
)
select t.group_id, 0, t.step, t.stage, t.task, t.id, t.status, t.hold, t.attempt, t.started_at, t.finished_at, t.reason, r.error, t.options
from t left join hw_run r on r.job_id = t.id where t.status <> {FAILED} or t.place <= 4 order by t.stage, t.id;

-- name: held_in_stage
-- The members of a stage that are on hold.
select j.id, j.step from hw_job j where j.group_id = :group_id and j.group_id is not null and j.stage = :stage and j.status {is_unfinished} and j.status = {WAITING}
  and j.hold = 1 order by j.id;

-- name: lock_groups_and_followers
-- Locks the groups and their followers in the order of their ids, because the end of a group locks its followers.
select {group_columns} from hw_group g where g.id in (
  select i.id from {ids} i
  union
  select f.id from {ids} i join hw_group f on f.after_id = i.id and f.after_id is not null and f.stage = -1 and f.finished_at is null)
order by g.id {for_update};

-- name: ledger_begins
-- The first nominal time left in the ledger of a schedule, and whether ticks of its tenant were pruned.
select (select min(nominal_at) from hw_tick where schedule_id = :schedule_id),
  (select count from hw_tally where tenant_id = :tenant_id and name = 'ticks');
