"""Backs up and restores a database: by SQLite's backup API, or by pg_dump and pg_restore."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.database.open import refuse_foreign
from headway.errors import HeadwayError, Refused
from headway.store.db import Database, open_database
from headway.store.sqlite.files import PRIVATE, create_new
from headway.store.sqlite.read_only import SqliteToLookAt
from headway.store.sqlite.schema_trust import refuse_forged

if TYPE_CHECKING:
    from headway.config import Settings


Progress = Callable[[int, int], None]


def backup(database: Database, file: Path, progress: Progress | None = None) -> None:
    """Writes a backup file, which only its owner may read.

    The file gets its name only when all its data are on the disk, and were read again without an error.
    """
    part = file.with_name(f".{file.name}.part")
    try:
        create_new(str(part))
        if database.dialect == "sqlite":
            _copy_pages(database, part, progress)
        else:
            _run("pg_dump", database.url, ["--format=custom", f"--file={part}"], f"--format=custom --file={file}")
        _sync(part)
        _check_written(database, part, file)
        os.replace(part, file)
        _sync(file.absolute().parent)
    finally:
        for rest in (part, *(part.with_name(part.name + end) for end in ("-journal", "-wal", "-shm"))):
            rest.unlink(missing_ok=True)


def _check_written(database: Database, part: Path, file: Path) -> None:
    if database.dialect == "sqlite":
        written = SqliteToLookAt(str(part))
        try:
            problems = written.check()
        finally:
            written.close()
        if problems:
            raise Refused(
                f"the copy is damaged ({problems[0]}) and was removed", hint="run `headway db check`, then try again"
            )
    else:
        _run("pg_restore", None, ["--list", str(part)], f"--list {file}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_pages(database: Database, part: Path, progress: Progress | None) -> None:
    from headway.store.sqlite.backup import backup
    from headway.store.sqlite.database import SqliteDatabase

    assert isinstance(database, SqliteDatabase)
    backup(database, str(part), progress)


def checked_copy(settings: Settings, file: Path) -> Path:
    """Copies a backup beside the database and checks it.

    Refuses a backup that is damaged or too new, of another program, or with a schema that Headway did not make.
    """
    return checked(file, Path(f"{settings.database}.restoring"))


def checked(file: Path, copy: Path) -> Path:
    """Copies a backup to a place and checks the copy; leaves no copy of a backup that is refused."""
    try:
        drop(copy)
        create_new(str(copy))
        shutil.copyfile(file, copy)
        refuse_forged(str(copy), str(file))
        database = open_database(str(copy))
        try:
            refuse_foreign(database, str(file))
            problems = database.check()
        finally:
            database.close()
        if problems:
            raise Refused(f"{file} is damaged ({problems[0]})", hint="name another backup")
    except (HeadwayError, OSError) as error:
        drop(copy)
        if isinstance(error, Refused):
            raise
        raise Refused(f"{file} is not a usable backup ({error})", hint="name another file") from error
    return copy


def drop(copy: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        copy.with_name(copy.name + end).unlink(missing_ok=True)


def restore_file(settings: Settings, copy: Path) -> str | None:
    """Replaces the database file by the copy; returns the path of the former file, or None."""
    kept = _put_aside(Path(settings.database))
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
    os.replace(copy, settings.database)
    return kept


def restore_postgres(url: str, file: Path) -> None:
    options = ["--clean", "--if-exists", "--single-transaction", "--no-owner", str(file)]
    _run("pg_restore", url, options, " ".join(options))


def _put_aside(path: Path) -> str | None:
    """Renames a database file together with its write-ahead log; returns the new path, or None."""
    if not path.exists():
        return None
    aside = f"{path}.before-{time.strftime('%Y%m%dT%H%M%S')}"
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
            with suppress(PermissionError):  # the file of another user; `doctor` reports it
                os.chmod(f"{aside}{end}", PRIVATE)  # an earlier version may have created it for all users
    return aside


def _run(program: str, url: str | None, options: list[str], shown_options: str) -> None:
    """Runs a client program of PostgreSQL, without a server if there is no address.

    The password goes into the environment, because other users can read the arguments.
    """
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    path = shutil.which(program)
    if path is None:
        raise Refused(
            f"{program} is not installed here: install PostgreSQL's client programs, or run on a machine that has them:"
            f" {program} {shown_options} --dbname=DATABASE"
        )
    facts = conninfo_to_dict(url or "")
    password = facts.pop("password", None)
    address = make_conninfo(**{name: str(fact) for name, fact in facts.items() if fact is not None})
    environment = os.environ | ({"PGPASSWORD": str(password)} if password else {})
    ended = subprocess.run(
        [path, *([f"--dbname={address}"] if url else []), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit code {ended.returncode}"
        raise Refused(
            f"{program} failed ({reason}), and nothing was changed", hint="use a version as new as the server's"
        )
