"""Stores groups and executions: creating, advancing, concluding, cancelling.

A group's row is locked before any of its jobs is, so that two members that end at the same time see each other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headway.errors import NotFound
from headway.model.access.authority import StepParams
from headway.model.groups import group as group_group
from headway.model.groups.group import PREDECESSOR_FAILED, Group, Member, Verdict
from headway.model.jobs import actions
from headway.model.jobs.job import Actor, JobRecord
from headway.model.jobs.states import State
from headway.store import rows
from headway.store.db import Row, Tx
from headway.store.jobs import changes as jobs
from headway.store.round_trip import Pending

# Upper bound of params with results filled in, as for all params.
MOST_FILLED = 256 * 1024


# --- finding and locking ------------------------------------------------------------------------------------------


def lock_all(tx: Tx, ids: Collection[int]) -> dict[int, Group]:
    """Locks groups in the order of their ids, before any of their jobs."""
    return {group.id: group for group in map(_group, tx.run("lock_groups", ids=json.dumps(sorted(ids))))}


def lock_to_end(tx: Tx, ids: Collection[int]) -> Pending[dict[int, Group]]:
    """Sends the locking of groups whose members are about to end.

    The groups that follow them are locked too, though not returned: they begin when these end, and by then this
    transaction holds locks of groups with higher numbers.
    """
    if not ids:
        return Pending.done({})
    rows = tx.send("lock_groups_and_followers", ids=json.dumps(sorted(ids)))
    return rows.map(lambda found: {group.id: group for group in map(_group, found) if group.id in ids})


def lock(tx: Tx, group_id: int, tenant_id: int | None = None) -> Group:
    return _one(list(lock_all(tx, [group_id]).values()), group_id, tenant_id)


def lock_of_job(tx: Tx, job_id: int) -> Group | None:
    """Locks the group of a job; None without a group. A job's group never changes."""
    found = tx.run("group_of_job", id=job_id)
    return lock(tx, found[0][0]) if found and found[0][0] is not None else None


def find(tx: Tx, group_id: int, tenant_id: int, kind: str | None = None) -> Group:
    return _one([_group(row) for row in tx.run("read_group", id=group_id)], group_id, tenant_id, kind)


def _one(found: list[Group], group_id: int, tenant_id: int | None, kind: str | None = None) -> Group:
    group = found[0] if found else None
    if group is None or tenant_id not in (None, group.tenant_id) or kind not in (None, group.kind):
        raise NotFound(f"there is no {kind or 'group'} {group_id}", noun=kind or "group")
    return group


def active(tx: Tx, schedule_id: int) -> list[Group]:
    """Returns a schedule's unfinished executions in the order of their creation."""
    return [_group(row) for row in tx.run("active_groups", schedule_id=schedule_id)]


def members(tx: Tx, group_id: int) -> list[Member]:
    """Returns each member in the state of the last job of its chain."""
    return [_member(row) for row in tx.run("group_members", group_id=group_id)]


def _group(row: Row) -> Group:
    return Group(*row)


def _member(row: Row) -> Member:
    job_id, step, stage, status, options, reason, error, fence = row
    tolerated = bool(json.loads(options).get("continue_on_failure"))
    return Member(job_id, step or "", stage, State(status), tolerated, reason, error, fence > 0)


def earlier_results(tx: Tx, group_id: int, stage: int) -> dict[str, Any]:
    """Returns the results of the steps before a stage, by step.

    Results of a group that this one retries are included.
    """
    tx.run("pin_plans")
    found = tx.run("earlier_results", group_id=group_id, stage=stage)
    return {step: None if body is None else json.loads(body) for step, body in found}


# --- from stage to stage ------------------------------------------------------------------------------------------


def advance_all(tx: Tx, ids: Collection[int], locked: Pending[dict[int, Group]], actor: Actor) -> None:
    """Advances those of these locked groups whose open stage has ended.

    Most groups still have unfinished members.
    """
    over: dict[int, list[Member]] = {}
    for group_id, *row in tx.run("ended_stages", ids=json.dumps(sorted(ids))):
        over.setdefault(group_id, []).extend([_member(tuple(row))] if row[0] is not None else [])
    for group in locked.result().values():
        if group.id in over or group.stage < 0:
            advance(tx, group, actor, over=over.get(group.id))


