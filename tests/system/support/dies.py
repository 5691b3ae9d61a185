"""A process that works, calls or recovers and dies where HEADWAY_TEST_FAULT says: `dies.py DATABASE work|call|…`."""

from __future__ import annotations

import sys

from headway import faults
from headway.app import App
from headway.engine.context import Context
from headway.engine.holder import Holder, Place, Terms
from headway.engine.recovery import Recovery
from headway.engine.reserving import Wish
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


def call(app: App) -> None:
    """Has the first job, and makes a direct call that waits for it."""
    worker = Worker(app.database, app.registry, Wishes(slots=1))
    app.database.transact("register", worker._register)
    worker.tick()
    holder = Holder(app.database, Terms())
    holder.register()
    holder.reserve(Place(), Wish(app.client.tenant_id, "ada", task="fine", params='{"n":7}'), actor=app.client.actor)


if __name__ == "__main__":
    app = App(sys.argv[1])
    declare(app)
    app.client.tenant_id  # noqa: B018 (opened, so that no point of opening counts)
    faults.arm_from_environment()
    if sys.argv[2] == "work":
        work(app)
    elif sys.argv[2] == "call":
        call(app)
    elif sys.argv[2] == "direct":
        app.direct("fine", {"n": 7})
    elif sys.argv[2] == "drain":
        drain(app)
    else:
        Recovery(app.database).tick()
    sys.exit("it did not die")
