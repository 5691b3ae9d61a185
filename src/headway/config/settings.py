"""The settings there are: their names, kinds, defaults and descriptions, and which of them go together.

Finished work is kept for 30 days (`retention`) unless told otherwise: long enough to look into last month's failures,
short enough that a file on one disk does not grow for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from headway.config.kinds import (
    Address,
    Aging,
    AppName,
    Connection,
    Count,
    Duration,
    Folder,
    Hosts,
    Name,
    OrNone,
    Policy,
    Resource,
    Secret,
    SomeTime,
    TaskName,
    Whole,
    is_postgres,
    together,
    understood,
)
from headway.model import policies, values

# A setting's place: its names from the outside in. Not dotted text, because names inside maps have dots of their own.
Place = tuple[str, ...]

_MINUTE, _DAY = 60.0, 86_400.0


class _Frozen(BaseModel):
    # Inputs stay out of pydantic's own messages: one of them may be a password.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


class Concurrency(_Frozen):
    policy: Policy = Field(
        default="global",
        description="Which lanes a job without a target needs: global, per_task, per_resource or a class of yours",
    )
    limit: Annotated[Count | None, OrNone] = Field(
        default=1, description='How many jobs may run at once on the policy\'s lane, or "none"'
    )
    limits: Mapping[Name, Count] = Field(
        default_factory=dict, description="The limits of single lanes: of tasks under per_task, of your own policy's"
    )
    targets: Literal["own", "global"] = Field(
        default="own", description='Jobs with a target take its lane only (own), or the policy\'s lane too ("global")'
    )

    def value(self, aging: float | None) -> policies.Concurrency:
        """What is kept in the database."""
        limits = tuple(sorted(self.limits.items()))
        return policies.Concurrency(self.policy, self.targets, self.limit, limits, aging)


class RetryDefaults(_Frozen):
    max_attempts: Annotated[int, Whole, Field(ge=0, le=1_000)] = Field(
        default=3, description="Automatic retries of a job that does not say (a job on a target: 0)"
    )
    base_delay: Duration = Field(default=10.0, description="Wait before the first retry; doubles with each further one")


class Webhooks(_Frozen):
    allow_private: bool = Field(default=False, description="Deliver to private and loopback addresses too")


class Legacy(_Frozen):
    story: TaskName = Field(default="story.generate", description="The task behind POST /jobs/story/trigger")
    research: TaskName = Field(default="research.run", description="The task behind POST /jobs/research/trigger")


class Settings(_Frozen):
    """All settings. The order matters twice: `listen` is judged by `database`, `lease` by `heartbeat`."""

    app: Annotated[AppName | None, OrNone] = Field(default=None, description="Where the App is, as module:name")
    database: Address = Field(
        default="headway.db", repr=False, description="An SQLite file, or a postgresql:// address"
    )
    listen: Annotated[str | None, OrNone] = Field(
        default=None,
        repr=False,
        description="A direct PostgreSQL address for LISTEN, when database is a transaction pooler",
    )
    host: Name = Field(default="127.0.0.1", description="The address the HTTP server binds")
    port: Annotated[int, Whole, Field(ge=0, le=65_535)] = Field(
        default=8642, description="The port of the HTTP server; 0 takes a free one"
    )
    hosts: Annotated[Hosts | None, OrNone] = Field(
        default=None, description="More names by which the HTTP server may be called, with commas"
    )
    slots: Count = Field(default=4, description="How many jobs one worker runs at once")
    concurrency: Concurrency = Field(default_factory=Concurrency, description="What limits concurrency across workers")
    resources: Mapping[Resource, Count] = Field(
        default_factory=dict, description="Named pools and how many jobs may use each at once"
    )
    heartbeat: SomeTime = Field(default=2.0, description="How often a worker renews its claims")
    lease: SomeTime = Field(default=60.0, description="How long a claim lives without renewal: at least 3 heartbeats")
    recovery_interval: SomeTime = Field(default=30.0, description="How often each process looks for lost work")
    shutdown_grace: Duration = Field(default=30.0, description="How long running jobs may go on after a stop signal")
    retry: RetryDefaults = Field(default_factory=RetryDefaults, description="The retry policy of jobs that bring none")
    reservation_ttl: SomeTime = Field(
        default=10 * _MINUTE, description="How long a reservation of a program outside lives after its last renewal"
    )
    direct_wait: Duration = Field(default=300.0, description="How long a direct call may wait for its slot")
    aging: Annotated[Aging | None, OrNone] = Field(
        default=None, description='Waiting this long counts as one more priority; "none" turns it off'
    )
    retention: Annotated[SomeTime | None, OrNone] = Field(
        default=30 * _DAY, description='How long finished work is kept; "none" keeps it for ever'
    )
    webhooks: Webhooks = Field(default_factory=Webhooks, description="What webhooks may do")
    connections: Mapping[Name, Connection] = Field(
        default_factory=dict, repr=False, description="Databases that sql tasks may use, by name"
    )
    secrets: Mapping[Name, Secret] = Field(
        default_factory=dict, repr=False, description="Where secrets are found, by name: env:VARIABLE or file:/path"
    )
    artifacts: Folder = Field(default=Path("headway-artifacts"), description="The folder where attached files are kept")
    legacy: Legacy = Field(default_factory=Legacy, description="Which tasks the old trigger paths start")

    _sources: dict[Place, str] = PrivateAttr(default_factory=dict)

    def source_of(self, place: Place) -> str:
        """Where a value was given."""
        return self._sources.get(place, "default")

    def remember_sources(self, labels: Mapping[Place, str]) -> None:
        self._sources.update(labels)

    @field_validator("listen")
    @classmethod
    def _listens_on_postgres(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if not is_postgres(value):
            raise ValueError("must be a PostgreSQL address: write it like postgresql://user@host/name")
        if not is_postgres(info.data.get("database", value)):
            raise together("is for PostgreSQL only, and database is a file: remove it")
        return understood(value)

    @field_validator("lease")
    @classmethod
    def _outlives_heartbeats(cls, value: float, info: ValidationInfo) -> float:
        heartbeat = info.data.get("heartbeat", 0.0)
        if value < round(3 * heartbeat, 6):
            short, beat = values.duration_text(value), values.duration_text(heartbeat)
            raise together(f"must be at least 3 heartbeats: {short} is less than 3 × {beat}")
        return value
