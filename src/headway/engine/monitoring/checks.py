"""The checks of the stored records, in one list. `/readyz`, the dashboard and `doctor` show their answers.

The sentences and remedies of their findings are in `text/findings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headway.engine.monitoring import queue_checks as queue
from headway.engine.monitoring import schedule_checks as schedules
from headway.engine.monitoring import worker_checks as workers
from headway.engine.monitoring.check import LISTED, Audience, Check, Scope
from headway.model.checks import Answer, Finding, away, broken, judge_durability, look, ok
from headway.store.db import Tx
from headway.store.migrations import versions
from headway.store.postgres.row_security import RowSecurity, row_security
from headway.store.sqlite.read_only import server
from headway.text import findings

# --- the database -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaSeen:
    """The schema of the database, 0 if it has none, and the schema that this Headway needs."""

    found: int
    known: int


def read_schema(scope: Scope) -> SchemaSeen:
    return SchemaSeen(_schema(scope.tx), versions()[-1])


def _schema(tx: Tx) -> int:
    ((exists,),) = tx.run(f"schema_found_{tx.database.dialect}")
    return int(tx.run("schema_version")[0][0]) if exists else 0


def judge_schema(seen: SchemaSeen) -> Answer:
    if seen.found == seen.known:
        return ok(f"schema {seen.found}")
    finding = findings.schema(seen.found, seen.known)
    judge = broken if seen.found else away
    return judge(finding.sentence, finding.remedy.line, [finding])


def not_ours(tx: Tx) -> Answer | None:
    """Returns None for a Headway database, otherwise the answer that ends the checks."""
    return None if (found := _schema(tx)) else judge_schema(SchemaSeen(found, versions()[-1]))


@dataclass(frozen=True, slots=True)
class RowSecuritySeen:
    """The state of row-level security, and True if there are tenants to keep apart."""

    state: RowSecurity
    several_tenants: bool = True


def read_row_security(scope: Scope) -> RowSecuritySeen:
    return RowSecuritySeen(row_security(scope.tx), len(scope.tx.run("tenants")) > 1)


def judge_row_security(seen: RowSecuritySeen) -> Answer:
    if seen.state.enabled:
        return ok("row-level security keeps tenants apart")
    finding = findings.row_security_off(str(replace(seen.state, hint=None)), seen.state.hint)
    if not seen.several_tenants:
        return replace(ok("there is only one tenant, so none to separate it from"), findings=(finding,))
    text = f"row-level security does not separate the tenants: {seen.state.why}"
    return look(text, finding.remedy.line, [finding])


def durability(tx: Tx) -> Answer:
    """Judges the settings that decide the durability of a PostgreSQL server."""
    found = server(tx)
    return judge_durability(
        fsync=found.fsync, full_page_writes=found.full_page_writes, synchronous_commit=found.synchronous_commit
    )


# --- the list -----------------------------------------------------------------------------------------------------

READYZ, PAGE = frozenset({Audience.READYZ}), frozenset({Audience.HEALTH_PAGE})

# In the order in which `doctor` makes them. Any: each check reads and judges records of its own type.
CHECKS: tuple[Check[Any], ...] = (
    Check("schema", read_schema, judge_schema, READYZ),
    Check(
        "workers",
        workers.read_workers,
        workers.judge_workers,
        READYZ | PAGE,
        "for workers that are late with their lease, gone or stuck",
    ),
    Check("recovery", workers.read_unrecovered, workers.judge_unrecovered),
    Check("one_machine", workers.read_machines, workers.judge_machines, dialect="sqlite"),
    Check("wall", read_row_security, judge_row_security, dialect="postgres"),
    Check("limits", queue.read_limits, queue.judge_limits),
    Check("tasks", workers.read_tasks, workers.judge_tasks),
    Check("owners", queue.read_owners, queue.judge_owners),
    Check("queue", queue.read_pauses, queue.judge_pauses),
    Check("held", queue.read_held, queue.judge_held, PAGE, "for jobs that need a decision or keep a target"),
    Check("targets", queue.read_targets, queue.judge_targets, PAGE, "for paused targets"),
    Check(
        "schedules",
        schedules.read_schedules,
        schedules.judge_schedules,
        PAGE,
        "for schedules that cannot run or wait for a person",
    ),
    Check("ticks", schedules.read_ticks, schedules.judge_ticks, READYZ | PAGE, "for overdue ticks"),
    Check("missed", schedules.read_missed, schedules.judge_missed, PAGE, "for missed ticks that no person has seen"),
    Check("webhooks", schedules.read_webhooks, schedules.judge_webhooks, PAGE, "for failing webhooks"),
)


def checks_for(audience: Audience) -> list[Check[Any]]:
    return [check for check in CHECKS if audience in check.audiences]


def items(scope: Scope) -> Iterator[Finding]:
    """Yields the things that the Health page lists, at most LISTED of each kind."""
    for check in checks_for(Audience.HEALTH_PAGE):
        yield from islice((finding for finding in check.answer(scope).findings if finding.subject is not None), LISTED)


def whole(answer: Answer) -> list[Finding]:
    """Returns the findings that concern the whole installation, which `/readyz` reports."""
    return [finding for finding in answer.findings if finding.subject is None]
