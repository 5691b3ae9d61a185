-- Schedules, the ledger of their ticks, and templates. A schedule's row is locked before groups and jobs are.

-- name: next_schedule
-- The current time, and the time of the next tick of any schedule.
select {now}, (select min(s.next_at) from hw_schedule s where s.next_at is not null);

-- name: due_schedules
select {schedule_columns} from hw_schedule s where s.next_at is not null and s.next_at <= {now} + 0 order by s.next_at, s.id limit :limit;

-- name: lock_due_schedules
-- Locks those of these schedules that are still due; skips rows that another transaction has locked.
select {schedule_columns} from hw_schedule s where s.id in {ids} and s.next_at is not null and s.next_at <= {now} + 0
order by s.next_at, s.id {skip_locked};

-- name: decide_schedules
-- Moves `decided_until`, only if no other transaction moved it first.
update hw_schedule set decided_until = r.until, next_at = r.next_at, last_run_at = coalesce(r.ran_at, last_run_at)
from {rows(id bigint, version integer, before bigint, until bigint, next_at bigint, ran_at bigint)} as r
where hw_schedule.id = r.id and hw_schedule.version = r.version and hw_schedule.decided_until = r.before
returning hw_schedule.id;

-- name: active_stages
-- The lowest open stage of each schedule's unfinished executions: -1 if one waits to begin, null if there is none.
select i.id, (select min(g.stage) from hw_group g where g.schedule_id = i.id and g.status = 'IN_PROGRESS') from {ids} i;

-- name: add_ticks
insert into hw_tick (tenant_id, schedule_id, nominal_at, until, count, outcome, reason, execution_id, tolerance, decided_at)
select tenant_id, schedule_id, nominal_at, until, count, outcome, reason, execution_id, tolerance, {now}
from {rows(tenant_id bigint, schedule_id bigint, nominal_at bigint, until bigint, count integer, outcome text, reason text, execution_id bigint, tolerance bigint)} as r
order by n
returning id, tenant_id, schedule_id, nominal_at, until, count, outcome, reason;

-- name: schedule_by_id
select {schedule_columns} from hw_schedule s where s.id = :id and s.tenant_id = :tenant_id and s.deleted_at is null;

-- name: schedule_by_name
select {schedule_columns} from hw_schedule s where s.tenant_id = :tenant_id and s.name = :name and s.deleted_at is null;

-- name: schedules_kept
select {schedule_columns} from hw_schedule s where s.id in {ids} and s.tenant_id = :tenant_id;

-- name: lock_schedule
select {schedule_columns} from hw_schedule s where s.id = :id {for_update};

-- name: schedules_after
-- Schedules by name.
select {schedule_columns} from hw_schedule s where s.tenant_id = :tenant_id and s.deleted_at is null and s.name > :after order by s.name limit :limit;

-- name: deleted_schedules
-- Deleted schedules, the last made first.
select {schedule_columns} from hw_schedule s where s.tenant_id = :tenant_id and s.deleted_at is not null and s.id < :before
order by s.id desc limit :limit;

-- name: upcoming_schedules
-- Schedules by their next tick.
select {schedule_columns} from hw_schedule s where s.tenant_id = :tenant_id and s.next_at is not null order by s.next_at, s.id limit :limit;

-- name: add_schedule
insert into hw_schedule (tenant_id, name, definition, enabled, origin, decided_until, created_at, created_by, defined_by, templates)
values (:tenant_id, :name, :definition, :enabled, :origin, :at, :at, :actor, :author, :templates)
on conflict (tenant_id, name) where deleted_at is null do nothing returning id;

-- name: save_schedule
update hw_schedule set name = :name, definition = :definition, enabled = :enabled, origin = :origin, decided_until = :decided_until,
  next_at = cast(:next_at as bigint), deleted_at = cast(:deleted_at as bigint), defined_by = :defined_by, templates = :templates,
  version = version + 1
where id = :id and version = :version returning version;

-- name: unseen_misses
-- Schedules with missed ticks that no person has seen, of one tenant or of all: how many, the first and the last.
select {schedule_columns}, m.times, m.first_at, m.last_at from hw_schedule s join (
  select o.id, sum(t.count) as times, min(t.nominal_at) as first_at, max(t.until) as last_at, max(t.decided_at) as decided_at
  from hw_schedule o join hw_tick t on t.schedule_id = o.id and t.outcome in ('MISSED', 'COALESCED') and t.decided_at > coalesce(o.missed_seen_at, 0)
  where o.deleted_at is null and (cast(:tenant_id as bigint) is null or o.tenant_id = :tenant_id)
    and (cast(:schedule_id as bigint) is null or o.id = :schedule_id)
  group by o.id) m on m.id = s.id
order by m.decided_at desc, s.id limit :limit;

-- name: see_misses
update hw_schedule set missed_seen_at = {now}, version = version + 1 where id = :id returning version, missed_seen_at;

-- name: mark_run
update hw_schedule set last_run_at = {now} where id = :id;

-- name: silent_schedules
-- Enabled schedules without a next time.
select {schedule_columns} from hw_schedule s where s.enabled = 1 and s.deleted_at is null and s.next_at is null order by s.id;

-- name: speak_again
update hw_schedule set next_at = :next_at where id = :id and version = :version and decided_until = :before and next_at is null and enabled = 1
  and deleted_at is null returning id;

-- name: last_switch
-- The event that last enabled or disabled a schedule.
select kind, data from hw_event where thing_id = :id and thing = 'schedule' and kind in ('schedule.created', 'schedule.enabled', 'schedule.disabled')
order by version desc limit 1;

-- name: definition_at
-- The event with the definition that a schedule had at an instant.
select data from hw_event where thing_id = :id and thing = 'schedule' and at <= :at order by version desc limit 1;

-- name: fired_between
select nominal_at from hw_tick where schedule_id = :schedule_id and outcome = 'FIRED' and nominal_at between :since and :until;

-- name: ticks_before
-- The ledger of a schedule, newest decision first.
select {tick_columns} from hw_tick t where t.schedule_id = :schedule_id and t.nominal_at < :before order by t.nominal_at desc, t.id desc limit :limit;

-- name: template_by_id
select {template_columns} from hw_template t where t.id = :id and t.tenant_id = :tenant_id;

-- name: template_by_name
-- The active template of a name; of archived ones the newest.
select {template_columns} from hw_template t where t.tenant_id = :tenant_id and t.name = :name order by t.archived_at is not null, t.id desc limit 1;

-- name: lock_template
select {template_columns} from hw_template t where t.id = :id {for_update};

-- name: templates_after
select {template_columns} from hw_template t where t.tenant_id = :tenant_id and t.id > :after and (t.archived_at is null or :archived = 1)
order by t.id limit :limit;

-- name: add_template
insert into hw_template (tenant_id, name, task, definition, created_at, created_by, defined_by)
values (:tenant_id, :name, :task, :definition, {now}, :actor, :actor)
on conflict (tenant_id, name) where archived_at is null do nothing returning id;

-- name: save_template
update hw_template set name = :name, task = :task, definition = :definition, archived_at = case when :archive = 1 then {now} end,
  defined_by = :author, version = version + 1
where id = :id and version = :version and archived_at is null returning version;

-- name: set_next
update hw_schedule set next_at = cast(:next_at as bigint) where id = :id;
