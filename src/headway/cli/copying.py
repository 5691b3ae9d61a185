"""Backups: SQLite copies itself, PostgreSQL has its own programs for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.opening import refuse_foreign
from headway.errors import HeadwayError, Refused
from headway.store.db import Database, open_database

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.store.sqlite import SqliteDatabase


def backup(database: Database, file: Path) -> None:
    """A copy that is complete or not there."""
    part = file.with_name(f".{file.name}.part")
    try:
        if database.dialect == "sqlite":
            _sqlite(database).backup(str(part))
        else:
            _run("pg_dump", database.url, ["--format=custom", f"--file={part}"], f"--format=custom --file={file}")
        os.replace(part, file)
    finally:
        for rest in (part, *(part.with_name(part.name + end) for end in ("-journal", "-wal", "-shm"))):
            rest.unlink(missing_ok=True)


def _sqlite(database: Database) -> SqliteDatabase:
    from headway.store.sqlite import SqliteDatabase

    assert isinstance(database, SqliteDatabase)
    return database


def checked_copy(settings: Settings, file: Path) -> Path:
    """A copy of a backup beside the database, after a look at it: damaged, foreign or too new, it is refused."""
    copy = Path(f"{settings.database}.restoring")
    try:
        shutil.copyfile(file, copy)
        database = open_database(str(copy))
        try:
            refuse_foreign(database, str(file))
            problems = database.check()
        finally:
            database.close()
        if problems:
            raise Refused(f"{file} is damaged ({problems[0]}): name another backup")
    except (HeadwayError, OSError) as error:
        drop(copy)
        if isinstance(error, Refused):
            raise
        raise Refused(f"{file} is not a usable backup ({error}): name another file") from error
    return copy


def drop(copy: Path) -> None:
    for end in ("", "-wal", "-shm"):
        copy.with_name(copy.name + end).unlink(missing_ok=True)


def restore_file(settings: Settings, copy: Path) -> str | None:
    """Puts the copy in the place of the database. Returns where its former state is kept."""
    kept = _put_aside(Path(settings.database))
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
    os.replace(copy, settings.database)
    return kept


def restore_postgres(settings: Settings, file: Path) -> None:
    options = ["--clean", "--if-exists", "--single-transaction", "--no-owner", str(file)]
    _run("pg_restore", settings.database, options, " ".join(options))


def _put_aside(path: Path) -> str | None:
    """Moves a database away with its log: both belong together."""
    if not path.exists():
        return None
    aside = f"{path}.before-{time.strftime('%Y%m%dT%H%M%S')}"
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
    return aside


def _run(program: str, url: str, options: list[str], shown_options: str) -> None:
    """One of PostgreSQL's own programs; a password goes by the environment, where other users cannot read it."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    found = shutil.which(program)
    if found is None:
        raise Refused(
            f"{program} is not installed here: install PostgreSQL's client programs, or run where they are:"
            f" {program} {shown_options} --dbname=DATABASE"
        )
    facts = conninfo_to_dict(url)
    password = facts.pop("password", None)
    address = make_conninfo(**{name: str(fact) for name, fact in facts.items() if fact is not None})
    environment = os.environ | ({"PGPASSWORD": str(password)} if password else {})
    ended = subprocess.run(
        [found, f"--dbname={address}", *options], env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        said = lines[-1] if lines else f"exit code {ended.returncode}"
        raise Refused(f"{program} failed ({said}): it must be as new as the server; nothing was changed")
