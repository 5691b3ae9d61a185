"""Keeps code in a foreign database file from running: triggers, views, virtual tables, forged tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import apsw

from headway.errors import Refused
from headway.store.migrations import concerns
from headway.store.sqlite.errors import translated
from headway.store.sqlite.fragments import FRAGMENTS
from headway.store.statements import blocks, render, sql_files, sql_text

# The triggers of the migrations, and the one of the outbox, which exists while there are subscribers.
TRIGGERS = frozenset(
    (
        "hw_delivery_frozen",
        "hw_event_frozen",
        "hw_event_kept",
        "hw_event_outbox",
        "hw_job_absorbing",
        "hw_job_fence_rises",
        "hw_job_kept",
        "hw_job_no_return",
        "hw_job_params_frozen",
        "hw_run_frozen",
        "hw_run_kept",
        "hw_run_once",
    )
)
OURS = "hw_"
# The guards of a file whose data were moved to PostgreSQL.
SEAL = "hw_moved"
GUARDS = f"{SEAL}_"
HINT = "use a backup or a file that Headway wrote"
# A quoted text, or comments and space between others.
_TOKEN = re.compile(r"""('(?:''|[^'])*'|"(?:""|[^"])*")|(?:--[^\n]*|\s+)+""")


def distrust(connection: apsw.Connection) -> None:
    """Lets nothing in the schema call functions with effects, and no statement write into SQLite's own tables."""
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


def refuse_code(connection: apsw.Connection, objects: Iterable[tuple[Any, ...]], path: str) -> None:
    """Refuses triggers on Headway's tables that are not Headway's, and views or virtual tables in place of tables.

    The objects are type, name, table and root page; views and virtual tables have no page. Names alone are compared:
    every process does this whenever it opens the file.
    """
    rows = list(objects)
    for kind, name, _, page in rows:
        if kind in ("view", "table") and not page and _is_ours(name):
            raise Refused(f"{path} has {name!r}, which is not a plain table", hint=HINT, code="forged_schema")
    foreign = [name for kind, name, table, _ in rows if kind == "trigger" and _is_ours(table) and not _is_known(name)]
    if foreign and _version(connection) <= _newest():  # a newer Headway may have made it, and is told of later
        raise Refused(f"{path} has a trigger {foreign[0]!r} of another program", hint=HINT, code="forged_schema")


def _is_known(trigger: str) -> bool:
    return trigger in TRIGGERS or trigger.startswith(GUARDS)


def _version(connection: apsw.Connection) -> int:
    return int(connection.execute("select coalesce(max(version), 0) from hw_schema").get)


def refuse_forged(path: str, name: str) -> None:
    """Refuses a file whose Headway tables, indexes and triggers differ from those that the migrations make.

    Other tables and views are left alone, because Headway never reads them; other triggers are refused. Runs before
    any other statement, on a connection that only reads the schema.
    """
    with translated():
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)  # the log cannot be opened only to read
        try:
            distrust(connection)
            connection.execute("pragma query_only = 1")
            number = connection.execute("pragma application_id").get
            pages = connection.execute("select type, name, tbl_name, rootpage from sqlite_schema").fetchall()
            refuse_code(connection, pages, name)
            found = _schema(connection)
            version = _version(connection) if ("table", "hw_schema") in found else None
            moved = ("table", SEAL) in found and bool(connection.execute(f"select count(*) from {SEAL}").get)
        finally:
            connection.close()
    if number:
        text = f"{name} is a file of another program (application_id {number})"
        raise Refused(text, hint=HINT, code="forged_schema")
    if version != _newest() or moved:
        return  # refused later, with a message of its own
    wanted, optional = _expected()
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key) and (found.get(key) is None or found.get(key) != optional.get(key)):
            kind, thing = key
            what = (
                "is missing in" if key not in found else "does not belong into" if key not in wanted else "differs in"
            )
            raise Refused(f"the {kind} {thing!r} {what} {name}", hint=HINT, code="forged_schema")


def _schema(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Returns Headway's objects, and all triggers, with their text."""
    rows = connection.execute(
        "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite\\_%' escape '\\'"
    )
    ours = (row for row in rows if row[0] == "trigger" or _is_ours(row[1]) or _is_ours(row[2]))
    return {(kind, name): _bare(f"{table} {sql}") for kind, name, table, sql in ours}


def _is_ours(name: str) -> bool:
    return name.lower().startswith(OURS)


def _bare(text: str) -> str:
    """Removes comments and line breaks, which a later version of a migration may have changed."""
    return _TOKEN.sub(lambda found: found[1] or " ", text).strip()


def _newest() -> int:
    return max(int(file.split("_")[0]) for file in sql_files("schema"))


@cache
def _expected() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Returns the objects that the migrations make, and those that may be there besides."""
    connection = apsw.Connection(":memory:")
    try:
        scripts = [blocks(sql_text("system.sql"))["create_schema_table"]]
        scripts += [sql_text("schema", file) for file in sql_files("schema") if concerns(file, "sqlite")]
        for script in scripts:
            list(connection.execute(render(script, FRAGMENTS)))
        wanted = _schema(connection)
        list(connection.execute(render(sql_text("triggers", "arm.sqlite.sql"), FRAGMENTS)))
        return wanted, _schema(connection)
    finally:
        connection.close()
