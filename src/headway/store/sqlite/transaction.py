"""A transaction on SQLite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

from headway.store.db import Row, Tx
from headway.store.sqlite.errors import ours
from headway.store.sqlite.files import Files

if TYPE_CHECKING:
    from headway.store.sqlite.database import SqliteDatabase

# A commit that took longer wakes the other processes again when it is visible.
LATE_COMMIT = 0.01


class SqliteTx(Tx):
    connection: apsw.Connection
    # The connection's only cursor: creating a cursor costs as much as a short statement.
    cursor: apsw.Cursor
    files: Files

    def __init__(self, database: SqliteDatabase, label: str, *, reads: bool = False) -> None:
        super().__init__(database, label)
        self.reads = reads
        self.texts = database.texts
        self.calls = database.calls
        self.time = database.clock.now()

    def run(self, name: str, /, **params: object) -> list[Row]:
        params["now"] = self.time
        execute = self.cursor.execute
        try:
            calls = self.calls[name]
            if len(calls) == 1:
                text, values = calls[0]
                return execute(text, values(params)).fetchall()
            rows: list[Row] = []
            for text, values in calls:
                rows += execute(text, values(params))
            return rows
        except apsw.Error as error:
            raise ours(error) from error

    def _commit(self) -> None:
        began = time.monotonic()
        try:
            self.cursor.execute("commit")
        except apsw.Error as error:
            raise ours(error) from error
        # Checked after the commit: until here the log could be deleted, and this commit with it.
        self.files.refuse_other()
        if time.monotonic() - began > LATE_COMMIT:
            self.files.tell()

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.cursor.execute("rollback")
