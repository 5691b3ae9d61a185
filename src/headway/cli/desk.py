"""What commands ask, of the local database. `remote.desk` answers the same questions for a server.

A command is written once, for a `Desk`: either of the two. The type checker sees that both have what it uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.cli.asking import LOOK_SECONDS, ScheduleShown, Seen, every, fill, over
from headway.engine.limits import lives, living
from headway.errors import NotFound
from headway.model.states import State
from headway.store import jobs, lanes, lanes_reading, queue_reading, reading, targets, workers_reading
from headway.store.pages import MAX_LIMIT, Filters, Page, check_limit, job_rows
from headway.store.reading import Event, JobView, Line

if TYPE_CHECKING:
    from headway.app import App
    from headway.config import Settings
    from headway.engine.applying import Applying
    from headway.engine.client import Client
    from headway.engine.overview import Overview
    from headway.model.access import Token
    from headway.model.job import Run
    from headway.model.manifest import Manifest
    from headway.model.policies import Concurrency
    from headway.model.scene import Pause
    from headway.model.schedule import Schedule
    from headway.model.targets import TargetState, TargetView
    from headway.model.template import Template
    from headway.model.waiting import Explanation
    from headway.model.webhooks import Endpoint
    from headway.store.db import Database, Tx
    from headway.store.lanes_reading import LaneView
    from headway.store.plans_reading import GroupView
    from headway.store.queue_reading import Waiting
    from headway.store.workers_reading import WorkerView


class LocalDesk:
    """A database with what is needed to work on it."""

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
        from headway.cli.opening import shown

        return {"database": shown(self.settings), "server": None}

    def now(self) -> int:
        return self.database.clock.now()

    def stored_now(self) -> int:
        """By the database, which judges what is in the future."""
        with self.read() as tx:
            return self.client.time_in(tx)

    # --- jobs and runs ---

    def list_jobs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[JobView]:
        def page(cursor: str | None) -> Page[JobView]:
            with self.read() as tx:
                return reading.list_jobs(tx, self.tenant_id, wanted, limit, cursor)

        return fill(page, limit, cursor, lambda view: view.job.id)

    def list_runs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[Run]:
        def page(cursor: str | None) -> Page[Run]:
            with self.read() as tx:
                return reading.list_runs(tx, self.tenant_id, wanted, limit, cursor)

        return fill(page, limit, cursor, lambda run: run.job_id)

    def job_ids(self, wanted: Filters, *, unretried: bool = False) -> list[int]:
        """All that fit; without those that were retried already, if wanted."""

        def page(cursor: str | None) -> Page[int]:
            with self.read() as tx:
                found = job_rows(tx, self.tenant_id, wanted, MAX_LIMIT, cursor)
                ids = [job.id for job in found.items]
                done = reading.retried(tx, ids) if unretried else set()
                return Page([job_id for job_id in ids if job_id not in done], found.next)

        return every(page)

    def view(self, job_id: int) -> JobView:
        with self.read() as tx:
            return reading.view(tx, self.tenant_id, job_id)

    def views(self, ids: Sequence[int]) -> list[JobView]:
        with self.read() as tx:
            return reading.views_of(tx, self.tenant_id, ids)

    def shown_job(self, job_id: int) -> tuple[JobView, list[Event]]:
        with self.read() as tx:
            return reading.view(tx, self.tenant_id, job_id), reading.events(tx, job_id)

    def run(self, run_id: int) -> Run:
        with self.read() as tx:
            found = jobs.run_of(tx, run_id)
        if found is None or found.tenant_id != self.tenant_id:
            raise NotFound(f"there is no run {run_id}: see `headway runs ls`")
        return found

    def explain(self, job_id: int) -> tuple[Explanation, bool]:
        """With whether it runs and its worker is gone."""
        with self.read() as tx:
            found = queue_reading.explain(tx, self.tenant_id, job_id, lives=lives)
            owner = workers_reading.owner(tx, job_id)
        return found, found.status == State.RUNNING.name and (owner is None or not lives(owner))

    def make(self, task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[int, bool]:
        """A job of a task; whether it is new, or another one has its key."""
        from headway.engine.task import make_job

        return self.client.enqueue(make_job(self.client, task, params, wishes))

    def make_of_template(
        self, template: int | str, params: Mapping[str, Any], wishes: Mapping[str, Any]
    ) -> tuple[int, bool]:
        return self.client.enqueue(self.client.templates.job(template, params, **wishes))

    # --- watching ---

    def follow(self, job_id: int) -> Iterator[Seen]:
        """A job as it goes, without an end: whoever watches knows what to wait for. Each look is of one moment."""
        chunk = 0
        while True:
            with self.read() as tx:
                view = reading.view(tx, self.tenant_id, job_id)
                lines = reading.log_lines(tx, job_id, after=chunk)
                retry = jobs.automatic_retry(tx, job_id) if view.job.status is State.FAILED else None
                after = reading.view(tx, self.tenant_id, retry.id) if retry is not None else None
            chunk = lines[-1].chunk if lines else chunk
            yield Seen(view, lines, after)
            time.sleep(LOOK_SECONDS)

    def log(self, job_id: int, tail: int | None) -> tuple[list[Line], int]:
        """The first lines, or the last ones, and where to go on."""
        with self.read() as tx:
            lines = reading.log_lines(tx, job_id) if tail is None else reading.last_lines(tx, job_id, tail)
            end = lines or reading.last_lines(tx, job_id, 1)
        return lines, end[-1].chunk if end else 0

    def more_lines(self, job_id: int, after: int, *, follow: bool) -> Iterator[list[Line]]:
        """The lines that come after, as they come; to the end of what there is, or of the job."""
        while True:
            ended = self.client.get(job_id).status.terminal  # looked at first: then all that it wrote is there
            with self.read() as tx:
                lines = reading.log_lines(tx, job_id, after=after)
            if lines:
                after = lines[-1].chunk
                yield lines
            elif ended or not follow:
                return
            else:
                time.sleep(LOOK_SECONDS)

    def wait(self, job_id: int, deadline: float | None) -> JobView:
        """The last job of its chain of retries: when it has ended or is held, or when the time is over."""
        while True:
            with self.read() as tx:
                last = reading.last_of_chain(tx, self.tenant_id, job_id)
            if over(last.status) or (deadline is not None and time.monotonic() >= deadline):
                return self.view(last.id)
            time.sleep(LOOK_SECONDS)

    # --- how things stand ---

    def overview(self, *, listed: int = 10) -> Overview:
        from headway.engine.overview import overview

        with self.read() as tx:
            return overview(tx, self.tenant_id, self.now(), listed=listed)

    def workers(self) -> list[tuple[WorkerView, bool]]:
        with self.read() as tx:
            return [(worker, lives(worker)) for worker in workers_reading.workers(tx)]

    def alone(self) -> bool:
        """Whether no worker is alive."""
        with self.read() as tx:
            return not living(tx)

    def queue(self, limit: int) -> list[Waiting]:
        with self.read() as tx:
            return queue_reading.queue(tx, self.tenant_id, check_limit(limit), lives=lives)

    def pauses(self) -> tuple[Pause | None, Pause | None]:
        with self.read() as tx:
            return lanes.pauses(tx, self.tenant_id)

    def limits(self) -> tuple[Concurrency, list[LaneView]]:
        with self.read() as tx:
            return lanes.read_concurrency(tx)[0], lanes_reading.listed(tx, self.tenant_id)

    def set_limit(self, name: str, capacity: int | None) -> list[LaneView]:
        from headway.engine.limits import change

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
            return found, reading.history(tx, "target", found.id)

    # --- groups, executions, schedules, templates ---

    def list_groups(
        self,
        kind: str,
        status: str | None,
        limit: int,
        cursor: str | None,
        *,
        schedule_id: int | None = None,
    ) -> Page[GroupView]:
        from headway.store import plans_reading

        wishes = {"kind": kind, "status": status, "schedule_id": schedule_id, "limit": limit, "cursor": cursor}
        with self.read() as tx:
            return plans_reading.groups_page(tx, self.tenant_id, **wishes)  # type: ignore[arg-type]

    def group(self, group_id: int, kind: str) -> GroupView:
        from headway.store import plans_reading

        with self.read() as tx:
            return plans_reading.group_view(tx, self.tenant_id, group_id, kind)

    def shown_group(self, group_id: int, kind: str) -> tuple[GroupView, list[Event]]:
        from headway.store import plans_reading

        with self.read() as tx:
            found = plans_reading.group_view(tx, self.tenant_id, group_id, kind)
            return found, reading.history(tx, kind, group_id)

    def zones(self, schedule_ids: Iterable[int]) -> dict[int, str]:
        """The time zones of schedules, as they are now; also of those that were deleted."""
        from headway.store import schedules

        with self.read() as tx:
            known = schedules.kept(tx, self.tenant_id, set(schedule_ids))
        return {number: one.parsed.timezone for number, one in known.items()}

    def list_schedules(self, limit: int, cursor: str | None) -> tuple[Page[Schedule], Mapping[str, int]]:
        """By name, and the numbers of the templates they name."""
        from headway.store import schedules, templates

        with self.read() as tx:
            page = schedules.listed(tx, self.tenant_id, limit=limit, cursor=cursor)
            return page, templates.numbers(tx, self.tenant_id, page.items)

    def template_numbers(self, schedule: Schedule) -> Mapping[str, int]:
        from headway.store import templates

        with self.read() as tx:
            return templates.numbers(tx, self.tenant_id, [schedule])

    def shown_schedule(self, which: int | str) -> ScheduleShown:
        from headway.store import plans_reading, schedules, templates

        with self.read() as tx:
            one = schedules.find(tx, self.tenant_id, which)
            recent = plans_reading.groups_page(tx, self.tenant_id, kind="execution", schedule_id=one.id, limit=5).items
            ticks = schedules.ledger(tx, one.id, limit=1).items
            numbers = templates.numbers(tx, self.tenant_id, [one])
            events = reading.history(tx, "schedule", one.id)
        return ScheduleShown(one, numbers, recent, ticks[0] if ticks else None, events)

    def schedule_named(self, name: str) -> Schedule | None:
        from headway.store import schedules

        with self.read() as tx:
            return schedules.find_named(tx, self.tenant_id, name)

    def shown_template(self, which: int | str) -> tuple[Template, list[Event]]:
        from headway.store import templates

        with self.read() as tx:
            found = templates.find(tx, self.tenant_id, which)
            return found, reading.history(tx, "template", found.id)

    def apply(self, text: str, wanted: Manifest, file: str, *, dry_run: bool) -> tuple[Applying, dict[str, str]]:
        """What a file changes, and the secrets of the webhooks it makes. `text` is what `wanted` was read from."""
        from headway.engine.applying import plan

        found = plan(self.client, wanted, file)
        return found, {} if dry_run else found.run()

    # --- tokens and webhooks ---

    def create_token(
        self, name: str, role: str, *, tenant: str | None, system: bool, expires: str | None
    ) -> tuple[Token, str]:
        owner = None if system else tenant or self.client.tenant
        return self.client.tokens.create(name, role, tenant=owner, expires=expires)

    def is_open(self) -> bool:
        """Whether whoever is on this machine may do everything, as there is no token."""
        from headway.engine.tokens import any_token

        return not any_token(self.database)

    def shown_webhook(self, number: int) -> tuple[Endpoint, list[Event]]:
        from headway.store import endpoints

        with self.read() as tx:
            found = endpoints.find(tx, self.tenant_id, number)
            return found, reading.history(tx, "webhook", number)


class Workshop(LocalDesk):
    """Where things are made of an app's tasks: a database that comes into being with the first one."""

    def __init__(self, app: App) -> None:
        super().__init__(app.settings, lambda: app.client)
        self.app = app

    def make(self, task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[int, bool]:
        made = self.app.enqueue(task, params, **wishes)  # what is wrong with it is said before a database is made
        return made.id, made.created
