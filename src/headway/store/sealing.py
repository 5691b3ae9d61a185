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
    from headway.store.sqlite import SqliteTx

TABLE = "hw_moved"
# How the guards begin what they say; by this the driver's error is known.
SAID = "this database is closed: its data went to "


@dataclass(frozen=True, slots=True)
class Seal:
    """Where the data went: `url` for people, `place` to know it again. While `done_at` is null it is not known here
    whether they arrived."""

    id: str
    url: str
    place: str
    began_at: int
    done_at: int | None = None


class Moved(Refused):
    """The data are somewhere else: use that database."""

    code = "moved"

    def __init__(self, path: str, seal: Seal) -> None:
        if seal.done_at is None:
            text = f"the move of {path} to {seal.url} was interrupted: run `headway db promote` again to finish it"
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
    here: SqliteTx = tx  # type: ignore[assignment]
    return here.connection.execute(render(_texts()[name], words or {}), params).fetchall()


def refuse_moved(connection: apsw.Connection, path: str) -> None:
    """Refuses a file with a seal on it; an empty one was lifted by hand."""
    for row in connection.execute(_texts()["seal"]):
        raise Moved(path, Seal(*row))


def close(tx: Tx, seal: Seal, tables: Iterable[str]) -> None:
    """From the commit on, every write is refused, whoever tries it."""
    said = "'" + f"{SAID}{seal.url}".replace("'", "''") + "'"
    run(tx, "make_seal")
    for table in tables:
        for verb in ("insert", "update", "delete"):
            run(tx, "guard", {"table": table, "verb": verb, "said": said})
    run(tx, "close", id=seal.id, url=seal.url, place=seal.place, began_at=seal.began_at)


def conclude(tx: Tx, seal: Seal) -> None:
    """PostgreSQL has it."""
    run(tx, "conclude", id=seal.id, now=tx.database.clock.now())


def lift(tx: Tx) -> None:
    """PostgreSQL does not have it: the file is as it was before."""
    for (guard,) in run(tx, "guards"):
        run(tx, "drop_guard", {"guard": guard})
    run(tx, "drop_seal")
