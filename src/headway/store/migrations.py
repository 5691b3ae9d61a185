"""Numbered migrations: one locked transaction each; a newer schema is refused."""

from __future__ import annotations

from functools import cache, partial

from headway.errors import Refused, Unreachable
from headway.store.db import Database, Tx
from headway.store.statements import sql_files, sql_text

# The error code of that refusal: a running process that gets it shuts down cleanly.
NEWER = "newer_schema"


def versions() -> list[int]:
    """Returns the migrations this program knows."""
    return list(_known())


@cache
def _known() -> tuple[int, ...]:
    """Reads the file names once: a worker out of descriptors cannot list a folder."""
    return tuple(sorted({int(file.split("_")[0]) for file in sql_files("schema")}))


def migrate(database: Database) -> list[int]:
    """Migrates the schema to the newest version and returns the migrations that ran."""
    ran, found = [], 0
    for version in versions():
        if version > found:
            found = database.transact("migrate", partial(_apply, version=version))
            ran += [version] if version > found else []
    return ran


def migrate_within(tx: Tx) -> None:
    """Migrates inside the caller's transaction: all migrations or none."""
    for version in versions():
        _apply(tx, version)


def _apply(tx: Tx, version: int) -> int:
    """Applies a migration unless it was applied before. Returns the version found."""
    tx.run("lock_schema")
    done = current(tx)
    refuse_newer(done)
    if version <= done:
        return done
    for file in sql_files("schema"):
        if int(file.split("_")[0]) == version and concerns(file, tx.database.dialect):
            tx.database.execute_script(tx, sql_text("schema", file))
    if tx.database.dialect == "sqlite" and version == versions()[-1]:
        _rebuild_outbox(tx)
    tx.run("record_migration", version=version)
    return done


def _rebuild_outbox(tx: Tx) -> None:
    """Creates the outbox trigger anew if it exists: it is no part of a migration, and its text may have changed."""
    if tx.run("outbox_armed"):
        for script in ("disarm", "arm"):
            tx.database.execute_script(tx, sql_text("triggers", f"{script}.sqlite.sql"))


def concerns(file: str, dialect: str) -> bool:
    """Returns True if a migration's file is for both dialects or for this one."""
    parts = file.split(".")
    return len(parts) == 2 or parts[1] == dialect


def current(tx: Tx) -> int:
    tx.run("create_schema_table")
    ((version,),) = tx.run("schema_version")
    return int(version)


def refuse_newer(found: int) -> None:
    known = versions()[-1]
    if found > known:
        text = f"the database has schema {found}, this Headway knows up to {known}"
        raise Refused(text, hint="install the newer Headway that made it", code=NEWER)


def refuse_migrated(tx: Tx) -> None:
    """Refuses a schema that was migrated since this program opened the database."""
    ((version,),) = tx.run("schema_version")
    refuse_newer(int(version))


def migrated(database: Database) -> Refused | None:
    """Returns the refusal of a schema that was migrated meanwhile.

    None if the schema is unchanged or cannot be read.
    """
    try:
        with database.read() as tx:
            ((exists,),) = tx.run(f"schema_found_{database.dialect}")
            if exists:
                refuse_migrated(tx)
    except Refused as refusal:
        return refusal
    except Unreachable:
        return None
    return None
