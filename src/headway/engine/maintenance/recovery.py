"""Recovery: finds lost workers and settles their claims. Idempotent.

A lost claim is a failure like every other and takes the same path.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.clock import micros
from headway.engine import restart
from headway.engine.execution import process_tree
from headway.engine.loop import Loop
from headway.engine.worker.finish import Settled, decide_left_over, settle
from headway.model.groups.group import Group
from headway.model.jobs.job import SYSTEM, JobRecord
from headway.model.jobs.outcome import Lost
from headway.model.jobs.states import State
from headway.store import rows, workers
from headway.store.db import Database, Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.migrations import refuse_migrated
from headway.store.queue import reservations
from headway.store.transfer import seal

log = logging.getLogger("headway")
KILL_GRACE = 0.0
RECENT = 3600.0
# Lost claims per transaction. Few, so that workers can commit in between.
BATCH = 50
# Longest time spent on lost claims before the other duties run; the rest follows.
SETTLE_SECONDS = 2.0
# Above this number, jobs are logged as counts.
MOST_LISTED = 10
# Sorts before the first claim of the first worker.
START = (-1, -1)


class Orphan(NamedTuple):
    """A claim whose worker is lost."""

    job_id: int
    worker_id: int
    fence: int
    slot: int
    group_id: int | None


class Recovery(Loop):
    """Runs at start, at an interval, and before a worker goes idle.

    It remembers when it last saw each worker's beat change.
    """

    name = "recovery"

    def __init__(self, database: Database, *, interval: float = 30.0) -> None:
        super().__init__()
        self.database = database
        self.interval = interval
        self.own: Callable[[], None] | None = None
        self.seen: dict[int, tuple[int, float]] = {}
        self.first = True
        self.here = (process_tree.host(), process_tree.boot_id())
        self.recovered = 0
        # Lost claims up to this one were examined in this pass.
        self.place = START
        # An error left claims of this pass as they were: another pass follows, after the rest of this one.
        self.missed = False

    def tick(self) -> float:
        """Runs rounds while they make progress, so that no lost claim waits."""
        while self._round() and not self.ended.is_set():
            self.went_at = time.monotonic()
        return self.interval

    def _round(self) -> bool:
        """Runs every duty once. True if lost claims are left that another round may settle."""
        if self.own is not None:
            self.own()  # after a suspend its own lease may be the oldest: renew it before judging others
        self._give_up_the_dead()
        stubborn = self._end_left_processes()
        more = self._settle_orphans(stubborn)
        self._end_lost_reservations(stubborn)
        self._mend_damage()
        self._decide_failures(everything=self.first)
        self._mend_groups()
        self.first = False
        return more

    # --- lost workers ---

    def _give_up_the_dead(self) -> None:
        with self.database.read() as tx:
            seal.refuse_sealed(tx)  # otherwise a process that only reads would never learn of the move
            refuse_migrated(tx)
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

    def _gone_at_once(self, worker: workers.SeenWorker) -> str | None:
        who = worker.identity
        if (who.host, who.boot) != self.here:
            return None
        if restart.here.replaced(who):
            return f"worker {workers.worker_name(who.id)} ended when its process {who.pid} started anew"
        if process_tree.alive(who.pid, who.process_start):
            return None
        return f"the process {who.pid} of worker {workers.worker_name(who.id)} is gone"

    def _silent_for_a_lease(self, worker: workers.SeenWorker) -> bool:
        """True if the lease has passed and this process saw no beat for a whole lease.

        A beat in the future says nothing, because the clock was set back since. A living worker beats again within a
        heartbeat, so the observation of this process decides.
        """
        now = time.monotonic()
        beat, since = self.seen.setdefault(worker.identity.id, (worker.beat, now))
        if beat != worker.beat:
            self.seen[worker.identity.id] = (worker.beat, now)
            return False
        passed = worker.lease_until < worker.now or worker.lease_until - micros(worker.lease) > worker.now
        return passed and now - since >= worker.lease

    def _retire(self, worker_id: int, why: str, beat: int | None) -> None:
        if self.database.transact("give_up", lambda tx: workers.retire(tx, worker_id, why, quiet_since_beat=beat)):
            log.warning("recovery: %s", why)

    # --- their claims and processes ---

    def _end_left_processes(self) -> set[int]:
        """Kills processes that dead workers left on this host.

        Returns workers where that failed.
        """
        with self.database.read() as tx:
            left = workers.left_tags(tx, *self.here)
        stubborn: set[int] = set()
        at_work = process_tree.tags_at_work() if left else set()
        gone = [tag for tag, _ in left if tag not in at_work]
        if gone:
            self.database.transact("forget_process", lambda tx: workers.forget(tx, gone))
        for tag, worker_id in left:
            if tag not in at_work:
                continue
            if process_tree.end_tree(tag, grace=KILL_GRACE, monotonic=time.monotonic):
                self.database.transact("forget_process", workers.forget, [tag])
            else:
                stubborn.add(worker_id)
        return stubborn

    def _settle_orphans(self, stubborn: set[int]) -> bool:
        """Settles lost claims for a limited time.

        True if some are left and some were settled, or if an error left some out of the pass that has ended.
        """
        deadline, settled = time.monotonic() + SETTLE_SECONDS, 0
        for batch in self._orphans():
            missed, self.missed = self.missed, True
            settled += self._settle_batch(batch, stubborn)
            self.missed = missed
            if time.monotonic() > deadline or self.ended.is_set():
                return settled > 0
        self.place = START
        missed, self.missed = self.missed, False
        return missed

    def _orphans(self) -> Iterator[list[Orphan]]:
        """Yields batches of lost claims.

        A batch that cannot be settled does not block later ones.
        """
        while True:
            worker_id, slot = self.place
            with self.database.read() as tx:
                found = [Orphan._make(row) for row in tx.run("orphans", worker_id=worker_id, slot=slot, limit=BATCH)]
            if not found:
                return
            self.place = found[-1].worker_id, found[-1].slot
            yield found

    def _settle_batch(self, batch: Sequence[Orphan], stubborn: set[int]) -> int:
        lost = {orphan.job_id: (orphan, _lost(orphan, orphan.worker_id in stubborn)) for orphan in batch}
        settled = self.database.transact("recover", lambda tx: self._settle_all(tx, lost))
        self.recovered += len(settled)
        if len(settled) > MOST_LISTED:
            counts = Counter(end.state.name for end in settled.values())
            states = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            retried = sum(end.retry_id is not None for end in settled.values())
            text = "recovery: the workers of %d jobs were lost; the jobs are now %s; %d of them are retried"
            log.warning(text, len(settled), states, retried)
        else:
            for job_id, end in settled.items():
                why = f"{lost[job_id][1].why}{_words(end)}"
                log.warning("recovery: job %d is now %s: %s", job_id, end.state.name, why)
        return len(settled)

    def _settle_all(self, tx: Tx, lost: Mapping[int, tuple[Orphan, Lost]]) -> dict[int, Settled]:
        """Settles lost claims. Returns the new state and the retry of each job.

        A job is left out if another process has it, or if its processes may still run.
        """
        tx.run("pin_plans")
        of_groups = {orphan.group_id for orphan, _ in lost.values() if orphan.group_id is not None}
        locked = groups.lock_to_end(tx, of_groups)
        taken = [rows.job(row) for row in tx.run("try_lock_jobs", ids=json.dumps(sorted(lost)))]
        held = [job for job in taken if job.status is State.RUNNING and job.fence == lost[job.id][0].fence]
        ending = {orphan.worker_id for orphan, why in lost.values() if not why.remains}
        busy = {worker_id for worker_id in ending if self._left_here(tx, worker_id)}
        ours = [job for job in held if job.worker_id not in busy]
        settled = {
            job.id: self._settle(tx, job, lost[job.id][1], locked.result().get(job.group_id or 0)) for job in ours
        }
        if of_groups:
            groups.advance_all(tx, of_groups, locked, SYSTEM)
        if settled:
            tx.wake()  # their lanes have room now
        return settled

    @staticmethod
    def _settle(tx: Tx, job: JobRecord, lost: Lost, group: Group | None) -> Settled:
        run = jobs.run_of(tx, job.id)
        if run is not None and run.status is not None:
            return Settled(run.status, Recovery._close_like_run(tx, job, run.status, group))
        if run is None:
            tx.run("open_run", job_id=job.id)
        return settle(tx, job, lost, SYSTEM, group)

    def _left_here(self, tx: Tx, worker_id: int) -> bool:
        """True if processes of the worker may still run on this host.

        A worker that was retired after this round killed left processes waits for the next round.
        """
        return any((host, boot) == self.here for *_, host, boot in tx.run("processes_of", worker_id=worker_id))

    @staticmethod
    def _take(tx: Tx, job_id: int) -> JobRecord | None:
        """Locks a job. None if another process has locked it."""
        found = tx.run("try_lock_job", id=job_id)
        return rows.job(found[0]) if found else None

    # --- their reservations ---

    def _end_lost_reservations(self, stubborn: set[int]) -> None:
        """Ends reservations whose holder is lost, or that were not renewed in time.

        While processes of a holder still run, its lanes stay occupied, as for a running job.
        """
        with self.database.read() as tx:
            now = tx.now()
            overdue = any(
                active.expires_at is not None and active.expires_at <= now for active in reservations.active(tx)
            )
            lost = [(number, holder) for number, holder in tx.run("lost_reservations") if holder not in stubborn]
        if overdue or lost:
            ended = self.database.transact("expire_reservations", lambda tx: self._expire(tx, lost))
            for number in ended:
                log.warning("recovery: reservation %d was not renewed and is now EXPIRED", number)

    def _expire(self, tx: Tx, lost: Sequence[tuple[int, int]]) -> list[int]:
        tx.run("claim_lock")
        now = tx.now()
        before = {active.id for active in reservations.active(tx)}
        for number, holder in lost:
            if not self._left_here(tx, holder):
                why = f"its holder, {workers.worker_name(holder)}, is gone"
                reservations.end(tx, number, status="EXPIRED", actor=SYSTEM, outcome="ABANDONED", error=why)
        reservations.drop_expired(tx, reservations.active(tx), now)
        return sorted(before - {active.id for active in reservations.active(tx)})

    # --- database damage and open decisions ---

    def _mend_damage(self) -> None:
        """Repairs RUNNING jobs with a finished or missing run.

        No transaction leaves that state, so it is needed only after database damage.
        """
        with self.database.read() as tx:
            damaged = tx.run("finished_but_running")
        for job_id, fence, status in damaged:
            if status is None:
                self.database.transact("mend", self._open_run, job_id)
            else:
                closed = self.database.transact("mend", self._close, job_id, fence, State(status))
                if closed is not None:
                    log.warning("recovery: job %d is now %s like its run%s", job_id, closed.state.name, _words(closed))

    @staticmethod
    def _open_run(tx: Tx, job_id: int) -> None:
        tx.run("open_run", job_id=job_id)

    def _close(self, tx: Tx, job_id: int, fence: int, run: State) -> Settled | None:
        """Gives a job the status of its finished run. Returns None if it has ended meanwhile."""
        group = groups.lock_of_job(tx, job_id)
        job = self._take(tx, job_id)
        if job is None or job.status is not State.RUNNING or job.fence != fence:
            return None
        closed = Settled(run, self._close_like_run(tx, job, run, group))
        if group is not None:
            groups.advance(tx, group, SYSTEM)
        return closed

    @staticmethod
    def _close_like_run(tx: Tx, job: JobRecord, run: State, group: Group | None) -> int | None:
        """Closes the job, and decides its retry before its group is advanced. Returns the retry."""
        jobs.close_like_run(tx, job, run, SYSTEM)
        if run is not State.FAILED:
            return None
        return decide_left_over(tx, jobs.lock(tx, job.id), SYSTEM, group)

    def _mend_groups(self) -> None:
        """Advances stuck groups.

        The finishing transaction does this, so it is needed only after database damage.
        """
        with self.database.read() as tx:
            stuck = [group_id for (group_id,) in tx.run("stuck_groups")]
        for group_id in stuck:
            if self.database.transact("mend_group", groups.mend, group_id, SYSTEM):
                log.warning("recovery: group %d was stuck and was advanced", group_id)

    def _decide_failures(self, *, everything: bool) -> None:
        """Decides retries of undecided failures: all at start, the recent ones later."""
        after = 0
        since = 0 if everything else self.database.clock.now() - micros(RECENT)
        while True:
            with self.database.read() as tx:
                found = [row[0] for row in tx.run("undecided_failures", after=after, since=since)]
            for job_id in found:
                decided = self.database.transact("decide", self._decide, job_id)
                if decided is not None:
                    log.warning("recovery: job %d had failed without a decision%s", job_id, _words(decided))
            if len(found) < 200:
                return
            after = found[-1]

    def _decide(self, tx: Tx, job_id: int) -> Settled | None:
        """Decides the retry of a failure. Returns None if it was decided meanwhile."""
        group = groups.lock_of_job(tx, job_id)
        job = self._take(tx, job_id)
        if job is None or job.status is not State.FAILED or job.exhausted or tx.run("any_retry", id=job_id):
            return None
        return Settled(job.status, decide_left_over(tx, job, SYSTEM, group))


def _words(end: Settled) -> str:
    """Returns what became of the retry of a job, as the end of a sentence; empty if its state has none."""
    if end.state is not State.FAILED:
        return ""
    return "; it is not retried" if end.retry_id is None else f"; job {end.retry_id} retries it"


def _lost(orphan: Orphan, remains: bool) -> Lost:
    why = f"worker {workers.worker_name(orphan.worker_id)} was lost"
    return Lost(f"{why} and its processes could not be ended" if remains else why, remains=remains)
