"""A worker beside a database that a newer Headway has migrated: it says so, ends its jobs and then itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headway import App
from headway.store.migrations import versions
from tests.support.life import raw_connection
from tests.system.support import program
from tests.system.support.started import until

ROOT = Path(__file__).parents[2]
NEXT = versions()[-1] + 1
# What a later Headway may do: add to the schema, or change what this one reads and writes in every turn.
ADDS = "create table hw_later (id integer primary key); alter table hw_job add column later integer;"
BREAKS = "alter table hw_job rename column slot to place; alter table hw_worker rename column beat to pulse;"
SAID = f"the database has schema {NEXT}, this Headway knows up to {NEXT - 1}: install the newer Headway that made it"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A copy of the program, whose next schema a test writes."""
    copy = tmp_path / "newer"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return copy


def migrate(newer: Path, url: str, text: str) -> None:
    """As `headway db migrate` of the newer program does it, while the older one works."""
    (newer / "headway" / "store" / "sql" / "schema" / f"{NEXT:04}_later.sql").write_text(text)
    command = [sys.executable, "-m", "headway", "db", "migrate", "--database", url]
    environment = os.environ | {"PYTHONPATH": str(newer)}
    done = subprocess.run(command, env=environment, cwd=newer, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with raw_connection(url) as raw:
        assert raw.execute("select max(version) from hw_schema").fetchall() == [(NEXT,)]


def worker_state(url: str) -> str:
    with raw_connection(url) as raw:
        return str(raw.execute("select state from hw_worker").fetchall()[0][0])


class Older:
    """A worker of this program."""

    def __init__(self, url: str, folder: Path, recovery: str) -> None:
        self.log = folder / "older.log"
        settings = {
            "HEADWAY_DATABASE": url,
            "HEADWAY_CONCURRENCY__LIMIT": "none",
            "HEADWAY_RECOVERY_INTERVAL": recovery,
            "HEADWAY_SHUTDOWN_GRACE": "20s",
            "HEADWAY_LEASE": "9s",
            "HEADWAY_HEARTBEAT": "1s",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headway", "work", "--app", "tests.system.support.program:app"],
                env=os.environ | settings,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def said(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)


@contextmanager
def at_work(url: str, folder: Path, *, recovery: str) -> Iterator[tuple[Older, App]]:
    with ExitStack() as stack:
        app = App(url)
        stack.callback(app.close)
        app.task("waits.async")(program.waits_async.spec.function)
        older = Older(url, folder, recovery)
        stack.callback(older.close)
        yield older, app


def test_a_worker_ends_in_good_order_beside_a_newer_schema(database_url: str, newer: Path, tmp_path: Path) -> None:
    """Its recovery sees the schema: nothing new is claimed, what runs is finished and recorded, the exit says why."""
    with at_work(database_url, tmp_path, recovery="0.5s") as (older, app):
        job = app.enqueue("waits.async", {"file": str(tmp_path / "job")})
        until(lambda: job.status == "RUNNING")
        migrate(newer, database_url, ADDS)
        until(lambda: worker_state(database_url) == "draining")
        later = app.enqueue("waits.async", {"file": str(tmp_path / "job")})
        (tmp_path / "job.go").touch()
        assert older.process.wait(30) == 4, older.said()
        assert (job.status, later.status) == ("COMPLETED", "QUEUED")
        assert older.said().count(SAID) == 1, older.said()
        assert "Traceback" not in older.said()


def test_a_worker_that_cannot_use_a_newer_schema_ends_soon(database_url: str, newer: Path, tmp_path: Path) -> None:
    """Its turns fail: it looks why at the first one, and does not go on failing until recovery's next round."""
    with at_work(database_url, tmp_path, recovery="10m") as (older, app):
        (tmp_path / "job.go").touch()
        done = app.enqueue("waits.async", {"file": str(tmp_path / "job")})
        until(lambda: done.status == "COMPLETED")
        began = time.monotonic()
        migrate(newer, database_url, BREAKS)
        assert older.process.wait(60) == 4, older.said()
        assert time.monotonic() - began < 40.0
        assert SAID in older.said()


def test_a_worker_does_not_start_beside_a_newer_schema(database_url: str, newer: Path, tmp_path: Path) -> None:
    migrate(newer, database_url, ADDS)
    older = Older(database_url, tmp_path, "1s")
    assert older.process.wait(60) == 4, older.said()
    assert SAID in older.said()
