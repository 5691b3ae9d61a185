"""Whether this process can do its work: what is wrong, and what somebody should look at."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.loop import Loop
from headway.errors import HeadwayError, Unreachable
from headway.store import figures, sealing
from headway.store.db import Database, Tx
from headway.store.migrate import versions
from headway.store.sealing import Moved
from headway.store.workers import worker_name

# A loop that has not gone round for this many of its own intervals is stuck.
MISSED_ROUNDS = 3
LATE_TICK = 60.0


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is for everybody; `text` may name hosts, files and what the database said."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Health:
    """Ready while there are no reasons against it."""

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
    """A part of this process that goes round: how it stands (`fine`, `not started`, `ended`, `stuck`), how many seconds
    ago a round last went well, and how long it waits between two."""

    name: str
    state: str
    quiet: float | None
    pace: float


@dataclass(frozen=True, slots=True)
class Storage:
    """What the data is kept in. Sizes are in bytes; `free` is what is left where files are attached, if that can be
    found out; `ping` is the round trip of the simplest query, in seconds."""

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
    wall: Callable[[Tx], str] | None = None,
) -> Health:
    """How a process of these roles stands. `worker_id` is its own worker; `wall` says what keeps tenants apart."""
    health = Health()
    try:
        with database.read() as tx:
            sealing.refuse_sealed(tx)
            _schema(tx, health)
            if health.ready:
                _workers(tx, health, roles, worker_id)
                _lag(tx, health)
                if wall is not None and (state := wall(tx)) != "on":
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
    states = figures.workers(tx)
    if not states.get("live"):
        health.warn("no_worker", "no worker is alive: jobs wait. Start one with `headway work`")
    if silent := states.get("silent"):
        health.warn("workers_silent", f"{silent} workers have not renewed their lease")
    if "worker" in roles and worker_id is not None and not _renews(tx, worker_id):
        health.refuse("lease_lost", f"worker {worker_name(worker_id)} of this process has lost its lease")


def _renews(tx: Tx, worker_id: int) -> bool:
    ((now,),) = tx.run("time")
    return any(gone_at is None and until >= now for *_, until, gone_at in tx.run("worker", id=worker_id))


def _lag(tx: Tx, health: Health) -> None:
    lag = figures.tick_lag(tx)
    if lag > LATE_TICK:
        health.warn("ticks_late", f"a tick is {lag:.0f} s late: does a process with the role scheduler run?")


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
        ((schema,),), size = tx.run("schema_version"), figures.size(tx)
    return Storage(database.dialect, int(schema), size, ping, artifacts, _free(artifacts))


def _free(folder: Path) -> int | None:
    """The folder itself comes into being with the first file."""
    existing = next((one for one in (folder.absolute(), *folder.absolute().parents) if one.exists()), None)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None