def advance(tx: Tx, group: Group, actor: Actor, *, over: Sequence[Member] | None = None) -> None:
    """Opens the next stage of a locked group, or concludes the group.

    Does nothing while the open stage has unfinished members. `over` are the members of an open stage that is known to
    have ended.
    """
    if group.finished_at is not None:
        return
    stage, released = group.stage, False
    while stage >= 0 and not released and (over is not None or not _is_open(tx, group.id, stage)):
        ended = over if over is not None else _of_stage(tx, group.id, stage)
        over = None
        verdict = group_group.judge(group.on_failure, ended)
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
    values = {"status": int(state), "kind": kind, "reason": PREDECESSOR_FAILED, "data": data, "actor": actor.text()}
    tx.run("end_waiting_members", group_id=group_id, stage=stage, **values)


def _open(tx: Tx, group: Group, stage: int, kind: str, actor: Actor) -> bool:
    """Opens a stage and fills in results. Returns False if it released no job."""
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
    hold_all(tx, group.id, held, actor)
    fill_stage(tx, group.id, stage, unfilled)
    return bool(released)


def fill_stage(tx: Tx, group_id: int, stage: int, unfilled: Sequence[Row]) -> None:
    if unfilled:
        results = earlier_results(tx, group_id, stage)
        done = [(job_id, fill(text, results)) for job_id, text in unfilled]
        tx.run("fill_params", rows=json.dumps(done))


def fill(unfilled: str, results: Mapping[str, Any]) -> str:
    """Fills results into params.

    Params that would become too large stay unfilled: the step then fails at its run with that reason.
    """
    wanted = json.loads(unfilled)
    sizes = {step: len(json.dumps(result)) for step, result in results.items()}
    if group_group.filled_size(wanted, sizes) > MOST_FILLED:
        return unfilled
    return json.dumps(group_group.filled(wanted, results), separators=(",", ":"))


def _conclude(tx: Tx, group: Group, actor: Actor) -> None:
    end = group_group.conclude(group, members(tx, group.id))
    facts = {"status": end.status, "error": end.error}
    tx.run_all(
        ("end_group", {"id": group.id, "status": end.status, "error": end.error}),
        ("group_event", _event(group.id, "finished", actor, facts)),
    )
    # The followers are read without a lock and read again: while this transaction waits for a follower that is being
    # cancelled, that one hands its own followers over to this group.
    while followers := [follower for (follower,) in tx.run("followers", id=group.id)]:
        for follower in lock_all(tx, followers).values():
            if follower.after_id == group.id and follower.stage < 0 and follower.finished_at is None:
                _follow(tx, group, follower, actor)


def _follow(tx: Tx, ended: Group, follower: Group, actor: Actor) -> None:
    """Begins a follower, or makes it follow an earlier group.

    If the ended group never began and the group before it is unfinished, the follower waits for that one.
    """
    if ended.stage < 0 and ended.after_id is not None:
        before = tx.run("read_group", id=ended.after_id)
        if before and _group(before[0]).finished_at is None:
            tx.run("follow_another", id=follower.id, after_id=ended.after_id)
            return
    begin(tx, follower, actor)


def begin(tx: Tx, group: Group, actor: Actor) -> None:
    """Opens the first stage of a locked group that waited for another."""
    ((first,),) = tx.run("first_stage", group_id=group.id)
    _open(tx, group, first, "begun", actor)
    advance(tx, lock(tx, group.id), actor)


def mend(tx: Tx, group_id: int, actor: Actor) -> bool:
    """Advances or begins a stuck group. Returns False if nothing was due."""
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


def hold_up(tx: Tx, group: Group, before: JobRecord, after: JobRecord, actor: Actor) -> None:
    """Records that a group waits for a member that a change has put on hold."""
    if after.hold and not before.hold and after.stage == group.stage:
        hold(tx, after, actor)


