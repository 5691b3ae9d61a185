"""Checks of the database itself: a file of SQLite, or a server of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from headway.engine.diagnosis_work import not_ours
from headway.errors import Unreachable
from headway.model.diagnosis import (
    Answer,
    away,
    broken,
    judge_connections,
    judge_durability,
    judge_log,
    judge_skew,
    judge_vacuum,
    judge_version,
    look,
    ok,
)
from headway.store.db import Database, Tx
from headway.store.looking import SqliteToLookAt, server
from headway.store.wall import ON, wall_state

if TYPE_CHECKING:
    from headway.store.looking_postgres import PostgresToLookAt

Found = TypeVar("Found")
CHECK_SECONDS = 1.0
NOTIFY_SECONDS = 3.0
LATER = "so new jobs wait for the next look, up to 5 s"
LISTEN = "set `listen` to an address of the server itself, past any pooler, and of the same database"


def reading(database: Database, check: Callable[[Tx], Found]) -> Found:
    """A check in a snapshot of its own."""
    with database.read() as tx:
        tx.run("pin_plans")
        return check(tx)


# --- SQLite -------------------------------------------------------------------------------------------------------


def opened_file(database: Database) -> Answer:
    return reading(database, not_ours) or ok("can be read")


def journal(database: SqliteToLookAt) -> Answer:
    mode, size = database.journal()
    if mode != "wal":
        text = "start Headway once: it turns the log on, or says why it cannot"
        return look(f"the file is in {mode} mode, not in that of a write-ahead log", text)
    return judge_log(size)


def integrity(database: SqliteToLookAt) -> Answer:
    found = database.check_for(CHECK_SECONDS)
    if found is None:
        return ok(f"no damage found in {CHECK_SECONDS:g} s; `headway db check` looks through all of it")
    if found:
        return away(
            f"the file is damaged: {' '.join(found[0].split())}",
            "stop all workers, restore a backup: `headway db restore FILE`",
        )
    return ok("the file is sound")


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def reached(database: PostgresToLookAt) -> Answer:
    with database.read() as tx:
        began = time.perf_counter()
        tx.run("ping")
        took = time.perf_counter() - began
        found = server(tx)
    return judge_version(found.version, took)


def durability(tx: Tx) -> Answer:
    found = server(tx)
    return judge_durability(
        fsync=found.fsync, full_page_writes=found.full_page_writes, synchronous_commit=found.synchronous_commit
    )


def rights(tx: Tx) -> Answer:
    found = server(tx)
    if found.standby:
        return broken("the server is a standby, which takes no writes", "name the primary in `database`")
    if found.read_only:
        text = "`alter role … set default_transaction_read_only = off`, or name the primary"
        return broken(f"transactions of {found.user} are read-only here", text)
    if closed := [name for (name,) in tx.run("closed_tables_postgres")]:
        text = f"grant select, insert, update and delete on them to {found.user}"
        return broken(f"{found.user} may not use {', '.join(closed[:3])}", text)
    return ok(f"{found.user} may write")


def notifications(database: PostgresToLookAt) -> Answer:
    """Without them everything works, later: workers look by themselves every few seconds."""
    try:
        listening = database.listening()
    except Unreachable as error:
        return look(f"nobody can listen for notifications, {LATER}: {error}", LISTEN)
    with closing(listening):
        took = database.round_trip(listening, NOTIFY_SECONDS)
    if took is None:
        return look(f"no notification came within {NOTIFY_SECONDS:g} s, {LATER}", LISTEN)
    return ok(f"a notification arrives after {took * 1000:.1f} ms")


def connections(tx: Tx) -> Answer:
    ((used, most),) = tx.run("connections_postgres")
    return judge_connections(used, most)


def clock(database: Database) -> Answer:
    """By the middle of a round trip."""
    with database.read() as tx:
        tx.run("ping")
        before = time.time()
        ((theirs,),) = tx.run("time")
        after = time.time()
    return judge_skew(theirs / 1e6 - (before + after) / 2)


def vacuum(tx: Tx) -> Answer:
    off = [name for (name,) in tx.run("unvacuumed_tables_postgres")]
    oldest = next(((pid, age, name) for pid, age, name in tx.run("oldest_transaction_postgres")), None)
    return judge_vacuum(on=server(tx).vacuums, tables_off=off, oldest=oldest)


def wall(tx: Tx) -> Answer:
    state = wall_state(tx)
    if state == ON:
        return ok("row-level security keeps tenants apart")
    if len(tx.run("tenants")) < 2:
        return ok("there is one tenant, and nobody to keep it apart from")
    why, _, remedy = state.removeprefix("off: ").rpartition(": ")
    return look(f"no second wall between tenants: {why}", remedy)
