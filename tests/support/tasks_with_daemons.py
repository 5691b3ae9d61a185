"""Tasks that leave daemons without an environment behind and die, and one whose own process must survive that."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from headway import App

app = App()
STAY = "import os, signal, sys; os.write(%d, b'%%d\\n' %% os.getpid())\nwhile True: signal.pause()"


def _fork(then: Callable[[], object]) -> None:
    if (pid := os.fork()) == 0:
        then()
        os._exit(0)
    os.waitpid(pid, 0)


def _stay(roster: int) -> None:
    """As another program with an empty environment, which holds the roster open."""
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", STAY % roster], {})


def _daemon(roster: int) -> None:
    _fork(lambda: _session(roster))


def _session(roster: int) -> None:
    if os.fork() == 0:
        os.setsid()
        _stay(roster)


DEATHS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda: os.abort(),
}


@app.task("daemon.leave", retry=0)
def leave(fifo: str, death: str, daemons: int = 2) -> None:
    roster = os.open(fifo, os.O_WRONLY)
    os.set_inheritable(roster, True)
    for number in range(daemons):
        (_daemon if number % 2 else _session)(roster)
    done = Path(f"{fifo}.go")
    while not done.exists():
        signal.sigtimedwait([], 0.01)
    DEATHS[death]()


@app.task("daemon.escape", retry=0)
def escape(fifo: str) -> str:
    """Ends in order, after its daemons went to the parent of its process."""
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    roster = os.open(fifo, os.O_WRONLY)
    os.set_inheritable(roster, True)
    for _ in range(2):
        _daemon(roster)
    os.close(roster)
    done = Path(f"{fifo}.go")
    while not done.exists():
        signal.sigtimedwait([], 0.01)
    return "ended"


@app.task("innocent", isolation="thread", retry=0)
def innocent(file: str) -> int:
    process = subprocess.Popen(
        ["sh", "-c", f"until test -e {file}; do sleep 0.05; done; exit 7"], start_new_session=True
    )
    return process.wait(60)
