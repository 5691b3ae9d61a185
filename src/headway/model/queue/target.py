"""The view of a target: its state, its holder, since when and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.errors import WrongState
from headway.model.jobs.states import State


class TargetState(StrEnum):
    """FREE allows the next job. BUSY runs a job or a call. HELD waits for a decision. PAUSED was set by a person."""

    FREE = "free"
    BUSY = "busy"
    HELD = "held"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class TargetHolder:
    """The job that occupies a target: it runs, is held, or was resumed and goes first."""

    job_id: int
    status: State
    since: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target for display.

    `held_by` and `running` are jobs, `direct` is the reservation of a direct call that occupies it. `waiting` counts
    queued jobs; `at_least` means that the count stopped early. `resumed` means that its holder is queued again.
    """

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
    holder: TargetHolder | None = None,
    direct: tuple[int, int] | None = None,
) -> TargetView:
    """Builds the view of a target. A pause is shown before a hold, and a hold before a running job.

    That is the order in which they must end. `direct` is a reservation that occupies the target, with its start.
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


def _why(holder: TargetHolder) -> str:
    if holder.status is State.QUEUED:
        return "resumed: it goes first"
    first = (holder.reason or "").strip().split("\n")[0]
    return first or holder.status.name


def check_paused(one: TargetView) -> None:
    """Refuses to resume a target that is held and not paused; resuming it would not resume its job."""
    if one.state is TargetState.HELD:
        text = f"the target {one.name!r} is not paused: job {one.held_by} holds it ({one.reason}); resume, resolve,"
        raise WrongState(f"{text} retry, release or cancel that job", status=one.state.value, job_id=one.held_by)
