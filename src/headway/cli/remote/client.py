"""The verbs of a `Client` over HTTP, by the same names: on jobs, the queue, targets and groups."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.api.wire.reading import job_view
from headway.cli.remote.link import Json, Link, given, part
from headway.errors import BadInput
from headway.model.job import Job
from headway.model.values import instant_text

if TYPE_CHECKING:
    from headway.cli.remote.access import Tenants, Tokens, Webhooks
    from headway.cli.remote.plans import Schedules, Templates


class Client:
    """Who does something on a server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.groups = Groups(link)

    @cached_property
    def schedules(self) -> Schedules:
        from headway.cli.remote.plans import Schedules

        return Schedules(self.link)

    @cached_property
    def templates(self) -> Templates:
        from headway.cli.remote.plans import Templates

        return Templates(self.link)

    @cached_property
    def tokens(self) -> Tokens:
        from headway.cli.remote.access import Tokens

        return Tokens(self.link)

    @cached_property
    def tenants(self) -> Tenants:
        from headway.cli.remote.access import Tenants

        return Tenants(self.link)

    @cached_property
    def webhooks(self) -> Webhooks:
        from headway.cli.remote.access import Webhooks

        return Webhooks(self.link)

    # --- jobs ---

    def get(self, job_id: int) -> Job:
        return _job(self.link.get(f"/api/jobs/{job_id}"))

    def make(self, task: str | None, template: int | None, params: Mapping[str, Any], wishes: Json) -> tuple[int, bool]:
        """The number of a new job, and whether it is new: its key may be taken by that one."""
        wanted = {**wishes, "retry_policy": wishes.get("retry_policy") or wishes.get("retry")}
        wanted.pop("retry", None)
        body = given(task=task, template_id=template, params=dict(params), **wanted)
        made, status = self.link.create("/api/jobs", body)
        return made["job_id"], status == 201

    def cancel(self, job_id: int) -> Job:
        return self._act(job_id, "cancel")

    def interrupt(self, job_id: int) -> Job:
        return self._act(job_id, "interrupt")

    def release(self, job_id: int) -> Job:
        return self._act(job_id, "release")

    def resume(self, job_id: int, budget: Mapping[str, float] | None = None) -> Job:
        return self._act(job_id, "resume", given(budget=budget))

    def resolve(self, job_id: int, result: object = None) -> Job:
        return self._act(job_id, "resolve", {"result": result})

    def retry(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        budget: Mapping[str, float] | None = None,
        again: bool = True,
    ) -> Job:
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
    ) -> Job:
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
    ) -> Job:
        place = given(to=to, before=before, after=after, rank=rank)
        if len(place) != 1:
            raise BadInput("say exactly one of to, before, after and rank", field="to")
        return self._act(job_id, "move", place)

    def _act(self, job_id: int, verb: str, body: Json | None = None) -> Job:
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

    def release_target(self, name: str) -> Job:
        return _job(self.link.post(f"/api/targets/{part(name)}/release"))


def _job(found: Json) -> Job:
    return job_view(found).job


PATHS = {"group": "/api/job-groups", "execution": "/api/schedule-executions"}


class Groups:
    """The verbs on groups and executions."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def cancel(self, group_id: int, kind: str = "group") -> None:
        self.link.post(f"{PATHS[kind]}/{group_id}/cancel")

    def retry(self, group_id: int, kind: str = "group") -> int:
        made, _ = self.link.create(f"{PATHS[kind]}/{group_id}/retry")
        return int(made[f"{kind}_id"])
