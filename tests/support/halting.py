"""A process whose commits stop in the middle: SIGSTOP between the write of SQLite's log and the end of the commit.

`python -m tests.support.halting FILE`. For each line it reads, it enqueues a job and prints when that returned.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import apsw

from headway import App

armed = False


class HaltingFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        global armed
        if self.is_log and armed:
            armed = False
            os.kill(os.getpid(), signal.SIGSTOP)
        super().xSync(flags)


class Halting(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("halting", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> HaltingFile:
        return HaltingFile(name, flags)


def nothing() -> None:
    pass


def main(path: str) -> None:
    global armed
    halting = Halting()
    app = App(database=path)
    app.task("t")(nothing)
    app.tasks["t"].enqueue()
    print("ready", flush=True)
    for _ in sys.stdin:
        armed = True
        app.tasks["t"].enqueue()
        print(time.monotonic(), flush=True)
    app.close()
    halting.unregister()


if __name__ == "__main__":
    main(sys.argv[1])
