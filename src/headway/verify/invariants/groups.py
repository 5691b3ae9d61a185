"""I-15: stages open once and in order; groups and executions end once.

They end as their members and their policy say. A stage opens after every chain of the stage before has ended. The
transaction that ends a member has locked the row of its group, so the ids of events show their order on both databases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from headway.verify.history import History
from headway.verify.report import Finding, about_group
from headway.verify.rows import GroupEvent, GroupHistory, Member, facts
from headway.verify.transitions import CANCELLED, COMPLETED, FIRST_TERMINAL, PREDECESSOR_FAILED, SKIPPED, WAITING, word

# The end of later stages after a stage has failed. A user's own policy may choose either, or continue.
ENDS_LATER = {"stop": {CANCELLED}, "skip": {SKIPPED}, "continue": set[int]()}
EITHER = {CANCELLED, SKIPPED}
NEVER = 2**63 - 1


def check(history: History, group: GroupHistory) -> Iterator[Finding]:
    history.counted["groups"] += 1
    row = group.row
    for text in _texts(history, group):
        yield about_group("I-15", row, text)
    last = group.events[-1].version if group.events else row.version
    if last != row.version:
        yield about_group("I-02", row, f"its history ends with version {last}, its row has version {row.version}")


def check_loose(history: History) -> Iterator[Finding]:
    """Yields groups that have events or jobs, but no row."""
    for thing, number, first in history.tx.run("verify_loose_groups"):
        yield Finding("I-15", f"{thing} {number}", f"it has a history (from number {first} on) and no row")


def _texts(history: History, group: GroupHistory) -> Iterator[str]:
    if not group.events or not group.members:
        yield f"it has {len(group.events)} events and {len(group.members)} jobs"
        return
    course = _course(group)
    yield from course.faults
    for member in group.members:
        yield from _let_go(history, group, course, member)
        yield from _placed(history, course, member)
    yield from _opened(group, course)
    yield from _ended_by_plan(group, course)
    yield from (_unfinished(history, group, course) if course.finished is None else _concluded(group, course))


# --- the course of one group --------------------------------------------------------------------------------------


@dataclass
class _Course:
    """The course of a group by its events, and the faults in it.

    It has the stages that the events opened, its cancel and its end.
    """

    members: list[Member]
    waits: bool = False
    opened: dict[int, GroupEvent] = field(default_factory=dict)
    made: GroupEvent | None = None
    cancelling: GroupEvent | None = None
    finished: GroupEvent | None = None
    faults: list[str] = field(default_factory=list)

    @cached_property
    def stages(self) -> list[int]:
        return sorted({member.stage for member in self.members})

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        """For the first 0, 1, 2, ... stages: the event id of their last end, and its job."""
        last: dict[int, tuple[int, int]] = {}
        for one in self.members:
            last[one.stage] = max(last.get(one.stage, (0, 0)), (NEVER if one.ended is None else one.ended, one.job_id))
        return list(accumulate((last[stage] for stage in self.stages), max, initial=(0, 0)))

    def end_before(self, stage: int) -> tuple[int, int]:
        """Returns the last end before a stage: its event id, and its job."""
        return self._ends[bisect_left(self.stages, stage)]

    @cached_property
    def chains(self) -> dict[tuple[str | None, int], list[int]]:
        """The jobs of each member: the first one and its retries."""
        chains: dict[tuple[str | None, int], list[int]] = {}
        for job in self.members:
            chains.setdefault((job.step, job.stage), []).append(job.job_id)
        return chains

    @cached_property
    def judged(self) -> list[Member]:
        """The last job of each member's chain, by which the member is judged."""
        return list({one.step: one for one in sorted(self.members, key=lambda one: one.job_id)}.values())

    @cached_property
    def failed(self) -> list[Member]:
        """The members that failed and were not allowed to; the earlier stages first."""
        strict = [one for one in self.judged if _failed(one) and not facts(one.options).get("continue_on_failure")]
        return sorted(strict, key=lambda one: (one.stage, one.job_id))

    def failed_before(self, stage: int) -> Member | None:
        return self.failed[0] if self.failed and self.failed[0].stage < stage else None

    @cached_property
    def _openings(self) -> list[tuple[int, int]]:
        return sorted((stage, event.id) for stage, event in self.opened.items())

    def closed(self, stage: int) -> int | None:
        """Returns the id of the event that closed a stage; None if it is still open."""
        later = self._openings[bisect_left(self._openings, (stage + 1, 0)) :][:1]
        return later[0][1] if later else self.finished and self.finished.id


