"""A process that works or recovers once and dies where HEADWAY_TEST_FAULT says: `dies.py DATABASE work|recover`."""

from __future__ import annotations

import sys

from headway import faults
from headway.app import App
from headway.engine.context import Context
from headway.engine.recovery import Recovery
from headway.engine.worker import Wishes, Worker
from headway.testing import drain


def declare(app: App) -> None:
    @app.task("fine", retry={"base_delay": 0})
    async def fine(ctx: Context, n: int = 0) -> int:
        return n

    @app.task("fails", retry={"base_delay": 0})
    async def fails(ctx: Context, times: int = 1) -> int:
        if ctx.attempt <= times:
            raise RuntimeError(f"try {ctx.attempt}")
        return ctx.attempt


def work(app: App) -> None:
    """As many turns as it takes to die, without a heartbeat process that would outlive it."""
    worker = Worker(app.database, app.registry, Wishes(slots=2))
    app.database.transact("register", worker._register)
    while True:
        worker.tick()


if __name__ == "__main__":
    app = App(sys.argv[1])
    declare(app)
    app.client.tenant_id  # noqa: B018 (opened, so that no point of opening counts)
    faults.arm_from_environment()
    if sys.argv[2] == "work":
        work(app)
    elif sys.argv[2] == "drain":
        drain(app)
    else:
        Recovery(app.database).tick()
    sys.exit("it did not die")
