-- Workers, their leases and their processes.

-- name: add_worker
insert into hw_worker (id, host, boot, pid, process_start, slots, tasks, kind, started_at, beat_at, lease_until)
values (:id, :host, :boot, :pid, :process_start, :slots, :tasks, :kind, {now}, {now}, {now} + :lease);

-- name: beat
-- One statement renews every claim of a worker: a claim's lease is its worker's. A worker that was given up stays so.
update hw_worker set beat = beat + 1, beat_at = {now}, lease_until = {now} + :lease
where id = :id and gone_at is null returning beat;

-- name: served_now
-- Each living worker that has free slots: its tasks, and how many.
select s.tasks, s.free from (
  select w.tasks, w.slots - (select count(*) from hw_job j where j.status = 3 and j.worker_id = w.id) as free
  from hw_worker w where w.gone_at is null and w.state = 'live' and w.kind = 'worker' and w.lease_until > {now}) s
where s.free > 0;

-- name: set_worker_state
update hw_worker set state = :state, version = version + 1 where id = :id and gone_at is null and state <> :state returning version;

-- name: live_workers
-- All that were not given up, with the time by the same clock that wrote their leases.
select id, host, boot, pid, process_start, beat, lease_until, lease_until - beat_at, {now} from hw_worker where gone_at is null order by id;

-- name: retire_worker
-- Gives a worker up, once. From here on none of its beats is accepted.
update hw_worker set state = 'gone', gone_at = {now}, version = version + 1 where id = :id and gone_at is null returning version;

-- name: retire_quiet_worker
-- As above, and only if it has not beaten since it was looked at.
update hw_worker set state = 'gone', gone_at = {now}, version = version + 1
where id = :id and gone_at is null and beat = :beat and lease_until < {now} returning version;

-- name: workers
select w.id, w.host, w.pid, w.slots, w.tasks, w.state, w.started_at, w.beat_at, w.lease_until, w.gone_at from hw_worker w
where w.gone_at is null or w.gone_at > {now} - :within order by w.started_at, w.id;

-- name: worker
select w.id, w.host, w.pid, w.slots, w.tasks, w.state, w.started_at, w.beat_at, w.lease_until, w.gone_at from hw_worker w where w.id = :id;

-- name: orphans
-- RUNNING jobs whose owner was given up or never existed. Bounded: the next round takes the rest.
select j.id, j.worker_id, j.fence from hw_job j left join hw_worker w on w.id = j.worker_id
where j.status = 3 and (w.id is null or w.gone_at is not null) order by j.worker_id, j.slot limit 200;

-- name: finished_but_running
-- RUNNING jobs whose run has ended or is missing: only damage makes them, and recovery mends them.
select j.id, j.fence, r.status from hw_job j left join hw_run r on r.job_id = j.id
where j.status = 3 and (r.job_id is null or r.finished_at is not null) order by j.worker_id, j.slot limit 200;

-- name: undecided_failures
-- FAILED by itself, with neither a retry nor the word that there is none.
select j.id from hw_job j where j.status = 7 and j.exhausted = 0 and j.id > :after and j.finished_at >= :since
and not exists (select 1 from hw_job c where c.retry_of = j.id) order by j.id limit 200;

-- name: add_process
-- Again after a commit whose answer was lost: it is there then.
insert into hw_process (tag, worker_id, slot, pid, process_start) values (:tag, :worker_id, :slot, :pid, :process_start)
on conflict (tag) do nothing;

-- name: drop_process
delete from hw_process where tag = :tag;

-- name: processes_of
select p.tag, p.slot, p.pid, p.process_start, w.host, w.boot from hw_process p join hw_worker w on w.id = p.worker_id where p.worker_id = :worker_id;

-- name: left_processes
-- What workers that were given up may have left running on this host.
select p.tag, p.worker_id, w.boot from hw_process p join hw_worker w on w.id = p.worker_id where w.gone_at is not null and w.host = :host;
