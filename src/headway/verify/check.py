"""`check()`: one snapshot, every invariant, one pass over the jobs, the groups, the ticks and all events each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.clock import SECOND, micros
from headway.store.db import Database, Tx
from headway.verify import (
    chains,
    counts,
    deliveries,
    gates,
    ghosts,
    guards,
    keys,
    limits,
    paths,
    reservations,
    runs,
    stages,
    stops,
    tenants,
    ticks,
)
from headway.verify.board import Board
from headway.verify.history import History
from headway.verify.limits import Limits
from headway.verify.order import Order
from headway.verify.records import GroupHistory, JobHistory
from headway.verify.report import Finding, Report, gather
from headway.verify.reservations import Reservations

SETTLE = SECOND
# What needs room or a turn.
JUDGED = {
    "job.claimed",
    "job.relaned",
    "reservation.created",
    "reservation.relaned",
    "reservation.granted",
    "reservation.released",
    "reservation.expired",
}
OF_ONE_JOB: tuple[Callable[[History, JobHistory], Iterator[Finding]], ...] = (
    counts.check,
    paths.check,
    runs.check,
    stops.check,
    chains.check,
    tenants.check,
)
OF_ONE_GROUP: tuple[Callable[[History, GroupHistory], Iterator[Finding]], ...] = (stages.check, tenants.check_group)
# Whole tables, read once: asked before the plans are pinned to the indexes of the pages.
OF_THE_WHOLE: tuple[Callable[[History], Iterator[Finding]], ...] = (
    guards.check,
    counts.check_protection,
    counts.check_things,
    runs.check_loose,
    keys.check,
    tenants.check_lanes,
    tenants.check_targets,
    tenants.check_reservations,
    tenants.check_schedules,
    tenants.check_tenants,
    tenants.check_others,
    stages.check_loose,
    limits.check,
    gates.check,
    ghosts.check,
    reservations.check,
    deliveries.check,
)


def check(
    database: Database, *, quiet: bool = False, lease: float = 60.0, recovery: float = 30.0, settle: float | None = None
) -> Report:
    """Checks the history of a system, which may be at work.

    With `quiet`, everything is expected to have ended. `lease` and `recovery` are the settings the system runs with, in
    seconds. `settle` is how long PostgreSQL may take to make a statement's work visible, by default a second or twice
    as long as its longest transaction that left a trace; SQLite needs none.
    """
    with database.read() as tx:
        ((now,),) = tx.run("time")
        window = _longest(tx) if settle is None else micros(settle)
        history = History(tx, int(now), quiet, micros(lease), micros(recovery), window)
        return gather(_findings(history), history.counted)


def _longest(tx: Tx) -> int:
    if tx.database.dialect != "postgres":
        return 0
    ((longest,),) = tx.run("verify_longest_postgres")
    return max(SETTLE, 2 * int(longest or 0))


def _findings(history: History) -> Iterator[Finding]:
    for whole in OF_THE_WHOLE:
        yield from whole(history)
    board = Board(history)
    order = Order(history, board)
    history.tx.run("pin_plans")
    for job in history.jobs():
        for one in OF_ONE_JOB:
            yield from one(history, job)
    for group in history.groups():
        for one_group in OF_ONE_GROUP:
            yield from one_group(history, group)
    yield from ticks.check(history)
    yield from counts.check_pruned(history)
    yield from _replay(history, board, order)


def _replay(history: History, board: Board, order: Order) -> Iterator[Finding]:
    """One pass over all events. What is judged by the moment before an event is asked before it is put on the board."""
    judges = (Limits(history, board), Reservations(history, board))
    for moment in history.stream():
        if order.batch:
            yield from order.before(moment)
        if moment.kind in JUDGED:
            for judge in judges:
                yield from judge.see(moment)
        board.apply(moment)
        yield from order.see(moment)
    for judge in judges:
        yield from judge.end()
    yield from order.end()
