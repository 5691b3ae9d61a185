"""Types of the answers about the queue, limits, targets and reservations."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from headway.api.schemas.answers import Actor, AnyJson, Instant, QueuedJob, Strict


@Strict
class Pause(TypedDict):
    since: Instant | None
    until: Instant | None
    note: str | None


@Strict
class QueuePause(TypedDict):
    paused: bool
    since: Instant | None
    until: Instant | None
    note: str | None
    everybody: Pause | None


@Strict
class Queue(TypedDict):
    items: list[QueuedJob]
    next: str | None
    pause: QueuePause


@Strict
class Reordered(TypedDict):
    moved: list[int]


@Strict
class Lane(TypedDict):
    name: str
    kind: Literal["policy", "resource"]
    limit: int | None
    running: int
    reserved: int
    waiting: int
    waiting_at_least: bool


@Strict
class Limits(TypedDict):
    policy: str
    targets: Literal["own", "global"]
    aging: float | None
    items: list[Lane]
    next: str | None


@Strict
class Target(TypedDict):
    name: str
    state: Literal["free", "busy", "held", "paused"]
    held_by: int | None
    resumed: bool
    since: Instant | None
    reason: str | None
    running: int | None
    direct: int | None
    waiting: int
    waiting_at_least: bool
    note: str | None


@Strict
class Result(TypedDict):
    result: AnyJson


@Strict
class Reservation(TypedDict):
    reservation_id: int
    lanes: list[str]
    target: str | None
    status: Literal["ACTIVE", "RELEASED", "EXPIRED"]
    holder: str
    task: str | None
    params: AnyJson
    created_at: Instant
    granted_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant | None
    outcome: Literal["COMPLETED", "FAILED", "SKIPPED", "ABANDONED"] | None
    error: str | None
    created_by: Actor
