"""`dev`: runs `up` for an app in development and restarts it whenever a Python file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_SECONDS = 0.5
# A running job is interrupted soon after a change, and starts again with the new code.
GRACE = "2s"
_SKIPPED = ("__pycache__", "node_modules", "build", "dist", "headway-artifacts")


def register(root: typer.Typer) -> None:
    @command(root, "dev")
    def dev(
        call: Invocation,
        app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="App that declares the tasks.")],
        slots: Annotated[int | None, typer.Option(metavar="N", help="Number of jobs to run at once.")] = None,
    ) -> int:
        """Start Headway, and restart it whenever a .py file below this folder changes."""
        call.refuse_shown_password()
        settings = call.settings()  # refuses wrong settings here, once, instead of at every restart
        if settings.shutdown_grace == type(settings).model_fields["shutdown_grace"].default:
            os.environ["HEADWAY_SHUTDOWN_GRACE"] = GRACE
        return _Reloader(call, _arguments(call, app, slots)).run()


def _arguments(call: Invocation, app: str, slots: int | None) -> list[str]:
    args = ["up", "--app", app]
    for option, value in (("--slots", slots), ("--database", call.flags.get("database")), ("--config", call.config)):
        args += [option, str(value)] if value is not None else []
    return [*args, "--json"] if call.out.as_json else args


class _Reloader:
    """Runs `headway up` in a child process and restarts it when a file changes."""

    def __init__(self, call: Invocation, args: list[str]) -> None:
        self.call = call
        self.args = args
        self.process: subprocess.Popen[bytes] | None = None
        self.ending = False

    def run(self) -> int:
        from headway.engine.execution.process_tree import protect_memory
        from headway.engine.supervisor import stop_signals

        protect_memory()  # this process has the environment of the one that it starts
        for number in stop_signals():
            signal.signal(number, self._end)
        files = snapshot(Path.cwd())
        self._start()
        while not self.ending:
            time.sleep(LOOK_SECONDS)
            now = snapshot(Path.cwd())
            if changed := sorted(now.items() ^ files.items()):
                files = now
                self.call.out.say(f"headway: {os.path.relpath(changed[0][0])} changed: restarting")
                self._stop()
                self._start()
        self._stop()
        return 0

    def _end(self, *_: object) -> None:
        self.ending = True

    def _start(self) -> None:
        # A session of its own keeps Ctrl-C from the child, which then gets exactly one signal, from `_stop`.
        self.process = subprocess.Popen([sys.executable, "-m", "headway", *self.args], start_new_session=True)

    def _stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def snapshot(folder: Path) -> dict[str, int]:
    """Returns the time of the last change of each Python file below a folder."""
    return dict(_changes(str(folder)))


def _changes(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                    yield from _changes(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # deleted after the listing; the next snapshot no longer has it
