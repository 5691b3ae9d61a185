"""The seal on an SQLite file whose data went to PostgreSQL: nobody opens it, or writes into it, by accident.

It is put on in the transaction under which the file was copied, and before PostgreSQL commits. So there is no moment at
which both can be used; a crash between the two leaves none that can, and the next `headway db promote` finds out which
of them has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from headway.clock import SECOND
from headway.errors import Refused
from headway.store.db import Tx, blocks, render, sql_text

if TYPE_CHECKING:
    import apsw

    from headway.store.db import Row
    from headway.store.sqlite import SqliteDatabase, SqliteTx

TABLE = "hw_moved"
# How the guards begin what they say; by this the driver's error is known.
SAID = "this database is closed: its data went to "


@dataclass(frozen=True, slots=True)
class Seal:
    """Where the data went: `url` for people; by `id` PostgreSQL knows the attempt again. While `done_at` is null it is
    not known here whether they arrived."""

    id: str
    url: str
    began_at: int
    done_at: int | None = None


class Moved(Refused):
    """The data are somewhere else: use that database."""

    code = "moved"

    def __init__(self, path: str, seal: Seal) -> None:
        if seal.done_at is None:
            text = (
                f"{path} is being moved to {seal.url}, or the move was interrupted: wait for its end, or run"
                " `headway db promote` with that address again to finish it"
            )
        else:
            when = datetime.fromtimestamp(seal.done_at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            text = f"{path} was moved to {seal.url} at {when}: set `database` to that address"
        super().__init__(text, database=seal.url)
        self.seal = seal


@cache
def _texts() -> dict[str, str]:
    return blocks(sql_text("promoting", "sqlite.sql"))


def text(name: str) -> str:
    return _texts()[name]


def run(tx: Tx, name: str, words: dict[str, str] | None = None, **params: object) -> list[Row]:
    """One statement about the source, with the names of its tables filled in."""
    from headway.store.sqlite import translated  # which needs this module for itself

    here: SqliteTx = tx  # type: ignore[assignment]
    with translated():
        return here.connection.execute(render(_texts()[name], words or {}), params).fetchall()


def found(connection: apsw.Connection) -> Seal | None:
    """The seal on a file. A table without a row was lifted by hand."""
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
    """The same as a part of a transaction: a seal may have come since the file was opened."""
    if tx.database.dialect != "sqlite":
        return
    if (seal := seal_of(tx)) is not None:
        raise Moved(_path(tx), seal)


def _path(tx: Tx) -> str:
    here: SqliteDatabase = tx.database  # type: ignore[assignment]
    return here.path


def close(tx: Tx, seal: Seal, tables: Iterable[str]) -> None:
    """From the commit on, every write is refused, whoever tries it."""
    said = "'" + f"{SAID}{seal.url}".replace("'", "''") + "'"
    _drop_guards(tx)  # of a seal that was lifted by hand: they would name its address
    run(tx, "make_seal")
    for table in tables:
        for verb in ("insert", "update", "delete"):
            run(tx, "guard", {"table": table, "verb": verb, "said": said})
    run(tx, "close", id=seal.id, url=seal.url, began_at=seal.began_at)


def conclude(tx: Tx, seal: Seal) -> None:
    """PostgreSQL has it."""
    done = run(tx, "conclude", id=seal.id, now=tx.database.clock.now()) if seal_of(tx) is not None else []
    if len(done) != 1:
        raise Refused(
            f"{seal.url} has everything, but somebody has taken that seal off {_path(tx)}: use {seal.url} and put the"
            " file away, or every job that waits runs in both"
        )


def lift(tx: Tx, seal: Seal) -> None:
    """PostgreSQL does not have it: the file is as it was before. Another seal than the one that was judged stays."""
    there = seal_of(tx)
    if there is not None and (there.id != seal.id or there.done_at is not None):
        raise Moved(_path(tx), there)
    _drop_guards(tx)
    if run(tx, "sealed"):
        run(tx, "drop_seal")


def _drop_guards(tx: Tx) -> None:
    for (guard,) in run(tx, "guards"):
        run(tx, "drop_guard", {"guard": guard})
