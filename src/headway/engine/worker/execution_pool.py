"""The slots of a worker and the work in them.

The worker's thread starts work and takes finished work. The thread in which work ended calls `work_ended`, which
writes `ended_work` and `at_work` only. Any thread may stop work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from headway.engine.execution.async_runner import AsyncRunner
from headway.engine.execution.child_process import Child
from headway.engine.execution.children import adopt, disown
from headway.engine.execution.context import StopFlag
from headway.engine.execution.deadlines import NO_ROOM, Deadlines
from headway.engine.execution.running import STOP_GRACE, Running, SlotRunner
from headway.errors import LeaseLost, Unreachable
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Failed, FailureKind, Lost, NeverBegan, Outcome
from headway.store.db import Database

log = logging.getLogger("headway")
# Work that still runs this long after its stop request is marked stuck: its grace, plus a margin.
STUCK_AFTER = STOP_GRACE + 5.0
# An event loop that is not blocked answers within this time.
ANSWER_SECONDS = 0.01
# An event loop silent for this long counts as blocked, even if the job that blocks it was not asked to stop.
BLOCKED_AFTER = 30.0

FinishedWork = tuple[Running, Outcome]


class ExecutionPool:
    """The running jobs, the free slots and the runners.

    `ended`: the worker has ended. `on_ended` is called after work has ended, in its thread.
    """

    def __init__(
        self,
        database: Database,
        worker_id: int,
        slots: int,
        *,
        ended: threading.Event,
        on_ended: Callable[[list[FinishedWork]], None],
        wake: Callable[[], None],
    ) -> None:
        self.database = database
        self.worker_id = worker_id
        self.ended = ended
        self.on_ended = on_ended
        self.running: dict[int, Running] = {}
        self.free = list(range(slots))
        self.at_work: set[int] = set()
        self.ended_work: deque[FinishedWork] = deque()
        # Finished jobs are recorded one per transaction, after an unexpected error.
        self.one_by_one = False
        self.deadlines = Deadlines(wake)
        self.async_runner: AsyncRunner | None = None
        self.slot_runners: dict[int, SlotRunner] = {}

    # --- starting ---

    def start_in_loop(self, batch: list[Running]) -> None:
        try:
            self.async_runner = self.async_runner or AsyncRunner(self.on_ended, self.deadlines)
            self.async_runner.start(batch)
        except NO_ROOM as error:
            never = NeverBegan(f"no event loop could be started for it: {error}")
            self.on_ended([(running, never) for running in batch])

    def start_in_slot(self, running: Running) -> None:
        try:
            self._slot_runner(running.claim.slot).start(running)
        except NO_ROOM as error:
            self.on_ended([(running, NeverBegan(f"no thread could be started for it: {error}"))])

    def _slot_runner(self, slot: int) -> SlotRunner:
        if slot not in self.slot_runners:
            forget = partial(disown, self.database)
            self.slot_runners[slot] = SlotRunner(slot, self.on_ended, self.deadlines, adopt=self._adopt, disown=forget)
        return self.slot_runners[slot]

    def rest(self) -> None:
        """Ends the warm processes of free slots: they hold descriptors and memory that other work lacks."""
        busy = {running.claim.slot for running in self.running.values() if self.works(running)}
        for slot, runner in self.slot_runners.items():
            if slot not in busy and runner.child is not None:
                runner.rest()

    def _adopt(self, slot: int, child: Child, stop: StopFlag) -> None:
        while not (self.ended.is_set() or stop.asked):
            try:
                adopt(self.database, self.worker_id, slot, child)
                return
            except Unreachable:
                self.ended.wait(1.0)  # the work has not begun, so it can wait until the database answers
        raise LeaseLost("the work was stopped before it began")

    # --- ending ---

    def work_ended(self, batch: list[FinishedWork]) -> None:
        """Queues finished work to be recorded."""
        self.ended_work.extend(batch)
        self.at_work.difference_update([running.claim.job_id for running, _ in batch])

    def take_ended(self) -> list[FinishedWork]:
        """Removes and returns the finished work that the next transaction records."""
        ended: list[FinishedWork] = []
        waiting = self.ended_work
        while waiting and not (self.one_by_one and ended):
            ended.append(waiting.popleft())
        return ended

    def recorded(self, ended: Sequence[FinishedWork]) -> None:
        for running, _ in ended:
            self.running.pop(running.claim.job_id, None)
        self.one_by_one = self.one_by_one and bool(self.ended_work)

    def give_back(self, ended: Sequence[FinishedWork], *, one_by_one: bool) -> None:
        """Queues finished work again, after a failed transaction.

        With `one_by_one` each goes into a transaction of its own from now on, and this work comes last, so that it
        cannot block the rest.
        """
        self.one_by_one = one_by_one
        if one_by_one:
            self.ended_work.extend(ended)
        else:
            self.ended_work.extendleft(reversed(ended))

    def drop_unless(self, held: Callable[[Claim], bool]) -> list[Claim]:
        """Drops finished work whose claim is gone; returns the claims.

        It was recorded although the answer was lost.
        """
        dropped = []
        for _ in range(len(self.ended_work)):  # other threads append meanwhile
            running, outcome = self.ended_work.popleft()
            claim = running.claim
            if held(claim):
                self.ended_work.append((running, outcome))
                continue
            self.running.pop(claim.job_id, None)
            self.free.append(claim.slot)
            dropped.append(claim)
        return dropped

    def keep_free(self, slots: Sequence[int], taken: set[int]) -> None:
        self.free = [slot for slot in slots if slot not in taken]

    # --- stopping ---

    def stop_job(self, job_id: int, fence: int) -> None:
        running = self.running.get(job_id)
        if running is not None and running.claim.fence == fence and running.asked_at is None:
            running.request_stop(STOP_GRACE)

    def stop_lost(self, claim: Claim) -> None:
        running = self.running.get(claim.job_id)
        if running is not None and running.claim.fence == claim.fence:
            running.override = Lost("the claim was lost")
            running.request_stop(0.0)

    def stop_all(self, outcome: Outcome, grace: float, *, keep: bool = False) -> None:
        """Stops all running jobs and records this outcome; `keep` prefers an outcome that was chosen before."""
        for running in list(self.running.values()):
            if running.override is None or not keep:
                running.override = outcome
            running.request_stop(grace)

    def works(self, running: Running) -> bool:
        return running.claim.job_id in self.at_work

    def asked(self) -> list[Running]:
        """Returns the running jobs that were asked to stop."""
        return [running for running in self.running.values() if running.asked_at is not None]

    def hopeless(self, asked: list[Running]) -> list[Running]:
        """Returns the work that still runs after its grace and a margin.

        Work in a blocked event loop is left out, because it may not have received its stop request.
        """
        late = time.monotonic() - STUCK_AFTER
        if not any((running.asked_at or late) < late for running in asked):
            return []
        runner = self.async_runner
        blocked = runner.active if runner is not None and runner.silent() > max(STUCK_AFTER / 2, ANSWER_SECONDS) else ()
        return [r for r in asked if (r.asked_at or late) < late and self.works(r) and r not in blocked]

    def end_blocked_loop(self, asked: list[Running]) -> list[Running]:
        """Gives up the event loop if one job blocks it; returns that job.

        The loop's other jobs are ended. Otherwise they would wait, and keep their lanes, until that job returns.
        """
        runner = self.async_runner
        if runner is None or not any(running in runner.active for running in asked):
            return []
        if (silent := runner.silent()) < min(STUCK_AFTER, BLOCKED_AFTER):
            return []
        blocker, where = runner.blocker()
        if silent < BLOCKED_AFTER and (blocker is None or blocker.asked_at is None):
            return []
        log.error("the event loop has not answered for %.0f s: it is blocked at %s", silent, where)
        culprit = runner.give_up()
        if culprit is None:  # the job returned at this moment, and the loop has ended with all its jobs
            self.async_runner = None
            return []
        if culprit.asked_at is None:
            culprit.override = Failed(FailureKind.EXCEPTION, f"blocked the event loop of its worker at {where}")
            culprit.asked_at = time.monotonic()
        return [culprit]

    def close(self) -> None:
        """Ends the children, their threads and the event loop."""
        for runner in self.slot_runners.values():
            runner.close()
        for runner in self.slot_runners.values():
            runner.thread.join(STOP_GRACE)
        if self.async_runner is not None:
            self.async_runner.close()
        self.deadlines.close()
