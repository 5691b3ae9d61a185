"""`db backup` beside writers: one snapshot, an end in about the time of an idle copy, progress in a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway import App
from headway.store.db import open_database
from headway.store.sqlite.backup import backup
from headway.store.sqlite.database import SqliteDatabase
from tests.support.cli import PATIENCE, program
from tests.support.deadlines import read_line
from tests.support.terminal import terminal

MEGABYTES = 24
WRITER = """
import sys
from headway import App
app = App(database=sys.argv[1])
app.task("t", isolation="thread")(lambda: None)
while True:
    app.tasks["t"].enqueue()
    print("committed", flush=True)
"""


@dataclass(frozen=True)
class Place:
    folder: Path
    database: str


@pytest.fixture
def full(sqlite_url: str, tmp_path: Path) -> Place:
    """A file of some size."""
    with App(database=sqlite_url) as app:
        app.task("fill")(_fill)
        app.tasks["fill"].enqueue_many([{"text": "x" * 60_000} for _ in range(MEGABYTES * 1_000_000 // 60_000)])
    return Place(tmp_path, sqlite_url)


def _fill(text: str) -> None:
    pass


@contextmanager
def writing(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that commits as fast as it can."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert read_line(writer.stdout) == "committed\n"
        yield writer
    finally:
        writer.kill()
        writer.communicate(timeout=60)


def test_a_backup_beside_a_writer_takes_each_page_once(full: Place) -> None:
    """Measured in steps, not in seconds: a copy that begins anew with every commit goes back in its progress."""
    database = open_database(full.database)
    assert isinstance(database, SqliteDatabase)
    seen: list[int] = []
    with writing(full.database) as writer:
        assert writer.stdout is not None

        def progress(done: int, total: int) -> None:
            seen.append(done)
            read_line(writer.stdout)  # at least one commit between two steps
            assert len(seen) < 1000

        before = _jobs(database)
        backup(database, str(full.folder / "copy.db"), progress)
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen))
    with App(database=str(full.folder / "copy.db")) as copy:
        assert before <= _jobs(copy.database)
        assert copy.database.check() == []
    database.close()


def _jobs(database: object) -> int:
    assert isinstance(database, SqliteDatabase)
    return int(database.writer.execute("select count(*) from hw_job").get)


def test_the_log_is_short_again_after_a_backup_beside_a_writer(full: Place) -> None:
    with writing(full.database):
        program("db", "backup", "copy", cwd=full.folder, database=full.database).done()
    with App(database=full.database) as app:
        app.task("t")(_fill)
        app.tasks["t"].enqueue(text="")
        assert isinstance(app.database, SqliteDatabase)
        busy, _, _ = app.database.writer.execute("pragma wal_checkpoint(truncate)").fetchall()[0]
        assert busy == 0
        assert Path(full.database + "-wal").stat().st_size == 0


def test_the_answer_keeps_its_shape_and_a_pipe_sees_no_bar(full: Place) -> None:
    said = program("db", "backup", "copy", "--json", cwd=full.folder, database=full.database).done()
    assert json.loads(said.out).keys() == {"file", "bytes"}
    assert said.err == ""


def test_a_terminal_sees_how_far_it_is(full: Place) -> None:
    with terminal("db", "backup", "copy", cwd=full.folder, database=full.database) as screen:
        assert screen.ended() == 0
    assert "copying into copy" in screen.raw
    assert "100%" in screen.raw


def test_an_interrupted_backup_leaves_nothing(full: Place) -> None:
    args = [sys.executable, "-m", "headway", "db", "backup", "copy", "--database", full.database]
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        backup = subprocess.Popen(args, cwd=full.folder, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while not (full.folder / ".copy.part").exists() and backup.poll() is None:
            assert time.monotonic() < deadline
        backup.send_signal(signal_number)
        backup.wait(PATIENCE)
        if backup.returncode != 0:
            assert not (full.folder / "copy").exists()
        (full.folder / "copy").unlink(missing_ok=True)
