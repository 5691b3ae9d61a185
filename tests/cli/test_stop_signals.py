"""Stop signals to `work` and `up` where something is in their way: a dead stderr, an import, a restart."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.app import App
from tests.support.cli import PATIENCE, PROGRAM, Here, environment, line_of, running, until, with_database

pytestmark = pytest.mark.shown


def close(_reader: int, _writer: int) -> None: ...


def reader_ends(reader: int, _writer: int) -> None:
    os.close(reader)


def reader_stops(_reader: int, writer: int) -> None:
    """Fills the pipe, which nobody reads any more."""
    while select.select([], [writer], [], 0)[1]:
        os.write(writer, b"x" * 4096)


@pytest.mark.parametrize("happens", [close, reader_ends, reader_stops])
def test_jobs_end_in_order_although_nobody_reads_stderr(
    cli: Here, app: App, happens: Callable[[int, int], None]
) -> None:
    began, go = cli.folder / "began", cli.folder / "go"
    script = f"touch {began}; until test -e {go}; do sleep 0.05; done"
    job = app.tasks["command"].enqueue(argv=["sh", "-c", script])
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*PROGRAM, *with_database(["work"], cli.database)],
        cwd=cli.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writer,
        preexec_fn=(lambda: os.close(2)) if happens is close else None,
    )
    try:
        until(began.exists)
        if happens is close:  # no file of the worker's got the number
            assert os.readlink(f"/proc/{process.pid}/fd/2") == os.devnull
        happens(reader, writer)
        process.send_signal(signal.SIGTERM)
        until(lambda: "draining" in {worker["state"] for worker in cli("workers", "ls", "--json").data["items"]})
        go.touch()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(writer)
        if happens is not reader_ends:
            os.close(reader)
    assert (job.status, job.row.attempt) == ("COMPLETED", 1)


def test_an_app_that_swallows_the_exit_does_not_swallow_the_signal(folder: Path) -> None:
    text = """
        import pathlib, signal
        from headway import App

        app = App()
        pathlib.Path("importing").touch()
        try:
            signal.pause()
        except BaseException:
            pass
    """
    (folder / "mine.py").write_text("\n".join(line[8:] for line in text.splitlines()))
    with running("work", "--app", "mine:app", cwd=folder, database=str(folder / "headway.db")) as process:
        until((folder / "importing").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_further_stop_signals_do_not_change_the_exit_code(folder: Path, number: signal.Signals) -> None:
    """They arrive until the process is gone, also while the interpreter takes itself apart."""
    with running("work", cwd=folder, database=str(folder / "headway.db")) as process:
        line_of(process.stderr, "stops it")

        def ended() -> bool:
            process.send_signal(number)
            return process.poll() is not None

        until(ended, "the end")
        assert process.returncode == 0
