"""Finds every blocker of a job that does not run now, in the order in which they must go away."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from headway.model.explain.forecast import Estimate, span
from headway.model.explain.snapshot import (
    ActiveReservation,
    LaneLoad,
    Pause,
    QueuedJob,
    QueueSnapshot,
    TargetLoad,
    WorkerSlots,
    lapsed,
    queued,
    queued_job,
)
from headway.model.groups.group import Group, Member
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.queue.place import Stage, stage_of
from headway.model.queue.target import TargetHolder

# This many blocking jobs are named; the others are counted.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a job does not run. `kind` is for programs, `detail` for people.

    `detail` names the remedy as a command, `said` as a button of the dashboard; `command` is the command alone.
    `job_ids` are the jobs that `by` names. Unknown instants are None.
    """

    kind: str
    detail: str
    by: str | None = None
    since: int | None = None
    until: int | None = None
    by_button: str | None = field(default=None, compare=False)
    command: str | None = field(default=None, compare=False)
    job_ids: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The blockers of a job and its start estimate. A job without blockers is among the next to be claimed."""

    job_id: int
    status: str
    rank: int | None
    blockers: tuple[Blocker, ...]
    start_estimate: Estimate | None
    now: int

    def __str__(self) -> str:
        lines = (f"  {blocker.kind}: {sentence(blocker, self.now)}" for blocker in self.blockers)
        return "\n".join([self.headline, *lines])

    @property
    def headline(self) -> str:
        rank = f", rank {self.rank}" if self.rank is not None else ""
        starts = f": {self.start_estimate.shown(self.now)}" if self.start_estimate is not None else ""
        return f"job {self.job_id} is {self.status}{rank}{starts}"


def sentence(blocker: Blocker, now: int) -> str:
    """Returns a blocker as a sentence, with the blocking job and how long it has lasted."""
    since = None if blocker.since is None else f"for {span(now - blocker.since)}"
    until = None if blocker.until is None else f"{span(blocker.until - now)} to go"
    by = None if blocker.by and blocker.detail.startswith(f"{blocker.by} ") else blocker.by
    known = ", ".join(part for part in (by, since, until) if part)
    return f"{blocker.detail} ({known})" if known else blocker.detail


def on_page(blocker: Blocker, now: int) -> str:
    """Returns a blocker as a sentence for the dashboard, with its buttons instead of commands."""
    return sentence(replace(blocker, detail=blocker.by_button or blocker.detail), now)


# --- blockers -----------------------------------------------------------------------------------------------------


def blockers(job: JobRecord, snapshot: QueueSnapshot) -> list[Blocker]:
    """Returns every blocker of a job, whose bucket has the lanes that the current policy requires."""
    if job.status is State.RUNNING or job.id in snapshot.picked:
        return []
    if not queued(job, snapshot.now):
        return [_not_queued(job, snapshot)]
    lanes = snapshot.buckets[job.bucket_id].lanes
    found = [
        *_pauses(snapshot),
        *_target(job, snapshot),
        *_tenant(snapshot),
        *_lanes(lanes, stage_of(job.group_id, job.stage), snapshot),
        *_reservations(job, lanes, snapshot),
        *_workers(job.task, snapshot),
    ]
    target = _target_of(job, snapshot)
    placed = queued_job(job)._replace(open=target is None or target.lets(job.id))
    return [*found, *_behind(placed, snapshot, alone=not found)]


def _target_of(job: JobRecord | QueuedJob, snapshot: QueueSnapshot) -> TargetLoad | None:
    return snapshot.targets.get(job.target_id) if job.target_id is not None else None


def stage_blocker(group: Group, unfinished: Sequence[Member]) -> Blocker:
    """Returns the blocker of a member whose stage is not open.

    The member waits for the steps of the open stage, or for the end of another group.
    """
    if group.stage < 0:
        detail = f"its {group.kind} {group.id} begins when {group.kind} {group.after_id} has ended"
        return Blocker("stage", detail, by=f"{group.kind} {group.after_id}", since=group.created_at)
    named = unfinished[:NAMED]
    names = [f"job {member.job_id} ({member.step}, {member.state.name})" for member in named]
    more = [f"{len(unfinished) - NAMED} more"] if len(unfinished) > NAMED else []
    stage = group.stage + 1  # people count from one
    text = f"its stage is not open yet: stage {stage} of {group.kind} {group.id} has not ended"
    by, job_ids = ", ".join([*names, *more]) or None, tuple(member.job_id for member in named)
    return Blocker("stage", text, by, group.created_at, job_ids=job_ids)


def _not_queued(job: JobRecord, snapshot: QueueSnapshot) -> Blocker:
    if lapsed(job, snapshot.now):
        return Blocker("status", "expired: the next claim skips it", since=job.expires_at)
    match job.status:
        case State.SCHEDULED:
            return Blocker("not_before", "waits for its time", until=job.not_before)
        case State.WAITING if job.hold:
            command = f"headway jobs resume {job.id}"
            return Blocker("status", f"on hold: {command}", by_button="on hold: “Resume” releases it", command=command)
        case State.WAITING:
            return Blocker("stage", "its stage is not open yet")
        case State.PAUSED | State.ERROR:
            detail = f"is {job.status.name}{_why(job.reason)}: resume, resolve, release, retry or cancel it"
            return Blocker("status", detail, since=snapshot.held.get(job.id))
    return Blocker("status", f"has ended: {job.status.name}", since=job.finished_at)


def _why(reason: str | None) -> str:
    first = (reason or "").strip().partition("\n")[0]
    return f" ({first})" if first else ""


def _pauses(snapshot: QueueSnapshot) -> Iterator[Blocker]:
    if snapshot.inactive is not None:
        name = snapshot.inactive.tenant
        detail = f"the tenant {name} is inactive: activate it with headway tenants activate {name}"
        by_button = f"the tenant {name} is inactive: an admin of the system activates it on the page Access"
        command = f"headway tenants activate {quote(name)}"
        yield Blocker("paused", detail, since=snapshot.inactive.since, by_button=by_button, command=command)
    if snapshot.everybody is not None:
        yield _pause(snapshot.everybody, "all queues are paused", "headway queue resume --all")
    if snapshot.pause is not None:
        yield _pause(snapshot.pause, "the queue is paused", "headway queue resume")


def _pause(pause: Pause, words: str, command: str, name: str = "") -> Blocker:
    """Returns the blocker for a pause. `name` is the argument of the command."""
    note = f": {pause.note}" if pause.note else ""
    button = "“Resume” on its page" if name else "“Resume the queue”"
    return Blocker(
        "paused",
        f"{words}{note}; resume it with {command}{name and f' {name}'}",
        since=pause.since,
        until=pause.until,
        by_button=f"{words}{note}; {button} ends the pause",
        command=f"{command} {quote(name)}" if name else command,
    )


def _target(job: JobRecord, snapshot: QueueSnapshot) -> Iterator[Blocker]:
    target = _target_of(job, snapshot)
    if target is None:
        return
    if target.pause is not None:
        yield _pause(target.pause, f"the target {target.name} is paused", "headway targets resume", target.name)
    holder = target.holder
    if holder is None or holder.job_id == job.id:
        return
    yield replace(_held(target.name, holder), job_ids=(holder.job_id,))


def _held(name: str, holder: TargetHolder) -> Blocker:
    by = f"job {holder.job_id}"
    if holder.status is State.RUNNING:
        return Blocker("target_busy", f"{by} runs on {name}", by, holder.since)
    if holder.status is State.QUEUED:
        return Blocker("target_held", f"{by} was resumed on {name} and goes first", by, holder.since)
    command, others = f"headway jobs resume {holder.job_id}", "resolve, retry, release or cancel it"
    detail = f"{by} holds {name}: it is {holder.status.name}{_why(holder.reason)}"
    by_button = f"{detail}; resume, {others} on its page"
    return Blocker(
        "target_held", f"{detail}; {command}, or {others}", by, holder.since, by_button=by_button, command=command
    )


def _tenant(snapshot: QueueSnapshot) -> Iterator[Blocker]:
    load = snapshot.tenant
    if load is not None and load.free is not None and load.free <= 0:
        detail = f"the tenant {load.name} is at its limit: {len(load.running)} of {load.capacity} run"
        yield _full("lane", detail, load)


def _lanes(lanes: Sequence[int], stage: Stage | None, snapshot: QueueSnapshot) -> Iterator[Blocker]:
    """Yields a blocker for each full lane, policy lanes first.

    `_reservations` names a lane that only reservations fill. A lane with the job's own stage in it is no blocker,
    because the job may join its stage.
    """
    loads = [snapshot.lanes[lane] for lane in lanes if lane in snapshot.lanes]
    for load in sorted(loads, key=lambda load: load.resource):
        if load.free is None or load.free > 0 or stage in load.stages:
            continue
        if load.running or not load.capacity:
            what = f"the resource {load.name}" if load.resource else f"the {load.name} lane"
            once = ", the jobs of a stage counted as one" if load.taken < len(load.running) else ""
            detail = f"{what} is full: {load.taken} of {load.capacity} run{once}"
            yield _full("resource" if load.resource else "lane", detail, load)


def _full(kind: str, detail: str, load: LaneLoad) -> Blocker:
    """Returns the blocker for a full lane. The lane is full since its last running job started."""
    since = max((runner.since for runner in load.running), default=None)
    job_ids = tuple(runner.job_id for runner in load.running if runner.job_id is not None)
    by, others = [f"job {job_id}" for job_id in job_ids], len(load.running) - len(job_ids)
    if others:
        by.append("a job of another tenant" if others == 1 else f"{others} jobs of other tenants")
    return Blocker(kind, detail, ", ".join(by) or None, since, job_ids=job_ids)


def _reservations(job: JobRecord, lanes: Sequence[int], snapshot: QueueSnapshot) -> Iterator[Blocker]:
    closed = {lane for lane in lanes if lane in snapshot.lanes and snapshot.lanes[lane].closed}
    target = _target_of(job, snapshot)
    shut = {job.target_id: target.name} if target is not None and target.shut else {}
    # Most reservations are on other lanes, and there may be a thousand: they are skipped before a name is looked up.
    found = (
        [one for one in snapshot.reservations if one.target_id in shut or not closed.isdisjoint(one.lanes)]
        if closed or shut
        else []
    )
    for reservation in found[:NAMED]:
        names = [
            *(snapshot.lanes[lane].name for lane in sorted(closed.intersection(reservation.lanes))),
            *_name(shut, reservation.target_id),
        ]
        yield _reservation(reservation, " and ".join(names) + (" is" if len(names) == 1 else " are"), snapshot)
    if len(found) > NAMED:
        yield Blocker("reservation", f"and {len(found) - NAMED} more direct calls and holds")


def _name(names: Mapping[int | None, str], target_id: int | None) -> list[str]:
    return [names[target_id]] if target_id in names else []


def _reservation(found: ActiveReservation, what: str, snapshot: QueueSnapshot) -> Blocker:
    granted, waiting = f"{what} taken by a direct call or a hold", f"{what} reserved: the reservation goes first"
    holder = f"{found.holder}, reservation {found.id}" if found.tenant_id == snapshot.tenant_id else "another tenant"
    return Blocker("reservation", granted if found.granted else waiting, holder, found.since, found.expires_at)


def _workers(task: str, snapshot: QueueSnapshot) -> Iterator[Blocker]:
    knowing = [worker_slots for worker_slots in snapshot.all_slots if task in worker_slots.tasks]
    if not snapshot.all_slots and snapshot.elsewhere:
        text, command = "every living worker serves other tenants only", "headway work"
        by_button = f"{text}: start one for all tenants"
        yield Blocker("no_worker", f"{text}: {command}", by_button=by_button, command=command)
    elif not snapshot.all_slots:
        yield Blocker(
            "no_worker",
            "no worker is alive: headway work",
            by_button="no worker is alive: start one",
            command="headway work",
        )
    elif not knowing:
        yield Blocker("no_worker", f"no living worker knows the task {task}")
    elif all(worker_slots.free <= 0 and worker_slots.waits for worker_slots in knowing):
        taken = "every slot of the workers that know it is taken by a job that waits for another one"
        by_button, command = f"{taken}: start another worker", "headway work"
        yield Blocker("no_worker", f"{taken}: {command} starts another worker", by_button=by_button, command=command)
    elif all(worker_slots.free <= 0 for worker_slots in knowing):
        yield Blocker("no_worker", "every slot of the workers that know it is taken")


# --- behind -------------------------------------------------------------------------------------------------------


def _behind(job: QueuedJob, snapshot: QueueSnapshot, *, alone: bool) -> list[Blocker]:
    """Returns the blocker for better placed jobs that would be claimed instead.

    `alone` means that the job has no other blocker, so a better placed job must exist.
    """
    place = snapshot.places.get(job.id)
    target = _target_of(job, snapshot)
    holder = target.holder.job_id if target is not None and target.holder is not None else None  # named already
    ahead = _ahead(job, len(snapshot.line) if place is None else place, snapshot) - {
        -1 if holder is None else snapshot.places.get(holder, -1)
    }
    if ahead:
        least = "at least " if place is None else ""
        count = f"{len(ahead)} better placed jobs" if len(ahead) > 1 else "a better placed job"
        return [_behind_job(f"behind {least}{count}", snapshot.line[max(ahead)].id)]
    if target is not None and holder is None and target.first not in (None, job.id):
        return [_behind_job(f"behind the first job on {target.name}", target.first)]
    return [_next(job, snapshot)] if alone else []


def _behind_job(detail: str, job_id: int | None) -> Blocker:
    """Returns the blocker for a better placed job; None stands for a job of another tenant."""
    if job_id is None:
        return Blocker("behind", f"{detail} of another tenant")
    return Blocker("behind", detail, f"job {job_id}", job_ids=(job_id,))


def _ahead(job: QueuedJob, place: int, snapshot: QueueSnapshot) -> set[int]:
    """Returns the places of the competing jobs before this place."""
    obstacles = _obstacles(job, snapshot)
    before = (alike for alike in snapshot.alike if alike[0] < place)
    found = (alike for alike in before if _competes(snapshot.line[alike[0]], job, obstacles, snapshot))
    return {n for alike in found for n in alike[: bisect_left(alike, place)]}


def _next(job: QueuedJob, snapshot: QueueSnapshot) -> Blocker:
    """Returns the blocker for the next pick, such as an aged job or one of another tenant."""
    lanes = set(snapshot.buckets[job.bucket_id].lanes)
    takers = [pick for pick in snapshot.picks if lanes.intersection(pick.bucket.lanes)] or snapshot.picks
    taker = next((pick.job_id for pick in reversed(takers) if snapshot.is_own(pick)), None)
    return _behind_job("behind a better placed job", taker)


def _competes(other: QueuedJob, job: QueuedJob, obstacles: frozenset[object], snapshot: QueueSnapshot) -> bool:
    """Returns True if a better placed job needs this job's target, limited lane or only free slots."""
    if other.target_id is not None and other.target_id == job.target_id:
        return True
    if not _obstacles(other, snapshot) <= obstacles:
        return False  # the other job has a blocker that this one lacks, so this one may overtake it
    if _crowded(snapshot):
        return True
    ours, theirs = snapshot.buckets[job.bucket_id], snapshot.buckets[other.bucket_id]
    siblings = job.in_stage is not None and other.in_stage == job.in_stage
    limited = [
        snapshot.lanes[lane] for lane in theirs.lanes if lane in ours.lanes and snapshot.lanes[lane].free is not None
    ]
    shared = any(load.resource or not siblings for load in limited)
    return shared or _scarce(theirs.task, ours.task, snapshot.all_slots)


def _crowded(snapshot: QueueSnapshot) -> bool:
    """Returns True if the next claims bring the tenant to its limit of running jobs."""
    load = snapshot.tenant
    return load is not None and load.free is not None and load.free <= sum(map(snapshot.is_own, snapshot.picks))


def _scarce(other: str, task: str, all_slots: Collection[WorkerSlots]) -> bool:
    """Returns True if two tasks compete for the same workers' slots."""
    if any(task in worker_slots.tasks and worker_slots.left > 0 for worker_slots in all_slots):
        return False
    return not all_slots or any(
        other in worker_slots.tasks and task in worker_slots.tasks for worker_slots in all_slots
    )


def _obstacles(job: QueuedJob, snapshot: QueueSnapshot) -> frozenset[object]:
    """Returns the closed lanes, the closed target and the unknown task of a job."""
    bucket = snapshot.buckets[job.bucket_id]
    found: set[object] = {lane for lane in bucket.lanes if not snapshot.lanes[lane].open}
    if not job.open:
        found.add(("target", job.target_id))
    if snapshot.all_slots and not any(bucket.task in worker_slots.tasks for worker_slots in snapshot.all_slots):
        found.add(bucket.task)
    return frozenset(found)
