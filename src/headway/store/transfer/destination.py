"""The PostgreSQL side of a promotion: its checks, its attempts and its mark.

An attempt commits its number there before anything is copied. So a server that knows the number without its mark is one
where the attempt did not land; a server that has neither is another server, whatever its address says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache

from psycopg.conninfo import conninfo_to_dict

from headway.errors import Refused
from headway.store.db import LockTaken, Row, Tx
from headway.store.migrations import migrate_within, refuse_newer
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.errors import translated
from headway.store.postgres.transaction import PostgresTx
from headway.store.statements import blocks, render, sql_text
from headway.store.transfer import seal

# Tables that a migration fills. All others are empty in an unused database.
FURNISHED = {"hw_schema", "hw_tenant", "hw_lane", "hw_pruning", "hw_outbox"}
# Names in `hw_setting`: the promotion that filled this database, and the numbers of the attempts.
MARK, ATTEMPTS = "promoted", "promoting"
# How long the last step may be idle before PostgreSQL ends it.
LAST_STEP = "60s"

Tables = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a finished promotion in PostgreSQL: id, source and row counts."""

    id: str
    source: str
    at: int
    tables: dict[str, int]


@cache
def _texts() -> dict[str, str]:
    return blocks(sql_text("transfer", "postgres.sql"))


def text(name: str, **words: str) -> bytes:
    return render(_texts()[name], words).encode()


def run(tx: Tx, name: str, **words: str) -> list[Row]:
    """Runs a statement about the destination, with its table names filled in."""
    there = _postgres(tx)
    with translated():
        found = there.connection.execute(text(name, **words), prepare=False)
        return found.fetchall() if found.description else []


def _postgres(tx: Tx) -> PostgresTx:
    assert isinstance(tx, PostgresTx)
    return tx


@contextmanager
def locked(target: PostgresDatabase, name: str, label: str = "promote_there") -> Iterator[PostgresTx]:
    """Opens a transaction there that holds the schema lock.

    Every migration, start or promotion there comes before it or after it. So it also learns the fate of a promotion
    whose answer was lost.
    """
    there = target.begin(label)
    try:
        run(there, "session")
        if run(there, "standby"):
            raise Refused(f"{name} is a standby and may lag behind", hint="name the primary server")
        try:
            there.run("lock_schema")
        except LockTaken as error:
            raise Refused(
                f"another process is creating or filling the schema of {name}{_holder(target)}",
                hint="try again when it has ended",
            ) from error
        yield there
    finally:
        target.end(there)


def _holder(target: PostgresDatabase) -> str:
    with target.read() as tx:
        return "".join(f" (pid {pid} of that server)" for (pid,) in run(tx, "who_locks"))


def place(there: PostgresTx, name: str) -> str:
    """Returns the address to show, with what the environment added to it."""
    facts, info = conninfo_to_dict(there.database.url), there.connection.info
    if facts.get("dbname") and (facts.get("host") or facts.get("hostaddr")):
        return name
    return f"{name} (database {info.dbname} of {info.host}, port {info.port})"


# --- what is there ------------------------------------------------------------------------------------------------


def columns(tx: Tx) -> Tables:
    """Returns Headway's tables with their columns, in either database."""
    rows = seal.run(tx, "columns") if tx.database.dialect == "sqlite" else run(tx, "columns")
    found: Tables = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def refuse_used(tx: Tx, name: str) -> None:
    """Refuses a database that holds more of Headway than an empty schema."""
    found = columns(tx)
    if not found:
        return
    if "hw_schema" not in found:
        raise Refused(f"{name} has a table {min(found)} that is not Headway's", hint="name an empty database")
    ((version,),) = tx.run("schema_version")
    refuse_newer(version)
    used = [table for table in found if table not in FURNISHED and _used(tx, table)]
    if used:
        raise Refused(
            f"{name} is in use by Headway already (there are rows in {used[0]})", hint="name an empty database"
        )


def _used(tx: Tx, table: str) -> bool:
    return bool(run(tx, "settled") if table == "hw_setting" else run(tx, "some", table=table))


# --- an attempt ---------------------------------------------------------------------------------------------------


def note(target: PostgresDatabase, name: str, attempt: str) -> str:
    """Creates an empty schema and commits this attempt's number; returns the address."""
    with locked(target, name, "promote_note") as there:
        clear_way(there, name)
        migrate_within(there)
        _save(there, [*_attempts(there), attempt])
        there.commit()
        return place(there, name)


def clear_way(there: PostgresTx, name: str) -> None:
    """Locks the tables, and refuses a database that is in use."""
    try:
        if found := columns(there):
            run(there, "lock", tables=", ".join(found))
    except LockTaken as error:
        raise Refused(f"another process uses the tables in {name}", hint="wait for its end, and try again") from error
    refuse_used(there, name)


def sign(there: PostgresTx, mark: Mark, others: list[str]) -> None:
    """Writes the mark. Other attempts stay noted, because their files ask for them."""
    there.run("save_setting", name=MARK, value=json.dumps(asdict(mark)))
    if others:
        _save(there, others)


def others(there: PostgresTx, attempt: str) -> list[str]:
    return [other for other in _attempts(there) if other != attempt]


def last_step(there: PostgresTx) -> None:
    run(there, "last_step", limit=LAST_STEP)


def landed(there: PostgresTx, name: str, attempt: str) -> Mark | None:
    """Returns the mark of an attempt; None if it began here and did not land.

    Raises Elsewhere if the attempt did not begin in this database.
    """
    if "hw_setting" in columns(there):
        found = there.run("read_setting", name=MARK)
        mark = Mark(**json.loads(found[0][0])) if found else None
        if mark is not None and mark.id == attempt:
            return mark
        if attempt in _attempts(there):
            return None
    raise Elsewhere(place(there, name))


class Elsewhere(Refused):
    """The attempt did not begin in this database, whose address is the text."""


def _attempts(there: PostgresTx) -> list[str]:
    found = there.run("read_setting", name=ATTEMPTS)
    return list(json.loads(found[0][0])) if found else []


def _save(there: PostgresTx, attempts: list[str]) -> None:
    there.run("save_setting", name=ATTEMPTS, value=json.dumps(attempts))
