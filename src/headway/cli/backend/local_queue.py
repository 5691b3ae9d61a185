"""The queue, its limits and the targets in the local database, as the API's JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headway.api.schemas.jobs import event_json, job_json
from headway.api.schemas.queue import limits_json, pause_json, target_json, waiting_json
from headway.cli.backend.base import fill
from headway.cli.output import Json
from headway.engine.client import limits
from headway.model.queue.target import TargetState
from headway.store.jobs import views as job_views
from headway.store.paging import check_limit
from headway.store.queue import lane_views, lanes, queue_views, targets

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend


class LocalQueue:
    """The queue and its limits in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    def page(self, limit: int) -> Json:
        with self.backend.read() as tx:
            waiting = queue_views.queue(tx, self.backend.tenant_id, check_limit(limit), lives=limits.lives)
        return {"items": [waiting_json(job) for job in waiting], "next": None}

    def reorder(self, ids: Sequence[int]) -> Json:
        return {"moved": self.backend.client.reorder(ids)}

    def pause(self, *, note: str | None, until: int | None, everybody: bool) -> Json:
        self.backend.client.pause_queue(note=note, until=until, everybody=everybody)
        return self._pauses()

    def resume(self, *, everybody: bool) -> Json:
        self.backend.client.resume_queue(everybody=everybody)
        return self._pauses()

    def _pauses(self) -> Json:
        with self.backend.read() as tx:
            return pause_json(*lanes.pauses(tx, self.backend.tenant_id))

    def limits(self) -> Json:
        with self.backend.read() as tx:
            return limits_json(lanes.read_concurrency(tx)[0], lane_views.listed(tx, self.backend.tenant_id))

    def set_limit(self, name: str, capacity: int | None) -> Json:
        tenant_id, actor = self.backend.tenant_id, self.backend.client.actor
        limits.change(self.backend.database, name, capacity, tenant_id=tenant_id, actor=actor)
        return self.limits()

    def set_aging(self, interval: float | None) -> Json:
        tenant_id, actor = self.backend.tenant_id, self.backend.client.actor
        limits.adjust(self.backend.database, {}, {"aging": interval}, tenant_id=tenant_id, actor=actor)
        return self.limits()


class LocalTargets:
    """Targets in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    def page(self, states: Collection[TargetState], limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            with self.backend.read() as tx:
                page = targets.listed(tx, self.backend.tenant_id, states=states, limit=count, cursor=cursor)
            return {"items": [target_json(target) for target in page.items], "next": page.next}

        return fill(read, limit, cursor)

    def get(self, name: str) -> Json:
        with self.backend.read() as tx:
            return target_json(targets.shown(tx, self.backend.tenant_id, name))

    def shown(self, name: str) -> Json:
        with self.backend.read() as tx:
            target = targets.shown(tx, self.backend.tenant_id, name)
            events = job_views.history(tx, "target", target.id)
        return {**target_json(target), "events": [event_json(event) for event in events]}

    def pause(self, name: str, *, note: str | None) -> Json:
        self.backend.client.pause_target(name, note=note)
        return self.get(name)

    def resume(self, name: str) -> Json:
        self.backend.client.resume_target(name)
        return self.get(name)

    def release(self, name: str) -> Json:
        job_id = self.backend.client.release_target(name).id
        with self.backend.read() as tx:
            return job_json(job_views.view(tx, self.backend.tenant_id, job_id))
