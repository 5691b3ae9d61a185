"""A process that works, calls or recovers and dies where HEADWAY_TEST_FAULT says: `dies.py DATABASE work|call|…`."""

from __future__ import annotations

import sys

from headway import fault_points
from headway.app import App
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace
from headway.engine.direct.reservations import ReservationRequest
from headway.engine.execution.context import Context
from headway.engine.maintenance import recovery
from headway.engine.maintenance.recovery import Recovery
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
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
    worker = Worker(app.database, app.registry, WorkerConfig(slots=2))
    app.database.transact("register", worker._register)
    while True:
        worker.tick()


def call(app: App) -> None:
    """Has the first job, and makes a direct call that waits for it."""
    worker = Worker(app.database, app.registry, WorkerConfig(slots=1))
    app.database.transact("register", worker._register)
    worker.tick()
    holder = ReservationHolder(app.database, HolderConfig())
    holder.register()
    holder.reserve(
        ReservedPlace(),
        ReservationRequest(app.client.tenant_id, "ada", task="fine", params='{"n":7}'),
        actor=app.client.actor,
    )


if __name__ == "__main__":
    app = App(sys.argv[1])
    declare(app)
    app.client.tenant_id  # noqa: B018 (opened, so that no point of opening counts)
    fault_points.arm_from_environment()
    if sys.argv[2] == "work":
        work(app)
    elif sys.argv[2] == "call":
        call(app)
    elif sys.argv[2] == "direct":
        app.direct("fine", {"n": 7})
    elif sys.argv[2] == "drain":
        drain(app)
    else:
        recovery.BATCH = 1  # each claim in a transaction of its own: there is a middle to die in
        Recovery(app.database).tick()
    sys.exit("it did not die")
