"""The JSON of the queue, lanes, limits, pauses, targets and reservations, and the bodies about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from headway.api.schemas.common import (
    ActorSchema,
    AnyJson,
    Body,
    Budget,
    GivenDuration,
    GivenInstant,
    Id,
    Instant,
    Json,
    Name,
    Names,
    Note,
    Params,
    Reader,
    Schema,
    actor_json,
    strict,
    time_or_none,
)
from headway.api.schemas.jobs import BlockerSchema, QueuedJobSchema
from headway.model.explain.snapshot import Pause
from headway.model.jobs.job import Reservation
from headway.model.queue.policies import Concurrency
from headway.model.queue.target import TargetView
from headway.model.values.times import instant_text
from headway.store.queue.lane_views import LaneView
from headway.store.queue.queue_views import WaitingJob

# --- the queue and its pauses -------------------------------------------------------------------------------------

_pause = Reader[Pause]()


class PauseSchema(Schema[Pause]):
    since: Instant | None = _pause(lambda pause: time_or_none(pause.since))
    until: Instant | None = _pause(lambda pause: time_or_none(pause.until))
    note: str | None = _pause(lambda pause: pause.note)


@strict
class QueuePauseSchema(TypedDict):
    paused: bool
    since: Instant | None
    until: Instant | None
    note: str | None
    everybody: PauseSchema | None


@strict
class QueueSchema(TypedDict):
    items: list[QueuedJobSchema]
    next: str | None
    pause: QueuePauseSchema


@strict
class ReorderedSchema(TypedDict):
    moved: list[int]


def waiting_json(waiting: WaitingJob) -> Json:
    """Returns a queued job with its blockers."""
    made: Json = QueuedJobSchema.of(waiting.view, blockers=list(map(BlockerSchema.of, waiting.blockers)))
    return made


def pause_json(own: Pause | None, everybody: Pause | None = None) -> Json:
    """Returns the pause of a tenant's queue and the pause of all queues."""
    shown = own or everybody
    facts = PauseSchema.of(shown) if shown is not None else {"since": None, "until": None, "note": None}
    above = PauseSchema.of(everybody) if everybody is not None else None
    return {"paused": shown is not None, **facts, "everybody": above}


# --- lanes and limits ---------------------------------------------------------------------------------------------

_lane, _rules = Reader[LaneView](), Reader[Concurrency]()


class LaneSchema(Schema[LaneView]):
    name: str = _lane(lambda lane: lane.name)
    kind: Literal["policy", "resource"] = _lane.literal(lambda lane: lane.kind)
    limit: int | None = _lane(lambda lane: lane.limit)
    running: int = _lane(lambda lane: lane.running)
    reserved: int = _lane(lambda lane: lane.reserved)
    waiting: int = _lane(lambda lane: lane.waiting)
    waiting_at_least: bool = _lane(lambda lane: lane.at_least)


class LimitsSchema(Schema[Concurrency]):
    policy: str = _rules(lambda rules: rules.policy)
    targets: Literal["own", "global"] = _rules.literal(lambda rules: rules.targets)
    aging: float | None = _rules(lambda rules: rules.aging)
    items: list[LaneSchema]
    next: str | None


def concurrency_json(concurrency: Concurrency) -> Json:
    made: Json = LimitsSchema.of(concurrency)
    return made


def limits_json(concurrency: Concurrency, lanes: Sequence[LaneView]) -> Json:
    """Returns the concurrency rules and all lanes."""
    made: Json = LimitsSchema.of(concurrency, items=list(map(LaneSchema.of, lanes)), next=None)
    return made


# --- targets ------------------------------------------------------------------------------------------------------

_target = Reader[TargetView]()


class TargetSchema(Schema[TargetView]):
    name: str = _target(lambda target: target.name)
    state: Literal["free", "busy", "held", "paused"] = _target.literal(lambda target: target.state.value)
    held_by: int | None = _target(lambda target: target.held_by)
    # The target's holder has been resumed.
    resumed: bool = _target(lambda target: target.resumed)
    since: Instant | None = _target(lambda target: time_or_none(target.since))
    reason: str | None = _target(lambda target: target.reason)
    running: int | None = _target(lambda target: target.running)
    # The reservation of the direct call that runs on the target.
    direct: int | None = _target(lambda target: target.direct)
    waiting: int = _target(lambda target: target.waiting)
    waiting_at_least: bool = _target(lambda target: target.at_least)
    note: str | None = _target(lambda target: target.note)


# --- reservations and direct calls --------------------------------------------------------------------------------


class PlacedReservation(NamedTuple):
    """A reservation with the names of its lanes, without the target, and of its target."""

    stored: Reservation
    lanes: Sequence[str]
    target: str | None


