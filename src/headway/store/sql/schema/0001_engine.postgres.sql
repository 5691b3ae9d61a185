create sequence hw_job_id;

create function hw_refuse() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation';
end $$;
create function hw_pruning_only() returns trigger language plpgsql as $$
begin
  if (select active from hw_pruning) = 0 then
    raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation';
  end if;
  return old;
end $$;

create trigger hw_run_frozen before update of job_id, tenant_id, task, params, worker_id, started_at on hw_run
  for each row execute function hw_refuse('a run is a record: its fixed columns never change');
create trigger hw_run_once before update on hw_run
  for each row when (old.finished_at is not null) execute function hw_refuse('a run is a record: its end is written once');
create trigger hw_run_kept before delete on hw_run
  for each row execute function hw_pruning_only('a run is a record: only pruning deletes it');
create trigger hw_event_frozen before update on hw_event
  for each row execute function hw_refuse('events are append-only');
create trigger hw_event_kept before delete on hw_event
  for each row execute function hw_pruning_only('events are append-only: only pruning deletes them');
create trigger hw_job_params_frozen before update of params on hw_job
  for each row when (old.fence > 0 and new.params is distinct from old.params)
  execute function hw_refuse('Cannot modify params after dispatch');
create trigger hw_job_absorbing before update of status on hw_job
  for each row when (old.status >= 6 and new.status <> old.status) execute function hw_refuse('a finished job stays as it ended');
create trigger hw_job_no_return before update of status on hw_job
  for each row when (old.status = 3 and new.status < 3) execute function hw_refuse('RUNNING never goes back to the queue');
create trigger hw_job_fence_rises before update of fence on hw_job
  for each row when (new.fence < old.fence) execute function hw_refuse('a fence only rises');
create trigger hw_job_kept before delete on hw_job
  for each row execute function hw_pruning_only('a job is never deleted: only pruning does');

-- Truncating fires no trigger of a row.
create trigger hw_run_whole before truncate on hw_run
  for each statement execute function hw_refuse('a run is a record: only pruning deletes it');
create trigger hw_event_whole before truncate on hw_event
  for each statement execute function hw_refuse('events are append-only: only pruning deletes them');
create trigger hw_job_whole before truncate on hw_job
  for each statement execute function hw_refuse('a job is never deleted: only pruning does');

-- Most of what is updated goes dead at once: vacuum these tables early, so that claims stay flat.
alter table hw_job set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, fillfactor = 85);
alter table hw_run set (autovacuum_vacuum_scale_factor = 0.05, fillfactor = 85);
alter table hw_worker set (fillfactor = 50);
