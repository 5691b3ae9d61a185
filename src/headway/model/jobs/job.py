"""The values of the flow: a job and its run as stored, a job to be created (NewJob), a worker's claim (Claim)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from headway.errors import BadInput
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State, StopRequest

ON_LOST = ("retry", "hold", "fail")
ON_ERROR = ("hold", "fail")
ON_SHUTDOWN = ("retry", "pause", "resume")


@dataclass(frozen=True, slots=True)
class Actor:
    """The user, token, schedule, worker or system behind an action. Stored with every event."""

    type: str
    id: str = ""
    name: str = ""

    def text(self) -> str:
        return _actor_text(self)

    @property
    def shown(self) -> str:
        return self.name or self.id or self.type

    @property
    def identified(self) -> str:
        """Names exactly one actor: login and host, `anonymous` and its address, a token or schedule and its number."""
        if self.type in ("token", "schedule"):
            return f"{self.shown} ({self.type} {self.id})"
        if self.type != "user" or not self.id or self.id == self.name:
            return self.shown
        return self.id if self.id.startswith(f"{self.name}@") else f"{self.shown} ({self.id})"

    @staticmethod
    def parse(text: str) -> Actor:
        return Actor(**json.loads(text))


@lru_cache(maxsize=256)
def _actor_text(actor: Actor) -> str:
    return json.dumps({"type": actor.type, "id": actor.id, "name": actor.name}, separators=(",", ":"))


SYSTEM = Actor("system", "", "headway")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a job: its task's defaults and its caller's choices, copied when it is created."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: float | None = None
    budget: tuple[tuple[str, float], ...] = ()
    on_lost: str = "retry"
    on_error: str = "hold"
    on_shutdown: str | None = None
    resources: tuple[str, ...] = ()
    continue_on_failure: bool = False
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    traceparent: str | None = None

    def text(self) -> str:
        options = {name: value for name, value in asdict(self).items() if value not in (None, False, (), [])}
        options["budget"] = dict(self.budget)
        options["retry"] = {name: value for name, value in asdict(self.retry).items() if value is not None}
        return json.dumps(options, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> Options:
        options: dict[str, Any] = json.loads(text)
        options["budget"] = tuple(sorted(options.get("budget", {}).items()))
        options["resources"] = tuple(options.get("resources", ()))
        options["webhook_events"] = tuple(options.get("webhook_events", ()))
        options["retry"] = RetryPolicy(**options.get("retry", {}))
        return Options(**options)


def check_choice(value: str | None, choices: tuple[str, ...], *, field: str) -> None:
    if value is not None and value not in choices:
        raise BadInput(f"{field} must be one of {', '.join(choices)}, not {value!r}", field=field)


class NewJob(NamedTuple):
    """A checked job, ready to be stored. `params` and `options` are JSON text.

    A tuple is cheaper to create than a dataclass.
    """

    task: str
    params: str
    options: str
    priority: int = 0
    key: str | None = None
    not_before: int | None = None
    delay: int | None = None
    expires_at: int | None = None
    hold: bool = False
    target: str | None = None
    resources: tuple[str, ...] = ()
    template_id: int | None = None


class Claim(NamedTuple):
    """A worker's hold on a running job, with everything needed to run it.

    A tuple is cheaper to create than a dataclass, and a worker creates thousands per second.
    """

    job_id: int
    fence: int
    slot: int
    task: str
    params: str
    options: str
    attempt: int
    ran: int
    carries: int
    target_id: int | None = None
    group_id: int | None = None
    stage: int | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """Data from earlier claims, earlier jobs of the chain and earlier steps of the group.

    `tenant` is read for jobs that name a secret; it is empty for the others.
    """

    checkpoint: str | None = None
    spent: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is stored."""

    id: int
    tenant_id: int
    bucket_id: int
    status: State
    gate: int
    priority: int
    position: int
    created_at: int
    fence: int
    version: int
    attempt: int
    retry_auto: int
    exhausted: int
    hold: int
    retry_of: int | None
    target_id: int | None
    group_id: int | None
    stage: int | None
    not_before: int | None
    expires_at: int | None
    queued_at: int | None
    started_at: int | None
    finished_at: int | None
    worker_id: int | None
    slot: int | None
    claimed_at: int | None
    ran: int
    carries: int
    stop: StopRequest | None
    stop_by: str | None
    failure_kind: FailureKind | None
    reason: str | None
    key: str | None
    task: str
    params: str
    options: str
    created_by: str
    step: str | None
    unfilled: str | None
    template_id: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is stored. `failure_kind` and `result` come from other tables."""

    job_id: int
    tenant_id: int
    task: str
    params: str
    worker_id: int
    started_at: int
    status: State | None
    finished_at: int | None
    exit_code: int | None
    error: str | None
    artifacts: str | None
    failure_kind: FailureKind | None
    result: str | None


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation as it is stored."""

    id: int
    tenant_id: int
    status: str
    lanes: str
    target_id: int | None
    worker_id: int | None
    holder: str
    task: str | None
    params: str | None
    created_at: int
    granted_at: int | None
    finished_at: int | None
    expires_at: int | None
    ttl: int | None
    outcome: str | None
    error: str | None
    created_by: str
