"""What surrounds a waiting job: pauses, lanes, targets, reservations, workers, and the others in the line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headway.model.job import Job
from headway.model.lanes import Stage
from headway.model.states import State
from headway.model.targets import Holder


@dataclass(frozen=True, slots=True)
class Pause:
    since: int
    until: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Inactive:
    """A tenant of which nothing starts."""

    tenant: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    """A job that runs on a lane, without its number if it is another tenant's."""

    since: int
    job_id: int | None = None
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """A lane as it is now. `free` is what running jobs and granted reservations leave (None: there is no limit);
    `closed`: reserved for direct calls; `stages`: those whose jobs run there and count as one."""

    name: str
    capacity: int | None = None
    running: tuple[Runner, ...] = ()
    resource: bool = False
    free: int | None = None
    closed: bool = False
    stages: frozenset[Stage] = frozenset()

    @property
    def open(self) -> bool:
        return not self.closed and (self.free is None or self.free > 0)

    @property
    def taken(self) -> int:
        """How many places running jobs take."""
        return len(self.stages) + sum(one.stage not in self.stages for one in self.running)


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """A target as it is now: who has it, who is first in its queue, whether it is reserved for direct calls."""

    name: str
    pause: Pause | None = None
    holder: Holder | None = None
    first: int | None = None
    shut: bool = False

    def lets(self, job_id: int | None) -> bool:
        """Whether this job may start as far as the target goes."""
        if self.pause is not None or self.shut:
            return False
        return (self.holder.job_id if self.holder is not None else self.first) == job_id


@dataclass(frozen=True, slots=True)
class Promise:
    """An active reservation. `holder` is None if it is another tenant's."""

    lanes: frozenset[int]
    target_id: int | None
    since: int
    until: int | None = None
    granted: bool = False
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that stands in line, without its number if it is another tenant's. `open`: as far as its target goes."""

    id: int | None
    task: str
    lanes: tuple[int, ...] = ()
    target_id: int | None = None
    open: bool = True
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class Hand:
    """A living worker: its tasks, its free slots, and how many of them the next claims leave."""

    tasks: frozenset[str]
    free: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """What surrounds the queue of a tenant at one moment.

    `everybody` is the pause of all queues. `line` is the beginning of the queue in order; who is not in it is further
    back. `picks` are the jobs that the next claims take, as the claim itself would choose them. `held`: since
    when PAUSED and ERROR jobs are. `tenant`: what the tenant as a whole runs, if that has a limit.
    """

    now: int
    pause: Pause | None = None
    everybody: Pause | None = None
    lanes: Mapping[int, LaneLoad] = field(default_factory=dict)
    targets: Mapping[int, TargetLoad] = field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    hands: tuple[Hand, ...] = ()
    line: tuple[Queued, ...] = ()
    picks: tuple[Queued, ...] = ()
    picked: frozenset[int] = frozenset()
    held: Mapping[int, int] = field(default_factory=dict)
    tenant: LaneLoad | None = None
    inactive: Inactive | None = None
    places: Mapping[int | None, int] = field(init=False, repr=False, compare=False)
    alike: Collection[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where each stands in the line, and who in it needs the same: what holds for one of them holds for all."""
        kinds: dict[object, list[int]] = {}
        for n, one in enumerate(self.line):
            kinds.setdefault((one.task, one.lanes, one.target_id, one.open, one.stage), []).append(n)
        object.__setattr__(self, "alike", kinds.values())
        object.__setattr__(self, "places", {one.id: n for n, one in enumerate(self.line)})


def lapsed(job: Job, now: int) -> bool:
    """It was to start before now and did not: the next claim skips it."""
    return job.status.claimable_later and job.fence == 0 and job.expires_at is not None and job.expires_at <= now


def queued(job: Job, now: int) -> bool:
    """In the queue, or about to be: the next claim moves what is due first."""
    if lapsed(job, now):
        return False
    due = job.status is State.SCHEDULED and job.not_before is not None and job.not_before <= now
    return job.status is State.QUEUED or due
