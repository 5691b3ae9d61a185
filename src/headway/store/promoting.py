"""Everything of an SQLite file into PostgreSQL: in one transaction there, row by row, and compared before it commits.

What there is to copy is read from the two schemas, and they have to agree: a table of a later migration cannot be
forgotten here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from hashlib import blake2b
from typing import Any

import psycopg

from headway.errors import Refused
from headway.faults import point
from headway.store import sealing
from headway.store.db import LockTaken, Row, Tx, blocks, render, sql_text
from headway.store.migrate import migrate_within, refuse_newer
from headway.store.postgres import PostgresDatabase, PostgresTx, translated

# The record of its own migrations is each database's own; SQLite's counter is a sequence of PostgreSQL.
OWN = {"hw_schema"}
HERE_ONLY = {"hw_counter", sealing.TABLE}
# Tables into which a migration puts something. All others are empty in a database that nobody has used.
FURNISHED = {"hw_schema", "hw_tenant", "hw_lane", "hw_pruning", "hw_outbox"}
MARK = "promoted"
AT_ONCE = 1000

Tables = dict[str, list[str]]
Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Mark:
    """What is left of a promotion in PostgreSQL, by which it is known again: which one it was, what came with it."""

    id: str
    source: str
    at: int
    tables: dict[str, int]

    def text(self) -> str:
        return json.dumps({"id": self.id, "source": self.source, "at": self.at, "tables": self.tables})


@cache
def _texts() -> dict[str, str]:
    return blocks(sql_text("promoting", "postgres.sql"))


def _run(there: PostgresTx, name: str, **words: str) -> list[Row]:
    with translated():
        found = there.connection.execute(render(_texts()[name], words).encode(), prepare=False)
        return found.fetchall() if found.description else []


# --- the destination ----------------------------------------------------------------------------------------------


@contextmanager
def locked(target: PostgresDatabase, name: str) -> Iterator[PostgresTx]:
    """A transaction there, alone with the schema: whoever migrates, starts or promotes there comes before it or after.
    So it also knows what became of a promotion whose answer was lost."""
    there = target.begin("promote_there")
    try:
        _run(there, "session")
        try:
            there.run("lock_schema")
        except LockTaken as error:
            raise Refused(
                f"somebody is making or filling the schema of {name} right now: try again when that has ended"
            ) from error
        yield there
    finally:
        target.end(there)


def mark_of(there: Tx) -> Mark | None:
    """The promotion that filled this database."""
    if not there.run("schema_found_postgres")[0][0]:
        return None
    found = there.run("read_setting", name=MARK) if "hw_setting" in columns(there) else []
    return Mark(**json.loads(found[0][0])) if found else None


def columns(tx: Tx) -> Tables:
    """Every table of ours with its columns."""
    rows = sealing.run(tx, "columns") if tx.database.dialect == "sqlite" else _run(_postgres(tx), "columns")
    found: Tables = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def _postgres(tx: Tx) -> PostgresTx:
    assert isinstance(tx, PostgresTx)
    return tx


def refuse_used(tx: Tx, name: str) -> None:
    """Refuses a database in which there is anything of Headway but an empty schema."""
    there, found = _postgres(tx), columns(tx)
    if not found:
        return
    if "hw_schema" not in found:
        raise Refused(f"{name} has a table {min(found)} that is not Headway's: name an empty database")
    ((version,),) = there.run("schema_version")
    refuse_newer(version)
    used = [table for table in found if table not in FURNISHED and _run(there, "some", table=table)]
    if used:
        raise Refused(f"{name} is in use by Headway already (there are rows in {used[0]}): name an empty database")


def _prepare(there: PostgresTx, name: str) -> None:
    """An empty schema, whatever was there of one, and nobody beside us in it."""
    try:
        if found := columns(there):
            _run(there, "lock", tables=", ".join(found))
    except LockTaken as error:
        raise Refused(f"somebody uses the tables in {name} right now: let it end, and try again") from error
    refuse_used(there, name)
    migrate_within(there)
    # Events that are copied were told of long ago.
    there.database.execute_script(there, sql_text("triggers", "disarm.postgres.sql"))


# --- copying ------------------------------------------------------------------------------------------------------


def tables_of(here: Tx) -> list[str]:
    return [table for table in columns(here) if table != sealing.TABLE]


def count(here: Tx) -> dict[str, int]:
    """How many rows there are to copy, by table."""
    tables = (table for table in columns(here) if table not in OWN | HERE_ONLY)
    return {table: sealing.run(here, "count", {"table": table})[0][0] for table in tables}


def copy(here: Tx, there: PostgresTx, name: str, tell: Tell) -> dict[str, int]:
    """Puts all rows of the file into PostgreSQL and compares what came. Returns how many there were in each table.

    `here` has the write lock, so what is read does not change; `tell` hears of rows that were written or compared."""
    _prepare(there, name)
    tables = _plan(columns(here), columns(there), _run(there, "references"))
    for table in reversed(tables):
        _run(there, "clear", table=table)
    sent = {table: _send(here, there, table, names, tell) for table, names in tables.items()}
    point("promote.sent")
    for table, names in tables.items():
        if _digest(_back(there, table, names), tell) != sent[table]:
            raise Refused(f"{table} is not the same in {name} as it was sent: nothing was moved; please report it")
    _go_on_counting(here, there)
    if here.run("outbox_armed"):
        there.database.execute_script(there, sql_text("triggers", "arm.postgres.sql"))
    for table in tables:
        _run(there, "analyze", table=table)
    return {table: rows for table, (rows, _) in sent.items()}


def _plan(here: Tables, there: Tables, references: Iterable[Row]) -> Tables:
    """What is copied, in an order in which every row finds those it refers to."""
    ours = {table: sorted(names) for table, names in here.items() if table not in OWN | HERE_ONLY}
    theirs = {table: sorted(names) for table, names in there.items() if table not in OWN}
    if ours != theirs:
        differing = min(table for table in ours | theirs if ours.get(table) != theirs.get(table))
        raise Refused(f"{differing} is not the same in both schemas: nothing was moved; please report it")
    order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(sorted(ours), ()))
    for table, needed in references:
        if table != needed:
            order.add(table, needed)
    return {table: ours[table] for table in order.static_order()}


def _send(here: Tx, there: PostgresTx, table: str, names: list[str], tell: Tell) -> tuple[int, int]:
    words = {"table": table, "columns": _listed(names)}
    rows = here.connection.execute(render(sealing.text("rows"), words))  # type: ignore[attr-defined]
    with _accepted(table), there.connection.cursor().copy(render(_texts()["copy"], words).encode()) as sink:
        return _digest(_through(rows, sink.write_row), tell)


def _through(rows: Iterable[Row], write: Callable[[Row], None]) -> Iterator[Row]:
    for row in rows:
        write(row)
        yield row


def _back(there: PostgresTx, table: str, names: list[str]) -> Iterator[Row]:
    """What is in PostgreSQL now, a piece at a time."""
    with translated(), there.connection.cursor(name="promoted") as cursor:
        cursor.itersize = AT_ONCE
        cursor.execute(render(_texts()["rows"], {"table": table, "columns": _listed(names)}).encode())
        yield from cursor


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _digest(rows: Iterable[Row], tell: Tell) -> tuple[int, int]:
    """How many rows, and a sum over them that does not depend on their order: the two sort texts differently."""
    number, total = 0, 0
    for row in rows:
        total += int.from_bytes(blake2b(repr(row).encode(), digest_size=16).digest(), "big")
        number += 1
        if number % AT_ONCE == 0:
            point("promote.rows")
            tell(AT_ONCE)
    tell(number % AT_ONCE)
    point("promote.table")
    return number, total % 2**128


@contextmanager
def _accepted(table: str) -> Iterator[None]:
    """What SQLite let in and PostgreSQL does not take."""
    try:
        with translated():
            yield
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError) as error:
        said: Any = str(error).strip().splitlines() or [type(error).__name__]
        raise Refused(f"PostgreSQL does not take a row of {table} ({said[0]}): nothing was moved") from error


def _go_on_counting(here: Tx, there: PostgresTx) -> None:
    """New rows get numbers after those that are there."""
    for table, column in _run(there, "identities"):
        ((highest,),) = _run(there, "highest", table=table, column=column)
        _run(there, "restart_identity", table=table, column=column, number=str(max(highest, 0) + 1))
    ((last,),) = sealing.run(here, "last_job")
    _run(there, "restart_jobs", number=str(last + 1))
