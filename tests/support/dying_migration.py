"""Migrations that are killed: a warm process that forks one for each line `URL N` it reads, and says how each ended.

The fork is killed with SIGKILL before the N-th statement that it sends to the database. The warm process itself never
opens a database.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import apsw
import psycopg

from headway.store.db import open_database
from headway.store.migrations import migrate
from headway.store.postgres import fragments as postgres_fragments
from headway.store.sqlite import fragments as sqlite_fragments


def die_at(n: int) -> None:
    """From now on the N-th statement of this process, of any connection, is its end."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 1
        if count == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = lambda *_: tick()

    apsw.connection_hooks.append(watch)
    psycopg.Connection.execute = _counted(psycopg.Connection.execute, tick)  # type: ignore[method-assign]


def _counted(execute: Callable[..., Any], tick: Callable[[], bool]) -> Callable[..., Any]:
    def counted(*given: Any, **named: Any) -> Any:
        tick()
        return execute(*given, **named)

    return counted


def run(url: str, n: int) -> None:
    die_at(n)
    database = open_database(url)
    migrate(database)
    database.close()


def main() -> None:
    sqlite_fragments.texts()  # read and rendered once, not in every fork
    postgres_fragments.texts(frozen=False)
    for line in sys.stdin:
        url, n = line.split()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run(url, int(n))
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


if __name__ == "__main__":
    main()
