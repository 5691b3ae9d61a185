"""From the SQLite file to PostgreSQL, so that at no moment both can be used.

The file's write lock is held from before the copy, and PostgreSQL knows of the attempt by then. When it has everything
and it was compared, the file is sealed, and only then PostgreSQL commits. Who dies before the seal has moved nothing;
who dies between the two leaves a sealed file and, in PostgreSQL, everything or nothing: the next promotion looks, and
finishes it or lifts the seal.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.cli.choosing import confirm
from headway.cli.idle import refuse_work
from headway.cli.opening import is_file, open_existing, shown
from headway.config import masked
from headway.errors import BadInput, CommitUnknown, Refused, Unreachable
from headway.faults import point
from headway.store import landing, promoting, sealing
from headway.store.landing import Elsewhere, Mark
from headway.store.postgres import PostgresDatabase
from headway.store.promoting import Tell
from headway.store.sealing import Moved, Seal
from headway.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from rich.progress import Progress

    from headway.cli.out import Out
    from headway.config import Settings


@dataclass(frozen=True, slots=True)
class Promoted:
    """What PostgreSQL has now. `earlier`: an interrupted promotion had brought it there."""

    mark: Mark
    earlier: bool = False


def promote(out: Out, settings: Settings, url: str, *, yes: bool) -> Promoted:
    if not is_postgres(url):
        raise BadInput(f"{masked(url)} is no address of PostgreSQL: write it like postgresql://user@host/name")
    if not is_file(settings):
        raise Refused(f"{shown(settings)} is PostgreSQL already: promote moves an SQLite file; name it with --database")
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
        raise BadInput(f"{masked(url)} {str(error).removeprefix('database: ')}") from error  # it is not that setting


def _promote(out: Out, settings: Settings, target: PostgresDatabase, *, yes: bool) -> Promoted:
    try:
        source = open_existing(settings)
    except Moved as moved:
        if (found := _after_interruption(settings, target, moved, yes=yes)) is not None:
            return Promoted(found, earlier=True)
        source = open_existing(settings)
    assert isinstance(source, SqliteDatabase)
    with closing(source):
        with source.read() as tx:
            refuse_work(tx)
            todo = promoting.count(tx)
        name = masked(target.url)
        with _reached(name), target.read() as there:
            landing.refuse_used(there, name)
        jobs = f"{todo['hw_job']} job{'s' if todo['hw_job'] != 1 else ''}"
        confirm(f"move {jobs} and all else from {shown(settings)} to {name}, and close the file", yes=yes)
        with _progress(out, 2 * sum(todo.values())) as tell:
            return Promoted(_move(source, target, shown(settings), tell))


def _move(source: SqliteDatabase, target: PostgresDatabase, file: str, tell: Tell) -> Mark:
    name, number = masked(target.url), secrets.token_hex(8)
    seal: Seal | None = None
    try:
        with source.transaction("promote") as here:
            sealing.refuse_sealed(here)  # another promotion may have come first
            refuse_work(here)
            address = landing.note(target, name, number)
            point("promote.noted")
            with landing.locked(target, name) as there:
                others = landing.others(there, number)
                tables = promoting.copy(here, there, name, tell)
                mark = Mark(number, source.path, source.clock.now(), tables)
                landing.sign(there, mark, others)
                landing.last_step(there)
                seal = Seal(number, address, mark.at)
                sealing.close(here, seal, promoting.tables_of(here))
                here.commit()
                point("promote.sealed")
                there.commit()
                point("promote.landed")
    except BaseException as error:
        if seal is None:
            raise
        return _find_out(source, target, seal, file, error)
    done = seal
    source.transact("promote_done", lambda tx: sealing.conclude(tx, done))
    return mark


# --- when it was interrupted --------------------------------------------------------------------------------------


def _after_interruption(settings: Settings, target: PostgresDatabase, moved: Moved, *, yes: bool) -> Mark | None:
    """What a promotion that died at its last step has brought to PostgreSQL; None: nothing, and the file is open."""
    seal, name, file = moved.seal, masked(target.url), shown(settings)
    if seal.done_at is not None:
        raise moved
    with closing(SqliteDatabase(settings.database, even_moved=True)) as source:
        try:
            with _reached(name):
                if (found := _settle(source, target, seal, lift=False)) is not None:
                    return found
                confirm(f"open {file} again, of which nothing has arrived in {seal.url}", yes=yes)
                return _settle(source, target, seal, lift=True)
        except Elsewhere as error:
            raise Refused(
                f"the move of {file} to {seal.url} was interrupted at its last step, and nothing of it is in {error}:"
                " name the address and the user of that time, so that it is finished or undone there"
            ) from error


def _settle(source: SqliteDatabase, target: PostgresDatabase, seal: Seal, *, lift: bool) -> Mark | None:
    """One of the two has the data, and it is this one that can be used from here on. Decided under the lock there, so
    that nobody finishes or begins a promotion meanwhile."""
    name = masked(target.url)
    with landing.locked(target, name) as there:
        mark = landing.landed(there, name, seal.id)
        if mark is not None:
            source.transact("promote_done", lambda tx: sealing.conclude(tx, seal))
        elif lift:
            source.transact("promote_undone", lambda tx: sealing.lift(tx, seal))
    return mark


def _find_out(source: SqliteDatabase, target: PostgresDatabase, seal: Seal, file: str, error: BaseException) -> Mark:
    """What became of it, after an error between the seal and the answer of PostgreSQL."""
    try:
        found = _settle(source, target, seal, lift=True)
    except Moved:
        raise  # by somebody else, who came meanwhile
    except (Refused, Unreachable) as unknown:
        raise Unreachable(
            f"{seal.url} went away at the last step, and whether it has everything is not known: nothing is lost, and"
            f" {file} stays closed; run the same `headway db promote` again"
        ) from unknown
    if not isinstance(error, CommitUnknown):
        raise error
    if found is None:
        raise Unreachable(
            f"{seal.url} went away at the last step: nothing was moved, and {file} is as before; try again"
        ) from error
    return found


# --- for people ---------------------------------------------------------------------------------------------------


@contextmanager
def _reached(name: str) -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        said = str(error).removeprefix("PostgreSQL cannot be reached: ")
        raise Unreachable(f"{name} cannot be used ({said}): start that server, or create the database there") from error


@contextmanager
def _progress(out: Out, total: int) -> Iterator[Tell]:
    """A bar for whoever looks: each row counts twice, written and compared."""
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
    """What was moved, and what to do now."""
    name, file, tables = masked(url), shown(settings), promoted.mark.tables
    rows, folder = sum(tables.values()), settings.artifacts.absolute()
    if out.as_json:
        facts = {"tables": tables, "rows": rows, "earlier": promoted.earlier, "artifacts": str(folder)}
        out.data({"database": file, "promoted_to": name, **facts})
        return
    words = {"job": "hw_job", "schedule": "hw_schedule", "group": "hw_group", "event": "hw_event"}
    said = ", ".join(f"{tables[table]} {word}{'s' if tables[table] != 1 else ''}" for word, table in words.items())
    begin = "an interrupted promotion had brought everything there" if promoted.earlier else "everything is there"
    out.show(
        f"{begin}: {said}; {rows} rows of {len(tables)} tables, all of them compared",
        f'Now set database = "{name}" in headway.toml (or HEADWAY_DATABASE) and start the workers.',
        f"{file} is closed: whoever opens it is told where its data went. Keep it until PostgreSQL is backed up.",
        f"Attached files stay in {folder}: only their names are in the database. Other machines need that folder too.",
    )
