"""Proves a backup: restores it into a temporary database, migrates, checks and verifies it there."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.database import backup as database_backup
from headway.cli.database.open import is_file
from headway.errors import Refused
from headway.store.db import Database, open_database
from headway.store.migrations import migrate

if TYPE_CHECKING:
    from headway.config import Settings

_ADDRESS = re.compile(r"^(postgres(?:ql)?://[^/?]*)(?:/[^?]*)?")
_FOR_EVER = 1e9


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial: how many things were checked, and what is wrong."""

    counted: Mapping[str, int]
    problems: tuple[str, ...]


def prove(settings: Settings, file: Path) -> Trial:
    """Restores a backup beside the database of the settings, which is left alone."""
    with _sqlite(file) if is_file(settings) else _postgres(settings, file) as url:
        database = open_database(url)
        try:
            migrate(database)
            return _judged(database)
        finally:
            database.close()


def _judged(database: Database) -> Trial:
    from headway.verify import check

    problems = database.check()
    if problems:
        return Trial({}, tuple(problems))
    # No process recovers jobs here, so those that ran when the backup was made are no findings.
    report = check(database, recovery=_FOR_EVER)
    return Trial(report.counted, tuple(f"{one.invariant} {one.thing}: {one.text}" for one in report.findings))


@contextmanager
def _sqlite(file: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="headway-trial-") as folder:
        yield str(database_backup.checked(file, Path(folder) / "trial.db"))


@contextmanager
def _postgres(settings: Settings, file: Path) -> Iterator[str]:
    """Makes a database on the same server for the time of the trial."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import make_conninfo

    name = f"headway_trial_{secrets.token_hex(6)}"
    try:
        with psycopg.connect(settings.database, autocommit=True) as server:
            server.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise Refused(
            f"no temporary database can be made on the server ({str(error).strip()})",
            hint="try the backup with a user that may create databases, or on another server",
        ) from error
    try:
        url = _with_name(settings.database, name)
        database_backup.restore_postgres(url, file)
        yield url
    finally:
        with psycopg.connect(make_conninfo(settings.database), autocommit=True) as server:
            server.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _with_name(url: str, name: str) -> str:
    """Returns a PostgreSQL address with another database.

    The result is parsed again: a trial must never reach the database of the settings.
    """
    from psycopg.conninfo import conninfo_to_dict

    made = _ADDRESS.sub(rf"\1/{name}", url, count=1)
    if conninfo_to_dict(made).get("dbname") != name:
        raise Refused(
            "the address of the database names it in its options (dbname=)", hint="write its name as the path"
        )
    return made
