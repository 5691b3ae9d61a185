"""Which parts a process has, made of an app's settings: worker, scheduler, recovery, HTTP service."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from headway.api.access import Door
from headway.api.app import make
from headway.api.server import Server, refuse_open
from headway.api.service import Service, Terms
from headway.api.wire import hooks
from headway.engine.deliverer import Deliverer
from headway.engine.health import Health, ready
from headway.engine.loop import Loop
from headway.engine.pruner import Pruner
from headway.engine.recovery import Recovery
from headway.engine.scheduler import Scheduler
from headway.engine.sending import Guard
from headway.engine.supervisor import Part, Supervisor
from headway.engine.worker import Wishes, Worker
from headway.store.wall import wall_state

if TYPE_CHECKING:
    from headway.app import App

ROLES = ("api", "scheduler", "worker")


def supervisor(app: App, roles: Sequence[str], tasks: Sequence[str] = ()) -> Supervisor:
    """Every role recovers; `scheduler` fires ticks, delivers and forgets; `worker` claims; `api` serves."""
    settings, database = app.settings, app.database
    parts: list[Part] = []
    if "scheduler" in roles:
        parts.append(Scheduler(app.client))
        guard = Guard(allow_private=settings.webhooks.allow_private)
        parts.append(Deliverer(database, render=hooks.render, guard=guard))
        parts.append(Pruner(database, retention=settings.retention, artifacts=settings.artifacts))
    made = Supervisor(
        make_worker=(lambda: worker(app, tasks)) if "worker" in roles else None,
        recovery=Recovery(database, interval=settings.recovery_interval),
        loops=parts,
        grace=settings.shutdown_grace,
    )
    if "api" in roles:
        served = server(app)
        served.service.health = lambda: _health(app, made, roles)
        parts.append(served)
    return made


def _health(app: App, made: Supervisor, roles: Sequence[str]) -> Health:
    loops = [part for part in (made.recovery, *made.loops) if isinstance(part, Loop)]
    own = made.worker.who.id if made.worker is not None else None
    wall = wall_state if app.database.dialect == "postgres" else None
    return ready(app.database, roles=roles, worker_id=own, loops=loops, wall=wall)


def worker(app: App, tasks: Sequence[str]) -> Worker:
    settings = app.settings
    wishes = Wishes(
        slots=settings.slots,
        tasks=list(tasks) or None,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        grace=settings.shutdown_grace,
        artifacts=settings.artifacts,
        listen=settings.listen,
        vault=app.vault,
    )
    return Worker(app.database, app.registry, wishes)


def service(app: App) -> Service:
    settings = app.settings
    terms = Terms(
        host=settings.host,
        hosts=tuple(name.strip() for name in (settings.hosts or "").split(",") if name.strip()),
        artifacts=settings.artifacts,
        direct_wait=settings.direct_wait,
        grace=settings.shutdown_grace,
        legacy_story=settings.legacy.story,
        legacy_research=settings.legacy.research,
        allow_private=settings.webhooks.allow_private,
    )
    return Service(app.client, terms, caller=lambda: app.caller)


def server(app: App) -> Server:
    settings = app.settings
    made = service(app)
    refuse_open(made)
    return Server(made, host=settings.host, port=settings.port)


class Mounted:
    """The service as a part of another application. It opens nothing before the first request comes."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.lock = threading.Lock()
        self.service: Service | None = None
        self.inner: Door | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        door = await to_thread.run_sync(self._open) if self.inner is None else self.inner
        await door(scope, receive, send)

    def _open(self) -> Door:
        with self.lock:
            if self.inner is None:
                self.service = service(self.app)
                self.inner = make(self.service)
            return self.inner

    def close(self) -> None:
        """It opens again with the next request."""
        with self.lock:
            if self.service is not None:
                self.service.close()
            self.service = self.inner = None


@asynccontextmanager
async def lifespan(app: App, roles: Sequence[str]) -> AsyncIterator[None]:
    """The moving parts, for as long as the application around them lives."""
    made = await to_thread.run_sync(lambda: supervisor(app, roles))
    await to_thread.run_sync(made.start)
    try:
        yield
    finally:
        await to_thread.run_sync(made.stop)
        await to_thread.run_sync(app.close)
