"""Waiting for SQLite's write lock: a process that finds it taken is there soon after it is free."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import apsw
import pytest

from headway.engine.execution import process_tree
from headway.errors import Unreachable
from headway.store.db import open_database
from headway.store.sqlite import busy
from headway.store.sqlite.busy import pause_after
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.read_only import SqliteToLookAt
from tests.support.deadlines import read_line
from tests.support.figures import Figure
from tests.support.waiting import until

HELD = (0.02, 0.12, 0.33)
ROUNDS = 7


def waits(database: SqliteDatabase, held: float) -> float:
    """Seconds from the moment the lock was free to the moment it was ours."""
    other = apsw.Connection(database.path)
    other.execute("begin immediate")
    freed: list[float] = []

    def free() -> None:
        time.sleep(held)
        other.execute("rollback")
        freed.append(time.monotonic())

    thread = threading.Thread(target=free)
    thread.start()
    tx = database.begin("wait")
    got = time.monotonic()
    database.end(tx)
    thread.join(60)
    other.close()
    return got - freed[0]


@pytest.mark.parametrize("held", HELD)
def test_the_lock_is_taken_soon_after_it_is_free(sqlite_url: str, held: float, figure: Figure) -> None:
    """The median of several: SQLite's own table would sleep for up to 100 ms here, 25 to 50 of them in vain."""
    database = open_database(sqlite_url)
    assert isinstance(database, SqliteDatabase)
    found = [waits(database, held) for _ in range(ROUNDS)]
    middle, worst = 1000 * statistics.median(found), 1000 * max(found)
    figure(
        f"a write lock held for {held} s is taken {middle:.2f} ms after its release (median), {worst:.2f} ms (worst)"
    )
    database.close()
    assert statistics.median(found) < 0.015


def test_a_process_asks_more_often_the_longer_it_waits_but_not_for_ever() -> None:
    assert pause_after(0.0) > pause_after(0.01) == pause_after(0.2)
    assert all(pause_after(waited / 1000) <= 0.002 for waited in range(30_000))
    assert pause_after(10.0) > pause_after(0.0)


HOLDS = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("begin immediate")
print("held", flush=True)
input()
"""


@contextmanager
def holder(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the write lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        try:
            assert read_line(process.stdout).strip() == b"held"
            yield process
        finally:
            process.kill()


def test_a_process_that_keeps_the_lock_is_named(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "BUSY_SECONDS", 0.1)
    with closing(open_database(sqlite_url)) as database, holder(sqlite_url) as process:
        name = rf"^process {process.pid} \(python[0-9.]*\)"
        with pytest.raises(Unreachable, match=rf"{name} has kept the database locked for .*: end it or try again"):
            database.begin("wait")
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: process_tree.halted(process.pid))
        said = rf"{name}, which a signal has stopped, has kept .*: continue it with `kill -CONT {process.pid}`"
        with pytest.raises(Unreachable, match=said):
            database.begin("wait")
        process.kill()
        process.wait(60)
        database.end(database.begin("free"))


def test_the_search_for_the_holder_drops_no_lock(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that closes any descriptor of a file loses all its locks there."""
    monkeypatch.setattr(busy, "BUSY_SECONDS", 0.1)
    with closing(open_database(sqlite_url)) as database, closing(open_database(sqlite_url)) as second:
        tx = database.begin("held")
        found = busy.write_lock_holder(sqlite_url)
        assert found is not None
        assert (found.pid, found.halted) == (os.getpid(), False)
        with pytest.raises(Unreachable, match=r"^another connection of this process has kept .*: end its transaction"):
            second.begin("wait")
        other = subprocess.run([sys.executable, "-c", HOLDS, sqlite_url], capture_output=True, timeout=60, check=False)
        assert b"BusyError" in other.stderr, "the lock is still ours"
        database.end(tx)
        assert busy.write_lock_holder(sqlite_url) is None


def test_no_connection_sleeps_through_the_table_of_sqlite(sqlite_url: str) -> None:
    """Every connection has the handler of ours, the ones of readers and of doctor too."""
    database = open_database(sqlite_url)
    assert isinstance(database, SqliteDatabase)
    looking = SqliteToLookAt(sqlite_url)
    with database.read(), looking.read():
        for connection in (*database.connections, *looking.connections):
            assert connection.execute("pragma busy_timeout").get == 0  # a timeout is the table
    looking.close()
    database.close()
