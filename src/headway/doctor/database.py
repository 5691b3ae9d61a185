"""Checks of the database itself: an SQLite file or a PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from headway.engine.monitoring.checks import not_ours
from headway.errors import Unreachable
from headway.model.checks import (
    Answer,
    away,
    broken,
    judge_connections,
    judge_locks,
    judge_log,
    judge_skew,
    judge_vacuum,
    judge_version,
    look,
    ok,
    size_text,
)
from headway.store import stats
from headway.store.db import Database, Tx
from headway.store.postgres.locks import holders
from headway.store.sqlite.read_only import SqliteToLookAt, server

if TYPE_CHECKING:
    from headway.store.postgres.read_only import PostgresToLookAt

Found = TypeVar("Found")
CHECK_SECONDS = 1.0
NOTIFY_SECONDS = 3.0
LATER = "so new jobs wait for the next poll, up to 5 s"
LISTEN = "set `listen` to an address of the server itself, past any pooler, and of the same database"


def reading(database: Database, check: Callable[[Tx], Found]) -> Found:
    """Runs a check in a read transaction of its own."""
    with database.read() as tx:
        tx.run("pin_plans")
        return check(tx)


# --- SQLite -------------------------------------------------------------------------------------------------------


def opened_file(database: Database) -> Answer:
    return reading(database, not_ours) or ok(f"can be read, {size_text(reading(database, stats.size))}")


def journal(database: SqliteToLookAt) -> Answer:
    mode, size = database.journal()
    if mode != "wal":
        text = "start Headway once: it switches to the write-ahead log, or reports why it cannot"
        return look(f"the file is in {mode} mode, not in write-ahead log mode", text)
    return judge_log(size)


def integrity(database: SqliteToLookAt) -> Answer:
    found = database.check_for(CHECK_SECONDS)
    if found is None:
        return ok(f"no damage found in {CHECK_SECONDS:g} s; `headway db check` checks the whole file")
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


def rights(tx: Tx) -> Answer:
    found = server(tx)
    if found.standby:
        return broken("the server is a standby, which takes no writes", "name the primary in `database`")
    if closed := [name for (name,) in tx.run("closed_tables_postgres")]:
        text = f"grant select, insert, update and delete on them to {found.user}"
        return broken(f"{found.user} may not use {', '.join(closed[:3])}", text)
    return ok(f"{found.user} may write")


def notifications(database: PostgresToLookAt) -> Answer:
    """Measures the round trip of a notification.

    Without notifications everything still works; workers poll every few seconds.
    """
    try:
        listening = database.listening()
    except Unreachable as error:
        return look(f"this process cannot listen for notifications, {LATER}: {error}", LISTEN)
    with closing(listening):
        took = database.round_trip(listening, NOTIFY_SECONDS)
    if took is None:
        return look(f"no notification came within {NOTIFY_SECONDS:g} s, {LATER}", LISTEN)
    return ok(f"a notification arrives after {took * 1000:.1f} ms")


def connections(tx: Tx) -> Answer:
    ((used, most),) = tx.run("connections_postgres")
    return judge_connections(used, most)


def clock(database: Database) -> Answer:
    """Compares the server's clock with the middle of a round trip on this one."""
    with database.read() as tx:
        tx.run("ping")
        before = time.time()
        theirs = tx.now()
        after = time.time()
    return judge_skew(theirs / 1e6 - (before + after) / 2)


def vacuum(tx: Tx) -> Answer:
    off = [name for (name,) in tx.run("unvacuumed_tables_postgres")]
    oldest = next(((pid, age, name) for pid, age, name in tx.run("oldest_transaction_postgres")), None)
    return judge_vacuum(on=server(tx).vacuums, tables_off=off, oldest=oldest)


def locks(tx: Tx) -> Answer:
    """Checks for transactions that may block others.

    These are holders of the claim lock, and transactions that are idle after a write.
    """
    found = [(str(holder), holder.pid, holder.seconds, holder.claims) for holder in holders(tx)]
    return judge_locks(found)
