"""Readiness of this process: the reasons against it, and warnings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.loop import Loop
from headway.engine.monitoring import checks
from headway.engine.monitoring.check import Audience, Scope
from headway.errors import HeadwayError, Unreachable
from headway.model.checks import Finding
from headway.store import stats, worker_views
from headway.store.db import Database, Tx
from headway.store.postgres.row_security import RowSecurity
from headway.store.transfer import seal
from headway.store.transfer.seal import Moved
from headway.store.workers import worker_name
from headway.text.findings import WORKER

# A loop without a successful tick for this many of its own delays, and these seconds, is stuck.
MISSED_ROUNDS = 3
GRACE = 60.0


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `code` is public; `text` may name hosts, files and database errors."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Health:
    """Reasons and warnings. The process is ready while there is no reason against it."""

    reasons: list[Reason] = field(default_factory=list)
    warnings: list[Reason] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return not self.reasons

    def refuse(self, code: str, text: str) -> None:
        self.reasons.append(Reason(code, text))

    def warn(self, code: str, text: str) -> None:
        self.warnings.append(Reason(code, text))


@dataclass(frozen=True, slots=True)
class Round:
    """One loop of this process.

    `state` is `fine`, `not started`, `ended` or `stuck`; `quiet` is the time since its last successful tick, and `pace`
    its delay, both in seconds.
    """

    name: str
    state: str
    quiet: float | None
    pace: float


@dataclass(frozen=True, slots=True)
class Storage:
    """The database and the folder of artifacts.

    Sizes are in bytes; `free` is the free space in that folder, or None if unknown; `ping` is the round trip of the
    simplest query, in seconds.
    """

    dialect: str
    schema: int
    size: int
    ping: float
    artifacts: Path
    free: int | None


def draining() -> Health:
    """Returns the readiness of a process that shuts down: its other parts are no reason any more."""
    health = Health()
    health.refuse(
        "draining", "this process is draining: it takes no new work and ends after its running jobs and direct calls"
    )
    return health


def ready(
    database: Database,
    *,
    roles: Collection[str] = ("api",),
    worker_id: int | None = None,
    loops: Iterable[Loop] = (),
    wall: Callable[[Tx], RowSecurity] | None = None,
) -> Health:
    """Returns the readiness of a process with these roles.

    `worker_id` is its own worker; `wall` returns the state of row-level security.
    """
    health = Health()
    try:
        with database.read() as tx:
            seal.refuse_sealed(tx)
            _records(tx, health, worker_id if "worker" in roles else None, wall)
    except Unreachable as error:
        health.refuse("database_unreachable", str(error))
    except Moved as error:
        health.refuse("moved", f"{error}, and start this process again")
    except HeadwayError as error:
        health.refuse("database_unreadable", f"the database cannot be read: {error}")
    for loop in loops:
        _loop(loop, health)
    return health


def _records(tx: Tx, health: Health, own: int | None, wall: Callable[[Tx], RowSecurity] | None) -> None:
    """Reports what the checks for `/readyz` find; records of another schema are not read."""
    scope = Scope(tx)
    for check in checks.checks_for(Audience.READYZ):
        answer = check.answer(scope)
        if check.name == "schema" and answer.mark != "ok":
            for finding in checks.whole(answer):
                health.refuse(finding.kind, finding.line)
            return
        for finding in checks.whole(answer):
            health.warn(finding.kind, _text(finding))
    if own is not None:
        _own_worker(tx, health, own)
    if wall is not None:
        for finding in checks.whole(checks.judge_row_security(checks.RowSecuritySeen(wall(tx)))):
            health.warn(finding.kind, _text(finding))


def _text(finding: Finding) -> str:
    remedy = finding.remedy.line
    return f"{finding.sentence}. {remedy[:1].upper()}{remedy[1:]}"


def _own_worker(tx: Tx, health: Health, worker_id: int) -> None:
    now = tx.now()
    name = f"worker {worker_name(worker_id)} of this process"
    found = [row for row in worker_views.workers(tx, within=0.0) if row.id == worker_id and row.lease_until >= now]
    if not found:
        health.refuse("lease_lost", f"{name} has lost its lease")
    elif found[0].shown_state == "paused":
        health.refuse("worker_paused", _with(f"{name} cannot start the work it claims: {found[0].note}", "paused"))
    elif found[0].state == "stuck":
        why = found[0].note or "it claims no more jobs"
        health.refuse("worker_stuck", _with(f"{name} has work that does not stop: {why}", "stuck"))


def _with(sentence: str, state: str) -> str:
    """Returns the sentence with the remedy for a worker in this state."""
    return _text(Finding(f"worker_{state}", sentence, WORKER[state]))


def _loop(loop: Loop, health: Health) -> None:
    found = _round(loop)
    if found.state == "ended":
        health.refuse("part_ended", f"{loop.name} has ended by itself: start this process again")
    elif found.state == "stuck":
        health.refuse("part_stuck", f"{loop.name} has not done its round for {found.quiet:.0f} s")


def rounds(loops: Iterable[Loop]) -> list[Round]:
    return [_round(loop) for loop in loops]


def _round(loop: Loop) -> Round:
    quiet, state = loop.quiet_for(), "fine"
    if loop.thread is None:
        state = "not started"
    elif not loop.thread.is_alive() and not loop.ended.is_set():
        state = "ended"
    elif quiet is not None and quiet > MISSED_ROUNDS * loop.pace + GRACE:
        state = "stuck"
    return Round(loop.name, state, quiet, loop.pace)


def storage(database: Database, artifacts: Path) -> Storage:
    with database.read() as tx:
        began = time.perf_counter()
        tx.run("ping")
        ping = time.perf_counter() - began
        ((schema,),), size = tx.run("schema_version"), stats.size(tx)
    return Storage(database.dialect, int(schema), size, ping, artifacts, _free(artifacts))


def _free(folder: Path) -> int | None:
    """Returns the free bytes at a folder, which exists only after the first file."""
    existing = next((path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()), None)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None