def _by_plan(member: Member) -> bool:
    return member.reason == PREDECESSOR_FAILED and member.status in EITHER and member.claimed is None


def _failed(member: Member) -> bool:
    """Returns True if a member failed.

    A member that a person cancelled failed, one that skipped itself did not.
    """
    return member.status >= FIRST_TERMINAL and member.status not in (COMPLETED, SKIPPED) and not _by_plan(member)


def _course(group: GroupHistory) -> _Course:
    course = _Course(group.members)
    for event in group.events:
        if event.thing != group.row.kind:
            course.faults.append(f"{event.where} is the event of {event.thing} {group.row.id}")
        elif course.finished is not None:
            course.faults.append(f"{event.where} comes after its end ({course.finished.where})")
        elif (event.what == "created") != (event.version == 1):
            course.faults.append(f"{event.where}: it was not created with version 1, or was created twice")
        else:
            course.faults += _step(course, event)
    return course


def _step(course: _Course, event: GroupEvent) -> Iterator[str]:
    match event.what:
        case "created":
            course.made = event
            course.waits = facts(event.data).get("after_id") is not None
            if not course.waits:
                course.opened[course.stages[0]] = event
        case "begun" | "advanced":
            yield from _open(course, event)
        case "cancelling":
            if course.cancelling is not None:
                yield f"{event.where}: it was cancelled before ({course.cancelling.where})"
            course.cancelling = course.cancelling or event
        case "finished":
            course.finished = event


def _open(course: _Course, event: GroupEvent) -> Iterator[str]:
    stage = facts(event.data).get("stage")
    last = max(course.opened, default=-1)
    if not isinstance(stage, int) or stage <= last:
        yield f"{event.where} opens stage {stage} after stage {last}"
        return
    if (event.what == "begun") != (not course.opened):
        yield f"{event.where} opens stage {stage}, and it had {'' if course.opened else 'not '}begun"
    if course.cancelling is not None:
        yield f"{event.where} opens stage {stage} of what was cancelled ({course.cancelling.where})"
    course.opened[stage] = event


# --- its members --------------------------------------------------------------------------------------------------


def _let_go(history: History, group: GroupHistory, course: _Course, member: Member) -> Iterator[str]:
    """Yields a member that was queued too early, or still waits in an open stage."""
    opening, job = course.opened.get(member.stage), f"job {member.job_id} of stage {member.stage}"
    if opening is None:
        if member.began is not None:
            yield f"{job} was queued, and its stage never opened"
        return
    if member.status == WAITING and not member.hold:
        yield f"{job} waits, though its stage is open ({opening.where}) and it is not on hold"
    if member.began is not None:
        yield from _too_early(group, course, member, job, opening)
    if member.released > 1:
        yield f"{job} was released {member.released} times"
    elif member.released and opening.what == "created":
        yield f"{job} was released, and its stage was open from the beginning"
    elif member.released_at is not None and abs(member.released_at - opening.at) > history.settle:
        yield f"{job} was released at {member.released_at}, its stage opened at {opening.at}: two transactions"


def _too_early(group: GroupHistory, course: _Course, member: Member, job: str, opening: GroupEvent) -> Iterator[str]:
    began = member.began or 0
    end, other = course.end_before(member.stage)
    if began < end:
        yield f"{job} was queued before job {other} of an earlier stage had ended"
    elif member.claimed is not None and opening.what != "created" and member.claimed < opening.id:
        yield f"{job} was claimed before its stage opened ({opening.where})"
    elif course.waits and group.row.after_ended is not None and began < group.row.after_ended:
        yield f"{job} was queued before {group.row.after_id}, which it had to follow, had ended"


