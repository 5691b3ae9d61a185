"""The worker: claims jobs into free slots, starts them, records how they ended.

One transaction records finished jobs and claims new ones, so that both share a commit.

`threads.py` says which thread may write what.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from headway.engine.execution.running import STOP_GRACE
from headway.engine.loop import WokenLoop
from headway.engine.tasks.registry import Registry
from headway.engine.worker import report_buffer
from headway.engine.worker.claim_reload import ClaimReload
from headway.engine.worker.claim_start import ClaimStart
from headway.engine.worker.claim_strategy import ClaimStrategy
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.execution_pool import ExecutionPool, FinishedWork
from headway.engine.worker.finish import Ended
from headway.engine.worker.lease import Lease
from headway.engine.worker.life import WorkerLife, WorkerState
from headway.engine.worker.stale_claims import StaleClaims
from headway.engine.worker.start_pause import StartPause
from headway.engine.worker.stuck import StuckWatch
from headway.engine.worker.turn import Turn
from headway.errors import HeadwayError, Unreachable, is_unsure
from headway.fault_points import point
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Interrupted, Lost
from headway.store import workers
from headway.store.access import tenants
from headway.store.db import Database, Tx
from headway.store.queue.lanes import BucketCache

log = logging.getLogger("headway")
POLL_SECONDS = 5.0
# How often the worker checks work that was asked to stop.
STOPPING_SECONDS = 1.0


class Worker(WokenLoop):
    """One incarnation of a worker.

    `tick` records finished jobs, claims new ones and starts them.
    """

    name = "worker"

    def __init__(self, database: Database, registry: Registry, config: WorkerConfig) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.registry = registry
        self.config = config
        self.lease = Lease(database, config, self)
        self.who, self.actor = self.lease.who, self.lease.actor
        self.notes = report_buffer.ReportBuffer(self.waiter.wake)
        self.pool = ExecutionPool(
            database,
            self.who.id,
            config.slots,
            ended=self.ended,
            on_ended=self.work_ended,
            wake=self.waiter.wake,
        )
        self.strategy = ClaimStrategy(BucketCache(database), registry.matching(config.tasks))
        self.pause = StartPause()
        self.claimed = 0
        self.finished = 0
        self.life = WorkerLife()
        self.reload = ClaimReload(self.lease, self.pool, self.notes)
        self.stale = StaleClaims(self.lease, self.pool)
        self.starter = ClaimStart(self.lease, registry, self.pool, self.notes, self.stale, config)
        self.stuck = StuckWatch(self.life, self.lease, self.pool)
        self.at_turn = False

    # --- life ---

    def register(self) -> None:
        """Registers the worker in the database, then starts its heartbeat."""
        self.lease.register(self._register)
        self.lease.start_heartbeat()

    def _register(self, tx: Tx) -> None:
        tasks = sorted(self.strategy.serves)
        served = frozenset(tenants.find(tx, name).id for name in self.config.tenants) or None
        self.strategy.tenants = served
        known = [(task, *self.registry.facts(task)) for task in tasks]
        slots, lease = self.config.slots, self.config.lease
        workers.register(tx, self.who, self.actor, slots=slots, tasks=tasks, lease=lease, known=known, tenants=served)

    @property
    def at_work(self) -> set[int]:
        return self.pool.at_work

    def stop_jobs(self, stops: Iterable[tuple[int, int, object]]) -> None:
        for job_id, fence, _ in stops:
            self.pool.stop_job(job_id, fence)

    def compare_claims(self, message: dict[str, Any]) -> None:
        self.reload.compare(message)

    def late_lease(self, late: float, why: str) -> str:
        log.warning("could not renew the lease for %.0f s (%s): stopping all work", late, why)
        return f"the worker could not renew its lease for {late:.0f} s and stopped its work"

    def lost_lease(self) -> str:
        self.life.move(WorkerState.LOST)
        self.stop()
        return "the worker was given up"

    def stop_work(self, why: str) -> None:
        self.pool.stop_all(Lost(why), 0.0)

    # --- one turn ---

    def wait(self, seconds: float) -> None:
        # Clears the wake-up even when the wait is zero, or the next tick would poll once more for nothing new.
        self.strategy.woken = self.waiter.wait(seconds)

    def tick(self) -> float:
        self.at_turn = True  # before the state is read: if it is not LIVE and no tick runs, no claim can follow
        try:
            return self._tick()
        finally:
            self.at_turn = False

    def busy(self) -> bool:
        """Returns True if a job runs, or a claim may start one."""
        return self.at_turn or self.reload.needed or bool(self.pool.running)

    def _tick(self) -> float:
        if self.reload.needed:
            self._read_back()
        if self.stale.unrecorded:
            self.stale.record()
        self.lease.renew_if_late()
        ended = self.pool.take_ended()
        if ended:
            self.pause.judge_all(ended)
            if self.pause.why is not None:
                self.pool.rest()
        pending = self.notes.take_due(now=bool(ended))
        room = self._room(len(ended))
        missed = self.strategy.take_missed()
        if ended or pending or self.life.unstored() is not None or self.pause.unstored() is not None:
            self._turn(ended, pending, room, missed)
        else:
            self._seek(room, missed)
        return self._delay(stopping=self.stuck.judge())

    def _room(self, freed: int) -> int:
        """Returns how many jobs may be claimed now."""
        if not self.lease.beating.is_set() or not self.life.claims:
            return 0
        room = len(self.pool.free) + freed
        return room if self.pause.why is None else min(room, self.pause.room())

    def _seek(self, room: int, missed: set[int]) -> None:
        """Claims jobs if there are any.

        On PostgreSQL a wake-up goes straight to the claim and skips the read-only check, which halves the round trips
        from a job's commit to its claim. Not if the last such claim was empty, or if another worker has the claim lock.
        """
        hurry = self.strategy.woken and self.strategy.keen and room > 0 and not self.database.one_writer
        if hurry and self._claim_at_once(room, missed):
            return
        if self._has_claimable_work(room):
            self._turn([], [], room, missed)

    def _claim_at_once(self, room: int, missed: set[int]) -> bool:
        """Claims jobs if the claim lock is free; returns False if another worker has it."""
        turn = self.make_turn(slots=self.pool.free[:room], missed=missed)
        try:
            fresh = self.database.transact("turn", self.claim_if_free, turn, by=self.waiter)
        except BaseException as error:
            self.reload.needed = is_unsure(error)
            raise
        if fresh is None:
            return False
        self.strategy.keen = bool(fresh)
        self._begin(fresh, self.pool.free)
        return True

    def claim_if_free(self, tx: Tx, turn: Turn) -> list[Claim] | None:
        tx.prepend("pin_plans")
        self._hear_stops(tx)
        return turn.claim_if_free(tx)

    def _has_claimable_work(self, room: int) -> bool:
        """Returns True if there is something to claim, without taking the write lock.

        An idle system is therefore only read. A wake-up may also announce a stop request or a new due time; both are
        read here.
        """
        with self.database.read() as tx:
            self._hear_stops(tx)
            return self.strategy.finds_work(tx, room)

    def _hear_stops(self, tx: Tx) -> None:
        if self.pool.running:
            self.stop_jobs(workers.stop_requests(tx, self.who.id))

    def has_claimable_work(self) -> bool:
        """Returns True if a free slot would get a job now."""
        return self._has_claimable_work(1)

    def _turn(
        self,
        ended: list[FinishedWork],
        pending: list[report_buffer.BufferedReports],
        room: int,
        missed: set[int],
    ) -> None:
        """Stores reports, ends claims and takes new ones, in one transaction."""
        done = [running.ended(outcome) for running, outcome in ended]
        # The slot used last comes first: its child process is warm.
        slots = [running.claim.slot for running, _ in ended] + self.pool.free
        turn = self.make_turn(slots=slots[:room], missed=missed, ended=done, reports=pending)
        try:
            fresh = self.database.transact("turn", self._write, turn, by=self.waiter)
        except BaseException as error:
            self.reload.needed = is_unsure(error)
            self._undo(ended, pending, alone=not isinstance(error, HeadwayError))
            raise
        self._recorded(turn, ended)
        self._begin(fresh, slots)
        if turn.lost:
            self.stale.reject(turn.lost)

    def _write(self, tx: Tx, turn: Turn) -> list[Claim]:
        return turn.write(tx)

    def make_turn(
        self,
        *,
        slots: Sequence[int] = (),
        missed: set[int] | None = None,
        ended: Sequence[Ended] = (),
        reports: list[report_buffer.BufferedReports] | None = None,
    ) -> Turn:
        """Returns the next transaction: these ends and reports, and claims for these slots."""
        state, note = self.life.unstored(), self.pause.unstored()
        return Turn(self.lease, self.strategy, slots, missed or set(), ended, reports or [], state=state, note=note)

    def _recorded(self, turn: Turn, ended: list[FinishedWork]) -> None:
        """Remembers what a committed turn has stored."""
        if turn.state is not None:
            self.life.stored = turn.state
        if turn.note is not None:
            (self.pause.stored,) = turn.note
        self.pool.recorded(ended)
        for running, _ in ended:
            self.notes.end(running.claim.job_id)
        self.finished += len(ended)

    def _begin(self, fresh: list[Claim], slots: list[int]) -> None:
        """Starts the new claims and keeps the slots that they left free."""
        self.pool.keep_free(slots, {claim.slot for claim in fresh})
        if fresh:
            self.strategy.keen = True
            self._hand_over(fresh)

    def _undo(self, ended: list[FinishedWork], pending: list[report_buffer.BufferedReports], *, alone: bool) -> None:
        """Requeues the finished jobs and their reports after a failed transaction."""
        self.pool.give_back(ended, one_by_one=alone)
        if self.reload.needed:
            self.reload.unsure = pending
        else:
            self.notes.give_back(pending)

    # --- running ---

    def _hand_over(self, fresh: list[Claim]) -> None:
        point("claim.handed_over")
        self.reload.needed = True  # until they run: if the database fails now, the next tick reads them back
        self.starter.start(fresh)
        self.claimed += len(fresh)
        self.reload.needed = False
        if self.pause.why is not None:
            self.pause.probe()

    def work_ended(self, batch: list[FinishedWork]) -> None:
        """Queues finished work to be recorded.

        Called by the thread in which the work ended.
        """
        self.pool.work_ended(batch)
        if self.lease.abandoned:
            self.lease.say_stopped()
        self.waiter.wake()

    def _read_back(self) -> None:
        """Replaces the worker's claims by those in the database, and starts the unknown ones."""
        fresh, recorded = self.reload.run()
        self.finished += recorded
        if fresh:
            self._hand_over(fresh)

    def _delay(self, *, stopping: bool) -> float:
        delay = 0.0 if self.pool.ended_work or self.strategy.missed else POLL_SECONDS
        if not self.lease.beating.is_set():
            delay = min(delay, self.config.lease / 3)  # without a heartbeat the worker renews its own lease
        if self.strategy.due is not None:
            delay = min(delay, self.strategy.due_in())
        if self.notes.due_at is not None:
            delay = min(delay, max(0.0, self.notes.due_at - time.monotonic()))
        if stopping:
            delay = min(delay, STOPPING_SECONDS)
        if self.pause.why is not None:
            delay = min(delay, max(0.0, self.pause.until - time.monotonic()))
        return delay

    # --- ending ---

    @property
    def state(self) -> WorkerState:
        return self.life.state

    @property
    def only_stuck_left(self) -> bool:
        return self.stuck.only_stuck_left

    def drain(self) -> None:
        """Stops claiming. Running jobs continue."""
        self.life.move(WorkerState.DRAINING)
        self.waiter.wake()

    def interrupt_all(self, why: str, grace: float = STOP_GRACE) -> None:
        """Stops all running jobs and records them as interrupted.

        Called at the end of the shutdown grace.
        """
        self.pool.stop_all(Interrupted(why), grace, keep=True)

    def close(self) -> None:
        """Ends the children and the heartbeat and deregisters the worker.

        Call it after the last tick.
        """
        self.pool.close()
        self.lease.stop_heartbeat()
        self.waiter.close()
        try:
            if not self.pool.running:
                self.lease.deregister("shut down")
        except Unreachable as error:
            log.warning("could not deregister the worker: %s; recovery will clean up", error)
