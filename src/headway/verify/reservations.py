"""I-16: reservations are granted in the order they were made, no job passes one, and each ends in its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.verify import ghosts
from headway.verify.board import Board, Reserved
from headway.verify.history import History
from headway.verify.records import Moment, numbers
from headway.verify.report import Finding, about_job, about_reservation

# --- as they stand ------------------------------------------------------------------------------------------------


class Active(NamedTuple):
    """A reservation that has not ended, with its holder's lease if it is one of us."""

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
    observed_since = ghosts.observed_since(history)
    for one in map(Active._make, history.tx.run("verify_active_reservations")):
        text = _overdue(history, one, observed_since)
        if text is not None:
            yield about_reservation("I-16", one.id, f"it is ACTIVE, {text}")


def _recorded(history: History) -> Iterator[Finding]:
    """Every reservation has its events, and is what they made of it."""
    for number, status, version, events, last, granted, is_granted, released, expired in history.tx.run(
        "verify_reservations"
    ):
        said = f"it has {events} events up to version {last}: granted {granted} times, {released} released"
        is_so = f"its row is {status} (version {version}), {'granted' if is_granted else 'never granted'}"
        yield about_reservation("I-16", number, f"{said}, {expired} expired; {is_so}")
    for number, granted_at, expires_at, expired in history.tx.run("verify_untimely", settle=history.settle):
        late = f"its time was over at {expires_at} and it was granted at {granted_at}"
        early = f"it had time until {expires_at} and was ended as expired at {expired}"
        yield about_reservation("I-16", number, early if expired is not None and expired < expires_at else late)
    for (number,) in history.tx.run("verify_loose_reservations"):
        yield about_reservation("I-16", number, "it has a history and no row")


def _overdue(history: History, one: Active, observed_since: int | None) -> str | None:
    if one.expires_at is None:
        if one.owner is None:
            return f"its holder {one.worker_id or 0:x} does not exist"
        lease = ghosts.Lease(one.beat_at, one.lease_until, one.gone_at)
        over = ghosts.overdue(history, lease, observed_since)
        return None if over is None else f"its holder {one.owner:x} {over}"
    if observed_since is None:
        return None
    over_by = history.now - max(one.expires_at, observed_since) - history.recovery
    return f"it expired at {one.expires_at}: {over_by / 1e6:g} s too long ago" if over_by > 0 else None


# --- as they were -------------------------------------------------------------------------------------------------


class Reservations:
    """Asked before each event whether it is its turn."""

    def __init__(self, history: History, board: Board) -> None:
        self.history = history
        self.board = board
        self.batch: tuple[int, str] = (0, "")
        self.resumed: set[int] = set()

    def see(self, moment: Moment) -> list[Finding]:
        if moment.kind == "job.claimed":
            if not self.board.reserved:
                return []
            return [about_job("I-16", moment.thing_id, text) for text in self._passed(moment)]
        if moment.thing != "reservation":
            return []
        if moment.kind == "reservation.created":
            self.history.counted["reservations"] += 1
        return [about_reservation("I-16", moment.thing_id, text) for text in self._step(moment)]

    def end(self) -> list[Finding]:
        """What is active is so for the lanes that its events say."""
        active = map(Active._make, self.history.tx.run("verify_active_reservations"))
        lanes = {one.id: Reserved(numbers(one.lanes), one.target_id) for one in active}
        return [
            about_reservation("I-16", number, f"its events lead to {led[:2]}, its row has {lanes[number][:2]}")
            for number, led in self.board.reserved.items()
            if number in lanes and lanes[number][:2] != led[:2]
        ]

    def _passed(self, moment: Moment) -> Iterator[str]:
        """A claim on what is reserved, unless direct calls had it so often that it is a job's turn."""
        if not self.board.whole(moment):
            return
        board, claimed = self.board, f"claimed (version {moment.version})"
        closing = self._closing(moment)
        for lane, _ in board.places(moment):
            by = [number for number, one in closing.items() if lane in one.lanes]
            if by and not board.turn(board.streaks, lane):
                yield f"{claimed} on lane {lane}, which reservation {by[0]} was to have next"
        target_id = moment.target_id
        # One that was granted has the target: that two had it is I-05's to say.
        if target_id is None or target_id in board.granted_targets or board.turn(board.target_streaks, target_id):
            return
        by = [number for number, one in closing.items() if one.target_id == target_id]
        if by:
            yield f"{claimed} on target {target_id}, which reservation {by[0]} was to have next"

    def _closing(self, moment: Moment) -> dict[int, Reserved]:
        """The reservations that nobody may pass. One that waits for a target whose holder was resumed has to wait for
        that job, which may need the same lanes: it closes nothing. For all that is claimed in one transaction the
        moment before it counts."""
        if self.batch != (moment.at, moment.actor):
            self.batch = (moment.at, moment.actor)
            self.resumed = set(self.board.resumed)
        everything = self.board.reserved.items()
        return {number: one for number, one in everything if one.granted or one.target_id not in self.resumed}

    def _step(self, moment: Moment) -> Iterator[str]:
        """Made, granted once or never, ended once."""
        one = self.board.reserved.get(moment.thing_id)
        where = f"version {moment.version}, {moment.kind}"
        if moment.kind == "reservation.created":
            if one is not None or moment.version != 1:
                yield f"{where}: it is not made with version 1, or a second time"
        elif one is None:
            yield f"{where} comes after its end"
        elif one.granted and moment.kind in ("reservation.granted", "reservation.relaned"):
            yield f"{where}: it was granted before"
        elif moment.kind == "reservation.granted":
            yield from self._in_turn(moment, one)

    def _in_turn(self, moment: Moment, one: Reserved) -> Iterator[str]:
        for number, other in self.board.reserved.items():
            if number == moment.thing_id:
                return
            if not other.granted and _meet(one, other):
                yield f"granted (version {moment.version}) before reservation {number}, which waited for the same"


def _meet(one: Reserved, other: Reserved) -> bool:
    same_target = one.target_id is not None and one.target_id == other.target_id
    return same_target or not set(one.lanes).isdisjoint(other.lanes)
