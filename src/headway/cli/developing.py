"""`dev`: `up` for an app that is being written, started anew whenever one of its files changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_SECONDS = 0.5
# A job that is in the way of a reload is interrupted soon, and starts again under the new code.
GRACE = "2s"
_SKIPPED = ("__pycache__", "node_modules", "build", "dist", "headway-artifacts")


def register(root: typer.Typer) -> None:
    @command(root, "dev")
    def dev(
        call: Call,
        app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the tasks are.")],
        slots: Annotated[int | None, typer.Option(metavar="N", help="How many jobs it runs at once.")] = None,
    ) -> int:
        """Start Headway and start it again whenever a .py file below this folder changes."""
        settings = call.settings()  # what is wrong with them is said here, once
        if settings.shutdown_grace == type(settings).model_fields["shutdown_grace"].default:
            os.environ["HEADWAY_SHUTDOWN_GRACE"] = GRACE
        return _Reloader(call, _arguments(call, app, slots)).run()


def _arguments(call: Call, app: str, slots: int | None) -> list[str]:
    args = ["up", "--app", app]
    for option, value in (("--slots", slots), ("--database", call.flags.get("database")), ("--config", call.config)):
        args += [option, str(value)] if value is not None else []
    return [*args, "--json"] if call.out.as_json else args


class _Reloader:
    """A process, and the files that end it when they change."""

    def __init__(self, call: Call, args: list[str]) -> None:
        self.call = call
        self.args = args
        self.process: subprocess.Popen[bytes] | None = None
        self.ending = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        files = snapshot(Path.cwd())
        self._start()
        while not self.ending:
            time.sleep(LOOK_SECONDS)
            now = snapshot(Path.cwd())
            if changed := sorted(now.items() ^ files.items()):
                files = now
                self.call.out.say(f"headway: {os.path.relpath(changed[0][0])} changed: starting again")
                self._stop()
                self._start()
        self._stop()
        return 0

    def _end(self, *_: object) -> None:
        self.ending = True

    def _start(self) -> None:
        # In a session of its own: Ctrl-C reaches this process alone, which then ends the other one once.
        self.process = subprocess.Popen([sys.executable, "-m", "headway", *self.args], start_new_session=True)

    def _stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def snapshot(folder: Path) -> dict[str, int]:
    """When each Python file below a folder was changed last."""
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
            continue  # gone between listing and looking: the next round sees that
