"""I-16: reservations are granted in order of creation and end in time.

No job passes a reservation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.invariants import orphans
from headway.verify.replay.state import ReplayState, Reserved
from headway.verify.report import Finding, about_job, about_reservation
from headway.verify.rows import Moment, numbers

# --- the rows -----------------------------------------------------------------------------------------------------


class Active(NamedTuple):
    """A reservation that has not ended.

    It has the lease of its holder if a Headway process holds it.
    """

    id: int
    expires_at: int | None
    worker_id: int | None
    owner: int | None
    beat_at: int
    lease_until: int
    gone_at: int | None
    lanes: str
    target_id: int | None


def check(history: History) -> Iterator[Finding]:
    yield from _recorded(history)
    observed_since = orphans.observed_since(history)
    for one in map(Active._make, history.tx.run("verify_active_reservations")):
        text = _overdue(history, one, observed_since)
        if text is not None:
            yield about_reservation("I-16", one.id, f"it is ACTIVE, {text}")


def _recorded(history: History) -> Iterator[Finding]:
    """Yields reservations whose row and events do not fit."""
    for number, status, version, events, last, granted, is_granted, released, expired in history.tx.run(
        "verify_reservations"
    ):
        recorded = f"it has {events} events up to version {last}: granted {granted} times, {released} released"
        is_so = f"its row is {status} (version {version}), {'granted' if is_granted else 'never granted'}"
        yield about_reservation("I-16", number, f"{recorded}, {expired} expired; {is_so}")
    for number, granted_at, expires_at, expired in history.tx.run("verify_untimely", settle=history.settle):
        late = f"it expired at {expires_at} and was granted at {granted_at}"
        early = f"it was valid until {expires_at} and was ended as expired at {expired}"
        yield about_reservation("I-16", number, early if expired is not None and expired < expires_at else late)
    for (number,) in history.tx.run("verify_loose_reservations"):
        yield about_reservation("I-16", number, "it has a history and no row")


def _overdue(history: History, one: Active, observed_since: int | None) -> str | None:
    if one.expires_at is None:
        if one.owner is None:
            return f"its holder {one.worker_id or 0:x} does not exist"
        lease = orphans.Lease(one.beat_at, one.lease_until, one.gone_at)
        over = orphans.overdue(history, lease, observed_since)
        return None if over is None else f"its holder {one.owner:x} {over}"
    if observed_since is None:
        return None
    over_by = history.now - max(one.expires_at, observed_since) - history.recovery
    return f"it expired at {one.expires_at}: {over_by / 1e6:g} s too long ago" if over_by > 0 else None


# --- the events ---------------------------------------------------------------------------------------------------


class Reservations:
    """Checks before each event that the reservation, or the claim, is in turn."""

    def __init__(self, history: History, state: ReplayState) -> None:
        self.history = history
        self.state = state
        self.batch: tuple[int, str] = (0, "")
        self.resumed: set[int] = set()

    def see(self, moment: Moment) -> list[Finding]:
        if moment.kind == "job.claimed":
            if not self.state.reserved:
                return []
            return [about_job("I-16", moment.thing_id, text) for text in self._passed(moment)]
        if moment.thing != "reservation":
            return []
        if moment.kind == "reservation.created":
            self.history.counted["reservations"] += 1
        return [about_reservation("I-16", moment.thing_id, text) for text in self._step(moment)]

    def end(self) -> list[Finding]:
        """Returns active reservations whose row and events differ.

        They have other lanes, or another target.
        """
        active = map(Active._make, self.history.tx.run("verify_active_reservations"))
        lanes = {one.id: Reserved(numbers(one.lanes), one.target_id) for one in active}
        return [
            about_reservation("I-16", number, f"its events lead to {led[:2]}, its row has {lanes[number][:2]}")
            for number, led in self.state.reserved.items()
            if number in lanes and lanes[number][:2] != led[:2]
        ]

    def _passed(self, moment: Moment) -> Iterator[str]:
        """Yields a claim on a reserved lane or target.

        After a number of direct calls in a row, one job may go first.
        """
        if not self.state.whole(moment):
            return
        state, claimed = self.state, f"claimed (version {moment.version})"
        closing = self._closing(moment)
        for lane, _ in state.places(moment):
            by = [number for number, one in closing.items() if lane in one.lanes]
            if by and not state.turn(state.streaks, lane):
                yield f"{claimed} on lane {lane}, which reservation {by[0]} had to get next"
        target_id = moment.target_id
        # A granted reservation has the target. I-05 reports a target with two holders.
        if target_id is None or target_id in state.granted_targets or state.turn(state.target_streaks, target_id):
            return
        by = [number for number, one in closing.items() if one.target_id == target_id]
        if by:
            yield f"{claimed} on target {target_id}, which reservation {by[0]} had to get next"

    def _closing(self, moment: Moment) -> dict[int, Reserved]:
        """Returns the reservations that no job may pass.

        A reservation for a target whose holder was resumed has to wait for that job. The job may need the same lanes,
        so the reservation closes nothing. All claims of one transaction are judged by the state before it.
        """
        if self.batch != (moment.at, moment.actor):
            self.batch = (moment.at, moment.actor)
            self.resumed = set(self.state.resumed)
        everything = self.state.reserved.items()
        return {number: one for number, one in everything if one.granted or one.target_id not in self.resumed}

    def _step(self, moment: Moment) -> Iterator[str]:
        """Yields events out of order.

        A reservation is created, granted at most once, and ended once.
        """
        one = self.state.reserved.get(moment.thing_id)
        where = f"version {moment.version}, {moment.kind}"
        if moment.kind == "reservation.created":
            if one is not None or moment.version != 1:
                yield f"{where}: it was not created with version 1, or was created twice"
        elif one is None:
            yield f"{where} comes after its end"
        elif one.granted and moment.kind in ("reservation.granted", "reservation.relaned"):
            yield f"{where}: it was granted before"
        elif moment.kind == "reservation.granted":
            yield from self._in_turn(moment, one)

    def _in_turn(self, moment: Moment, one: Reserved) -> Iterator[str]:
        for number, other in self.state.reserved.items():
            if number == moment.thing_id:
                return
            if not other.granted and _meet(one, other):
                yield f"granted (version {moment.version}) before reservation {number}, which waited for the same"


def _meet(one: Reserved, other: Reserved) -> bool:
    same_target = one.target_id is not None and one.target_id == other.target_id
    return same_target or not set(one.lanes).isdisjoint(other.lanes)
