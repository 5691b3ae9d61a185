"""Checks every invariant on one snapshot.

Jobs, groups, ticks and events are read in one pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.clock import SECOND, micros
from headway.store.db import Database, Tx
from headway.verify.history import History
from headway.verify.invariants import (
    claimable,
    deliveries,
    groups,
    job_counts,
    job_states,
    orphans,
    retries,
    runs,
    schema_guards,
    stop_requests,
    tenants,
    ticks,
    unique_keys,
)
from headway.verify.replay import limits, reservations
from headway.verify.replay.limits import Limits
from headway.verify.replay.order import Order
from headway.verify.replay.reservations import Reservations
from headway.verify.replay.state import ReplayState
from headway.verify.report import Finding, Report, gather
from headway.verify.rows import GroupHistory, JobHistory

SETTLE = SECOND
# The kinds of event that need room in a lane, or a turn.
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
    job_counts.check,
    job_states.check,
    runs.check,
    stop_requests.check,
    retries.check,
    tenants.check,
)
OF_ONE_GROUP: tuple[Callable[[History, GroupHistory], Iterator[Finding]], ...] = (groups.check, tenants.check_group)
# Checks that read whole tables once. They run before the query plans are pinned to the indexes of the pages.
OF_THE_WHOLE: tuple[Callable[[History], Iterator[Finding]], ...] = (
    schema_guards.check,
    job_counts.check_protection,
    job_counts.check_things,
    runs.check_loose,
    unique_keys.check,
    tenants.check_lanes,
    tenants.check_targets,
    tenants.check_reservations,
    tenants.check_schedules,
    tenants.check_tenants,
    tenants.check_others,
    groups.check_loose,
    limits.check,
    claimable.check,
    orphans.check,
    reservations.check,
    deliveries.check,
)


def check(
    database: Database, *, quiet: bool = False, lease: float = 60.0, recovery: float = 30.0, settle: float | None = None
) -> Report:
    """Checks the history of a system. The system may be running.

    With `quiet`, all jobs are expected to have ended. `lease` and `recovery` are the settings of the system, in
    seconds. `settle` is how long PostgreSQL may take to make a statement's work visible; the default is the greater of
    one second and twice its longest recorded transaction. SQLite needs none.
    """
    with database.read() as tx:
        now = tx.now()
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
    state = ReplayState(history)
    order = Order(history, state)
    history.tx.run("pin_plans")
    for job in history.jobs():
        for check_job in OF_ONE_JOB:
            yield from check_job(history, job)
    for group in history.groups():
        for check_group in OF_ONE_GROUP:
            yield from check_group(history, group)
    yield from ticks.check(history)
    yield from job_counts.check_pruned(history)
    yield from _replay(history, state, order)


def _replay(history: History, state: ReplayState, order: Order) -> Iterator[Finding]:
    """Replays all events in one pass.

    Limits and reservations judge an event by the state before it, so they see it before it is applied.
    """
    judges = (Limits(history, state), Reservations(history, state))
    for moment in history.stream():
        if order.batch:
            yield from order.before(moment)
        if moment.kind in JUDGED:
            for judge in judges:
                yield from judge.see(moment)
        state.apply(moment)
        yield from order.see(moment)
    for judge in judges:
        yield from judge.end()
    yield from order.end()
