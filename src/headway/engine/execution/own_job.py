"""Finds the job of the current code, and refuses waits that cannot end.

A job must not wait for a job that cannot start before the waiting one has ended.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from headway.errors import WaitsForItself
from headway.model.explain.blockers import Blocker, Explanation, sentence
from headway.model.explain.deadlock import Wait, WaitKey

INSTEAD = "Do not wait for it: enqueue it with ctx.enqueue and return, or make both jobs the steps of a group"


class OwnJob(NamedTuple):
    """A claim whose code runs in this process.

    A direct call has no job: its `id` is 0 and its `fence` is the id of its reservation. `thread` is the thread in
    which the task's function was called, `pid` the process. A fork inherits the first and not the second.
    """

    id: int
    fence: int
    thread: int = 0
    pid: int = 0

    @property
    def name(self) -> str:
        return f"job {self.id}" if self.id else f"reservation {self.fence}"

    @property
    def claim(self) -> WaitKey:
        return self.id, self.fence

    @property
    def stands_still(self) -> bool:
        """True if the task cannot continue while the caller waits.

        A task with other threads or processes may end without this one, and a worker ends jobs that block its event
        loop.
        """
        if (self.thread, self.pid) != (threading.get_ident(), os.getpid()):
            return False
        asyncio = sys.modules.get("asyncio")  # no import here, so that a child stays light
        return asyncio is None or asyncio._get_running_loop() is None

    @property
    def own(self) -> OwnJob:
        return self


class AtWork(Protocol):
    """Work that knows its job.

    A worker sets its existing record of the work, which costs nothing.
    """

    @property
    def own(self) -> OwnJob: ...


# The work that the current code belongs to. Contexts, asyncio tasks and callbacks of a job inherit it.
at_work: ContextVar[AtWork | None] = ContextVar("headway_job", default=None)


def own_job() -> OwnJob | None:
    """Returns the job that the caller's code runs for; None outside a job."""
    work = at_work.get()
    return None if work is None else work.own


def refuse_to_wait(own: OwnJob, explanation: Explanation, *, running: Sequence[int]) -> None:
    """Raises WaitsForItself if the job cannot start before `own` has ended.

    `running`: all jobs on the workers that could run it.
    """
    if explanation.job_id == own.id:
        raise WaitsForItself(f"job {own.id} waits for its own result", job_id=own.id)
    own_blocker = next((blocker for blocker in explanation.blockers if _is_own(blocker, own, running)), None)
    if own_blocker is not None:
        raise WaitsForItself(
            f"{own.name} waits for job {explanation.job_id}, which cannot start before {own.name} has ended: "
            f"{sentence(own_blocker, explanation.now)}. {INSTEAD}",
            job_id=explanation.job_id,
        )


def refuse_knot(own: OwnJob, awaited_id: int, knotted: Sequence[Wait], *, tenant_id: int) -> None:
    """Raises WaitsForItself if `own` is the claim that must break a cycle of waits."""
    if not knotted:
        return
    named = [f"{wait.name} for job {wait.awaited_id}" for wait in knotted if wait.tenant_id == tenant_id]
    hidden = len(knotted) - len(named)
    if hidden:
        named.append("a job of another tenant" if hidden == 1 else f"{hidden} jobs of other tenants")
    raise WaitsForItself(
        f"{own.name} waits for job {awaited_id}, which cannot end because these jobs wait for each other: "
        f"{', '.join(named)}. To end this deadlock, {own.name} fails. {INSTEAD}; if such jobs fill a lane, a "
        "higher limit helps too",
        job_id=awaited_id,
    )


def _is_own(blocker: Blocker, own: OwnJob, running: Sequence[int]) -> bool:
    """Returns True if only the end of `own` removes this blocker.

    If other jobs fill the lane too, one of them may end while `own` waits.
    """
    match blocker.kind:
        case "stage":
            return own.id in blocker.job_ids
        case "reservation":
            return not own.id and (blocker.by or "").endswith(own.name)
        case "no_worker":
            return bool(own.id) and list(running) == [own.id]
    return bool(own.id) and blocker.job_ids == (own.id,)
