"""Groups and executions in the database: making one with its jobs, going from stage to stage, concluding, cancelling.

A group's row is locked before any of its jobs is: two members that end at the same time see each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headway.errors import NotFound
from headway.model import plan, verbs
from headway.model.job import Actor, Job, NewJob
from headway.model.plan import OPEN, PREDECESSOR_FAILED, Group, Member, NewGroup, Verdict
from headway.model.states import State
from headway.store import jobs, rows
from headway.store.db import Row, Tx
from headway.store.lanes import Lanes

# Groups that are locked, or will be before the next answer is there.
Locked = Callable[[], dict[int, Group]]
# Results in the params of a step: as much as params may have.
MOST_FILLED = 256 * 1024


class Placed(NamedTuple):
    """A new group with the bucket and the target of each member."""

    new: NewGroup
    places: list[tuple[int, int | None]]


def place(lanes: Lanes, tenant_id: int, new: NewGroup) -> Placed:
    """Before the transaction: kinds of work and targets come into being on their own."""
    return Placed(new, [_place(lanes, tenant_id, member.job) for member in new.members])


def _place(lanes: Lanes, tenant_id: int, job: NewJob) -> tuple[int, int | None]:
    lanes.hook(job.options)
    bucket_id = lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
    return bucket_id, None if job.target is None else lanes.target(tenant_id, job.target)


def insert(tx: Tx, tenant_id: int, placed: Placed, actor: Actor) -> int:
    """The group, all its jobs and their events. It begins at once, unless it follows another group."""
    return insert_all(tx, [(tenant_id, placed, actor)])[0]


def insert_all(tx: Tx, wanted: Sequence[tuple[int, Placed, Actor]]) -> list[int]:
    """Groups that do not follow each other, in the round trips of one. Their numbers, in order."""
    made = tx.run_all(*(("add_group", _wishes(*one)) for one in wanted))
    ids = [int(number) for ((number,),) in made]
    members = (("add_members", _members(number, *one)) for number, one in zip(ids, wanted, strict=True))
    events = [_created(number, *one) for number, one in zip(ids, wanted, strict=True)]
    tx.run_all(*members, ("add_events", {"rows": json.dumps(events)}))
    for number, (_, placed, actor) in zip(ids, wanted, strict=True):
        for _, target_id in placed.places:
            tx.touch(target_id)
        first = _first(placed.new)
        if any(member.job.hold and member.stage == first for member in placed.new.members):
            _hold_all(tx, number, tx.run("held_in_stage", group_id=number, stage=first), actor)
        if placed.new.retry_of is not None and first > 0:  # what it needs is there from the group that it retries
            _fill(tx, number, first, tx.run("unfilled_members", group_id=number, stage=first))
    tx.wake()
    return ids


def _first(new: NewGroup) -> int:
    return -1 if new.after_id is not None else min(member.stage for member in new.members)


def _wishes(tenant_id: int, placed: Placed, actor: Actor) -> dict[str, object]:
    new = placed.new
    stages = new.stages or 1 + max(member.stage for member in new.members)
    state = {"tenant_id": tenant_id, "status": OPEN[new.kind], "stage": _first(new), "stages": stages}
    return {**state, "kind": new.kind, "actor": actor.text(), **{name: getattr(new, name) for name in _TOLD}}


_TOLD = ("name", "mode", "on_failure", "schedule_id", "reason", "nominal_at", "retry_of", "after_id")


def _members(group_id: int, tenant_id: int, placed: Placed, actor: Actor) -> dict[str, object]:
    place = {"tenant_id": tenant_id, "group_id": group_id, "open": _first(placed.new)}
    return {**place, "rows": json.dumps(_rows(placed)), "actor": actor.text()}


def _created(group_id: int, tenant_id: int, placed: Placed, actor: Actor) -> tuple[object, ...]:
    wishes = _wishes(tenant_id, placed, actor)
    facts = {name: wishes[name] for name in ("stages", *_TOLD) if wishes[name] is not None}
    thing = placed.new.kind
    return tenant_id, thing, group_id, 1, f"{thing}.created", None, actor.text(), None, json.dumps(facts)


def _rows(placed: Placed) -> list[dict[str, object]]:
    return [
        _row(member, bucket_id, target_id)
        for member, (bucket_id, target_id) in zip(placed.new.members, placed.places, strict=True)
    ]


def _row(member: plan.NewMember, bucket_id: int, target_id: int | None) -> dict[str, object]:
    job = member.job
    refers = plan.RESULT in job.params and plan.references(json.loads(job.params))
    return {
        "stage": member.stage,
        "step": member.step,
        "task": job.task,
        "bucket_id": bucket_id,
        "target_id": target_id,
        "priority": job.priority,
        "params": job.params,
        "unfilled": job.params if refers else None,
        "options": job.options,
        "hold": int(job.hold),
        "template_id": job.template_id,
        "not_before": job.not_before,
        "delay": job.delay,
    }


# --- finding and locking ------------------------------------------------------------------------------------------


def lock_all(tx: Tx, ids: Collection[int]) -> dict[int, Group]:
    """Locked in the order of their ids, before any of their jobs."""
    return {group.id: group for group in map(_group, tx.run("lock_groups", ids=json.dumps(sorted(ids))))}


def lock_to_end(tx: Tx, ids: Collection[int]) -> Locked:
    """The same for one whose members end, sent before what ends them. What waits for these groups is locked with them,
    though not in the answer: it begins when they end, and then we have the locks of groups with higher numbers."""
    answer = tx.send("lock_groups_and_followers", ids=json.dumps(sorted(ids)))
    return lambda: {group.id: group for group in map(_group, answer()) if group.id in ids}


def lock(tx: Tx, group_id: int, tenant_id: int | None = None) -> Group:
    return _one(list(lock_all(tx, [group_id]).values()), group_id, tenant_id)


def lock_of_job(tx: Tx, job_id: int) -> Group | None:
    """The group of a job, if it has one; a job's group never changes."""
    found = tx.run("group_of_job", id=job_id)
    return lock(tx, found[0][0]) if found and found[0][0] is not None else None


