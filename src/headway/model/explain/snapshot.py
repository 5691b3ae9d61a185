"""A snapshot of the queue around a waiting job: pauses, lanes, targets, reservations, workers, other jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket, Reserved
from headway.model.queue.place import AgedPlace, Place, Stage, stage_of
from headway.model.queue.select import Pick
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


class ActiveReservation(NamedTuple):
    """An active reservation with its holder; one with a task is a direct call.

    `granted` means that it has its lanes once the next claims are made.
    """

    id: int
    tenant_id: int
    lanes: tuple[int, ...]
    target_id: int | None
    created_at: int
    granted_at: int | None
    expires_at: int | None
    holder: str
    task: str | None
    granted: bool = False

    @property
    def reserved(self) -> Reserved:
        return Reserved(self.id, self.lanes, self.target_id, self.granted_at is not None)

    @property
    def since(self) -> int:
        return self.created_at if self.granted_at is None else self.granted_at


class QueuedJob(NamedTuple):
    """An unclaimed job: its place in the queue, its times, and the bucket that has its task and lanes.

    `open` means that its target allows it.
    """

    id: int
    status: int
    bucket_id: int
    priority: int
    position: int
    created_at: int
    queued_at: int | None = None
    not_before: int | None = None
    expires_at: int | None = None
    target_id: int | None = None
    fence: int = 0
    ran: int = 0
    group_id: int | None = None
    stage: int | None = None
    open: bool = True

    @property
    def place(self) -> Place:
        return Place(-self.priority, self.position, self.created_at, self.id, self.group_id, self.stage)

    @property
    def in_stage(self) -> Stage | None:
        return stage_of(self.group_id, self.stage)

    @property
    def holds(self) -> bool:
        """Returns True if the job was resumed and holds its target."""
        return self.fence > 0

    def due(self, now: int) -> int:
        """Returns the earliest start of a SCHEDULED job, otherwise 0."""
        return max(now, self.not_before or 0) if self.status == State.SCHEDULED else 0

    def aged(self, now: int) -> AgedPlace:
        """Returns the place among jobs that compete by age; a SCHEDULED job is queued when it is due."""
        queued_at = max(self.queued_at or 0, self.due(now))
        return AgedPlace(self.position, self.created_at, self.id, queued_at, self.group_id, self.stage)

    def waits(self, now: int) -> bool:
        """Returns True if the job is neither WAITING nor expired."""
        return self.status != State.WAITING and not lapsed(self, now)


QUEUED_JOB_COLUMNS = tuple(name for name in QueuedJob._fields if name != "open")
_of_record = attrgetter(*QUEUED_JOB_COLUMNS)


def queued_job(job: JobRecord) -> QueuedJob:
    return QueuedJob(*_of_record(job))


@dataclass(frozen=True, slots=True)
class WorkerSlots:
    """A living worker: its tasks, its free slots, and those that the next claims leave.

    `waits` means that each of its running jobs waits for the end of another job. `tenants` are the tenants that it
    serves; None stands for all.
    """

    tasks: frozenset[str]
    free: int = 0
    left: int = 0
    waits: bool = False
    tenants: frozenset[int] | None = None

    @property
    def serves(self) -> Callable[[Bucket], bool] | None:
        """Returns the test of a bucket's tenant; None if the worker serves all tenants."""
        return None if self.tenants is None else self._serves_tenant

    def _serves_tenant(self, bucket: Bucket) -> bool:
        return self.tenants is None or bucket.tenant_id in self.tenants

    def claims_from(self, bucket: Bucket) -> bool:
        """Returns True if the worker knows the bucket's task and serves its tenant."""
        return bucket.task in self.tasks and self._serves_tenant(bucket)

    @property
    def breadth(self) -> tuple[int, float]:
        """Returns the number of its tasks and of its tenants; the workers with the fewest claim first."""
        return len(self.tasks), math.inf if self.tenants is None else len(self.tenants)

    def within(self, other: WorkerSlots) -> bool:
        """Returns True if the other worker claims every job that this one claims."""
        if not self.tasks <= other.tasks:
            return False
        return other.tenants is None or (self.tenants is not None and self.tenants <= other.tenants)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The surroundings of a tenant's queue at one moment.

    The field after `pause` is the pause of all queues. `line` is the beginning of the queue in order; a job outside it
    is further back. `buckets` has the tasks and lanes of its jobs. `picks` are the jobs that the next claims will
    choose, also those of other tenants. `held` has the instants at which jobs became PAUSED or ERROR. `tenant` is the
    load of the whole tenant if it has a limit. `all_slots` are the workers that serve the tenant; `elsewhere` is the
    number of workers that serve other tenants only.
    """

    now: int
    tenant_id: int
    pause: Pause | None = None
    everybody: Pause | None = None
    lanes: Mapping[int, LaneLoad] = field(default_factory=dict)
    targets: Mapping[int, TargetLoad] = field(default_factory=dict)
    reservations: tuple[ActiveReservation, ...] = ()
    all_slots: tuple[WorkerSlots, ...] = ()
    line: tuple[QueuedJob, ...] = ()
    buckets: Mapping[int, Bucket] = field(default_factory=dict)
    picks: tuple[Pick, ...] = ()
    held: Mapping[int, int] = field(default_factory=dict)
    tenant: LaneLoad | None = None
    inactive: Inactive | None = None
    elsewhere: int = 0
    picked: frozenset[int] = field(init=False, repr=False, compare=False)
    places: Mapping[int, int] = field(init=False, repr=False, compare=False)
    alike: Collection[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Indexes the line by job id, and groups jobs with equal needs, which share their blockers."""
        kinds: dict[object, list[int]] = {}
        for n, job in enumerate(self.line):
            kinds.setdefault((job.bucket_id, job.target_id, job.open, job.in_stage), []).append(n)
        object.__setattr__(self, "picked", frozenset(pick.job_id for pick in self.picks))
        object.__setattr__(self, "alike", kinds.values())
        object.__setattr__(self, "places", {job.id: n for n, job in enumerate(self.line)})

    def is_own(self, pick: Pick) -> bool:
        """Returns True if the picked job belongs to the tenant, which may learn its number."""
        return pick.bucket.tenant_id == self.tenant_id


def lapsed(job: JobRecord | QueuedJob, now: int) -> bool:
    """Returns True if an unclaimed job has expired; the next claim skips it."""
    return job.expires_at is not None and job.expires_at <= now and job.fence == 0 and job.status <= State.QUEUED


def queued(job: JobRecord | QueuedJob, now: int) -> bool:
    """Returns True if a job is queued, or is due and the next claim will promote it."""
    if lapsed(job, now):
        return False
    due = job.status == State.SCHEDULED and job.not_before is not None and job.not_before <= now
    return job.status == State.QUEUED or due