def hold(tx: Tx, job: JobRecord, actor: Actor) -> None:
    """Records that a group waits for a member that waits for a person."""
    assert job.group_id is not None
    hold_all(tx, job.group_id, [(job.id, job.step)], actor)


def hold_all(tx: Tx, group_id: int, held: Sequence[Row], actor: Actor) -> None:
    for job_id, step in held:
        facts = {"job": job_id, "step": step}
        tx.run_all(("bump_group", {"id": group_id}), ("group_event", _event(group_id, "held", actor, facts)))


def steps(tx: Tx, group_id: int) -> dict[str, int]:
    """Returns the stages of the steps of a group and of the groups it retries."""
    tx.run("pin_plans")
    return dict(tx.run("group_steps", group_id=group_id))


def flowing(tx: Tx, group_id: int) -> list[StepParams]:
    """Returns the steps of a group as their data flow, with references to results as they were enqueued."""
    found = []
    for step, stage, task, params, definition in tx.run("flowing_steps", group_id=group_id):
        opened = () if definition is None else tuple(json.loads(definition).get("open_params", ()))
        found.append(StepParams(step, stage, task, params, opened))
    return found


def is_open(tx: Tx, job: JobRecord) -> bool:
    """Returns True if a job has no group, or if its stage is the open one."""
    if job.group_id is None:
        return True
    group = find(tx, job.group_id, job.tenant_id)
    return group.finished_at is None and group.cancelled_by is None and group.stage == job.stage


def last_of_step(tx: Tx, job: JobRecord) -> int:
    """Returns the last job of a member's chain in its group."""
    ((last,),) = tx.run("last_of_step", group_id=job.group_id, step=job.step)
    return int(last)


def fill_for(tx: Tx, job: JobRecord, params: str, *, at_once: bool = False) -> tuple[str, str | None]:
    """Returns a member's new params, and the same before results were filled in.

    Results are filled in once the stage is open, or `at_once`. The second value is None if the params name no result.
    """
    wanted = (
        group_group.references(json.loads(params))
        if job.group_id is not None and group_group.RESULT in params
        else set()
    )
    if not wanted or job.group_id is None:
        return params, None
    known = steps(tx, job.group_id)
    group_group.check_references("params", wanted, job.stage or 0, known)
    if not at_once and not is_open(tx, job):
        return params, params
    return fill(params, earlier_results(tx, job.group_id, job.stage or 0)), params


# --- cancelling ---------------------------------------------------------------------------------------------------


def cancel(tx: Tx, group: Group, actor: Actor, *, now: int) -> None:
    """Ends waiting and held members and asks running ones to stop.

    The group concludes when all members have ended.
    """
    if tx.run("mark_group_cancelled", id=group.id, by=actor.text()):
        tx.run("group_event", **_event(group.id, "cancelling", actor, {"by": actor.shown}))
    unfinished = map(rows.job, tx.run("unfinished_members", group_id=group.id))
    changes = [actions.cancel(job, actor=actor, now=now) for job in unfinished]
    jobs.end_unrun(tx, [change for change in changes if change.job.fence == 0], actor)
    for change in changes:
        if change.job.fence > 0:
            jobs.apply(tx, change, actor)
    tx.wake()
    advance(tx, lock(tx, group.id), actor)


def _event(group_id: int, kind: str, actor: Actor, facts: Mapping[str, object]) -> dict[str, object]:
    """Returns the event of the latest change of a group's row."""
    data = json.dumps({name: value for name, value in facts.items() if value is not None})
    return {"id": group_id, "kind": kind, "actor": actor.text(), "data": data}


def steps_to_retry(tx: Tx, group: Group) -> list[tuple[Member, JobRecord]]:
    """Returns the members that a retry of the group creates, each with its last job."""
    again = group_group.retried(members(tx, group.id))
    found = jobs.find_all(tx, [member.job_id for member in again])
    return [(member, found[member.job_id]) for member in again]