def find(tx: Tx, group_id: int, tenant_id: int, kind: str | None = None) -> Group:
    return _one([_group(row) for row in tx.run("read_group", id=group_id)], group_id, tenant_id, kind)


def _one(found: list[Group], group_id: int, tenant_id: int | None, kind: str | None = None) -> Group:
    group = found[0] if found else None
    if group is None or tenant_id not in (None, group.tenant_id) or kind not in (None, group.kind):
        raise NotFound(f"there is no {kind or 'group'} {group_id}")
    return group


def active(tx: Tx, schedule_id: int) -> list[Group]:
    """The unfinished executions of a schedule, in the order in which they were made."""
    return [_group(row) for row in tx.run("active_groups", schedule_id=schedule_id)]


def members(tx: Tx, group_id: int) -> list[Member]:
    """Each member as the last job of its chain stands."""
    return [_member(row) for row in tx.run("group_members", group_id=group_id)]


def _group(row: Row) -> Group:
    return Group(*row)


def _member(row: Row) -> Member:
    job_id, step, stage, status, options, reason, error, fence = row
    tolerated = bool(json.loads(options).get("continue_on_failure"))
    return Member(job_id, step or "", stage, State(status), tolerated, reason, error, fence > 0)


def earlier_results(tx: Tx, group_id: int, stage: int) -> dict[str, Any]:
    """What the steps before a stage left, by name. What succeeded in a group that this one retries counts too."""
    tx.run("pin_plans")
    found = tx.run("earlier_results", group_id=group_id, stage=stage)
    return {step: None if body is None else json.loads(body) for step, body in found}


# --- from stage to stage ------------------------------------------------------------------------------------------


def advance_all(tx: Tx, ids: Collection[int], locked: Locked, actor: Actor) -> None:
    """After members of these locked groups have ended: most of them have others that go on."""
    over: dict[int, list[Member]] = {}
    for group_id, *row in tx.run("ended_stages", ids=json.dumps(sorted(ids))):
        over.setdefault(group_id, []).extend([_member(tuple(row))] if row[0] is not None else [])
    for group in locked().values():
        if group.id in over or group.stage < 0:
            advance(tx, group, actor, over=over.get(group.id))


