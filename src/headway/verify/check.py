"""`check()`: one snapshot, every invariant, one pass over the jobs and one over the events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.clock import micros
from headway.store.db import Database
from headway.verify import chains, counts, ghosts, guards, keys, paths, runs, stops, tenants
from headway.verify.history import History
from headway.verify.limits import Limits
from headway.verify.order import Order
from headway.verify.records import JobHistory
from headway.verify.report import Finding, Report, gather

OF_ONE_JOB: tuple[Callable[[History, JobHistory], Iterator[Finding]], ...] = (
    counts.check,
    paths.check,
    runs.check,
    stops.check,
    chains.check,
    tenants.check,
)
# Whole tables, read once: asked before the plans are pinned to the indexes of the pages.
OF_THE_WHOLE: tuple[Callable[[History], Iterator[Finding]], ...] = (
    guards.check,
    counts.check_protection,
    counts.check_things,
    runs.check_loose,
    keys.check,
    tenants.check_lanes,
    ghosts.check,
)


def check(
    database: Database, *, quiet: bool = False, lease: float = 60.0, recovery: float = 30.0, settle: float | None = None
) -> Report:
    """Checks the history of a system, which may be at work.

    With `quiet`, everything is expected to have ended. `lease` and `recovery` are the settings the system runs with, in
    seconds. `settle` is how long PostgreSQL may take to make a statement's work visible; SQLite needs none.
    """
    if settle is None:
        settle = 1.0 if database.dialect == "postgres" else 0.0
    with database.read() as tx:
        history = History(tx, quiet, micros(lease), micros(recovery), micros(settle))
        return gather(_findings(history), history.counted)


def _findings(history: History) -> Iterator[Finding]:
    for whole in OF_THE_WHOLE:
        yield from whole(history)
    replays = (Limits(history), Order(history))
    history.tx.run("pin_plans")
    for job in history.jobs():
        for one in OF_ONE_JOB:
            yield from one(history, job)
    yield from counts.check_pruned(history)
    for moment in history.stream():
        for replay in replays:
            yield from replay.see(moment)
    for replay in replays:
        yield from replay.end()
