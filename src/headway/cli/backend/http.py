"""The backend that talks to a server over HTTP. It has the same methods as `LocalBackend`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from headway.api.schemas import parse_groups as plans
from headway.api.schemas import parse_jobs as wire
from headway.api.schemas import parse_queue as lanes
from headway.api.schemas.parse_access import applied_of
from headway.cli.backend.base import FollowedJob, every, fill, over
from headway.cli.backend.connection import Link, part
from headway.cli.backend.http_access import HttpTenants, HttpTokens, HttpWebhooks
from headway.cli.backend.http_client import HttpClient
from headway.cli.backend.http_groups import PATHS, HttpGroups, HttpSchedules, HttpTemplates
from headway.cli.output import Json
from headway.engine.client.apply import Applying
from headway.engine.monitoring.overview import Overview
from headway.errors import NotFound
from headway.model.event import Event
from headway.model.explain.blockers import Explanation
from headway.model.explain.snapshot import Pause
from headway.model.jobs.job import Run
from headway.model.jobs.states import State
from headway.model.manifest import Manifest
from headway.model.queue.policies import Concurrency
from headway.model.queue.target import TargetState, TargetView
from headway.store.jobs.views import JobView, LogLine
from headway.store.paging import MAX_LIMIT, Filters, Page, check_limit
from headway.store.queue.lane_views import LaneView
from headway.store.queue.queue_views import WaitingJob
from headway.store.worker_views import WorkerView

MOST_EVENTS = 1_000
MOST_TAIL = 1_000


class HttpBackend:
    """Answers the commands from a server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.client = HttpClient(link)
        self._numbers: dict[int, dict[str, int]] = {}

    @property
    def where(self) -> dict[str, str | None]:
        return {"database": None, "server": self.link.url}

    def now(self) -> int:
        return self.link.now()

    def stored_now(self) -> int:
        return self.link.now()

    def _events(self, path: str) -> list[Event]:
        return [wire.event_of(one) for one in self.link.pages(f"{path}/events", MOST_EVENTS)]

    # --- jobs and runs ---

    def list_jobs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[JobView]:
        def page(cursor: str | None) -> Page[JobView]:
            answer = self._page("/api/jobs", wanted, check_limit(limit), cursor)
            return Page([wire.job_view(one) for one in answer["items"]], answer["next"])

        return fill(page, limit, cursor, lambda view: view.job.id)

    def list_runs(self, wanted: Filters, limit: int, cursor: str | None) -> Page[Run]:
        def page(cursor: str | None) -> Page[Run]:
            answer = self._page("/api/job-runs", wanted, check_limit(limit), cursor)
            return Page([wire.run_of(one) for one in answer["items"]], answer["next"])

        return fill(page, limit, cursor, lambda run: run.job_id)

    def _page(self, path: str, wanted: Filters, limit: int, cursor: str | None, **more: Any) -> Json:
        return self.link.get(path, **wire.filter_query(wanted), limit=limit, cursor=cursor, **more)

    def job_ids(self, wanted: Filters, *, unretried: bool = False) -> list[int]:
        more = {"retried": False} if unretried else {}

        def page(cursor: str | None) -> Page[int]:
            answer = self._page("/api/jobs", wanted, MAX_LIMIT, cursor, **more)
            return Page([one["job_id"] for one in answer["items"]], answer["next"])

        return every(page)

    def view(self, job_id: int) -> JobView:
        return wire.job_view(self.link.get(f"/api/jobs/{job_id}"))

    def views(self, ids: Sequence[int]) -> list[JobView]:
        return [self.view(job_id) for job_id in ids]

    def shown_job(self, job_id: int) -> tuple[JobView, list[Event]]:
        view = self.view(job_id)
        if view.group is not None:
            with suppress(NotFound):
                path = PATHS[view.group.kind]
                view = replace(view, group=plans.group_of(self.link.get(f"{path}/{view.group.id}")).group)
        return view, self._events(f"/api/jobs/{job_id}")

    def run(self, run_id: int) -> Run:
        try:
            return wire.run_of(self.link.get(f"/api/job-runs/{run_id}"))
        except NotFound:
            raise NotFound(f"there is no run {run_id}", hint="see `headway runs ls`") from None

    def explain(self, job_id: int) -> tuple[Explanation, bool]:
        answer = wire.explanation_of(self.link.get(f"/api/jobs/{job_id}/explain"), self.now())
        if answer.status != State.RUNNING.name:
            return answer, False
        alive = [worker for worker, alive in self.workers() if alive]
        return answer, not any(job_id == number for worker in alive for _, number, *_ in worker.running)

    def make(self, task: str, params: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[int, bool]:
        return self.client.make(task, None, params, dict(wishes))

    def make_of_template(
        self, template: int | str, params: Mapping[str, Any], wishes: Mapping[str, Any]
    ) -> tuple[int, bool]:
        number = template if isinstance(template, int) else int(self.templates.get(template)["template_id"])
        return self.client.make(None, number, params, dict(wishes))

    # --- watching ---

    def follow(self, job_id: int) -> Iterator[FollowedJob]:
        """Yields the states of a job until it has ended. The end is yielded together with its last log lines."""
        view, rest = self.view(job_id), list[LogLine]()
        if not view.job.status.terminal:
            yield FollowedJob(view, [])
        for message in self.link.live(job_id):
            if message.kind == "lines":
                rest += wire.lines_of(message.data, message.number or 0)
            elif message.kind == "job":
                view = wire.job_view(message.data)
            if not view.job.status.terminal:
                yield FollowedJob(view, rest)
                rest = []
        chain = self._chain(job_id)
        yield FollowedJob(self.view(job_id), rest, chain[0] if chain else None)

    def _chain(self, job_id: int) -> list[JobView]:
        return [wire.job_view(one) for one in self.link.get(f"/api/jobs/{job_id}/chain")["items"]]

    def log(self, job_id: int, tail: int | None) -> tuple[list[LogLine], int]:
        if tail is None:
            return self._lines(job_id, after=0)
        if tail <= MOST_TAIL:
            lines, position = self._lines(job_id, tail=max(1, tail))
            return lines[-tail:] if tail else [], position
        lines, position = [], 0
        while more := self._lines(job_id, after=position)[0]:
            lines, position = [*lines, *more][-tail:], more[-1].chunk
        return lines, position

    def _lines(self, job_id: int, **asked: int) -> tuple[list[LogLine], int]:
        limit = {} if "tail" in asked else {"limit": MAX_LIMIT}
        answer = self.link.get(f"/api/jobs/{job_id}/logs", **asked, **limit)
        return wire.lines_of(answer["items"], answer["position"]), answer["position"]

    def more_lines(self, job_id: int, after: int, *, follow: bool) -> Iterator[list[LogLine]]:
        if follow:
            for message in self.link.live(job_id, after):
                if message.kind == "lines":
                    yield wire.lines_of(message.data, message.number or 0)
            return
        while lines := self._lines(job_id, after=after)[0]:
            after = lines[-1].chunk
            yield lines

    def wait(self, job_id: int, deadline: float | None) -> JobView:
        while True:
            last = next(reversed(self._chain(job_id)), None) or self.view(job_id)
            if over(last.job.status) or (deadline is not None and time.monotonic() >= deadline):
                return last
            for message in self.link.live(last.job.id, deadline=deadline):
                if message.kind == "job" and over(wire.job_view(message.data).job.status):
                    break

    # --- how things stand ---

    def overview(self, *, listed: int = 10) -> Overview:
        return lanes.overview_of(self.link.get("/api/overview", listed=min(MAX_LIMIT, listed)))

    def workers(self) -> list[tuple[WorkerView, bool]]:
        return [wire.worker_of(one) for one in self.link.get("/api/workers")["items"]]

    def alone(self) -> bool:
        return not any(alive for _, alive in self.workers())

    def queue(self, limit: int) -> list[WaitingJob]:
        return [lanes.waiting_of(one) for one in self.link.get("/api/queue", limit=check_limit(limit))["items"]]

    def pauses(self) -> tuple[Pause | None, Pause | None]:
        return lanes.pauses_of(self.link.get("/api/queue", limit=1)["pause"])

    def limits(self) -> tuple[Concurrency, list[LaneView]]:
        return lanes.limits_of(self.link.get("/api/limits"))

    def set_limit(self, name: str, capacity: int | None) -> list[LaneView]:
        return lanes.limits_of(self.link.put("/api/limits", {"name": name, "limit": capacity}))[1]

    def list_targets(self, states: Collection[TargetState], limit: int, cursor: str | None) -> Page[TargetView]:
        wanted = sorted(state.value for state in states) or None
        answer = self.link.get("/api/targets", state=wanted, limit=check_limit(limit), cursor=cursor)
        return Page([lanes.target_of(one) for one in answer["items"]], answer["next"])

    def target(self, name: str) -> TargetView:
        return lanes.target_of(self.link.get(f"/api/targets/{part(name)}"))

    def shown_target(self, name: str) -> tuple[TargetView, list[Event]]:
        return self.target(name), self._events(f"/api/targets/{part(name)}")

    # --- groups, executions, schedules, templates ---

    @cached_property
    def groups(self) -> HttpGroups:
        return HttpGroups(self.link, "group")

    @cached_property
    def executions(self) -> HttpGroups:
        return HttpGroups(self.link, "execution")

    @cached_property
    def schedules(self) -> HttpSchedules:
        return HttpSchedules(self.link)

    @cached_property
    def templates(self) -> HttpTemplates:
        return HttpTemplates(self.link)

    def apply(self, text: str, wanted: Manifest, file: str, *, dry_run: bool) -> tuple[Applying, dict[str, str]]:
        return applied_of(self.link.post("/api/apply", {"text": text, "file": file[-300:], "dry_run": dry_run}))

    # --- tokens, tenants and webhooks ---

    @cached_property
    def tokens(self) -> HttpTokens:
        return HttpTokens(self.link)

    @cached_property
    def tenants(self) -> HttpTenants:
        return HttpTenants(self.link)

    @cached_property
    def webhooks(self) -> HttpWebhooks:
        return HttpWebhooks(self.link)