def advance(tx: Tx, group: Group, actor: Actor, *, over: Sequence[Member] | None = None) -> None:
    """After members of a locked group have ended: opens the next stage, or concludes. Does nothing if none is due.
    `over`: the members of its stage, of which nothing is open any more; it was looked up already."""
    if group.finished_at is not None:
        return
    stage, released = group.stage, False
    while stage >= 0 and not released and (over is not None or not _is_open(tx, group.id, stage)):
        ended = over if over is not None else _of_stage(tx, group.id, stage)
        over = None
        verdict = plan.judge(group.on_failure, ended)
        if verdict is not Verdict.GO_ON:
            _end_waiting(tx, group.id, stage, verdict, actor)
        going = verdict is Verdict.GO_ON and group.cancelled_by is None
        if stage + 1 >= group.stages or not (going or tx.run("group_is_open", group_id=group.id)):
            return _conclude(tx, group, actor)
        stage += 1
        released = _open(tx, group, stage, "advanced", actor)
    if stage < 0 and not tx.run("group_is_open", group_id=group.id):
        _conclude(tx, group, actor)


def _is_open(tx: Tx, group_id: int, stage: int) -> bool:
    return bool(tx.run("stage_is_open", group_id=group_id, stage=stage))


def _of_stage(tx: Tx, group_id: int, stage: int) -> list[Member]:
    return [_member(row) for row in tx.run("stage_members", group_id=group_id, stage=stage)]


def _end_waiting(tx: Tx, group_id: int, stage: int, verdict: Verdict, actor: Actor) -> None:
    state, kind = State.CANCELLED, "job.cancelled"
    if verdict is Verdict.SKIP:
        state, kind = State.SKIPPED, "job.skipped"
    data = json.dumps({"reason": PREDECESSOR_FAILED})
    wishes = {"status": int(state), "kind": kind, "reason": PREDECESSOR_FAILED, "data": data, "actor": actor.text()}
    tx.run("end_waiting_members", group_id=group_id, stage=stage, **wishes)


def _open(tx: Tx, group: Group, stage: int, kind: str, actor: Actor) -> bool:
    """Its members may be claimed, with the results they asked for. Whether there are any that only waited for it."""
    of_stage = {"group_id": group.id, "stage": stage}
    _, released, unfilled, _, held = tx.run_all(
        ("open_stage", {"id": group.id, "stage": stage}),
        ("release_stage", {**of_stage, "actor": actor.text()}),
        ("unfilled_members", of_stage),
        ("group_event", _event(group.id, kind, actor, {"stage": stage})),
        ("held_in_stage", of_stage),
    )
    for job_id, target_id in released:
        tx.released.add(job_id)
        tx.touch(target_id)
    _hold_all(tx, group.id, held, actor)
    _fill(tx, group.id, stage, unfilled)
    return bool(released)


def _fill(tx: Tx, group_id: int, stage: int, unfilled: Sequence[Row]) -> None:
    if unfilled:
        results = earlier_results(tx, group_id, stage)
        done = [(job_id, fill(text, results)) for job_id, text in unfilled]
        tx.run("fill_params", rows=json.dumps(done))


def fill(unfilled: str, results: Mapping[str, Any]) -> str:
    """What would become larger than params may be stays as it is: the step fails when it is run, and says so."""
    wanted = json.loads(unfilled)
    sizes = {step: len(json.dumps(result)) for step, result in results.items()}
    if plan.filled_size(wanted, sizes) > MOST_FILLED:
        return unfilled
    return json.dumps(plan.filled(wanted, results), separators=(",", ":"))


def _conclude(tx: Tx, group: Group, actor: Actor) -> None:
    end = plan.conclude(group, members(tx, group.id))
    facts = {"status": end.status, "error": end.error}
    tx.run_all(
        ("end_group", {"id": group.id, "status": end.status, "error": end.error}),
        ("group_event", _event(group.id, "finished", actor, facts)),
    )
    # Looked for without a lock, again and again: while we wait for the lock of one that is just being cancelled, it
    # hands its own followers over to us.
    while followers := [follower for (follower,) in tx.run("followers", id=group.id)]:
        for follower in lock_all(tx, followers).values():
            if follower.after_id == group.id and follower.stage < 0 and follower.finished_at is None:
                _follow(tx, group, follower, actor)


def _follow(tx: Tx, ended: Group, follower: Group, actor: Actor) -> None:
    """Who waited for a group that never began waits for the one before it."""
    if ended.stage < 0 and ended.after_id is not None:
        before = tx.run("read_group", id=ended.after_id)
        if before and _group(before[0]).finished_at is None:
            tx.run("follow_another", id=follower.id, after_id=ended.after_id)
            return
    begin(tx, follower, actor)