_placed = Reader[PlacedReservation]()


class ReservationSchema(Schema[PlacedReservation]):
    reservation_id: int = _placed(lambda reservation: reservation.stored.id)
    lanes: list[str] = _placed(lambda reservation: list(reservation.lanes))
    target: str | None = _placed(lambda reservation: reservation.target)
    status: Literal["ACTIVE", "RELEASED", "EXPIRED"] = _placed.literal(lambda reservation: reservation.stored.status)
    holder: str = _placed(lambda reservation: reservation.stored.holder)
    task: str | None = _placed(lambda reservation: reservation.stored.task)
    params: AnyJson = _placed(
        lambda reservation: json.loads(reservation.stored.params) if reservation.stored.params else None
    )
    created_at: Instant = _placed(lambda reservation: instant_text(reservation.stored.created_at))
    granted_at: Instant | None = _placed(lambda reservation: time_or_none(reservation.stored.granted_at))
    finished_at: Instant | None = _placed(lambda reservation: time_or_none(reservation.stored.finished_at))
    expires_at: Instant | None = _placed(lambda reservation: time_or_none(reservation.stored.expires_at))
    # Outcome and error are those of the direct call.
    outcome: Literal["COMPLETED", "FAILED", "SKIPPED", "ABANDONED"] | None = _placed.literal(
        lambda reservation: reservation.stored.outcome
    )
    error: str | None = _placed(lambda reservation: reservation.stored.error)
    created_by: ActorSchema = _placed(lambda reservation: actor_json(reservation.stored.created_by))


@strict
class ResultSchema(TypedDict):
    result: AnyJson


def reservation_json(reservation: Reservation, *, lanes: Sequence[str], target: str | None) -> Json:
    made: Json = ReservationSchema.of(PlacedReservation(reservation, lanes, target))
    return made


# --- bodies -------------------------------------------------------------------------------------------------------

Limit = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class PauseQueueBody(Body):
    """A pause of the queue; it ends at `until`, after `for`, or when it is resumed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"note": "the GPU is being cleaned", "for": "2h"}]})
    note: Note | None = None
    until: GivenInstant | None = None
    duration: Annotated[GivenDuration | None, Field(alias="for")] = None
    everybody: Annotated[bool, Field(description="Pause the queues of all tenants; needs a system token")] = False

    @model_validator(mode="after")
    def _one_end(self) -> PauseQueueBody:
        if self.until is not None and self.duration is not None:
            raise ValueError("give until or for, not both")
        return self


class ResumeQueueBody(Body):
    everybody: Annotated[bool, Field(description="End the pause of all tenants; needs a system token")] = False


class ReorderBody(Body):
    """The jobs are put into this order, within the places they hold together."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job_ids": [17, 12, 15]}]})
    job_ids: Annotated[list[Id], Field(min_length=1, max_length=1_000)]


class LimitsBody(Body):
    """Limits of lanes, one by name or several at once, and rules.

    A limit of null means no limit, except for resources; `aging` null or `none` turns aging off.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ollama", "limit": 2}, {"limits": {"global": 4}, "policy": "global"}]}
    )
    name: Name | None = None
    limit: Limit | None = None
    limits: dict[str, Limit | None] | None = None
    policy: Literal["global", "per_task", "per_resource"] | None = None
    targets: Literal["own", "global"] | None = None
    aging: GivenDuration | None = None

    @model_validator(mode="after")
    def _name_with_limit(self) -> LimitsBody:
        if (self.name is None) != ("limit" not in self.model_fields_set):
            raise ValueError("name and limit must be given together")
        if not self.model_fields_set:
            raise ValueError("give name and limit, limits, policy, targets or aging")
        return self


class PauseTargetBody(Body):
    note: Note | None = None


class CallBody(Body):
    """A direct call. `wait` is the longest time it may wait for its slot."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"params": {"topic": "fog"}, "wait": "30s"}]})
    params: Params | None = None
    target: Name | None = None
    resources: Names | None = None
    timeout: GivenDuration | None = None
    budget: Budget | None = None
    wait: GivenDuration | None = None


class NewReservationBody(Body):
    """The next slot of some resources, of a target, or of both; without them, of the policy's lane.

    It expires `ttl` after its last renewal.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"resources": ["ollama"], "ttl": "2m"}]})
    resources: Names | None = None
    target: Name | None = None
    ttl: GivenDuration | None = None


# --- functions ----------------------------------------------------------------------------------------------------

lane_json: Callable[[LaneView], Json] = LaneSchema.of
target_json: Callable[[TargetView], Json] = TargetSchema.of
