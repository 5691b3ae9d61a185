"""For the tests of programs that use Headway: a clock that stands still, jobs run at once, and what was enqueued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from headway.app import App
from headway.clock import Clock, micros
from headway.engine import notes
from headway.engine.calling import outcome_of
from headway.engine.carrying import carried_by
from headway.engine.finish import finish
from headway.engine.run import NOTHING, Running
from headway.engine.sink import JobSink
from headway.engine.worker import Wishes, Worker
from headway.model.job import Claim
from headway.model.values import instant, seconds
from headway.store import claims
from headway.store.db import Tx

__all__ = ["FrozenClock", "assert_enqueued", "drain", "isolated"]


class FrozenClock:
    """Time that moves when you say so."""

    def __init__(self, now: int | str | datetime = "2026-01-01T00:00:00Z") -> None:
        self.time = now if isinstance(now, int) else instant(now, field="now")
        self.began = self.time

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return (self.time - self.began) / 1e6

    def advance(self, duration: float | str) -> None:
        """`clock.advance("10s")`"""
        self.time += micros(seconds(duration, field="duration"))


@contextmanager
def isolated(app: App, database: str, *, clock: Clock | None = None) -> Iterator[App]:
    """The app on a database of its own, and by a clock of its own, for as long as a test takes."""
    before = dict(app._overrides), app._clock
    app.close()
    app.configure(None, {"database": database})
    app._clock = clock
    try:
        yield app
    finally:
        app.close()
        app._overrides, app._clock = before
        app.configure(None, {})


class _Here(Worker):
    """A worker that runs everything in the calling thread, one job after the other, with no heartbeat."""

    def __init__(self, app: App) -> None:
        wishes = Wishes(slots=1, artifacts=app.settings.artifacts, lease=3600, vault=app.vault)
        super().__init__(app.database, app.registry, wishes)

    def __enter__(self) -> _Here:
        self.database.transact("register", self._register)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self) -> bool:
        """Claims and runs one job. False when there is none that may run now."""
        taken = self.database.transact("claim", self._claim)
        for claim in taken:
            self._run(claim)
        return bool(taken)

    def _claim(self, tx: Tx) -> list[Claim]:
        view, _ = claims.lock_and_look(tx, self.lanes, self.actor)
        return claims.claim(
            tx, view, self.lanes, worker_id=self.who.id, actor=self.actor, knows=self.serves.__contains__, slots=[0]
        )

    def _run(self, claim: Claim) -> None:
        spec = self.registry.get(claim.task)
        carried = carried_by(self.database, self.registry, [claim]).get(claim.job_id, NOTHING)
        running = Running(claim, spec, JobSink(self, claim), carried, vault=self.wishes.vault)
        self.running[claim.job_id] = running
        self.notes.begin(claim.job_id, running.carried.spent)
        ended = running.ended(outcome_of(_caller(running)))
        self.running.pop(claim.job_id)

        def write(tx: Tx) -> None:
            notes.store(tx, self.who.id, self.notes.take())
            finish(tx, self.who.id, self.actor, [ended])

        self.database.transact("finish", write)
        self.notes.end(claim.job_id)


def _caller(running: Running) -> Callable[[], object]:
    if running.spec.isolation == "async":
        return lambda: asyncio.run(running.call())
    return running.call


def drain(app: App, *, limit: int = 10_000) -> int:
    """Runs every job that may run now, in order, in this thread, and returns how many that were.

    Plain functions run in this process too, so that a debugger and coverage see them.
    """
    done = 0
    with _Here(app) as here:
        while done < limit and here.next():
            done += 1
    return done


def assert_enqueued(app: App, task: str, *, count: int | None = None, **params: Any) -> None:
    """Fails unless an unfinished job of this task (with at least these params) is there; `count` says how many."""
    with app.database.read() as tx:
        found = [json.loads(text) for (text,) in tx.run("unfinished_params", tenant_id=app.client.tenant_id, task=task)]
    fitting = [one for one in found if params.items() <= one.items()]
    wanted = f"{count} jobs" if count is not None else "a job"
    if (count is None and not fitting) or (count is not None and len(fitting) != count):
        raise AssertionError(
            f"expected {wanted} of {task} with {params}, found {len(fitting)}; enqueued: {found or 'none'}"
        )