def begin(tx: Tx, group: Group, actor: Actor) -> None:
    """The first stage of a locked group that waited for another one."""
    ((first,),) = tx.run("first_stage", group_id=group.id)
    _open(tx, group, first, "begun", actor)
    advance(tx, lock(tx, group.id), actor)


def mend(tx: Tx, group_id: int, actor: Actor) -> bool:
    """Recovery's way: a group that nobody advanced or began. Says whether it had something to do."""
    group = lock(tx, group_id)
    if group.finished_at is not None:
        return False
    if group.stage < 0 and tx.run("group_is_open", group_id=group.id):
        before = tx.run("read_group", id=group.after_id)
        if before and _group(before[0]).finished_at is None:
            return False
        begin(tx, group, actor)
        return True
    advance(tx, group, actor)
    return find(tx, group.id, group.tenant_id).version != group.version


def hold_up(tx: Tx, group: Group, before: Job, after: Job, actor: Actor) -> None:
    """After a change of a member: whether it is on hold from now on, and its group waits for it."""
    if after.hold and not before.hold and after.stage == group.stage:
        hold(tx, after, actor)


def hold(tx: Tx, job: Job, actor: Actor) -> None:
    """A member waits for a person, so its group does."""
    assert job.group_id is not None
    _hold_all(tx, job.group_id, [(job.id, job.step)], actor)


def _hold_all(tx: Tx, group_id: int, held: Sequence[Row], actor: Actor) -> None:
    for job_id, step in held:
        facts = {"job": job_id, "step": step}
        tx.run_all(("bump_group", {"id": group_id}), ("group_event", _event(group_id, "held", actor, facts)))


def steps(tx: Tx, group_id: int) -> dict[str, int]:
    """The names of the steps of a group and of those it retries, and their stages."""
    tx.run("pin_plans")
    return dict(tx.run("group_steps", group_id=group_id))


def is_open(tx: Tx, job: Job) -> bool:
    """Whether a job may run as far as its group goes: it has none, or its stage is the open one."""
    if job.group_id is None:
        return True
    group = find(tx, job.group_id, job.tenant_id)
    return group.finished_at is None and group.cancelled_by is None and group.stage == job.stage


def last_of_step(tx: Tx, job: Job) -> int:
    """The last job of a member's chain in its group."""
    ((last,),) = tx.run("last_of_step", group_id=job.group_id, step=job.step)
    return int(last)


def fill_for(tx: Tx, job: Job, params: str, *, at_once: bool = False) -> tuple[str, str | None]:
    """New params of a member, and the same with the names of results in them. Once its stage is open, or `at_once`, the
    results are filled in."""
    wanted = plan.references(json.loads(params)) if job.group_id is not None and plan.RESULT in params else set()
    if not wanted or job.group_id is None:
        return params, None
    known = steps(tx, job.group_id)
    plan.check_references("params", wanted, job.stage or 0, known)
    if not at_once and not is_open(tx, job):
        return params, params
    return fill(params, earlier_results(tx, job.group_id, job.stage or 0)), params


# --- cancelling ---------------------------------------------------------------------------------------------------


def cancel(tx: Tx, group: Group, actor: Actor, *, now: int) -> None:
    """Ends what waits or is held, asks what runs to stop; concludes when all have ended."""
    if tx.run("mark_group_cancelled", id=group.id, by=actor.text()):
        tx.run("group_event", **_event(group.id, "cancelling", actor, {"by": actor.shown}))
    unfinished = map(rows.job, tx.run("unfinished_members", group_id=group.id))
    changes = [verbs.cancel(job, actor=actor, now=now) for job in unfinished]
    jobs.end_unrun(tx, [one for one in changes if one.job.fence == 0], actor)
    for change in changes:
        if change.job.fence > 0:
            jobs.apply(tx, change, actor)
    tx.wake()
    advance(tx, lock(tx, group.id), actor)


def _event(group_id: int, kind: str, actor: Actor, facts: Mapping[str, object]) -> dict[str, object]:
    """The event of a change that was just made to the group's row."""
    data = json.dumps({name: value for name, value in facts.items() if value is not None})
    return {"id": group_id, "kind": kind, "actor": actor.text(), "data": data}


def steps_to_retry(tx: Tx, group: Group) -> list[tuple[Member, Job]]:
    """The members that a retry of the group makes again, each with its last job."""
    again = plan.retried(members(tx, group.id))
    found = jobs.find_all(tx, [member.job_id for member in again])
    return [(member, found[member.job_id]) for member in again]
