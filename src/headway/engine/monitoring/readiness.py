"""Readiness of this process: the reasons against it, and warnings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.loop import Loop
from headway.errors import HeadwayError, Unreachable
from headway.store import stats, worker_views
from headway.store.db import Database, Tx
from headway.store.migrations import versions
from headway.store.postgres.row_security import RowSecurity
from headway.store.transfer import seal
from headway.store.transfer.seal import Moved
from headway.store.workers import worker_name

# A loop without a successful tick for this many of its own delays is stuck.
MISSED_ROUNDS = 3
LATE_TICK = 60.0


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
            _schema(tx, health)
            if health.ready:
                _workers(tx, health, roles, worker_id)
                _lag(tx, health)
                if wall is not None and not (state := wall(tx)).enabled:
                    health.warn("wall_off", f"the wall between tenants is {state}")
    except Unreachable as error:
        health.refuse("database_unreachable", str(error))
    except Moved as error:
        health.refuse("moved", f"{error}, and start this process again")
    except HeadwayError as error:
        health.refuse("database_unreadable", f"the database cannot be read: {error}")
    for loop in loops:
        _loop(loop, health)
    return health


def _schema(tx: Tx, health: Health) -> None:
    ((exists,),) = tx.run(f"schema_found_{tx.database.dialect}")
    found = tx.run("schema_version")[0][0] if exists else 0
    if found != versions()[-1]:
        health.refuse("schema", f"the database has schema {found}, not {versions()[-1]}: run `headway db migrate`")


def _workers(tx: Tx, health: Health, roles: Collection[str], worker_id: int | None) -> None:
    states = stats.workers(tx)
    if not states.get("live"):
        health.warn("no_worker", "no worker is alive: jobs wait. Start one with `headway work`")
    if silent := states.get("silent"):
        health.warn("workers_silent", f"{silent} workers have not renewed their lease")
    if "worker" in roles and worker_id is not None:
        _own_worker(tx, health, worker_id)


def _own_worker(tx: Tx, health: Health, worker_id: int) -> None:
    now = tx.now()
    name = f"worker {worker_name(worker_id)} of this process"
    found = [row for row in worker_views.workers(tx, within=0.0) if row.id == worker_id and row.lease_until >= now]
    if not found:
        health.refuse("lease_lost", f"{name} has lost its lease")
    elif found[0].shown_state == "paused":
        health.refuse("worker_paused", f"{name} cannot start the work it claims: {found[0].note}")
    elif found[0].state == "stuck":
        health.refuse(
            "worker_stuck", f"{name} has work that does not stop: {found[0].note or 'it claims no more jobs'}"
        )


def _lag(tx: Tx, health: Health) -> None:
    lag = stats.tick_lag(tx)
    if lag > LATE_TICK:
        health.warn("ticks_late", f"a tick is {lag:.0f} s late: start a process with the role scheduler")


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
    elif quiet is not None and quiet > MISSED_ROUNDS * loop.pace + LATE_TICK:
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
