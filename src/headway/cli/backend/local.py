"""The backend that works on the local database. `HttpBackend` has the same methods for a server.

A command is written once, for a `Desk`, which is either of the two. The type checker sees that both have the methods
that the command uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.cli.backend.base import LOOK_SECONDS, FollowedJob, every, fill, over
from headway.engine.client.limits import lives, living
from headway.errors import NotFound
from headway.model.event import Event
from headway.model.jobs.states import State
from headway.store import worker_views
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView, LogLine
from headway.store.paging import MAX_LIMIT, Filters, Page, check_limit, job_rows
from headway.store.queue import lane_views, lanes, queue_views, targets

if TYPE_CHECKING:
    from headway.app import App
    from headway.cli.backend.local_access import LocalTenants, LocalTokens, LocalWebhooks
    from headway.cli.backend.local_groups import LocalGroups, LocalSchedules, LocalTemplates
    from headway.config import Settings
    from headway.engine.client.apply import Applying
    from headway.engine.client.client import Client
    from headway.engine.monitoring.overview import Overview
    from headway.model.explain.blockers import Explanation
    from headway.model.explain.snapshot import Pause
    from headway.model.jobs.job import Run
    from headway.model.manifest import Manifest
    from headway.model.queue.policies import Concurrency
    from headway.model.queue.target import TargetState, TargetView
    from headway.store.db import Database, Tx
    from headway.store.queue.lane_views import LaneView
    from headway.store.queue.queue_views import WaitingJob
    from headway.store.worker_views import WorkerView


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
        """Returns the database's time, which decides whether a time is in the future."""
        with self.read() as tx:
            return self.client.time_in(tx)

    # --- jobs and runs ---

    def list_jobs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[JobView]:
        def page(cursor: str | None) -> Page[JobView]:
            with self.read() as tx:
                return job_views.list_jobs(tx, self.tenant_id, wanted, limit, cursor)

        return fill(page, limit, cursor, lambda view: view.job.id)

    def list_runs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[Run]:
        def page(cursor: str | None) -> Page[Run]:
            with self.read() as tx:
                return job_views.list_runs(tx, self.tenant_id, wanted, limit, cursor)

        return fill(page, limit, cursor, lambda run: run.job_id)

    def job_ids(self, wanted: Filters, *, unretried: bool = False) -> list[int]:
        """Returns the numbers of all jobs that match; with `unretried` only those that have no retry."""

        def page(cursor: str | None) -> Page[int]:
            with self.read() as tx:
                rows = job_rows(tx, self.tenant_id, wanted, MAX_LIMIT, cursor)
                ids = [job.id for job in rows.items]
                retried = job_views.retried(tx, ids) if unretried else set()
                return Page([job_id for job_id in ids if job_id not in retried], rows.next)

        return every(page)

    def view(self, job_id: int) -> JobView:
        with self.read() as tx:
            return job_views.view(tx, self.tenant_id, job_id)

    def views(self, ids: Sequence[int]) -> list[JobView]:
        with self.read() as tx:
            return job_views.views_of(tx, self.tenant_id, ids)

    def shown_job(self, job_id: int) -> tuple[JobView, list[Event]]:
        with self.read() as tx:
            return job_views.view(tx, self.tenant_id, job_id), job_views.events(tx, job_id)

    def run(self, run_id: int) -> Run:
        with self.read() as tx:
            found = jobs.run_of(tx, run_id)
        if found is None or found.tenant_id != self.tenant_id:
            raise NotFound(f"there is no run {run_id}", hint="see `headway runs ls`")
        return found

    def explain(self, job_id: int) -> tuple[Explanation, bool]:
        """Explains a job; the second value is True if the job is RUNNING and its worker is dead."""
        with self.read() as tx:
            found = queue_views.explain(tx, self.tenant_id, job_id, lives=lives)
            owner = worker_views.owner(tx, job_id)
        return found, found.status == State.RUNNING.name and (owner is None or not lives(owner))

    def make(self, task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[int, bool]:
        """Creates a job of a task; returns its number and True, or False if another job has its key."""
        from headway.engine.tasks.task import make_job

        return self.client.enqueue(make_job(self.client, task, params, wishes))

    def make_of_template(
        self, template: int | str, params: Mapping[str, Any], wishes: Mapping[str, Any]
    ) -> tuple[int, bool]:
        return self.client.enqueue(self.client.templates.job(template, params, **wishes))

    # --- watching ---

    def follow(self, job_id: int) -> Iterator[FollowedJob]:
        """Yields the states of a job without end; the caller stops. Each state is read in one transaction."""
        chunk = 0
        while True:
            with self.read() as tx:
                view = job_views.view(tx, self.tenant_id, job_id)
                lines = job_views.log_lines(tx, job_id, after=chunk)
                retry = jobs.automatic_retry(tx, job_id) if view.job.status is State.FAILED else None
                after = job_views.view(tx, self.tenant_id, retry.id) if retry is not None else None
            chunk = lines[-1].chunk if lines else chunk
            yield FollowedJob(view, lines, after)
            time.sleep(LOOK_SECONDS)

    def log(self, job_id: int, tail: int | None) -> tuple[list[LogLine], int]:
        """Returns the first or the last log lines, and the position after which the log continues."""
        with self.read() as tx:
            lines = job_views.log_lines(tx, job_id) if tail is None else job_views.last_lines(tx, job_id, tail)
            end = lines or job_views.last_lines(tx, job_id, 1)
        return lines, end[-1].chunk if end else 0

    def more_lines(self, job_id: int, after: int, *, follow: bool) -> Iterator[list[LogLine]]:
        """Yields the log lines after a position; with `follow` until the job has ended."""
        while True:
            ended = self.client.get(job_id).status.terminal  # read before the log, which is then complete
            with self.read() as tx:
                lines = job_views.log_lines(tx, job_id, after=after)
            if lines:
                after = lines[-1].chunk
                yield lines
            elif ended or not follow:
                return
            else:
                time.sleep(LOOK_SECONDS)

    def wait(self, job_id: int, deadline: float | None) -> JobView:
        """Waits until the last job of the retry chain has ended or is held, or the deadline passes; returns it."""
        while True:
            with self.read() as tx:
                last = job_views.last_of_chain(tx, self.tenant_id, job_id)
            if over(last.status) or (deadline is not None and time.monotonic() >= deadline):
                return self.view(last.id)
            time.sleep(LOOK_SECONDS)

    # --- how things stand ---

    def overview(self, *, listed: int = 10) -> Overview:
        from headway.engine.monitoring.overview import overview

        with self.read() as tx:
            return overview(tx, self.tenant_id, self.now(), listed=listed)

    def workers(self) -> list[tuple[WorkerView, bool]]:
        with self.read() as tx:
            return [(worker, lives(worker)) for worker in worker_views.workers(tx)]

    def alone(self) -> bool:
        """Returns True if no worker is alive."""
        with self.read() as tx:
            return not living(tx)

    def queue(self, limit: int) -> list[WaitingJob]:
        with self.read() as tx:
            return queue_views.queue(tx, self.tenant_id, check_limit(limit), lives=lives)

    def pauses(self) -> tuple[Pause | None, Pause | None]:
        with self.read() as tx:
            return lanes.pauses(tx, self.tenant_id)

    def limits(self) -> tuple[Concurrency, list[LaneView]]:
        with self.read() as tx:
            return lanes.read_concurrency(tx)[0], lane_views.listed(tx, self.tenant_id)

    def set_limit(self, name: str, capacity: int | None) -> list[LaneView]:
        from headway.engine.client.limits import change

        change(self.database, name, capacity, tenant_id=self.tenant_id, actor=self.client.actor)
        return self.limits()[1]

    def list_targets(self, states: Collection[TargetState], limit: int, cursor: str | None) -> Page[TargetView]:
        with self.read() as tx:
            return targets.listed(tx, self.tenant_id, states=states, limit=limit, cursor=cursor)

    def target(self, name: str) -> TargetView:
        with self.read() as tx:
            return targets.shown(tx, self.tenant_id, name)

    def shown_target(self, name: str) -> tuple[TargetView, list[Event]]:
        with self.read() as tx:
            found = targets.shown(tx, self.tenant_id, name)
            return found, job_views.history(tx, "target", found.id)

    # --- groups, executions, schedules, templates ---

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

    def apply(self, text: str, wanted: Manifest, file: str, *, dry_run: bool) -> tuple[Applying, dict[str, str]]:
        """Applies a manifest; returns its changes and the secrets of the webhooks that it created.

        `wanted` is the parsed `text`. A dry run changes nothing.
        """
        from headway.engine.client.apply import plan

        found = plan(self.client, wanted, file)
        return found, {} if dry_run else found.run()

    # --- tokens, tenants and webhooks ---

    @cached_property
    def tokens(self) -> LocalTokens:
        from headway.cli.backend.local_access import LocalTokens

        return LocalTokens(self)

    @cached_property
    def tenants(self) -> LocalTenants:
        from headway.cli.backend.local_access import LocalTenants

        return LocalTenants(self)

    @cached_property
    def webhooks(self) -> LocalWebhooks:
        from headway.cli.backend.local_access import LocalWebhooks

        return LocalWebhooks(self)


class AppBackend(LocalBackend):
    """A local backend with an app's tasks. The app creates a missing database when it is first needed."""

    def __init__(self, app: App) -> None:
        super().__init__(app.settings, lambda: app.client)
        self.app = app

    def make(self, task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[int, bool]:
        made = self.app.enqueue(task, params, **wishes)  # checks the params before it creates a database
        return made.id, made.created
