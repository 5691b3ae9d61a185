create table hw_counter (
  name text primary key,
  value integer not null
) without rowid;
insert into hw_counter (name, value) values ('job', 0);

create trigger hw_run_frozen before update of job_id, tenant_id, task, params, worker_id, started_at on hw_run
begin
  select raise(abort, 'a run is a record: its fixed columns never change');
end;
create trigger hw_run_once before update of status, finished_at, exit_code, error, artifacts on hw_run when old.finished_at is not null
begin
  select raise(abort, 'a run is a record: its end is written once');
end;
create trigger hw_run_kept before delete on hw_run when (select active from hw_pruning) = 0
begin
  select raise(abort, 'a run is a record: only pruning deletes it');
end;
create trigger hw_event_frozen before update on hw_event
begin
  select raise(abort, 'events are append-only');
end;
create trigger hw_event_kept before delete on hw_event when (select active from hw_pruning) = 0
begin
  select raise(abort, 'events are append-only: only pruning deletes them');
end;
create trigger hw_job_params_frozen before update of params on hw_job when old.fence > 0 and new.params <> old.params
begin
  select raise(abort, 'Cannot modify params after dispatch');
end;
create trigger hw_job_absorbing before update of status on hw_job when old.status >= 6 and new.status <> old.status
begin
  select raise(abort, 'a finished job stays as it ended');
end;
create trigger hw_job_no_return before update of status on hw_job when old.status = 3 and new.status < 3
begin
  select raise(abort, 'RUNNING never goes back to the queue');
end;
create trigger hw_job_fence_rises before update of fence on hw_job when new.fence < old.fence
begin
  select raise(abort, 'a fence only rises');
end;
create trigger hw_job_kept before delete on hw_job when (select active from hw_pruning) = 0
begin
  select raise(abort, 'a job is never deleted: only pruning does');
end;
