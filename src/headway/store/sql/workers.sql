-- Workers, their leases and their processes.

-- name: add_worker
-- Repeated after a commit whose answer was lost, it finds the row and inserts nothing.
insert into hw_worker (id, host, boot, pid, process_start, slots, tasks, tenants, kind, started_at, beat_at, lease_until)
values (:id, :host, :boot, :pid, :process_start, :slots, :tasks, :tenants, :kind, {now}, {now}, {now} + :lease)
on conflict (id) do nothing returning id;

-- name: beat
-- One statement renews every claim of a worker, because a claim's lease is its worker's. A worker that was given up
-- stays so.
update hw_worker set beat = beat + 1, beat_at = {now}, lease_until = {now} + :lease
where id = :id and gone_at is null returning beat;

-- name: held
-- The holdings of a worker, to compare with what it runs: jobs with their fences, reservations with 0.
select id, fence from hw_job where worker_id = :worker_id and status = {RUNNING}
union all select id, 0 from hw_reservation where worker_id = :worker_id and finished_at is null;

-- name: served_now
-- Live workers with free slots: tasks, number of free slots, and the tenants that they serve (null means all).
select s.tasks, s.free, s.tenants from (
  select w.tasks, w.tenants, w.slots - (select count(*) from hw_job j where j.status = {RUNNING} and j.worker_id = w.id) as free
  from hw_worker w where w.gone_at is null and w.state = 'live' and w.note is null and w.kind = 'worker' and w.lease_until > {now}) s
where s.free > 0;

-- name: set_worker_state
update hw_worker set state = :state, version = version + 1 where id = :id and gone_at is null and state <> :state returning version;

-- name: set_worker_note
update hw_worker set note = :note, version = version + 1 where id = :id and gone_at is null returning version;

-- name: note_worker_end
update hw_worker set note = :note, version = version + 1 where id = :id returning version;

-- name: live_workers
-- Workers that were not given up, with the time by the clock that wrote their leases.
select id, host, boot, pid, process_start, beat, lease_until, lease_until - beat_at, {now} from hw_worker where gone_at is null order by id;

-- name: retire_worker
-- Gives a worker up, once. From then on its heartbeats are refused.
update hw_worker set state = 'gone', gone_at = {now}, version = version + 1 where id = :id and gone_at is null returning version;

-- name: retire_quiet_worker
-- As above, and only if the worker sent no heartbeat since it was read. A heartbeat in the future means that the clock
-- was put back.
update hw_worker set state = 'gone', gone_at = {now}, version = version + 1
where id = :id and gone_at is null and beat = :beat and (lease_until < {now} or beat_at > {now}) returning version;

-- name: workers
select w.id, w.host, w.pid, w.slots, w.tasks, w.state, w.started_at, w.beat_at, w.lease_until, w.gone_at from hw_worker w
where w.gone_at is null or w.gone_at > {now} - :within order by w.started_at, w.id;

-- name: worker
select w.id, w.host, w.pid, w.slots, w.tasks, w.state, w.started_at, w.beat_at, w.lease_until, w.gone_at from hw_worker w where w.id = :id;

-- name: orphans
-- RUNNING jobs whose owner was given up or never existed, after a given claim.
select j.id, j.worker_id, j.fence, j.slot, j.group_id from hw_job j left join hw_worker w on w.id = j.worker_id
where j.status = {RUNNING} and (j.worker_id, j.slot) > (:worker_id + 0, :slot + 0) and (w.id is null or w.gone_at is not null)
order by j.worker_id, j.slot limit (:limit + 0);

-- name: finished_but_running
-- RUNNING jobs whose run has ended or is missing. Only database damage makes them, and recovery repairs them.
select j.id, j.fence, r.status from hw_job j left join hw_run r on r.job_id = j.id
where j.status = {RUNNING} and (r.job_id is null or r.finished_at is not null) order by j.worker_id, j.slot limit 200;

-- name: undecided_failures
-- Jobs FAILED by themselves, with neither a retry nor a record that there is none.
select j.id from hw_job j where j.status = {FAILED} and j.exhausted = 0 and j.id > :after and j.finished_at >= :since
and not exists (select 1 from hw_job c where c.retry_of = j.id) order by j.id limit 200;

-- name: add_process
-- Repeated after a commit whose answer was lost, it finds the row and inserts nothing.
insert into hw_process (tag, worker_id, slot, pid, process_start) values (:tag, :worker_id, :slot, :pid, :process_start)
on conflict (tag) do nothing;

-- name: drop_process
delete from hw_process where tag = :tag;

-- name: drop_processes
delete from hw_process where tag in (select r.tag from {rows(tag text)} as r);

-- name: processes_of
select p.tag, p.slot, p.pid, p.process_start, w.host, w.boot from hw_process p join hw_worker w on w.id = p.worker_id where p.worker_id = :worker_id;

-- name: left_processes
-- Processes that workers given up may have left on this host.
select p.tag, p.worker_id, w.boot from hw_process p join hw_worker w on w.id = p.worker_id where w.gone_at is not null and w.host = :host;