def _placed(history: History, course: _Course, member: Member) -> Iterator[str]:
    """Yields a member that was created at the wrong time.

    All members are created with the group; later, only retries in the open stage are.
    """
    job = f"job {member.job_id} of stage {member.stage}"
    made = member.created or 0
    closed = course.closed(member.stage)
    if closed is not None and made > closed:
        yield f"{job} was created after its stage had closed"
    if course.cancelling is not None and made > course.cancelling.id:
        yield f"{job} was created after the cancel ({course.cancelling.where})"
    chain = course.chains[member.step, member.stage]
    with_group = course.made is not None and abs((member.created_at or 0) - course.made.at) <= history.settle
    if member.job_id == chain[0] and not with_group:
        yield f"{job} was created at {member.created_at}, not with its group"
    elif member.job_id != chain[0] and member.retry_of not in chain:
        yield f"{job} is a second {member.step!r}, and no retry of the first"


# --- what comes next ----------------------------------------------------------------------------------------------


def _opened(group: GroupHistory, course: _Course) -> Iterator[str]:
    row = group.row
    for stage, opening in course.opened.items():
        end, job_id = course.end_before(stage)
        if end > opening.id:
            yield f"stage {stage} was opened ({opening.where}) before job {job_id} of an earlier one had ended"
        failed = course.failed_before(stage)
        if failed is not None and row.on_failure in ("stop", "skip"):
            because = f"step {failed.step!r} of stage {failed.stage} failed and on_failure is {row.on_failure}"
            yield f"stage {stage} was opened ({opening.where}), though {because}"
        if opening.what == "begun" and row.after_tenant is not None and (row.after_ended or opening.id) >= opening.id:
            yield f"it began ({opening.where}) before {row.after_id}, which it had to follow, had ended"


def _ended_by_plan(group: GroupHistory, course: _Course) -> Iterator[str]:
    """Yields members that ended unrun without a failure, or against the policy."""
    policy = group.row.on_failure
    for member in filter(_by_plan, course.members):
        ended = f"job {member.job_id} of stage {member.stage} ended {word(member.status)} for an earlier failure"
        if course.failed_before(member.stage) is None:
            yield f"{ended}, and nothing before it failed"
        elif member.status not in ENDS_LATER.get(policy, EITHER):
            yield f"{ended}, and on_failure is {policy}"
        elif member.began is not None:
            yield f"{ended}, and had been queued"


# --- the end ------------------------------------------------------------------------------------------------------


def _unfinished(history: History, group: GroupHistory, course: _Course) -> Iterator[str]:
    row = group.row
    if row.finished_at is not None:
        yield f"its row says {row.status}, and no event that it ended"
        return
    if history.quiet:
        yield f"it has not ended: its open stage is {row.stage}"
    if row.stage != max(course.opened, default=-1):
        yield f"its events open stage {max(course.opened, default=-1)}, its row has stage {row.stage}"
    elif not any(one.status < FIRST_TERMINAL for one in group.members):
        yield "it has not ended, and all its jobs have"
    elif row.stage < 0 and (row.after_tenant is None or row.after_ended is not None):
        yield f"it waits for {row.after_id}, which has ended"
    elif row.stage >= 0 and not any(one.status < FIRST_TERMINAL for one in group.members if one.stage == row.stage):
        yield f"all jobs of its open stage {row.stage} have ended, and the next did not open"


def _concluded(group: GroupHistory, course: _Course) -> Iterator[str]:
    row, finished = group.row, course.finished
    assert finished is not None
    recorded = facts(finished.data)
    if (row.status, row.error) != (recorded.get("status"), recorded.get("error")) or row.finished_at is None:
        yield f"it ended {recorded.get('status')} ({finished.where}), its row says {row.status}, {row.error}"
        return
    if bool(row.cancelled) != (course.cancelling is not None):
        yield f"its row says that it was {'' if row.cancelled else 'not '}cancelled, its events the opposite"
    early = [one for one in course.members if one.ended is None or one.ended > finished.id]
    for member in early[:1]:
        yield f"it ended ({finished.where}) before job {member.job_id} of stage {member.stage}"
    if early:
        return
    status = _status(group, course)
    if row.status != status:
        yield f"it ended {row.status}, and its members make it {status}"
    elif status == "FAILED" and not any(f"{one.step}" in (row.error or "") for one in course.failed):
        yield f"its error names no step that failed: {row.error}"


def _status(group: GroupHistory, course: _Course) -> str:
    if course.cancelling is not None:
        return "CANCELLED"
    if group.row.kind == "execution":
        return "FAILED" if course.failed else "COMPLETED"
    well = all(one.status in (COMPLETED, SKIPPED) and not _by_plan(one) for one in course.judged)
    return "COMPLETED" if well else "PARTIAL"
