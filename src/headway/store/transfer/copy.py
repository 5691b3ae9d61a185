"""Copies an SQLite file into PostgreSQL in one transaction, and compares rows.

The tables to copy are read from the two schemas, which must agree: a table of a later migration cannot be forgotten
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from graphlib import TopologicalSorter
from hashlib import blake2b
from typing import Any

import psycopg

from headway.errors import Refused
from headway.fault_points import point
from headway.store.db import Row, Tx
from headway.store.postgres.errors import translated
from headway.store.postgres.transaction import PostgresTx
from headway.store.sqlite import errors as sqlite_errors
from headway.store.statements import render, sql_text
from headway.store.transfer import destination, seal
from headway.store.transfer.destination import Tables, columns, run

# Each database records its own migrations; SQLite's counter is a sequence on PostgreSQL.
OWN = {"hw_schema"}
HERE_ONLY = {"hw_counter", seal.TABLE}
AT_ONCE = 1000

Tell = Callable[[int], None]


def tables_of(here: Tx) -> list[str]:
    return [table for table in columns(here) if table != seal.TABLE]


def count(here: Tx) -> dict[str, int]:
    """Counts the rows to copy, by table."""
    tables = (table for table in columns(here) if table not in OWN | HERE_ONLY)
    return {table: seal.run(here, "count", {"table": table})[0][0] for table in tables}


def copy(here: Tx, there: PostgresTx, name: str, tell: Tell) -> dict[str, int]:
    """Copies all rows into PostgreSQL and compares them. Returns counts by table.

    `here` holds the write lock, so its rows do not change; `tell` receives the number of rows written or compared.
    """
    destination.clear_way(there, name)
    # Copied events must create no deliveries: theirs are copied too.
    there.database.execute_script(there, sql_text("triggers", "disarm.postgres.sql"))
    tables = _plan(columns(here), columns(there), run(there, "references"))
    for table in reversed(tables):
        run(there, "clear", table=table)
    sent = {table: _send(here, there, table, names, tell) for table, names in tables.items()}
    point("promote.sent")
    for table, names in tables.items():
        if _digest(_back(there, table, names), tell) != sent[table]:
            raise Refused(f"{table} in {name} differs from what was sent: nothing was moved; please report it")
    _restart_sequences(here, there)
    if here.run("outbox_armed"):
        there.database.execute_script(there, sql_text("triggers", "arm.postgres.sql"))
    for table in tables:
        run(there, "analyze", table=table)
    return {table: rows for table, (rows, _) in sent.items()}


def _plan(here: Tables, there: Tables, references: Iterable[Row]) -> Tables:
    """Returns the tables in an order in which every row follows those it refers to."""
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
    with _accepted(table), there.connection.cursor().copy(destination.text("copy", **words)) as sink:
        return _digest(_through(_rows(here, words), sink.write_row), tell)


def _rows(here: Tx, words: dict[str, str]) -> Iterator[Row]:
    with sqlite_errors.translated():
        yield from here.connection.execute(render(seal.text("rows"), words))  # type: ignore[attr-defined]


def _through(rows: Iterable[Row], write: Callable[[Row], None]) -> Iterator[Row]:
    for row in rows:
        write(row)
        yield row


def _back(there: PostgresTx, table: str, names: list[str]) -> Iterator[Row]:
    """Yields the rows that PostgreSQL has now, in chunks."""
    with translated(), there.connection.cursor(name="promoted") as cursor:
        cursor.itersize = AT_ONCE
        cursor.execute(destination.text("rows", table=table, columns=_listed(names)))
        yield from cursor


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _digest(rows: Iterable[Row], tell: Tell) -> tuple[int, int]:
    """Returns the row count and a sum of hashes that does not depend on row order.

    The two databases sort texts differently.
    """
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
    """Refuses a row that SQLite accepted and PostgreSQL rejects."""
    try:
        with translated():
            yield
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError) as error:
        lines: Any = str(error).strip().splitlines() or [type(error).__name__]
        raise Refused(f"PostgreSQL rejected a row of {table} ({lines[0]}): nothing was moved") from error


def _restart_sequences(here: Tx, there: PostgresTx) -> None:
    """Restarts the number sequences after the highest numbers in use."""
    for table, column in run(there, "identities"):
        ((highest,),) = run(there, "highest", table=table, column=column)
        run(there, "restart_identity", table=table, column=column, number=str(max(highest, 0) + 1))
    ((last,),) = seal.run(here, "last_job")
    run(there, "restart_jobs", number=str(last + 1))
