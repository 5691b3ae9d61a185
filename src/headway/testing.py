"""Test support for programs that use Headway: a frozen clock, `drain` and `assert_enqueued`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from headway.app import App
from headway.clock import Clock, micros
from headway.engine.execution.outcome import outcome_of
from headway.engine.execution.running import NOTHING, Running
from headway.engine.worker import report_buffer
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import finish
from headway.engine.worker.job_inputs import carried_by
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import Claim
from headway.model.values.times import instant, seconds
from headway.store.db import Tx
from headway.store.queue import claims

__all__ = ["FrozenClock", "assert_enqueued", "drain", "isolated"]


class FrozenClock:
    """A clock that moves only by `advance`."""

    def __init__(self, now: int | str | datetime = "2026-01-01T00:00:00Z") -> None:
        self.time = now if isinstance(now, int) else instant(now, field="now")
        self.began = self.time

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return (self.time - self.began) / 1e6

    def advance(self, duration: float | str) -> None:
        """Moves the clock forward: `clock.advance("10s")`."""
        self.time += micros(seconds(duration, field="duration"))


@contextmanager
def isolated(app: App, database: str, *, clock: Clock | None = None) -> Iterator[App]:
    """Runs the app on another database and clock, and restores both afterwards."""
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
    """A worker that runs one job after another in the calling thread, without a heartbeat."""

    def __init__(self, app: App) -> None:
        config = WorkerConfig(slots=1, artifacts=app.settings.artifacts, lease=3600, vault=app.vault)
        super().__init__(app.database, app.registry, config)

    def __enter__(self) -> _Here:
        self.database.transact("register", self._register)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self) -> bool:
        """Claims and runs one job. Returns False if no job may run now."""
        taken = self.database.transact("claim", self._claim)
        for claim in taken:
            self._run(claim)
        return bool(taken)

    def _claim(self, tx: Tx) -> list[Claim]:
        lanes, knows = self.strategy.lanes, self.strategy.knows
        view, _ = claims.lock_and_look(tx, lanes, self.actor)
        plan = claims.claim(tx, view, lanes, worker_id=self.who.id, actor=self.actor, knows=knows, slots=[0])
        return [] if plan is None else plan.claims(tx.run_all(*plan.statements, commit=True))

    def _run(self, claim: Claim) -> None:
        spec = self.registry.get(claim.task)
        carried = carried_by(self.database, self.registry, [claim]).get(claim.job_id, NOTHING)
        running = Running(claim, spec, self.starter.sink_of(claim), carried, vault=self.config.vault)
        self.pool.running[claim.job_id] = running
        self.notes.begin(claim.job_id, running.carried.spent)
        ended = running.ended(outcome_of(_caller(running)))
        self.pool.running.pop(claim.job_id)

        def write(tx: Tx) -> None:
            report_buffer.store(tx, self.who.id, self.notes.take())
            finish(tx, self.who.id, self.actor, [ended])

        self.database.transact("finish", write)
        self.notes.end(claim.job_id)


def _caller(running: Running) -> Callable[[], object]:
    async def in_loop() -> object:
        return await running.call()

    return running.call_apart if running.spec.isolation != "async" else lambda: asyncio.run(in_loop())


def drain(app: App, *, limit: int = 10_000) -> int:
    """Runs every job that may run now, in order, in this thread; returns their number.

    Plain functions run in this process too, so that a debugger and coverage see them.
    """
    done = 0
    with _Here(app) as here:
        while done < limit and here.next():
            done += 1
    return done


def assert_enqueued(app: App, task: str, *, count: int | None = None, **params: Any) -> None:
    """Fails unless an unfinished job of this task with at least these params exists.

    With `count`, exactly that many must exist.
    """
    with app.database.read() as tx:
        found = [json.loads(text) for (text,) in tx.run("unfinished_params", tenant_id=app.client.tenant_id, task=task)]
    fitting = [stored for stored in found if params.items() <= stored.items()]
    wanted = f"{count} jobs" if count is not None else "a job"
    if (count is None and not fitting) or (count is not None and len(fitting) != count):
        raise AssertionError(
            f"expected {wanted} of {task} with {params}, found {len(fitting)}; enqueued: {found or 'none'}"
        )
