"""Jobs, the queue and targets over HTTP, with the methods of the local client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.api.schemas.parse_jobs import job_view
from headway.cli.backend.connection import Link, given, part
from headway.cli.output import Json
from headway.errors import BadInput
from headway.model.jobs.job import JobRecord
from headway.model.values.json import instant_text


class HttpClient:
    """The client of a server: the methods of the local client, each as one HTTP request."""

    def __init__(self, link: Link) -> None:
        self.link = link

    # --- jobs ---

    def get(self, job_id: int) -> JobRecord:
        return _job(self.link.get(f"/api/jobs/{job_id}"))

    def make(self, task: str | None, template: int | None, params: Mapping[str, Any], wishes: Json) -> tuple[int, bool]:
        """Creates a job; returns its number and True, or False if another job has its key."""
        wanted = {**wishes, "retry_policy": wishes.get("retry_policy") or wishes.get("retry")}
        wanted.pop("retry", None)
        body = given(task=task, template_id=template, params=dict(params), **wanted)
        made, status = self.link.create("/api/jobs", body)
        return made["job_id"], status == 201

    def cancel(self, job_id: int) -> JobRecord:
        return self._act(job_id, "cancel")

    def interrupt(self, job_id: int) -> JobRecord:
        return self._act(job_id, "interrupt")

    def release(self, job_id: int) -> JobRecord:
        return self._act(job_id, "release")

    def resume(self, job_id: int, budget: Mapping[str, float] | None = None) -> JobRecord:
        return self._act(job_id, "resume", given(budget=budget))

    def resolve(self, job_id: int, result: object = None) -> JobRecord:
        return self._act(job_id, "resolve", {"result": result})

    def retry(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        budget: Mapping[str, float] | None = None,
        again: bool = True,
    ) -> JobRecord:
        body = given(params=params, priority=priority, budget=budget, again=None if again else False)
        made, _ = self.link.create(f"/api/jobs/{job_id}/retry", body)
        return _job(made)

    def edit(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        not_before: int | None = None,
        expires_at: int | None = None,
        if_version: int | None = None,
    ) -> JobRecord:
        times = {"not_before": not_before, "expires_at": expires_at}
        said = {name: instant_text(value) for name, value in times.items() if value is not None}
        body = given(params=params, priority=priority, **said)
        return _job(self.link.patch(f"/api/jobs/{job_id}", body, if_version=if_version))

    def move(
        self,
        job_id: int,
        *,
        to: str | None = None,
        before: int | None = None,
        after: int | None = None,
        rank: int | None = None,
    ) -> JobRecord:
        place = given(to=to, before=before, after=after, rank=rank)
        if len(place) != 1:
            raise BadInput("give exactly one of to, before, after and rank", field="to")
        return self._act(job_id, "move", place)

    def _act(self, job_id: int, verb: str, body: Json | None = None) -> JobRecord:
        return _job(self.link.post(f"/api/jobs/{job_id}/{verb}", body))

    # --- the queue, targets, limits ---

    def pause_queue(self, *, note: str | None = None, until: int | None = None, everybody: bool = False) -> None:
        end = None if until is None else instant_text(until)
        self.link.post("/api/queue/pause", given(note=note, until=end, everybody=everybody))

    def resume_queue(self, *, everybody: bool = False) -> None:
        self.link.post("/api/queue/resume", {"everybody": everybody})

    def pause_target(self, name: str, *, note: str | None = None) -> None:
        self.link.post(f"/api/targets/{part(name)}/pause", given(note=note))

    def resume_target(self, name: str) -> None:
        self.link.post(f"/api/targets/{part(name)}/resume")

    def release_target(self, name: str) -> JobRecord:
        return _job(self.link.post(f"/api/targets/{part(name)}/release"))


def _job(found: Json) -> JobRecord:
    return job_view(found).job
