"""The seal on an SQLite file whose data went to PostgreSQL: it blocks writes.

The seal is written in the transaction that copied the file, before PostgreSQL commits, so the two databases are never
usable at the same time. After a crash between the two commits neither is usable, and the next `headway db promote`
finds out which of them has the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from headway.clock import SECOND
from headway.errors import Refused
from headway.store.db import Tx
from headway.store.statements import blocks, render, sql_text

if TYPE_CHECKING:
    import apsw

    from headway.store.db import Row
    from headway.store.sqlite.database import SqliteDatabase
    from headway.store.sqlite.transaction import SqliteTx

TABLE = "hw_moved"
# The beginning of the guards' message, by which the driver's error is recognised.
MESSAGE = "this database is closed: its data went to "


@dataclass(frozen=True, slots=True)
class Seal:
    """Where the data went.

    `url` is the address to show, `id` the attempt's number in PostgreSQL. While `done_at` is None, it is unknown here
    whether the data arrived.
    """

    id: str
    url: str
    began_at: int
    done_at: int | None = None


class Moved(Refused):
    """The data were moved: use the other database."""

    code = "moved"

    def __init__(self, path: str, seal: Seal) -> None:
        if seal.done_at is None:
            text = f"{path} is being moved to {seal.url}, or the move was interrupted"
            hint = "wait for its end, or run `headway db promote` with that address again to finish it"
        else:
            when = datetime.fromtimestamp(seal.done_at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            text, hint = f"{path} was moved to {seal.url} at {when}", "set `database` to that address"
        super().__init__(text, hint=hint, database=seal.url)
        self.seal = seal


@cache
def _texts() -> dict[str, str]:
    return blocks(sql_text("transfer", "sqlite.sql"))


def text(name: str) -> str:
    return _texts()[name]


def run(tx: Tx, name: str, words: dict[str, str] | None = None, **params: object) -> list[Row]:
    """Runs a statement about the source, with its table names filled in."""
    from headway.store.sqlite.errors import translated  # imported here, because that module imports this one

    here: SqliteTx = tx  # type: ignore[assignment]
    with translated():
        return here.connection.execute(render(_texts()[name], words or {}), params).fetchall()


def found(connection: apsw.Connection) -> Seal | None:
    """Returns the seal of a file. A seal table without a row was lifted by hand."""
    if not connection.execute(_texts()["sealed"]).fetchall():
        return None
    return next((Seal(*row) for row in connection.execute(_texts()["seal"])), None)


def refuse_moved(connection: apsw.Connection, path: str) -> None:
    if (seal := found(connection)) is not None:
        raise Moved(path, seal)


def seal_of(tx: Tx) -> Seal | None:
    here: SqliteTx = tx  # type: ignore[assignment]
    return found(here.connection)


def refuse_sealed(tx: Tx) -> None:
    """Refuses a file that was sealed since it was opened."""
    if tx.database.dialect != "sqlite":
        return
    if (seal := seal_of(tx)) is not None:
        raise Moved(_path(tx), seal)


def _path(tx: Tx) -> str:
    here: SqliteDatabase = tx.database  # type: ignore[assignment]
    return here.path


def close(tx: Tx, seal: Seal, tables: Iterable[str]) -> None:
    """Seals the file: from the commit on, every write is refused."""
    message = "'" + f"{MESSAGE}{seal.url}".replace("'", "''") + "'"
    _drop_guards(tx)  # left by a seal lifted by hand, with its address
    run(tx, "make_seal")
    for table in tables:
        for verb in ("insert", "update", "delete"):
            run(tx, "guard", {"table": table, "verb": verb, "message": message})
    run(tx, "close", id=seal.id, url=seal.url, began_at=seal.began_at)


def conclude(tx: Tx, seal: Seal) -> None:
    """Records on the seal that PostgreSQL has the data."""
    done = run(tx, "conclude", id=seal.id, now=tx.database.clock.now()) if seal_of(tx) is not None else []
    if len(done) != 1:
        raise Refused(
            f"{seal.url} has all the data, but the seal was removed from {_path(tx)}",
            hint=f"use {seal.url} and move the file away, or every waiting job runs in both",
        )


def lift(tx: Tx, seal: Seal) -> None:
    """Removes the seal after a failed promotion. Another seal than this one stays."""
    there = seal_of(tx)
    if there is not None and (there.id != seal.id or there.done_at is not None):
        raise Moved(_path(tx), there)
    _drop_guards(tx)
    if run(tx, "sealed"):
        run(tx, "drop_seal")


def _drop_guards(tx: Tx) -> None:
    for (guard,) in run(tx, "guards"):
        run(tx, "drop_guard", {"guard": guard})
