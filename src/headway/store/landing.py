"""The destination of a promotion: what may be there before, what is noted of an attempt, and what is left of it.

An attempt notes its number there and commits that before anything is copied. So a server that knows the number and has
no mark of it is one where it did not land, and a server that has neither is another one, whatever its address says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache

from psycopg.conninfo import conninfo_to_dict

from headway.errors import Refused
from headway.store import sealing
from headway.store.db import LockTaken, Row, Tx, blocks, render, sql_text
from headway.store.migrate import migrate_within, refuse_newer
from headway.store.postgres import PostgresDatabase, PostgresTx, translated

# Tables into which a migration puts something. All others are empty in a database that nobody has used.
FURNISHED = {"hw_schema", "hw_tenant", "hw_lane", "hw_pruning", "hw_outbox"}
# In `hw_setting`: the promotion that filled this database, and the numbers of those that began to.
MARK, ATTEMPTS = "promoted", "promoting"
# How long the last step may stand still before PostgreSQL gives it up.
LAST_STEP = "60s"

Tables = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Mark:
    """What is left of a promotion in PostgreSQL, by which it is known again: which one it was, what came with it."""

    id: str
    source: str
    at: int
    tables: dict[str, int]


@cache
def _texts() -> dict[str, str]:
    return blocks(sql_text("promoting", "postgres.sql"))


def text(name: str, **words: str) -> bytes:
    return render(_texts()[name], words).encode()


def run(tx: Tx, name: str, **words: str) -> list[Row]:
    """One statement about the destination, with the names of its tables filled in."""
    there = _postgres(tx)
    with translated():
        found = there.connection.execute(text(name, **words), prepare=False)
        return found.fetchall() if found.description else []


def _postgres(tx: Tx) -> PostgresTx:
    assert isinstance(tx, PostgresTx)
    return tx


@contextmanager
def locked(target: PostgresDatabase, name: str, label: str = "promote_there") -> Iterator[PostgresTx]:
    """A transaction there, alone with the schema: whoever migrates, starts or promotes there comes before it or after.
    So it also knows what became of a promotion whose answer was lost."""
    there = target.begin(label)
    try:
        run(there, "session")
        if run(there, "standby"):
            raise Refused(f"{name} is a standby, which may be behind: name the server that is written to")
        try:
            there.run("lock_schema")
        except LockTaken as error:
            raise Refused(
                f"somebody is making or filling the schema of {name} right now{_holder(target)}: try again when that"
                " has ended"
            ) from error
        yield there
    finally:
        target.end(there)


def _holder(target: PostgresDatabase) -> str:
    with target.read() as tx:
        return "".join(f" (pid {pid} of that server)" for (pid,) in run(tx, "who_locks"))


def place(there: PostgresTx, name: str) -> str:
    """The address for people, with what the environment has added to it."""
    facts, info = conninfo_to_dict(there.database.url), there.connection.info
    if facts.get("dbname") and (facts.get("host") or facts.get("hostaddr")):
        return name
    return f"{name} (database {info.dbname} of {info.host}, port {info.port})"


# --- what is there ------------------------------------------------------------------------------------------------


def columns(tx: Tx) -> Tables:
    """Every table of ours with its columns, in either database."""
    rows = sealing.run(tx, "columns") if tx.database.dialect == "sqlite" else run(tx, "columns")
    found: Tables = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def refuse_used(tx: Tx, name: str) -> None:
    """Refuses a database in which there is anything of Headway but an empty schema."""
    found = columns(tx)
    if not found:
        return
    if "hw_schema" not in found:
        raise Refused(f"{name} has a table {min(found)} that is not Headway's: name an empty database")
    ((version,),) = tx.run("schema_version")
    refuse_newer(version)
    used = [table for table in found if table not in FURNISHED and _used(tx, table)]
    if used:
        raise Refused(f"{name} is in use by Headway already (there are rows in {used[0]}): name an empty database")


def _used(tx: Tx, table: str) -> bool:
    return bool(run(tx, "settled") if table == "hw_setting" else run(tx, "some", table=table))


# --- an attempt ---------------------------------------------------------------------------------------------------


def note(target: PostgresDatabase, name: str, attempt: str) -> str:
    """Makes an empty schema, whatever was there of one, and commits that this attempt began in it. The address."""
    with locked(target, name, "promote_note") as there:
        clear_way(there, name)
        migrate_within(there)
        _save(there, [*_attempts(there), attempt])
        there.commit()
        return place(there, name)


def clear_way(there: PostgresTx, name: str) -> None:
    """Nobody has used it, and nobody is beside us in it."""
    try:
        if found := columns(there):
            run(there, "lock", tables=", ".join(found))
    except LockTaken as error:
        raise Refused(f"somebody uses the tables in {name} right now: let it end, and try again") from error
    refuse_used(there, name)


def sign(there: PostgresTx, mark: Mark, others: list[str]) -> None:
    """What everything else came with. Other attempts stay noted: their files ask what became of them."""
    there.run("save_setting", name=MARK, value=json.dumps(asdict(mark)))
    if others:
        _save(there, others)


def others(there: PostgresTx, attempt: str) -> list[str]:
    return [one for one in _attempts(there) if one != attempt]


def last_step(there: PostgresTx) -> None:
    run(there, "last_step", limit=LAST_STEP)


def landed(there: PostgresTx, name: str, attempt: str) -> Mark | None:
    """What came with that attempt; None: it began here, and nothing came. Refuses to say it of another server's."""
    if "hw_setting" in columns(there):
        found = there.run("read_setting", name=MARK)
        mark = Mark(**json.loads(found[0][0])) if found else None
        if mark is not None and mark.id == attempt:
            return mark
        if attempt in _attempts(there):
            return None
    raise Elsewhere(place(there, name))


class Elsewhere(Refused):
    """This is not the database in which that attempt began; its text is the address."""


def _attempts(there: PostgresTx) -> list[str]:
    found = there.run("read_setting", name=ATTEMPTS)
    return list(json.loads(found[0][0])) if found else []


def _save(there: PostgresTx, attempts: list[str]) -> None:
    there.run("save_setting", name=ATTEMPTS, value=json.dumps(attempts))
