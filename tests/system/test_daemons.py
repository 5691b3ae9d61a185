"""Daemons that emptied their environment end with the job whose process died, and no innocent process does."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from headway import App
from tests.support.cli import line_of, running, until
from tests.support.figures import Figure
from tests.support.tasks_with_daemons import DEATHS, escape, innocent, leave

pytestmark = pytest.mark.alone

DEADLINE = 55.0
TREES = 300 if os.environ.get("HEADWAY_PROOF") else 6
MODULE = "tests.support.tasks_with_daemons"


def read_pids(roster: int, count: int) -> list[int]:
    data = b""
    while data.count(b"\n") < count:
        assert select.select([roster], [], [], DEADLINE)[0], f"only {data!r} reported"
        data += os.read(roster, 4096)
    return [int(pid) for pid in data.split()]


def app_of(url: str) -> App:
    app = App(url)
    app.task("daemon.leave", retry=0)(leave.function)
    app.task("daemon.escape", retry=0)(escape.function)
    app.task("innocent", retry=0, isolation="thread")(innocent.function)
    return app


def children_of(pid: int) -> dict[int, str]:
    """State and number of each child process."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found[int(name)] = fields[0]
    return found


@pytest.mark.parametrize("command", ["work", "up"])
def test_no_daemon_outlives_its_dead_task(command: str, database_url: str, tmp_path: Path, figure: Figure) -> None:
    trees = TREES if command == "work" else 2
    with (
        app_of(database_url) as app,
        running(command, "--app", f"{MODULE}:app", "--slots", 4, cwd=tmp_path, database=database_url) as process,
    ):
        line_of(process.stderr, "Ctrl-C")
        for number in range(trees):
            fifo = tmp_path / f"roster-{number}"
            os.mkfifo(fifo)
            roster = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            death = list(DEATHS)[number % len(DEATHS)]
            job = app.enqueue("daemon.leave", {"fifo": str(fifo), "death": death})
            pids = read_pids(roster, 2)
            Path(f"{fifo}.go").touch()
            until(lambda: job.status == "FAILED", "the end of the job")  # noqa: B023 (called before the loop goes on)
            assert os.read(roster, 4096) == b"", f"{pids} hold the roster although their job has ended"
            os.close(roster)
        zombies = [pid for pid, state in children_of(process.pid).items() if state == "Z"]
        assert zombies == []
    figure("trees of daemons whose task died, none survived", trees)


def test_no_daemon_outlives_a_task_that_sent_it_to_the_worker(database_url: str, tmp_path: Path) -> None:
    """The task switches the subreaper flag of its process off and ends in order."""
    with (
        app_of(database_url) as app,
        running("work", "--app", f"{MODULE}:app", "--slots", 1, cwd=tmp_path, database=database_url) as process,
    ):
        line_of(process.stderr, "Ctrl-C")
        for number in range(2):
            fifo = tmp_path / f"roster-{number}"
            os.mkfifo(fifo)
            roster = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            job = app.enqueue("daemon.escape", {"fifo": str(fifo)})
            pids = read_pids(roster, 2)
            assert set(pids) <= set(children_of(process.pid)), "they did not go to the worker, and nothing is shown"
            Path(f"{fifo}.go").touch()
            assert job.result(timeout=DEADLINE) == "ended"
            assert os.read(roster, 4096) == b"", f"{pids} hold the roster although their job has ended"
            os.close(roster)
        assert [pid for pid, state in children_of(process.pid).items() if state == "Z"] == []


def test_a_process_of_the_worker_itself_survives(database_url: str, tmp_path: Path) -> None:
    file, fifo = tmp_path / "go", tmp_path / "roster"
    os.mkfifo(fifo)
    config = {"HEADWAY_CONCURRENCY__POLICY": "per_task"}
    with (
        app_of(database_url) as app,
        running(
            "work", "--app", f"{MODULE}:app", "--slots", 4, cwd=tmp_path, database=database_url, **config
        ) as process,
    ):
        line_of(process.stderr, "Ctrl-C")
        roster = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        dying = app.enqueue("daemon.leave", {"fifo": str(fifo), "death": "kill"})
        read_pids(roster, 2)
        # Younger than the process of the dying job, in a session of its own: as like an orphan as can be.
        kept = app.enqueue("innocent", {"file": str(file)})
        until(lambda: kept.status == "RUNNING", "the start of the innocent job")
        until(lambda: len(children_of(process.pid)) >= 3, "the process of the innocent job")
        Path(f"{fifo}.go").touch()
        until(lambda: dying.status == "FAILED", "the end of the dying job")
        file.touch()
        assert kept.result(timeout=DEADLINE) == 7
        assert os.read(roster, 4096) == b"", "the daemons survived"
        os.close(roster)
