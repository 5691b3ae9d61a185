"""Recovery: finds workers that are gone and hands their jobs to the one way out of RUNNING. Idempotent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from headway.clock import micros
from headway.engine import processes
from headway.engine.finish import decide_left_over, settle
from headway.engine.loop import Loop
from headway.model.job import SYSTEM, Job
from headway.model.outcome import Lost
from headway.model.plan import Group
from headway.model.states import State
from headway.store import groups, jobs, reservations, rows, sealing, workers
from headway.store.db import Database, Tx

log = logging.getLogger("headway")
KILL_GRACE = 0.0
RECENT = 3600.0


class Recovery(Loop):
    """Runs at start, at an interval, and before a worker goes idle. It remembers whose beat it saw when."""

    name = "recovery"

    def __init__(self, database: Database, *, interval: float = 30.0) -> None:
        super().__init__()
        self.database = database
        self.interval = interval
        self.own: Callable[[], None] | None = None
        self.seen: dict[int, tuple[int, float]] = {}
        self.first = True
        self.here = (processes.host(), processes.boot_id())
        self.recovered = 0

    def tick(self) -> float:
        if self.own is not None:
            self.own()  # after a suspend our own lease may be the oldest: renew it before judging others
        self._give_up_the_dead()
        stubborn = self._end_left_processes()
        self._settle_orphans(stubborn)
        self._end_lost_reservations(stubborn)
        self._mend_damage()
        self._decide_failures(everything=self.first)
        self._mend_groups()
        self.first = False
        return self.interval

    # --- who is gone ---

    def _give_up_the_dead(self) -> None:
        with self.database.read() as tx:
            sealing.refuse_sealed(tx)  # who only reads would never know that the data are somewhere else
            seen = workers.live(tx)
        for worker in seen:
            if why := self._gone_at_once(worker):
                self._retire(worker.identity.id, why, None)
            elif self._silent_for_a_lease(worker):
                name, host = workers.worker_name(worker.identity.id), worker.identity.host
                why = f"worker {name} on {host} has not renewed its lease"
                self._retire(worker.identity.id, why, worker.beat)
        alive = {worker.identity.id for worker in seen}
        self.seen = {worker_id: sight for worker_id, sight in self.seen.items() if worker_id in alive}

    def _gone_at_once(self, worker: workers.Seen) -> str | None:
        who = worker.identity
        if (who.host, who.boot) != self.here or processes.alive(who.pid, who.process_start):
            return None
        return f"the process {who.pid} of worker {workers.worker_name(who.id)} is gone"

    def _silent_for_a_lease(self, worker: workers.Seen) -> bool:
        """The stored lease has passed, and this process itself saw no beat for a whole lease."""
        now = time.monotonic()
        beat, since = self.seen.setdefault(worker.identity.id, (worker.beat, now))
        if beat != worker.beat:
            self.seen[worker.identity.id] = (worker.beat, now)
            return False
        return worker.lease_until < worker.now and now - since >= worker.lease

    def _retire(self, worker_id: int, why: str, beat: int | None) -> None:
        if self.database.transact("give_up", lambda tx: workers.retire(tx, worker_id, why, quiet_since_beat=beat)):
            log.warning("recovery: %s", why)

    # --- what they left ---

    def _end_left_processes(self) -> set[int]:
        """Ends what dead workers of this host left running. Returns the workers for which that failed."""
        with self.database.read() as tx:
            left = workers.left_tags(tx, *self.here)
        stubborn: set[int] = set()
        for tag, worker_id in left:
            if processes.end_tree(tag, grace=KILL_GRACE, monotonic=time.monotonic):
                self.database.transact("forget_process", lambda tx, tag=tag: tx.run("drop_process", tag=tag))  # type: ignore[misc]
            else:
                stubborn.add(worker_id)
        return stubborn

    def _settle_orphans(self, stubborn: set[int]) -> None:
        with self.database.read() as tx:
            orphans = tx.run("orphans")
        for job_id, worker_id, fence in orphans:
            lost = Lost(
                f"worker {workers.worker_name(worker_id)} was lost"
                + (" and its processes could not be ended" if worker_id in stubborn else ""),
                remains=worker_id in stubborn,
            )
            state = self.database.transact("recover", lambda tx, j=job_id, f=fence, o=lost: self._settle(tx, j, f, o))  # type: ignore[misc]
            if state is not None:
                log.warning("recovery: job %d, whose %s, is now %s", job_id, lost.why, state.name)

    def _settle(self, tx: Tx, job_id: int, fence: int, lost: Lost) -> State | None:
        """Where the job went; None if it was not ours to settle any more, or not yet."""
        group = groups.lock_of_job(tx, job_id)
        job = self._take(tx, job_id)
        if job is None or job.status is not State.RUNNING or job.fence != fence or self._still_at_work(tx, job, lost):
            return None
        run = jobs.run_of(tx, job_id)
        if run is not None and run.status is not None:
            self._close_like_run(tx, job, run.status, group)
            state = run.status
        else:
            tx.run("open_run", job_id=job_id)
            state = settle(tx, job, lost, SYSTEM, group)
        if group is not None:
            groups.advance(tx, group, SYSTEM)
        self.recovered += 1
        tx.wake()  # its lanes are free
        return state

    def _still_at_work(self, tx: Tx, job: Job, lost: Lost) -> bool:
        """Its worker was given up after this round ended the processes of others: the next round ends its own."""
        return not lost.remains and job.worker_id is not None and self._left_here(tx, job.worker_id)

    def _left_here(self, tx: Tx, worker_id: int) -> bool:
        """Whether processes of it may still be at work on this host."""
        return any((host, boot) == self.here for *_, host, boot in tx.run("processes_of", worker_id=worker_id))

    @staticmethod
    def _take(tx: Tx, job_id: int) -> Job | None:
        """Locked unless another process is at it already: then it is theirs."""
        found = tx.run("try_lock_job", id=job_id)
        return rows.job(found[0]) if found else None

    # --- what they held ---

    def _end_lost_reservations(self, stubborn: set[int]) -> None:
        """Reservations whose holder is gone, or that were not renewed in time. While processes of a holder are still
        there its lanes stay closed, as they would for a job that runs."""
        with self.database.read() as tx:
            ((now,),) = tx.run("time")
            overdue = any(one.expires_at is not None and one.expires_at <= now for one in reservations.active(tx))
            lost = [(number, holder) for number, holder in tx.run("lost_reservations") if holder not in stubborn]
        if overdue or lost:
            ended = self.database.transact("expire_reservations", lambda tx: self._expire(tx, lost))
            for number in ended:
                log.warning("recovery: reservation %d, which nobody renews, is now EXPIRED", number)

    def _expire(self, tx: Tx, lost: Sequence[tuple[int, int]]) -> list[int]:
        tx.run("claim_lock")
        ((now,),) = tx.run("time")
        before = {one.id for one in reservations.active(tx)}
        for number, holder in lost:
            if not self._left_here(tx, holder):
                why = f"its holder, {workers.worker_name(holder)}, is gone"
                reservations.end(tx, number, status="EXPIRED", actor=SYSTEM, outcome="ABANDONED", error=why)
        reservations.drop_expired(tx, reservations.active(tx), now)
        return sorted(before - {one.id for one in reservations.active(tx)})

    # --- what is not as it should be ---

    def _mend_damage(self) -> None:
        """RUNNING with a finished or missing run: no transaction of ours leaves that behind, damage may."""
        with self.database.read() as tx:
            damaged = tx.run("finished_but_running")
        for job_id, fence, status in damaged:
            if status is None:
                self.database.transact("mend", lambda tx, j=job_id: tx.run("open_run", job_id=j))  # type: ignore[misc]
            else:
                self.database.transact("mend", lambda tx, j=job_id, f=fence, s=status: self._close(tx, j, f, State(s)))  # type: ignore[misc]

    def _close(self, tx: Tx, job_id: int, fence: int, run: State) -> None:
        """The run has ended, so the job has: it takes its run's status."""
        group = groups.lock_of_job(tx, job_id)
        job = self._take(tx, job_id)
        if job is not None and job.status is State.RUNNING and job.fence == fence:
            self._close_like_run(tx, job, run, group)
            if group is not None:
                groups.advance(tx, group, SYSTEM)

    @staticmethod
    def _close_like_run(tx: Tx, job: Job, run: State, group: Group | None) -> None:
        """With the decision about its retry, before its group is judged."""
        jobs.close_like_run(tx, job, run, SYSTEM)
        if run is State.FAILED:
            decide_left_over(tx, jobs.lock(tx, job.id), SYSTEM, group)

    def _mend_groups(self) -> None:
        """Groups that nobody advanced: the transaction that ends a stage does, so this too takes damage."""
        with self.database.read() as tx:
            stuck = [group_id for (group_id,) in tx.run("stuck_groups")]
        for group_id in stuck:
            if self.database.transact("mend_group", lambda tx, g=group_id: groups.mend(tx, g, SYSTEM)):  # type: ignore[misc]
                log.warning("recovery: group %d was stuck and goes on", group_id)

    def _decide_failures(self, *, everything: bool) -> None:
        """Failures without a retry decision: all of them at start, the recent ones later."""
        after = 0
        since = 0 if everything else self.database.clock.now() - micros(RECENT)
        while True:
            with self.database.read() as tx:
                found = [row[0] for row in tx.run("undecided_failures", after=after, since=since)]
            for job_id in found:
                self.database.transact("decide", lambda tx, j=job_id: self._decide(tx, j))  # type: ignore[misc]
            if len(found) < 200:
                return
            after = found[-1]

    def _decide(self, tx: Tx, job_id: int) -> None:
        group = groups.lock_of_job(tx, job_id)
        job = self._take(tx, job_id)
        if job is None or job.status is not State.FAILED or job.exhausted or tx.run("any_retry", id=job_id):
            return
        decide_left_over(tx, job, SYSTEM, group)
