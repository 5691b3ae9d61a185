"""Numbered migrations: locked, one transaction each; a schema newer than this program is refused."""

from __future__ import annotations

from functools import partial

from headway.errors import Refused
from headway.store.db import Database, Tx, sql_files, sql_text


def versions() -> list[int]:
    """The migrations this program knows."""
    return sorted({int(file.split("_")[0]) for file in sql_files("schema")})


def migrate(database: Database) -> list[int]:
    """Brings the schema up to date and says which migrations ran."""
    ran, found = [], 0
    for version in versions():
        if version > found:
            found = database.transact("migrate", partial(_apply, version=version))
            ran += [version] if version > found else []
    return ran


def migrate_within(tx: Tx) -> None:
    """The same as a part of a transaction of the caller's: all of it, or nothing."""
    for version in versions():
        _apply(tx, version)


def _apply(tx: Tx, version: int) -> int:
    """Unless it is there already. Returns the version that was there."""
    tx.run("lock_schema")
    done = current(tx)
    refuse_newer(done)
    if version <= done:
        return done
    for file in sql_files("schema"):
        if int(file.split("_")[0]) == version and _concerns(file, tx.database.dialect):
            tx.database.execute_script(tx, sql_text("schema", file))
    tx.run("record_migration", version=version)
    return done


def _concerns(file: str, dialect: str) -> bool:
    parts = file.split(".")
    return len(parts) == 2 or parts[1] == dialect


def current(tx: Tx) -> int:
    tx.run("create_schema_table")
    ((version,),) = tx.run("schema_version")
    return int(version)


def refuse_newer(found: int) -> None:
    known = versions()[-1]
    if found > known:
        raise Refused(
            f"the database has schema {found}, this Headway knows up to {known}: install the newer Headway that made it"
        )
