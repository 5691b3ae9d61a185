"""Copies a whole SQLite database while other processes write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import apsw

from headway.store.sqlite.errors import translated
from headway.store.sqlite.transaction import SqliteTx

if TYPE_CHECKING:
    from headway.store.sqlite.database import SqliteDatabase

# Pages per step of a backup: 8 MB, a few milliseconds.
PAGES_AT_ONCE = 2000


def backup(database: SqliteDatabase, destination: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Copies the whole database consistently while other processes write.

    A single snapshot is held from the first page to the last: SQLite restarts a backup whenever it sees another
    process's commit between two steps. `progress` receives the pages copied and their total.
    """
    with database.read() as tx:
        assert isinstance(tx, SqliteTx)
        with translated():
            tx.connection.execute("select 1 from sqlite_schema").fetchall()  # a snapshot begins when a page is read
            target = apsw.Connection(destination)
            try:
                with target.backup("main", tx.connection, "main") as copy:
                    while not copy.done:
                        copy.step(PAGES_AT_ONCE)
                        if progress is not None:
                            progress(copy.page_count - copy.remaining, copy.page_count)
            finally:
                target.close()
