"""A commit of another process is noticed when it can be seen, however long it took; the log is copied beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from headway.store.db import open_database
from headway.store.sqlite import checkpoints
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.transaction import SqliteTx
from tests.support.deadlines import read_line
from tests.support.figures import Figure
from tests.support.life import Life
from tests.support.waiting import PATIENCE

ROUNDS = 5
HALTED = 0.2
# Longer than any look for a commit, and shorter than the deadline of a test.
ASLEEP = 8.0


@pytest.fixture
def database(sqlite_url: str) -> Iterator[SqliteDatabase]:
    database = open_database(sqlite_url)
    assert isinstance(database, SqliteDatabase)
    yield database
    database.close()


@contextmanager
def halting(path: str) -> Iterator[subprocess.Popen[str]]:
    args = [sys.executable, "-m", "tests.support.halting", path]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert read_line(process.stdout) == "ready\n"
            yield process
        finally:
            process.kill()


def halted_commit(process: subprocess.Popen[str]) -> float:
    """A commit that stops for a while between its write to the log and its end; when it had returned."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("commit\n")
    process.stdin.flush()
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(HALTED)
    process.send_signal(signal.SIGCONT)
    return float(read_line(process.stdout))


def test_a_commit_that_stood_still_is_noticed_when_it_ends(database: SqliteDatabase, figure: Figure) -> None:
    """The log was written long before, and nothing else is: an event without its commit is not forgotten."""
    late = []
    with halting(database.path) as process, ThreadPoolExecutor(1) as pool:
        waiter = database.waiter()
        for _ in range(ROUNDS):
            while waiter.wait(0.1):  # what was written before
                pass
            woken = pool.submit(lambda: (waiter.wait(ASLEEP), time.monotonic()))
            returned = halted_commit(process)
            seen, at = woken.result(PATIENCE)
            assert seen, f"asleep for {ASLEEP} s beside a commit that was there"
            late.append(at - returned)
    figure(f"{ROUNDS} commits that stood still for {HALTED} s were noticed {1000 * max(late):.1f} ms after, at most")


# --- the log ---


def fill(life: Life, pages: int) -> None:
    """Commits until so many pages were written to the log."""
    database = life.database
    assert isinstance(database, SqliteDatabase)
    before, written = database.checkpoints.log_pages, 0
    while written < pages:
        add(life)
        now = database.checkpoints.log_pages
        written += now - before if now > before else now
        before = now


def add(life: Life) -> None:
    tx = life.database.begin("fill")
    try:
        assert isinstance(tx, SqliteTx)
        tx.connection.execute("create table if not exists filler (bytes blob)")
        tx.connection.execute("insert into filler values (zeroblob(160000))")
        tx.commit()
    finally:
        life.database.end(tx)


def test_the_log_is_copied_beside_the_commits_and_begun_anew(sqlite_url: str) -> None:
    with Life(sqlite_url) as life:
        database = life.database
        assert isinstance(database, SqliteDatabase)
        fill(life, 20 * checkpoints.LOG_PAGES)
        assert os.stat(sqlite_url + "-wal").st_size < 2 * checkpoints.LOG_PAGES_AT_MOST * 4096
        assert database.checkpoints.thread is not None
    assert not database.checkpoints.thread.is_alive()  # closed with the database


def test_the_log_is_short_again_after_a_long_reader(sqlite_url: str) -> None:
    with Life(sqlite_url) as life:
        database = life.database
        assert isinstance(database, SqliteDatabase)
        with database.read() as tx:
            tx.run("schema_version")
            fill(life, 2 * checkpoints.LOG_PAGES_AT_MOST)
            assert database.checkpoints.log_pages > 2 * checkpoints.LOG_PAGES_AT_MOST
        fill(life, 4 * checkpoints.LOG_PAGES)
        assert database.checkpoints.log_pages < checkpoints.LOG_PAGES_AT_MOST
        assert database.check() == []


def write_until(life: Life, ended: threading.Event) -> None:
    while not ended.is_set():
        add(life)


def test_the_log_does_not_grow_beside_writers_that_never_pause(sqlite_url: str, figure: Figure) -> None:
    """Two handles are as good as two processes here: each has its own lock, threads and connections."""
    ended = threading.Event()
    with Life(sqlite_url) as life, Life(sqlite_url) as other, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_until, other, ended)
        try:
            fill(life, 10 * checkpoints.LOG_PAGES_AT_MOST)
        finally:
            ended.set()
        writing.result(PATIENCE)
        size = os.stat(sqlite_url + "-wal").st_size // 4096
        figure(f"the log beside two writers that never pause has {size} pages at most")
        assert size < 5 * checkpoints.LOG_PAGES_AT_MOST


def test_without_threads_the_log_is_copied_in_place(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Life(sqlite_url) as life:
        database = life.database
        assert isinstance(database, SqliteDatabase)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            fill(life, 3 * checkpoints.LOG_PAGES)
        assert database.checkpoints.thread is None
        assert database.checkpoints.log_pages < 2 * checkpoints.LOG_PAGES
