"""Which parts a process has, made of an app's settings: worker, scheduler, recovery, HTTP service."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from headway.api.access import Door
from headway.api.server import Server, refuse_open
from headway.api.service import Service, Setting, Terms
from headway.api.wire import hooks
from headway.dashboard.site import make
from headway.engine import declared, limits
from headway.engine.deliverer import Deliverer
from headway.engine.health import Health, ready, rounds
from headway.engine.loop import Loop
from headway.engine.pruner import Pruner
from headway.engine.recovery import Recovery
from headway.engine.scheduler import Scheduler
from headway.engine.sending import Guard
from headway.engine.supervisor import Part, Supervisor
from headway.engine.worker import Wishes, Worker
from headway.model.policies import find
from headway.store.lanes import read_concurrency
from headway.store.wall import wall_state

if TYPE_CHECKING:
    from headway.app import App

log = logging.getLogger("headway")
ROLES = ("api", "scheduler", "worker")


def settle(app: App, roles: Sequence[str], *, adopt: bool = False) -> Iterator[str]:
    """Brings what the settings say about limits, and the schedules that the code declares, into the database; what
    changed there, and what did not, in words."""
    settings = app.settings
    wished = settings.concurrency.value(settings.aging)
    found = limits.settle(app.database, wished, settings.resources, actor=app.client.actor, adopt=adopt)
    if found.changed:
        yield f"these settings are in force now: {_changes(found)}"
    if found.refused:
        stays = "; ".join(str(difference) for difference in found.refused)
        yield f"other workers live, so the database wins over these settings: {stays}; --adopt-settings takes over"
    with app.database.read() as tx:
        find(read_concurrency(tx)[0].policy)  # a policy of others may not be importable here
    if "scheduler" in roles:
        yield from declared.settle(app.client, app.schedules.values()).lines()


def _changes(found: limits.Settled) -> str:
    shown = limits.shown
    changed = "; ".join(f"{one.name} {shown(one.wished)} (was {shown(one.stored)})" for one in found.changed)
    jobs = f"waiting job{'s' if found.relaned > 1 else ''}"
    return f"{changed}; {found.relaned} {jobs} got other lanes" if found.relaned else changed


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
        served.service.rounds = lambda: rounds(_loops(made))
        parts.append(served)
    return made


def _health(app: App, made: Supervisor, roles: Sequence[str]) -> Health:
    own = made.worker.who.id if made.worker is not None else None
    wall = wall_state if app.database.dialect == "postgres" else None
    return ready(app.database, roles=roles, worker_id=own, loops=_loops(made), wall=wall)


def _loops(made: Supervisor) -> list[Loop]:
    return [part for part in (made.recovery, *made.loops) if isinstance(part, Loop)]


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
    )
    return Service(
        app.client,
        terms,
        caller=lambda: app.caller,
        settings=lambda: [Setting(*one) for one in app.explained()],
    )


def server(app: App) -> Server:
    settings = app.settings
    made = service(app)
    refuse_open(made)
    return Server(made, make(made), host=settings.host, port=settings.port)


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
    made = await to_thread.run_sync(lambda: _prepared(app, roles))
    await to_thread.run_sync(made.start)
    try:
        yield
    finally:
        await to_thread.run_sync(made.stop)
        await to_thread.run_sync(app.close)


def _prepared(app: App, roles: Sequence[str]) -> Supervisor:
    for line in settle(app, roles):
        log.info("%s", line)
    return supervisor(app, roles)
