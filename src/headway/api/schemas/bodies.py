"""Types of the request bodies; unknown fields are refused.

Values are checked where they are used.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Id = Annotated[int, Field(strict=True, ge=1, le=(1 << 63) - 1)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Whole = Annotated[int, Field(strict=True)]
Priority = Annotated[int, Field(strict=True, ge=0, le=100)]
Params = dict[str, Any]
Duration = Annotated[float | str, Field(description="Seconds, or a text like 10s, 5m, 2h", examples=["10m"])]
Instant = Annotated[str, Field(description="RFC 3339, with a zone", examples=["2030-01-01T02:30:00Z"])]
Budget = Annotated[dict[str, float], Field(examples=[{"tokens": 500_000}])]
Note = Annotated[str, Field(max_length=2_000)]


class Body(BaseModel):
    # An input may be a secret, so pydantic's messages must not contain it.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    def given(self) -> dict[str, Any]:
        """Returns the given fields; null counts as not given."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None}


class RetryPolicy(Body):
    max_attempts: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    base_delay: Duration | None = None
    max_delay: Duration | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] | None = None


class Wishes(Body):
    params: Params | None = None
    priority: Priority | None = None
    target: Name | None = None
    resources: list[Name] | None = None
    timeout: Duration | None = None
    retry_policy: RetryPolicy | None = None
    budget: Budget | None = None
    on_lost: Literal["retry", "hold", "fail"] | None = None
    on_error: Literal["hold", "fail"] | None = None


class NewJob(Wishes):
    """A new job, from a task or from a template."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"task": "story.generate", "params": {"topic": "fog"}, "priority": 5}]}
    )
    task: Name | None = None
    template_id: Id | None = None
    delay: Duration | None = None
    not_before: Instant | None = None
    key: Name | None = None
    hold: bool | None = None
    expires_at: Instant | None = None
    webhook_url: Annotated[str, Field(max_length=2_000)] | None = None
    webhook_events: list[str] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> NewJob:
        if (self.task is None) == (self.template_id is None):
            raise ValueError("give either task or template_id")
        return self


class Member(NewJob):
    """A job of a batch. `name`, `stage` and `continue_on_failure` need a mode."""

    name: Name | None = None
    stage: Annotated[int, Field(strict=True, ge=0, le=10_000)] | None = None
    continue_on_failure: bool | None = None


class NewBatch(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"jobs": [{"task": "story.generate", "params": {"topic": "fog"}}], "mode": "parallel"}]
        }
    )
    jobs: Annotated[list[Member], Field(min_length=1, max_length=1_000)]
    mode: Literal["sequential", "parallel", "staged"] | None = None
    on_failure: Name | None = None
    name: Name | None = None


class JobEdit(Body):
    params: Params | None = None
    priority: Priority | None = None
    not_before: Instant | None = None
    expires_at: Instant | None = None


class Retry(Body):
    params: Params | None = None
    priority: Priority | None = None
    budget: Budget | None = None
    again: bool = Field(True, description="Retry even if the job has been retried before")


class Resume(Body):
    budget: Budget | None = None


class Resolve(Body):
    result: Any = None


class Move(Body):
    """Exactly one of these fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "top"}, {"before": 17}]})
    to: Literal["top", "bottom", "front"] | None = None
    before: Id | None = None
    after: Id | None = None
    rank: Annotated[int, Field(strict=True, ge=1, le=(1 << 31) - 1)] | None = None


class JobFilter(Body):
    status: list[str] | None = None
    task: str | None = None
    target: str | None = None
    group_id: Id | None = None
    schedule_id: Id | None = None
    key: str | None = None
    failure_kind: str | None = None
    created_by: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    q: str | None = None


class Bulk(Body):
    """One action for every matching job.

    The request is refused unless `expected_count` jobs match.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"filter": {"status": ["QUEUED"], "task": "story.write"}, "action": "cancel", "expected_count": 3}
            ]
        }
    )
    filter: JobFilter
    action: Literal["cancel", "interrupt", "resume", "release", "retry"]
    expected_count: Annotated[int, Field(strict=True, ge=0, le=20_000)]
