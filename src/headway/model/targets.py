"""What people are told about a target: how it stands, who has it, since when and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.errors import WrongState
from headway.model.states import State


class TargetState(StrEnum):
    """FREE: the next job may start. BUSY: work is on it. HELD: a job keeps it. PAUSED: a person stopped it."""

    FREE = "free"
    BUSY = "busy"
    HELD = "held"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Holder:
    """The one job that has a target: it runs, is held, or was resumed and goes first."""

    job_id: int
    status: State
    since: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target. `held_by` and `running` are jobs, `direct` the reservation of a direct call that has it now. `waiting`
    counts queued jobs; `at_least`: there are more than were counted. `resumed`: its holder goes on by itself."""

    id: int
    name: str
    state: TargetState
    held_by: int | None = None
    since: int | None = None
    reason: str | None = None
    running: int | None = None
    direct: int | None = None
    waiting: int = 0
    at_least: bool = False
    note: str | None = None
    resumed: bool = False


def view(
    target_id: int,
    name: str,
    *,
    paused_at: int | None = None,
    note: str | None = None,
    holder: Holder | None = None,
    direct: tuple[int, int] | None = None,
) -> TargetView:
    """A pause is said before a hold, and a hold before work: that is the order in which they have to go away.

    `direct` is the reservation that has the target and since when.
    """
    runs = holder if holder is not None and holder.status is State.RUNNING else None
    holds = holder if runs is None else None
    state, since = TargetState.FREE, None
    if paused_at is not None:
        state, since = TargetState.PAUSED, paused_at
    elif holds is not None:
        state, since = TargetState.HELD, holds.since
    elif runs is not None:
        state, since = TargetState.BUSY, runs.since
    elif direct is not None:
        state, since = TargetState.BUSY, direct[1]
    return TargetView(
        target_id,
        name,
        state,
        held_by=holds.job_id if holds is not None else None,
        since=since,
        reason=_why(holds) if holds is not None else None,
        running=runs.job_id if runs is not None else None,
        direct=direct[0] if direct is not None else None,
        note=note,
        resumed=holds is not None and holds.status is State.QUEUED,
    )


def _why(holder: Holder) -> str:
    if holder.status is State.QUEUED:
        return "resumed: it goes first"
    first = (holder.reason or "").strip().split("\n")[0]
    return first or holder.status.name


# --- for people ---------------------------------------------------------------------------------------------------


def remedy(one: TargetView) -> str | None:
    """What a person has to do before a target opens; None if it opens by itself."""
    held = one.held_by is not None and not one.resumed
    if one.state is TargetState.PAUSED:
        more = f"; job {one.held_by} holds it besides" if held else ""
        return f"Resume the target when nothing speaks against it any more{more}."
    if not held:
        return None
    text = f"Resume job {one.held_by} to let it go on, or resolve it with a result"
    return f"{text}; retry, release or cancel it to let the next one start."


def resumed(one: TargetView) -> str:
    """What a resume has led to, told by how the target stands since."""
    todo = remedy(one)
    if todo is None:
        return f"Jobs start on the target {one.name} again."
    if one.state is TargetState.PAUSED:
        return f"The target {one.name} was resumed, and paused again since."
    return f"The target {one.name} is no longer paused, but job {one.held_by} holds it. {todo}"


def check_paused(one: TargetView) -> None:
    """Resuming a target is not resuming the job that holds it."""
    if one.state is TargetState.HELD:
        text = f"the target {one.name!r} is not paused: job {one.held_by} holds it ({one.reason}); resume, resolve,"
        raise WrongState(f"{text} retry, release or cancel that job", status=one.state.value, job_id=one.held_by)
