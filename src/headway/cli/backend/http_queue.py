"""The queue, its limits and the targets over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headway.cli.backend.base import fill
from headway.cli.backend.connection import Link, given, part
from headway.cli.output import Json
from headway.model.queue.target import TargetState
from headway.model.values.times import instant_text
from headway.store.paging import check_limit


class HttpQueue:
    """The queue and its limits over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, limit: int) -> Json:
        return {"items": self.link.get("/api/queue", limit=check_limit(limit))["items"], "next": None}

    def reorder(self, ids: Sequence[int]) -> Json:
        return self.link.post("/api/queue/reorder", {"job_ids": list(ids)})

    def pause(self, *, note: str | None, until: int | None, everybody: bool) -> Json:
        end = None if until is None else instant_text(until)
        return self.link.post("/api/queue/pause", given(note=note, until=end, everybody=everybody))

    def resume(self, *, everybody: bool) -> Json:
        return self.link.post("/api/queue/resume", {"everybody": everybody})

    def limits(self) -> Json:
        return self.link.get("/api/limits")

    def set_limit(self, name: str, capacity: int | None) -> Json:
        return self.link.put("/api/limits", {"name": name, "limit": capacity})

    def set_aging(self, interval: float | None) -> Json:
        return self.link.put("/api/limits", {"aging": interval})


class HttpTargets:
    """Targets over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, states: Collection[TargetState], limit: int, cursor: str | None) -> Json:
        wanted = sorted(state.value for state in states) or None

        def read(count: int, cursor: str | None) -> Json:
            return self.link.get("/api/targets", state=wanted, limit=check_limit(count), cursor=cursor)

        return fill(read, limit, cursor)

    def get(self, name: str) -> Json:
        return self.link.get(f"/api/targets/{part(name)}")

    def shown(self, name: str) -> Json:
        return {**self.get(name), "events": self.link.events(f"/api/targets/{part(name)}")}

    def pause(self, name: str, *, note: str | None) -> Json:
        return self.link.post(f"/api/targets/{part(name)}/pause", given(note=note))

    def resume(self, name: str) -> Json:
        return self.link.post(f"/api/targets/{part(name)}/resume")

    def release(self, name: str) -> Json:
        return self.link.post(f"/api/targets/{part(name)}/release")


class HttpReservations:
    """Reservations over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, status: str | None, limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            return self.link.get("/api/reservations", **given(status=status), limit=count, cursor=cursor)

        return fill(read, limit, cursor)

    def get(self, number: int) -> Json:
        return self.link.get(f"/api/reservations/{number}")

    def release(self, number: int) -> Json:
        return self.link.delete(f"/api/reservations/{number}")
