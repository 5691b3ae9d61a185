"""Moves the data of an SQLite file to PostgreSQL; at no moment can both databases be used.

A promotion takes the file's write lock and notes its attempt in PostgreSQL before it copies. When all rows are copied
and compared, it seals the file, and only then commits in PostgreSQL. A promotion that dies before the seal has moved
nothing. One that dies between the seal and the commit leaves a sealed file, and all rows or none in PostgreSQL; the
next promotion finds out which, and concludes the move or lifts the seal.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.cli.database.open import is_file, open_existing, shown
from headway.cli.database.preconditions import refuse_work
from headway.cli.job_selection import confirm
from headway.config import masked
from headway.errors import BadInput, CommitUnknown, Refused, Unreachable
from headway.fault_points import point
from headway.store.db import ServerUnreachable
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.url import NOT_UNDERSTOOD
from headway.store.sqlite.database import SqliteDatabase
from headway.store.transfer import copy, destination
from headway.store.transfer import seal as transfer_seal
from headway.store.transfer.copy import Tell
from headway.store.transfer.destination import Elsewhere, Mark
from headway.store.transfer.seal import Moved, Seal

if TYPE_CHECKING:
    from rich.progress import Progress

    from headway.cli.output import Out
    from headway.config import Settings


@dataclass(frozen=True, slots=True)
class Promoted:
    """The outcome of a promotion. `earlier` is True if an interrupted promotion had already moved the data."""

    mark: Mark
    earlier: bool = False


def promote(out: Out, settings: Settings, url: str, *, yes: bool) -> Promoted:
    if not is_postgres(url):
        raise BadInput(f"{masked(url)} is not a PostgreSQL address", hint="write it like postgresql://user@host/name")
    if not is_file(settings):
        raise Refused(
            f"{shown(settings)} is PostgreSQL already", hint="promote moves an SQLite file; name it with --database"
        )
    with closing(_open(url, settings.listen)) as target:
        return _promote(out, settings, target, yes=yes)


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _open(url: str, listen: str | None) -> PostgresDatabase:
    try:
        return PostgresDatabase(url, listen=listen)
    except BadInput as error:
        if error.field != "database":
            raise
        # The message names the setting `database`, but the address is an argument here.
        raise BadInput(f"{masked(url)} {NOT_UNDERSTOOD}") from error


def _promote(out: Out, settings: Settings, target: PostgresDatabase, *, yes: bool) -> Promoted:
    try:
        source = open_existing(settings)
    except Moved as moved:
        if (mark := _after_interruption(settings, target, moved, yes=yes)) is not None:
            return Promoted(mark, earlier=True)
        source = open_existing(settings)
    assert isinstance(source, SqliteDatabase)
    with closing(source):
        with source.read() as tx:
            refuse_work(tx)
            todo = copy.count(tx)
        name = masked(target.url)
        with _reached(name), target.read() as there:
            destination.refuse_used(there, name)
        jobs = f"{todo['hw_job']} job{'s' if todo['hw_job'] != 1 else ''}"
        confirm(f"move {jobs} and all other data from {shown(settings)} to {name}, and seal the file", yes=yes)
        with _progress(out, 2 * sum(todo.values())) as tell:
            return Promoted(_move(source, target, shown(settings), tell))


def _move(source: SqliteDatabase, target: PostgresDatabase, file: str, tell: Tell) -> Mark:
    name, number = masked(target.url), secrets.token_hex(8)
    seal: Seal | None = None
    try:
        with source.transaction("promote") as here:
            transfer_seal.refuse_sealed(here)  # another promotion may have sealed the file before we got the lock
            refuse_work(here)
            address = destination.note(target, name, number)
            point("promote.noted")
            with destination.locked(target, name) as there:
                others = destination.others(there, number)
                tables = copy.copy(here, there, name, tell)
                mark = Mark(number, source.path, source.clock.now(), tables)
                destination.sign(there, mark, others)
                destination.last_step(there)
                seal = Seal(number, address, mark.at)
                transfer_seal.close(here, seal, copy.tables_of(here))
                here.commit()
                point("promote.sealed")
                there.commit()
                point("promote.landed")
    except BaseException as error:
        if seal is None:
            raise
        return _find_out(source, target, seal, file, error)
    done = seal
    source.transact("promote_done", lambda tx: transfer_seal.conclude(tx, done))
    return mark


# --- after an interruption ----------------------------------------------------------------------------------------


def _after_interruption(settings: Settings, target: PostgresDatabase, moved: Moved, *, yes: bool) -> Mark | None:
    """Concludes or undoes a promotion that died at its last step; returns its mark in PostgreSQL.

    Returns None if PostgreSQL has no data of it. The seal is then lifted.
    """
    seal, name, file = moved.seal, masked(target.url), shown(settings)
    if seal.done_at is not None:
        raise moved
    with closing(SqliteDatabase(settings.database, even_moved=True)) as source:
        try:
            with _reached(name):
                if (mark := _settle(source, target, seal, lift=False)) is not None:
                    return mark
                confirm(f"unseal {file}, of which no data arrived in {seal.url}", yes=yes)
                return _settle(source, target, seal, lift=True)
        except Elsewhere as error:
            raise Refused(
                f"the move of {file} to {seal.url} was interrupted at its last step, and none of its data is in"
                f" {error}",
                hint="give the address and the user of that move, so that it is finished or undone there",
            ) from error


def _settle(source: SqliteDatabase, target: PostgresDatabase, seal: Seal, *, lift: bool) -> Mark | None:
    """Concludes the move if PostgreSQL has the data; otherwise, with `lift`, lifts the seal of the file.

    Returns the mark of the data in PostgreSQL, or None. The lock in PostgreSQL is held, so that no other promotion
    begins or ends meanwhile.
    """
    name = masked(target.url)
    with destination.locked(target, name) as there:
        mark = destination.landed(there, name, seal.id)
        if mark is not None:
            source.transact("promote_done", lambda tx: transfer_seal.conclude(tx, seal))
        elif lift:
            source.transact("promote_undone", lambda tx: transfer_seal.lift(tx, seal))
    return mark


def _find_out(source: SqliteDatabase, target: PostgresDatabase, seal: Seal, file: str, error: BaseException) -> Mark:
    """Settles a promotion after an error between the seal and PostgreSQL's answer.

    Returns the mark if the data arrived; otherwise raises.
    """
    try:
        mark = _settle(source, target, seal, lift=True)
    except Moved:
        raise  # another promotion settled it meanwhile
    except (Refused, Unreachable) as unknown:
        raise Unreachable(
            f"the connection to {seal.url} broke at the last step, and it is not known whether it has the data: no data"
            f" is lost, and {file} stays sealed; run the same `headway db promote` again"
        ) from unknown
    if not isinstance(error, CommitUnknown):
        raise error
    if mark is None:
        raise Unreachable(
            f"the connection to {seal.url} broke at the last step: nothing was moved, {file} is unchanged; try again"
        ) from error
    return mark


# --- output -------------------------------------------------------------------------------------------------------


@contextmanager
def _reached(name: str) -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        reason = error.cause if isinstance(error, ServerUnreachable) else str(error)
        raise Unreachable(
            f"{name} cannot be used ({reason})", hint="start that server, or create the database there"
        ) from error


@contextmanager
def _progress(out: Out, total: int) -> Iterator[Tell]:
    """Shows a progress bar on a terminal. Each row counts twice: once written, once compared."""
    silent = out.as_json or not out.stderr.is_terminal
    with nullcontext() if silent else _bar(out) as bar:
        if bar is None:
            yield lambda rows: None
        else:
            task = bar.add_task("copying and comparing", total=total)
            yield lambda rows: bar.advance(task, rows)


def _bar(out: Out) -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=out.stderr, transient=True, redirect_stdout=False, redirect_stderr=False)


def answer(out: Out, settings: Settings, url: str, promoted: Promoted) -> None:
    """Prints the moved rows and the next steps."""
    name, file, tables = masked(url), shown(settings), promoted.mark.tables
    rows, folder = sum(tables.values()), settings.artifacts.absolute()
    words = {"job": "hw_job", "schedule": "hw_schedule", "group": "hw_group", "event": "hw_event"}
    counts = ", ".join(f"{tables[table]} {word}{'s' if tables[table] != 1 else ''}" for word, table in words.items())
    begin = "an interrupted promotion had already moved all data" if promoted.earlier else "all data was moved"
    facts = {"tables": tables, "rows": rows, "earlier": promoted.earlier, "artifacts": str(folder)}
    lines = (
        f"{begin}: {counts}; {rows} rows of {len(tables)} tables, each row compared",
        f'Now set database = "{name}" in headway.toml (or HEADWAY_DATABASE) and start the workers.',
        f"{file} is now sealed: opening it reports the PostgreSQL address. Keep it until PostgreSQL is backed up.",
        f"Attached files stay in {folder}: the database has only their names. Other machines need that folder too.",
    )
    out.answer({"database": file, "promoted_to": name, **facts}, lambda: lines)
