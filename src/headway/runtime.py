"""Builds the parts of a process from an app's settings: worker, scheduler, recovery, HTTP service.

The parts of a role are imported when a process takes it: the HTTP service alone costs as much as a worker.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from headway import forks
from headway.engine.client import limits
from headway.engine.loop import Loop
from headway.engine.maintenance.pruner import Pruner
from headway.engine.maintenance.recovery import Recovery
from headway.engine.monitoring.readiness import Health, draining, ready, rounds
from headway.engine.supervisor import EmbeddedSupervisor, Part, Supervisor
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.model.queue.policies import find
from headway.store.db import Database
from headway.store.postgres.row_security import row_security
from headway.store.queue.lanes import read_concurrency

if TYPE_CHECKING:
    from headway.api.http.auth import AccessMiddleware
    from headway.api.server import Server
    from headway.api.service import Service
    from headway.app import App

log = logging.getLogger("headway")
ROLES = ("api", "scheduler", "worker")


def settle(app: App, roles: Sequence[str], *, adopt: bool = False) -> Iterator[str]:
    """Stores the limits from the settings and the declared schedules in the database.

    Yields a line for each group of changes, and one for settings that the database overrides.
    """
    settings = app.settings
    requested = settings.concurrency.value(settings.aging)
    found = limits.settle(app.database, requested, settings.resources, actor=app.client.actor, adopt=adopt)
    if found.changed:
        yield f"these settings are in force now: {_changes(found)}"
    if found.refused:
        kept = "; ".join(str(difference) for difference in found.refused)
        yield f"other workers are alive, so the database wins over these settings: {kept}; store them: --adopt-settings"
    with app.database.read() as tx:
        find(read_concurrency(tx)[0].policy)  # raises if the stored policy cannot be imported here
    if "scheduler" in roles:
        from headway.engine.scheduler import declared

        yield from declared.settle(app.client, app.schedules.values()).lines()


def _changes(found: limits.SettledLimits) -> str:
    shown = limits.shown
    changed = "; ".join(
        f"{change.name} {shown(change.requested)} (was {shown(change.stored)})" for change in found.changed
    )
    jobs = f"waiting job{'s' if found.relaned > 1 else ''}"
    return f"{changed}; {found.relaned} {jobs} got other lanes" if found.relaned else changed


def supervisor(
    app: App,
    roles: Sequence[str],
    tasks: Sequence[str] = (),
    tenants: Sequence[str] = (),
    *,
    kind: type[Supervisor] = Supervisor,
) -> Supervisor:
    """Builds the supervisor of a process with these roles.

    Every role recovers lost jobs. `scheduler` fires ticks, sends webhooks and prunes; `worker` claims; `api` serves.
    Only the worker is limited to `tasks` and `tenants`; the other parts serve all.
    """
    settings, database = app.settings, app.database
    _warn_of_durability(database)
    parts: list[Part] = []
    if "scheduler" in roles:
        from headway.api.schemas import webhooks
        from headway.engine.scheduler.scheduler import Scheduler
        from headway.engine.webhooks.deliverer import Deliverer
        from headway.engine.webhooks.http_client import Guard

        parts.append(Scheduler(app.client))
        guard = Guard(allow_private=settings.webhooks.allow_private)
        parts.append(Deliverer(database, render=webhooks.render, guard=guard))
        parts.append(Pruner(database, retention=settings.retention, artifacts=settings.artifacts))
    made = kind(
        make_worker=(lambda: worker(app, tasks, tenants)) if "worker" in roles else None,
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


def _warn_of_durability(database: Database) -> None:
    """Logs a warning at start if the PostgreSQL server can lose acknowledged commits."""
    if database.dialect == "postgres":
        from headway.engine.monitoring.checks import durability

        with database.read() as tx:
            answer = durability(tx)
        if answer.mark != "ok":
            log.warning("PostgreSQL: %s. Remedy: %s", answer.detail, answer.remedy)


def _health(app: App, made: Supervisor, roles: Sequence[str]) -> Health:
    if made.wanted.is_set():
        return draining()
    own = made.worker.who.id if made.worker is not None else None
    wall = row_security if app.database.dialect == "postgres" else None
    return ready(app.database, roles=roles, worker_id=own, loops=_loops(made), wall=wall)


def _loops(made: Supervisor) -> list[Loop]:
    return [part for part in (made.recovery, *made.loops) if isinstance(part, Loop)]


def worker(app: App, tasks: Sequence[str], tenants: Sequence[str] = ()) -> Worker:
    settings = app.settings
    config = WorkerConfig(
        slots=settings.slots,
        tasks=list(tasks) or None,
        tenants=tuple(dict.fromkeys(tenants)),
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        grace=settings.shutdown_grace,
        artifacts=settings.artifacts,
        listen=settings.listen,
        vault=app.vault,
    )
    return Worker(app.database, app.registry, config)


def service(app: App, *, open_on_loopback: bool = True) -> Service:
    from headway.api.service import Service, ServiceConfig, SettingInForce

    settings = app.settings
    terms = ServiceConfig(
        host=settings.host,
        hosts=tuple(name.strip() for name in (settings.hosts or "").split(",") if name.strip()),
        open_on_loopback=open_on_loopback,
        artifacts=settings.artifacts,
        direct_wait=math.inf if settings.direct_wait is None else settings.direct_wait,
        grace=settings.shutdown_grace,
        legacy_story=settings.legacy.story,
        legacy_research=settings.legacy.research,
        legacy_enabled=settings.legacy.enabled,
    )
    return Service(
        app.client,
        terms,
        caller=lambda: app.caller,
        settings=lambda: [SettingInForce(*explained) for explained in app.explained()],
    )


def server(app: App) -> Server:
    from headway.api.server import Server, refuse_open
    from headway.dashboard.app import make

    settings = app.settings
    made = service(app)
    refuse_open(made)
    return Server(made, make(made), host=settings.host, port=settings.port)


class Mounted:
    """The HTTP service as a part of another application. The first request opens it."""

    def __init__(self, app: App, *, open_on_loopback: bool = False) -> None:
        self.app = app
        self.open_on_loopback = open_on_loopback
        self.lock = threading.Lock()
        self.service: Service | None = None
        self.inner: AccessMiddleware | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from anyio import to_thread

        inner = await to_thread.run_sync(self._open) if self.inner is None else self.inner
        await inner(scope, receive, send)

    def _open(self) -> AccessMiddleware:
        from headway.dashboard.app import make

        with self.lock:
            if self.inner is None:
                self.service = service(self.app, open_on_loopback=self.open_on_loopback)
                self.inner = make(self.service)
            return self.inner

    def after_fork_in_child(self) -> None:
        """Drops the service, whose threads belong to the parent; the next request opens a new one."""
        forks.never_free(self.service)
        self.lock = threading.Lock()
        self.service = self.inner = None

    def close(self) -> None:
        """Closes the service; the next request opens it again."""
        with self.lock:
            if self.service is not None:
                self.service.close()
            self.service = self.inner = None


@asynccontextmanager
async def lifespan(app: App, roles: Sequence[str]) -> AsyncIterator[None]:
    """Runs the parts of these roles while the surrounding application runs."""
    from anyio import to_thread

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
    return supervisor(app, roles, kind=EmbeddedSupervisor)
