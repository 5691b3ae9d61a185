"""Types of the request bodies about the queue, limits, targets and reservations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from headway.api.schemas.bodies import Body, Budget, Duration, Id, Instant, Name, Note, Params

Limit = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class PauseQueue(Body):
    """A pause of the queue; it ends at `until`, after `for`, or when it is resumed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"note": "the GPU is being cleaned", "for": "2h"}]})
    note: Note | None = None
    until: Instant | None = None
    duration: Annotated[Duration | None, Field(alias="for")] = None
    everybody: Annotated[bool, Field(description="Pause the queues of all tenants; needs a system token")] = False

    @model_validator(mode="after")
    def _one_end(self) -> PauseQueue:
        if self.until is not None and self.duration is not None:
            raise ValueError("give until or for, not both")
        return self


class ResumeQueue(Body):
    everybody: Annotated[bool, Field(description="End the pause of all tenants; needs a system token")] = False


class Reorder(Body):
    """The jobs are put into this order, within the places they hold together."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job_ids": [17, 12, 15]}]})
    job_ids: Annotated[list[Id], Field(min_length=1, max_length=1_000)]


class Limits(Body):
    """Limits of lanes, one by name or several at once, and rules.

    A limit of null means no limit, except for resources; `aging` null turns aging off.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ollama", "limit": 2}, {"limits": {"global": 4}, "policy": "global"}]}
    )
    name: Name | None = None
    limit: Limit | None = None
    limits: dict[str, Limit | None] | None = None
    policy: Literal["global", "per_task", "per_resource"] | None = None
    targets: Literal["own", "global"] | None = None
    aging: Duration | None = None

    @model_validator(mode="after")
    def _name_with_limit(self) -> Limits:
        if (self.name is None) != ("limit" not in self.model_fields_set):
            raise ValueError("name and limit must be given together")
        if not self.model_fields_set:
            raise ValueError("give name and limit, limits, policy, targets or aging")
        return self


class PauseTarget(Body):
    note: Note | None = None


class Call(Body):
    """A direct call. `wait` is the longest time it may wait for its slot."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"params": {"topic": "fog"}, "wait": "30s"}]})
    params: Params | None = None
    target: Name | None = None
    resources: list[Name] | None = None
    timeout: Duration | None = None
    budget: Budget | None = None
    wait: Duration | None = None


class NewReservation(Body):
    """The next slot of some resources, of a target, or of both.

    It expires `ttl` after its last renewal.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"resources": ["ollama"], "ttl": "2m"}]})
    resources: list[Name] | None = None
    target: Name | None = None
    ttl: Duration | None = None
