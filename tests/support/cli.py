"""The command line as a user has it: in this process, where it is quicker, or as a program of its own."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.cli.stderr_log import LOGGERS
from tests.support import shop
from tests.support.deadlines import read_line

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "headway"]
PATIENCE = 60.0


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found

    def done(self) -> Answer:
        assert self.code == 0, self
        return self

    def refused(self, code: int, *words: str) -> Answer:
        """One line on stderr that names the problem and the remedy, nothing on stdout."""
        assert self.code == code, self
        assert self.out == "", self
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        assert lines[0].startswith("headway: "), self
        assert "Traceback" not in self.err, self
        for word in words:
            assert word in self.err, self
        return self


class Here:
    """Runs commands in this process, in a folder of their own, on one database."""

    def __init__(self, database: str | None, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.database = database
        self.folder = folder
        self.capsys = capsys

    def __call__(self, *args: object, database: str | None = None) -> Answer:
        self.capsys.readouterr()
        with _process_as_before():
            code = main(with_database([str(arg) for arg in args], database or self.database))
        out, err = self.capsys.readouterr()
        return Answer(code, out, err)


@contextmanager
def _process_as_before() -> Iterator[None]:
    """Commands make the folder they are in importable, those that serve log to the stderr of their process, and those
    that name an app configure it: here all of it is gone before the process ends."""
    app = shop.app
    settings = app._config, app._overrides.copy(), app._settings
    loggers = [logging.getLogger(name) for name in ("headway", *LOGGERS)]
    path, before = sys.path[:], [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        app._config, app._overrides, app._settings = settings
        sys.path[:] = path
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def with_database(args: list[str], database: str | None) -> list[str]:
    """The database goes before a `--`: what follows is not ours."""
    if database is None:
        return args
    cut = args.index("--") if "--" in args else len(args)
    return [*args[:cut], "--database", database, *args[cut:]]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    kept["HEADWAY_PORT"] = "0"  # many run at once
    return kept | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "COLUMNS": "80"} | more


def program(
    *args: object,
    cwd: Path,
    database: str | None = None,
    stdin: str | bytes = b"",
    prefix: list[str] | None = None,
    **more: str,
) -> Answer:
    """Runs a command to its end as a program of its own."""
    ended = subprocess.run(
        [*(prefix or []), *PROGRAM, *with_database([str(arg) for arg in args], database)],
        cwd=cwd,
        env=environment(**more),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@contextmanager
def running(
    *args: object, cwd: Path, database: str | None = None, prefix: Sequence[str] = (), **more: str
) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on until it is told to stop."""
    process = subprocess.Popen(
        [*prefix, *PROGRAM, *with_database([str(arg) for arg in args], database)],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=PATIENCE)
            raise


def line_of(stream: Any, word: str) -> str:
    """The next line with a word in it; the program ending without one is a failure."""
    deadline = time.monotonic() + PATIENCE
    while line := read_line(stream, f"a line with {word!r}", seconds=max(0.0, deadline - time.monotonic())):
        if word in line:
            return str(line)
    raise AssertionError(f"it ended without saying {word!r}")


def until(reached: Callable[[], Any], what: str = "it") -> Any:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)
    return found
