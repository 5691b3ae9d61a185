"""Why a job does not run now: everything that is in its way, in the order in which it has to go away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.model.job import Job
from headway.model.states import State


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing in the way. `kind` is for programs, `detail` for people; instants where they are known."""

    kind: str
    detail: str
    by: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    since: int
    until: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """A lane as it is now: its limit (None: none) and the jobs that run on it."""

    name: str
    capacity: int | None
    running: tuple[int, ...] = ()

    @property
    def full(self) -> bool:
        return self.capacity is not None and len(self.running) >= self.capacity


@dataclass(frozen=True, slots=True)
class Scene:
    """What surrounds the queue of a tenant at one moment. `free` counts the free slots for each task that is served."""

    now: int
    pause: Pause | None = None
    lanes: Mapping[int, LaneLoad] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    workers: int = 0


def blockers(
    job: Job, lanes: tuple[int, ...], scene: Scene, *, rank: int | None = None, ahead: int | None = None
) -> list[Blocker]:
    """All that keeps a job from running. `rank` is its place among the queued ones, `ahead` the job before it."""
    if job.status is State.RUNNING:
        return []
    if job.status is not State.QUEUED:
        return [_not_queued(job)]
    found = [*_pause(scene), *_lanes(lanes, scene), *_workers(job.task, scene)]
    if rank != 1:
        where = f"rank {rank - 1}" if rank is not None else "many others"
        found.append(Blocker("behind", f"behind {where}", f"job {ahead}" if ahead is not None else None))
    return found


def _not_queued(job: Job) -> Blocker:
    match job.status:
        case State.SCHEDULED:
            return Blocker("not_before", "waits for its time", until=job.not_before)
        case State.WAITING if job.hold:
            return Blocker("status", f"on hold: headway jobs resume {job.id}")
        case State.WAITING:
            return Blocker("stage", "its stage is not open yet")
        case State.PAUSED | State.ERROR:
            why = f" ({job.reason})" if job.reason else ""
            return Blocker("status", f"is {job.status.name}{why}: resume, resolve, release, retry or cancel it")
    return Blocker("status", f"has ended: {job.status.name}", since=job.finished_at)


def _pause(scene: Scene) -> Iterator[Blocker]:
    if scene.pause is not None:
        note = f": {scene.pause.note}" if scene.pause.note else ""
        yield Blocker("paused", f"the queue is paused{note}", since=scene.pause.since, until=scene.pause.until)


def _lanes(lanes: tuple[int, ...], scene: Scene) -> Iterator[Blocker]:
    for lane in lanes:
        load = scene.lanes.get(lane)
        if load is not None and load.full:
            # A job of another tenant is there without its number.
            by = ", ".join(f"job {job_id}" for job_id in load.running if job_id) or None
            yield Blocker("lane", f"the {load.name} lane is full: {len(load.running)} of {load.capacity} run", by)


def _workers(task: str, scene: Scene) -> Iterator[Blocker]:
    if not scene.workers:
        yield Blocker("no_worker", "no worker is alive: headway work")
    elif task not in scene.free:
        yield Blocker("no_worker", f"no living worker knows the task {task}")
    elif scene.free[task] <= 0:
        yield Blocker("no_worker", "every slot of the workers that know it is taken")
