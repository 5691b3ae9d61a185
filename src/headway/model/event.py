"""An event: one row in the history of a job, group, schedule or other thing."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from headway.model.jobs.job import Actor


@dataclass(frozen=True, slots=True)
class Event:
    """A stored event."""

    id: int
    kind: str
    thing: str
    thing_id: int
    version: int
    status: int | None
    at: int
    actor: str
    fence: int | None
    data: str | None
    tenant_id: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be recorded, in the transaction that makes the change.

    Without `thing` the event is about the thing that its kind begins with. `data` is JSON text.
    """

    kind: str
    actor: Actor
    _: KW_ONLY
    tenant_id: int
    thing_id: int
    version: int
    thing: str | None = None
    status: int | None = None
    fence: int | None = None
    data: str | None = None
