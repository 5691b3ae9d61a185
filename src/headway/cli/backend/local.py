"""The backend that works on the local database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.api.schemas.workers import worker_json
from headway.cli.backend.local_jobs import LocalJobs
from headway.cli.output import Json
from headway.engine.client.limits import lives, living
from headway.errors import BadInput
from headway.store import worker_views

if TYPE_CHECKING:
    from headway.app import App
    from headway.cli.backend.local_access import LocalTenants, LocalTokens, LocalWebhooks
    from headway.cli.backend.local_groups import LocalGroups, LocalSchedules, LocalTemplates
    from headway.cli.backend.local_queue import LocalQueue, LocalTargets
    from headway.cli.backend.local_reservations import LocalReservations
    from headway.config import Settings
    from headway.engine.client.client import Client
    from headway.model.audit import AuditFilter
    from headway.model.manifest import Manifest
    from headway.store.db import Database, Tx


class LocalBackend:
    """Answers the commands from a database. The client is opened when it is first needed."""

    def __init__(self, settings: Settings, opening: Callable[[], Client]) -> None:
        self.settings = settings
        self.opening = opening

    @cached_property
    def client(self) -> Client:
        return self.opening()

    @property
    def database(self) -> Database:
        return self.client.database

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self.database.read() as tx:
            yield tx

    @property
    def tenant_id(self) -> int:
        return self.client.tenant_id

    @property
    def where(self) -> dict[str, str | None]:
        from headway.cli.database.open import shown

        return {"database": shown(self.settings), "server": None}

    def now(self) -> int:
        return self.database.clock.now()

    def stored_now(self) -> int:
        with self.read() as tx:
            return self.client.time_in(tx)

    def enqueue(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[int, bool]:
        from headway.engine.tasks.task import make_job

        return self.client.enqueue(make_job(self.client, task, params, options))

    # --- the nouns. Each loads its module when a command first uses it. ---

    @cached_property
    def jobs(self) -> LocalJobs:
        return LocalJobs(self)

    @cached_property
    def queue(self) -> LocalQueue:
        from headway.cli.backend.local_queue import LocalQueue

        return LocalQueue(self)

    @cached_property
    def targets(self) -> LocalTargets:
        from headway.cli.backend.local_queue import LocalTargets

        return LocalTargets(self)

    @cached_property
    def groups(self) -> LocalGroups:
        from headway.cli.backend.local_groups import LocalGroups

        return LocalGroups(self, "group")

    @cached_property
    def executions(self) -> LocalGroups:
        from headway.cli.backend.local_groups import LocalGroups

        return LocalGroups(self, "execution")

    @cached_property
    def schedules(self) -> LocalSchedules:
        from headway.cli.backend.local_groups import LocalSchedules

        return LocalSchedules(self)

    @cached_property
    def templates(self) -> LocalTemplates:
        from headway.cli.backend.local_groups import LocalTemplates

        return LocalTemplates(self)

    @cached_property
    def tokens(self) -> LocalTokens:
        from headway.cli.backend.local_access import LocalTokens

        return LocalTokens(self)

    @cached_property
    def reservations(self) -> LocalReservations:
        from headway.cli.backend.local_reservations import LocalReservations

        return LocalReservations(self)

    @cached_property
    def tenants(self) -> LocalTenants:
        from headway.cli.backend.local_access import LocalTenants

        return LocalTenants(self)

    @cached_property
    def webhooks(self) -> LocalWebhooks:
        from headway.cli.backend.local_access import LocalWebhooks

        return LocalWebhooks(self)

    # --- the installation ---

    def overview(self, *, listed: int = 10) -> Json:
        from headway.api.schemas.system import overview_json
        from headway.engine.monitoring.overview import overview

        with self.read() as tx:
            return overview_json(overview(tx, self.tenant_id, self.now(), listed=listed))

    def audit(self, wanted: AuditFilter, limit: int, cursor: str | None) -> Json:
        from headway.api.schemas.jobs import event_json
        from headway.cli.backend.base import fill
        from headway.store import audit_views

        def read(count: int, cursor: str | None) -> Json:
            with self.read() as tx:
                page = audit_views.listed(tx, (audit_views.SYSTEM_TENANT, self.tenant_id), wanted, count, cursor)
            return {"items": [event_json(event) for event in page.items], "next": page.next}

        return fill(read, limit, cursor)

    def workers(self) -> Json:
        with self.read() as tx:
            found = [worker_json(worker, alive=lives(worker)) for worker in worker_views.workers(tx)]
        return {"items": found, "next": None}

    def stats(self) -> Json:
        from headway.api.schemas.system import stats_json
        from headway.store import stats

        with self.read() as tx:
            return stats_json(stats.stats(tx, self.tenant_id))

    def tasks(self) -> Json:
        from headway.api.endpoints.tasks import tasks_of

        with self.read() as tx:
            return {"items": tasks_of(tx, self.client.registry), "next": None}

    def call(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        raise BadInput("a direct call runs in this process: its app is missing", hint="name it with --app", field="app")

    def alone(self) -> bool:
        with self.read() as tx:
            return not living(tx)

    def apply(self, text: str, wanted: Manifest, file: str, *, dry_run: bool) -> Json:
        from headway.api.schemas.system import applied_json
        from headway.engine.client.apply import plan

        planned = plan(self.client, wanted, file)
        return applied_json(planned, {} if dry_run else planned.run(), applied=not dry_run)


class AppBackend(LocalBackend):
    """A local backend with an app's tasks. The app creates a missing database when it is first needed."""

    def __init__(self, app: App) -> None:
        super().__init__(app.settings, lambda: app.client)
        self.app = app

    def call(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        return self.app.direct(task, params, **options)

    def enqueue(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[int, bool]:
        made = self.app.enqueue(task, params, **options)  # checks the params before it creates a database
        return made.id, made.created
