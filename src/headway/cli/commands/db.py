"""Maintains the database: `db migrate`, `backup`, `restore`, `check`, `promote`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.job_selection import Yes, confirm

if TYPE_CHECKING:
    from headway.cli.output import Out
    from headway.config import Settings
    from headway.store.transfer.seal import Moved

db = family("Create, migrate, back up, restore, check and promote the database.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="Backup file.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="Empty database: postgresql://user@host/name.")]


@command(db, "migrate")
def migrate(call: Invocation) -> None:
    """Create the database, or migrate its schema to the current version."""
    from headway.cli.database.open import refuse_folder, shown
    from headway.store.db import open_database
    from headway.store.migrations import migrate, versions

    settings = call.settings()
    refuse_folder(settings)
    database = open_database(settings.database, listen=settings.listen)
    try:
        done = migrate(database)
    finally:
        database.close()
    name, schema = shown(settings), versions()[-1]
    outcome = f"{name} now has schema {schema}" if done else f"{name} is up to date: schema {schema}"
    call.out.answer({"database": name, "schema": schema, "migrated": done}, lambda: [outcome])


@command(db, "check")
def check(call: Invocation) -> int:
    """Run the database's own integrity check. `headway verify` checks the recorded history."""
    from headway.cli.database.open import shown

    with call.local() as backend:
        problems = backend.database.check()
    if call.out.as_json:
        call.out.data({"database": shown(backend.settings), "problems": problems})
    elif problems:
        for problem in problems:
            call.out.lines(problem)
        call.out.say(f"{shown(backend.settings)} is damaged: restore a backup with `headway db restore FILE`")
    else:
        call.out.show(f"{shown(backend.settings)} is intact")
    return 5 if problems else 0


@command(db, "backup")
def backup(call: Invocation, file: File) -> None:
    """Copy the whole database into FILE, also while workers run."""
    from headway.cli.database import backup as database_backup
    from headway.errors import Refused

    if file.exists():
        raise Refused(f"{file} exists already: name a new file, or remove it")
    if not file.absolute().parent.is_dir():
        raise Refused(f"there is no folder {file.absolute().parent}: create it")
    with call.local() as backend, _bar(call.out, f"copying into {file}") as progress:
        database_backup.backup(backend.database, file, progress)
    size = file.stat().st_size
    call.out.answer({"file": str(file), "bytes": size}, lambda: [f"{file}: {size / 1e6:.1f} MB"])


@contextmanager
def _bar(out: Out, text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a progress bar on a terminal; yields None elsewhere."""
    from headway.cli.follow import progress_bar

    if not out.stderr.is_terminal:
        yield None
        return
    with progress_bar(out) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@command(db, "restore")
def restore(
    call: Invocation,
    file: File,
    yes: Yes = False,
    although_moved: Annotated[
        bool, typer.Option("--although-moved", help="Replace even a file whose data were moved to PostgreSQL.")
    ] = False,
) -> None:
    """Replace the database by a backup. Refused while a worker is alive; the former file is kept beside the new one."""
    from headway.cli.database import backup as database_backup
    from headway.cli.database.open import is_file, shown
    from headway.errors import NotFound

    settings = call.settings()
    if not file.is_file():
        raise NotFound(f"there is no file {file}", hint="name a backup that `headway db backup` wrote")
    both = _refuse_busy(settings, although_moved=although_moved)
    question = f"replace {shown(settings)} by {file}" + (f", although {both}" if both else "")
    if is_file(settings):
        kept = _restore_file(settings, file, question, yes=yes)
    else:
        confirm(question, yes=yes)
        database_backup.restore_postgres(settings, file)
        kept = None
    outcome = f"{shown(settings)} was restored from {file}" + (f"; its former state is {kept}" if kept else "")
    done = {"database": shown(settings), "restored": str(file), "kept": kept, "warning": both}
    call.out.answer(done, lambda: [outcome], notes=[f"headway: {both}: use only one of them"] if both else [])


@command(db, "promote")
def promote(call: Invocation, url: Url, yes: Yes = False) -> None:
    """Move all data from the SQLite file to PostgreSQL, in full or not at all.

    Refused while a worker is alive, a job is RUNNING, a reservation is active or a webhook is being sent. The file is
    sealed afterwards.
    """
    from headway.errors import Refused

    settings = call.settings()
    try:
        from headway.cli.database import promote as database_promote
    except ImportError as error:
        raise Refused("PostgreSQL needs its driver: install headway[postgres]", code="missing_driver") from error
    database_promote.answer(call.out, settings, url, database_promote.promote(call.out, settings, url, yes=yes))


def _restore_file(settings: Settings, file: Path, question: str, *, yes: bool) -> str | None:
    from headway.cli.database import backup as database_backup

    copy = database_backup.checked_copy(settings, file)
    try:
        confirm(question, yes=yes)
        return database_backup.restore_file(settings, copy)
    finally:
        database_backup.drop(copy)


def _refuse_busy(settings: Settings, *, although_moved: bool) -> str | None:
    """Refuses to replace a database that has a living worker, or whose data were moved to PostgreSQL.

    A damaged or missing file has no workers to check. With `although_moved`, returns the warning about the moved data;
    otherwise returns None.
    """
    from headway.cli.database.open import is_file, open_existing
    from headway.cli.database.preconditions import refuse_workers
    from headway.errors import Refused, Unreachable
    from headway.store.transfer.seal import Moved

    try:
        database = open_existing(settings)
    except Moved as moved:
        return _both(moved, although_moved=although_moved)
    except (Unreachable, Refused):
        if not is_file(settings):
            raise
        return None
    try:
        with database.read() as tx:
            refuse_workers(tx)
    finally:
        database.close()
    return None


def _both(moved: Moved, *, although_moved: bool) -> str:
    from headway.errors import Refused

    seal = moved.seal
    verb = "may be" if seal.done_at is None else "are"
    both = f"its data {verb} in {seal.url}, and every waiting job would run in both databases"
    if not although_moved:
        raise Refused(f"{both}: add --although-moved only if that database is permanently lost", code=moved.code)
    return both
