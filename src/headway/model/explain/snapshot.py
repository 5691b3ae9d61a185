"""A snapshot of the queue around a waiting job: pauses, lanes, targets, reservations, workers, other jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.queue.place import Stage
from headway.model.queue.target import TargetHolder


@dataclass(frozen=True, slots=True)
class Pause:
    since: int
    until: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Inactive:
    """An inactive tenant, whose jobs do not start."""

    tenant: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    """A job that runs on a lane. `job_id` is None for a job of another tenant."""

    since: int
    job_id: int | None = None
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """The current load of a lane.

    `free` is the number of places that running jobs and granted reservations leave (None means no limit). `closed`
    means reserved for direct calls. `stages` are the running stages whose jobs count as one.
    """

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
        """Returns the number of places that running jobs take."""
        return len(self.stages) + sum(runner.stage not in self.stages for runner in self.running)


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """The current state of a target: its holder and the first job of its queue.

    `shut` means that it is reserved for direct calls.
    """

    name: str
    pause: Pause | None = None
    holder: TargetHolder | None = None
    first: int | None = None
    shut: bool = False

    def lets(self, job_id: int | None) -> bool:
        """Returns True if the target allows this job to start."""
        if self.pause is not None or self.shut:
            return False
        return (self.holder.job_id if self.holder is not None else self.first) == job_id


@dataclass(frozen=True, slots=True)
class ActiveReservation:
    """An active reservation. `holder` is None for a reservation of another tenant."""

    lanes: frozenset[int]
    target_id: int | None
    since: int
    until: int | None = None
    granted: bool = False
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """A job in the queue. `id` is None for a job of another tenant. `open` means that its target allows it."""

    id: int | None
    task: str
    lanes: tuple[int, ...] = ()
    target_id: int | None = None
    open: bool = True
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class WorkerSlots:
    """A living worker: its tasks, its free slots, and those that the next claims leave.

    `waits` means that each of its running jobs waits for the end of another job.
    """

    tasks: frozenset[str]
    free: int = 0
    left: int = 0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The surroundings of a tenant's queue at one moment.

    The field after `pause` is the pause of all queues. `line` is the beginning of the queue in order; a job outside it
    is further back. `picks` are the jobs that the next claims will choose. `held` has the instants at which jobs became
    PAUSED or ERROR. `tenant` is the load of the whole tenant if it has a limit.
    """

    now: int
    pause: Pause | None = None
    everybody: Pause | None = None
    lanes: Mapping[int, LaneLoad] = field(default_factory=dict)
    targets: Mapping[int, TargetLoad] = field(default_factory=dict)
    promises: tuple[ActiveReservation, ...] = ()
    hands: tuple[WorkerSlots, ...] = ()
    line: tuple[Queued, ...] = ()
    picks: tuple[Queued, ...] = ()
    picked: frozenset[int] = frozenset()
    held: Mapping[int, int] = field(default_factory=dict)
    tenant: LaneLoad | None = None
    inactive: Inactive | None = None
    places: Mapping[int | None, int] = field(init=False, repr=False, compare=False)
    alike: Collection[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Indexes the line by job id, and groups jobs with equal needs, which share their blockers."""
        kinds: dict[object, list[int]] = {}
        for n, job in enumerate(self.line):
            kinds.setdefault((job.task, job.lanes, job.target_id, job.open, job.stage), []).append(n)
        object.__setattr__(self, "alike", kinds.values())
        object.__setattr__(self, "places", {job.id: n for n, job in enumerate(self.line)})


def lapsed(job: JobRecord, now: int) -> bool:
    """Returns True if an unclaimed job has expired; the next claim skips it."""
    return job.status.claimable_later and job.fence == 0 and job.expires_at is not None and job.expires_at <= now


def queued(job: JobRecord, now: int) -> bool:
    """Returns True if a job is queued, or is due and the next claim will promote it."""
    if lapsed(job, now):
        return False
    due = job.status is State.SCHEDULED and job.not_before is not None and job.not_before <= now
    return job.status is State.QUEUED or due
