-- Statements for the charts of groups and the pages of targets and lanes.

-- name: jobs_of_steps
-- All jobs of these steps of a group, retries included.
select j.id, j.step, j.stage, j.status, j.task, j.hold, j.claimed_at, j.ran from hw_job j
where j.group_id = :group_id and j.group_id is not null and j.step in (select r.step from {rows(step text)} as r)
order by j.stage, j.id limit :limit;

-- name: status_changes
-- The status changes of these jobs, each job's in order of time.
select e.thing_id, e.at, e.status, e.kind from hw_event e where e.thing_id in {ids} and e.thing = 'job' and e.status is not null
order by e.thing_id, e.version limit :limit;

-- name: retries_of_group
-- The groups that retry this one.
select {group_columns} from hw_group g where g.retry_of = :id and g.retry_of is not null order by g.id;

-- name: queue_of_target
-- The queued jobs of a target in claim order.
select {job_columns} from hw_job j where j.target_id = :target_id and j.target_id is not null and j.status = {QUEUED}
order by j.priority desc, j.position, j.created_at, j.id limit :limit;
