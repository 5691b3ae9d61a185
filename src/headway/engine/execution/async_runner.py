"""Runs the `async def` tasks of a worker in one event loop.

A loop that a task blocks is given up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from asyncio import events
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from headway import forks
from headway.engine import tracing
from headway.engine.execution.deadlines import NO_ROOM, Deadlines
from headway.engine.execution.outcome import completed, failure_of
from headway.engine.execution.own_job import at_work
from headway.engine.execution.running import OnDone, Running
from headway.model.jobs.outcome import Failed, Interrupted, NeverBegan, Outcome, StoppedByRequest

_HANDLE = events.Handle._run.__code__
BLOCKED = "event loop blocked"


class _LoopEnded(Exception):
    """Raised in the thread of a loop that was given up, to end the thread."""


class _Ended:
    """Replaces the ready queue of a loop that was given up.

    It drops every callback and ends the thread at the next step.
    """

    def __len__(self) -> int:
        return 1

    def append(self, _handle: object) -> None: ...

    def clear(self) -> None: ...

    def popleft(self) -> Any:
        raise _LoopEnded


class AsyncRunner:
    """Runs all `async def` tasks of a worker in one event loop and one thread.

    Outcomes are handed to `done` in batches.
    """

    def __init__(self, done: OnDone, deadlines: Deadlines) -> None:
        self.done = done
        self.deadlines = deadlines
        self.pid = os.getpid()
        self.finished: list[tuple[Running, Outcome]] = []
        self.active: set[Running] = set()
        self.probed_at: float | None = None
        self.given_up = False
        # The work of a loop that was given up. The references keep its coroutines from being collected, because a
        # collected coroutine runs its clean-up code.
        self.left: list[Running] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._live, name="headway-async", daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self.loop.close()
            raise
        forks.follow(self)

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Ends the loop in a copy that a task forked: all jobs of the loop would go on there too."""
        if threading.get_ident() == self.thread.ident:
            self.loop._ready = _Ended()  # type: ignore[attr-defined]

    def _live(self) -> None:
        try:
            self.loop.run_forever()
        except _LoopEnded:
            forks.end_copy(self.pid)
            # No code of the loop can run any more, not even the work that blocked it, so all of it has ended.
            for running in list(self.active):
                self._finish(running, StoppedByRequest())
            self.loop.close()

    def start(self, batch: list[Running]) -> None:
        """Hands work to the loop.

        It counts as active at once, because a blocked loop may never start it.
        """
        if self.given_up:
            raise RuntimeError("the event loop was given up")
        self.active.update(batch)
        try:
            self.loop.call_soon_threadsafe(self._start, batch)
        except RuntimeError:  # the loop is closed. After an interrupt the loop may have the work all the same
            self.active.difference_update(batch)
            raise

    def _start(self, batch: list[Running]) -> None:
        for running in batch:
            if running.stop.asked:
                self._finish(running, NeverBegan("it was stopped before it began"))
                continue
            try:
                # Faster than `create_task`, which looks for a factory. The name saves asyncio from formatting one.
                task = asyncio.Task(self._run(running), loop=self.loop, name=running.claim.task)
            except NO_ROOM as error:
                self._finish(running, NeverBegan(f"no task could be made for it: {error}"))
                continue
            running.ask = partial(self._cancel, task)
            if running.asked_at is not None:
                # The stop request came after the check above. The loop delivers it later, because a task cancelled
                # before its first step runs no code at all, and its end would never be recorded.
                self.loop.call_soon(task.cancel)

    def _cancel(self, task: asyncio.Task[None], _grace: float) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(task.cancel)

    async def _run(self, running: Running) -> None:
        span = deadline = None
        try:
            span = tracing.begin(running.claim)
            deadline = running.set_deadline(self.deadlines)
        except NO_ROOM as error:
            outcome: Outcome = NeverBegan(f"its timeout could not be watched: {error}")
        else:
            try:
                outcome = completed(await running.call())
            except GeneratorExit:
                raise  # `give_up` has recorded its end
            except BaseException as error:
                outcome = failure_of(error)
            forks.end_copy(self.pid, failed=isinstance(outcome, Failed))
        if deadline is not None:
            self.deadlines.cancel(deadline)
        if span is not None:
            span.end(running.ended(outcome).outcome)
        self._finish(running, outcome)

    def _finish(self, running: Running, outcome: Outcome) -> None:
        running.ask = (
            None  # breaks a reference cycle with the asyncio task, which only the garbage collector could free
        )
        try:  # `_take`, inlined because every job passes here
            self.active.remove(running)
        except KeyError:
            return  # `give_up` has recorded its end
        if self.given_up:
            self.done([(running, outcome)])
            return
        self.finished.append((running, outcome))
        if not self.active:
            self._hand_over()
        elif len(self.finished) == 1:
            # Runs after all callbacks that are ready now, so jobs that end together are recorded together.
            self.loop.call_soon(self._hand_over)

    def _take(self, running: Running) -> bool:
        """Removes work from the active set; returns False if another thread did.

        Only the thread that removed it records its end: the loop's thread, or the thread that gives up the loop.
        """
        try:
            self.active.remove(running)
        except KeyError:
            return False
        return True

    def _hand_over(self) -> None:
        batch, self.finished = self.finished, []
        if batch:
            self.done(batch)

    # --- a loop that does not answer ---

    def silent(self) -> float:
        """Sends a probe through the loop; returns the age of the oldest unanswered one."""
        if self.given_up:
            return 0.0
        since = self.probed_at  # read once, because the loop's thread may reset it
        if since is None:
            since = self.probed_at = time.monotonic()
            self.loop.call_soon_threadsafe(self._answer)
        return time.monotonic() - since

    def _answer(self) -> None:
        self.probed_at = None

    def blocker(self) -> tuple[Running | None, str]:
        """Returns the work whose code the loop runs now, and the current line."""
        inner = sys._current_frames().get(self.thread.ident or 0)
        frame: FrameType | None = inner
        while frame is not None and frame.f_code is not _HANDLE:
            frame = frame.f_back
        if inner is None or frame is None:
            return None, ""
        at = traceback.extract_stack(inner, limit=1)[0]
        handle = frame.f_locals.get("self")  # None in its last line
        running = None if handle is None else handle._context.get(at_work)
        return running if isinstance(running, Running) else None, f"{at.filename}:{at.lineno} in {at.name}"

    def give_up(self) -> Running | None:
        """Stops the loop and ends its work, except the job that blocks it.

        Returns that job, or None if it has just returned. That job ends when its code returns to the loop, which may be
        never.
        """
        self.given_up = True
        self.loop._ready = _Ended()  # type: ignore[attr-defined]  # asyncio cannot end a loop that is blocked
        culprit, where = self.blocker()
        name = f"job {culprit.claim.job_id} ({culprit.claim.task})" if culprit is not None else "another job"
        error = f"the event loop that it ran in was blocked by {name} at {where}"
        innocent = [running for running in list(self.active) if running is not culprit and self._take(running)]
        self.left += innocent
        finished, self.finished = self.finished, []
        self.done(finished + [(running, Interrupted(error, BLOCKED)) for running in innocent])
        return culprit

    def close(self) -> None:
        """Ends the loop.

        The loop stays open if its work does not stop; then the process exits soon.
        """
        with suppress(RuntimeError):  # closed: it was given up, and has ended
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1.0)
        if not self.thread.is_alive():
            self.loop.close()
