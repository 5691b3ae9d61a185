-- The audit list reads this index; events of the flow of jobs are not in it. Negative numbers give the list an order that
-- no other index has, so that a planner without statistics takes no other one.
create index hw_event_audit on hw_event (tenant_id, (-id)) where
  (thing in ('tenant', 'lane', 'concurrency', 'target', 'token', 'webhook', 'template', 'schedule')
  or thing in ('job', 'group', 'execution', 'delivery') and (kind <> 'job.created' or data is not null)
  and substr(actor, 10, 5) in ('user"', 'token'));
