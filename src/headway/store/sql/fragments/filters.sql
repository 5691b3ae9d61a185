-- The conditions of list filters, shared by several statements. A null parameter matches every row.

-- name: filter_of_jobs
-- Conditions on a job alone. `mask` has a bit for each status.
(cast(:mask as integer) >> cast(j.status as integer)) & 1 = 1
  and j.created_at >= :since and j.created_at < :until
  and (cast(:task as text) is null or j.task = :task)
  and (cast(:q as text) is null or lower(j.task) like :q escape '!' or lower(j.key) like :q escape '!' or lower(j.reason) like :q escape '!'
    or exists (select 1 from hw_run r where r.job_id = j.id and lower(r.error) like :q escape '!'))

-- name: filter_of_both
-- Conditions on a job, whether the list shows the job or its run.
(cast(:exhausted as integer) is null or j.exhausted = :exhausted)
  and (cast(:stopping as integer) is null or j.stop is not null)
  and (cast(:key as text) is null or j.key = :key)
  and (cast(:target_id as bigint) is null or j.target_id = :target_id)
  and (cast(:group_id as bigint) is null or j.group_id = :group_id)
  and (cast(:schedule_id as bigint) is null
    or exists (select 1 from hw_group g where g.id = j.group_id and g.schedule_id = :schedule_id))
  and (cast(:failure_kind as text) is null or j.failure_kind = :failure_kind)
  and (cast(:by_name as text) is null or j.created_by like :by_name escape '!' or j.created_by like :by_id escape '!')

-- name: is_audited
-- Events in the audit list, as the index hw_event_audit has them. An actor is stored as {"type":"user",…: its type begins at 10.
(thing in ('tenant', 'lane', 'concurrency', 'target', 'token', 'webhook', 'template', 'schedule')
  or thing in ('job', 'group', 'execution', 'delivery') and (kind <> 'job.created' or data is not null)
  and substr(actor, 10, 5) in ('user"', 'token'))
