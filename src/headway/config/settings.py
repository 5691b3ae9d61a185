"""Declares the settings: names, types, defaults, descriptions, and rules between two settings.

The default `retention` is 30 days: long enough to examine last month's failures, short enough that a file on one disk
stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from headway.config.types import (
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
from headway.model.queue import policies
from headway.model.values import times

# A setting's place is its path of names, outermost first. Names inside maps may contain dots, so it is no dotted text.
SettingPath = tuple[str, ...]

_MINUTE, _DAY = 60.0, 86_400.0


class _Frozen(BaseModel):
    # An input may be a password, so pydantic's messages leave inputs out.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)


class ConcurrencySettings(_Frozen):
    policy: Policy = Field(
        default="global",
        description="Lanes of a job without a target: global, per_task, per_resource or your own policy class",
    )
    limit: Annotated[Count | None, OrNone] = Field(
        default=1, description='How many jobs may run at once on the policy\'s lane; "none" means no limit'
    )
    limits: Mapping[Name, Count] = Field(
        default_factory=dict, description="Limits of single lanes, by task (per_task) or by your own policy's lane"
    )
    targets: Literal["own", "global"] = Field(
        default="own", description='Jobs with a target take its lane only (own), or the policy\'s lane too ("global")'
    )

    def value(self, aging: float | None) -> policies.Concurrency:
        """Returns the value that is stored in the database."""
        limits = tuple(sorted(self.limits.items()))
        return policies.Concurrency(self.policy, self.targets, self.limit, limits, aging)


class RetryDefaults(_Frozen):
    max_attempts: Annotated[int, Whole, Field(ge=0, le=1_000)] = Field(
        default=3, description="Automatic retries of a job without its own retry policy (on a target: 0)"
    )
    base_delay: Duration = Field(default=10.0, description="Wait before the first retry; doubles with each retry")


class WebhookSettings(_Frozen):
    allow_private: bool = Field(default=False, description="Deliver to private and loopback addresses too")


class Legacy(_Frozen):
    story: TaskName = Field(default="story.generate", description="The task behind POST /jobs/story/trigger")
    research: TaskName = Field(default="research.run", description="The task behind POST /jobs/research/trigger")
    enabled: Annotated[bool | None, OrNone] = Field(
        default=None, description='Answer at the old addresses; "none" means until 31 December 2027'
    )


class Settings(_Frozen):
    """All settings.

    Their order matters: the validator of `listen` reads `database`, and that of `lease` reads `heartbeat`.
    """

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
        default=8642, description="The port of the HTTP server; 0 chooses a free port"
    )
    hosts: Annotated[Hosts | None, OrNone] = Field(
        default=None, description="Additional host names that the HTTP server accepts, separated by commas"
    )
    slots: Count = Field(default=4, description="How many jobs one worker runs at once")
    concurrency: ConcurrencySettings = Field(
        default_factory=ConcurrencySettings, description="Limits on concurrency across all workers"
    )
    resources: Mapping[Resource, Count] = Field(
        default_factory=dict, description="Named pools and how many jobs may use each at once"
    )
    heartbeat: SomeTime = Field(default=2.0, description="How often a worker renews its lease")
    lease: SomeTime = Field(default=60.0, description="How long a claim lasts without renewal; at least 3 heartbeats")
    recovery_interval: SomeTime = Field(default=30.0, description="How often each process checks for lost jobs")
    shutdown_grace: Duration = Field(default=30.0, description="How long running jobs may continue after a stop signal")
    tick_tolerance: SomeTime = Field(
        default=60.0, description="How late a schedule's tick may be and still be on time; at most half its interval"
    )
    retry: RetryDefaults = Field(default_factory=RetryDefaults, description="The retry policy of jobs without one")
    reservation_ttl: SomeTime = Field(
        default=10 * _MINUTE, description="How long an outside program's reservation lasts after its last renewal"
    )
    direct_wait: Annotated[Duration | None, OrNone] = Field(
        default=300.0, description="How long a direct call may wait for its slot"
    )
    aging: Annotated[Aging | None, OrNone] = Field(
        default=None, description='Each such interval of waiting adds 1 to the priority; "none" turns it off'
    )
    retention: Annotated[SomeTime | None, OrNone] = Field(
        default=30 * _DAY, description='How long finished jobs are kept; "none" keeps them for ever'
    )
    webhooks: WebhookSettings = Field(default_factory=WebhookSettings, description="Rules for webhook deliveries")
    connections: Mapping[Name, Connection] = Field(
        default_factory=dict, repr=False, description="Databases for sql tasks, by name"
    )
    secrets: Mapping[Name, Secret] = Field(
        default_factory=dict,
        repr=False,
        description="The source of each secret (env:VARIABLE or file:/path), and the tenants and tasks that may use it",
    )
    artifacts: Folder = Field(default=Path("headway-artifacts"), description="The folder for files that jobs attach")
    legacy: Legacy = Field(default_factory=Legacy, description="The addresses of the older systems")

    _sources: dict[SettingPath, str] = PrivateAttr(default_factory=dict)

    def source_of(self, place: SettingPath) -> str:
        """Returns the label of a value's source; `default` if none was given."""
        return self._sources.get(place, "default")

    def remember_sources(self, labels: Mapping[SettingPath, str]) -> None:
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
            short, beat = times.duration_text(value), times.duration_text(heartbeat)
            raise together(f"must be at least 3 heartbeats: {short} is less than 3 × {beat}")
        return value
