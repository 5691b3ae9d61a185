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
def backup(
    call: Invocation,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Backup file.", show_default=False)] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder for many backups and the attached files.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="RULE", help="Backups to keep in the folder, like 7d,4w,6m.")
    ] = None,
) -> int:
    """Copy the whole database into FILE, also while workers run, and check the copy."""
    from headway.cli.database import backup as database_backup
    from headway.errors import BadInput, Refused

    if (file is None) == (to is None):
        raise BadInput("name either a file, or a folder with --to", field="file")
    if to is not None:
        return _rotate(call, to, keep)
    assert file is not None
    if keep is not None:
        raise BadInput("--keep is for a folder of backups: name it with --to", field="keep")
    if file.exists():
        raise Refused(f"{file} exists already: name a new file, or remove it")
    if not file.absolute().parent.is_dir():
        raise Refused(f"there is no folder {file.absolute().parent}: create it")
    with call.local() as backend, _bar(call.out, f"copying into {file}") as progress:
        database_backup.backup(backend.database, file, progress)
    size = file.stat().st_size
    call.out.answer({"file": str(file), "bytes": size}, lambda: [f"{file}: {size / 1e6:.1f} MB"])
    return 0


def _rotate(call: Invocation, folder: Path, keep: str | None) -> int:
    """Adds a backup to a folder. Exits 5 if an attached file is damaged; the backup is kept all the same."""
    from headway.cli.database.rotation import rotate
    from headway.model.backups import parse_keep

    rule = parse_keep(keep) if keep is not None else None
    with call.local() as backend, _bar(call.out, f"copying into {folder}") as progress:
        done = rotate(backend.database, folder, backend.settings.artifacts, rule, progress)
    size = done.file.stat().st_size
    data = {"file": str(done.file), "bytes": size, "files_copied": done.copied}
    more = {"files_damaged": list(done.damaged), "removed": list(done.removed)}
    lines = [f"{done.file}: {size / 1e6:.1f} MB, {done.copied} new attached files, {len(done.removed)} backups removed"]
    notes = [f"headway: the attached file {digest} is damaged and was not copied" for digest in done.damaged]
    call.out.answer({**data, **more}, lambda: lines, notes=notes)
    return 5 if done.damaged else 0


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
    trial: Annotated[
        bool, typer.Option("--try", help="Only prove the backup: restore it into a temporary database and verify it.")
    ] = False,
) -> int:
    """Replace the database by a backup. Refused while a worker is alive; the former file is kept beside the new one."""
    from headway.cli.database import backup as database_backup
    from headway.cli.database import numbers
    from headway.cli.database.open import is_file, shown
    from headway.errors import NotFound

    settings = call.settings()
    if not file.is_file():
        raise NotFound(f"there is no file {file}", hint="name a backup that `headway db backup` wrote")
    if trial:
        return _try(call, settings, file)
    both = _refuse_busy(settings, although_moved=although_moved)
    question = f"replace {shown(settings)} by {file}" + (f", although {both}" if both else "")
    if is_file(settings):
        kept = _restore_file(settings, file, question, yes=yes)
    else:
        confirm(question, yes=yes)
        last = numbers.given(settings)
        database_backup.restore_postgres(settings.database, file)
        numbers.go_on_after(settings.database, last)
        kept = None
    outcome = f"{shown(settings)} was restored from {file}" + (f"; its former state is {kept}" if kept else "")
    done = {"database": shown(settings), "restored": str(file), "kept": kept, "warning": both}
    notes = [f"headway: {both}: use only one of them"] if both else []
    call.out.answer(done, lambda: [outcome], notes=[*notes, *_restore_files(settings, file)])
    return 0


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


def _restore_files(settings: Settings, file: Path) -> list[str]:
    """Copies the attached files of a backup in a folder back. Returns a sentence for each damaged file."""
    from headway.cli.database.rotation import restore_files

    damaged = restore_files(file, settings.artifacts)
    return [f"headway: the attached file {digest} of the backup is damaged and was not copied" for digest in damaged]


def _try(call: Invocation, settings: Settings, file: Path) -> int:
    """Proves a backup and says what it holds. Exits 5 if it could not be used as it is."""
    from headway.cli.database.trial import prove

    trial = prove(settings, file)
    counts = ", ".join(f"{count} {name}" for name, count in trial.counted.items())
    lines = list(trial.problems) or [f"{file} can be restored: {counts}"]
    data = {"file": str(file), "counted": dict(trial.counted), "problems": list(trial.problems)}
    call.out.answer(data, lambda: lines)
    return 5 if trial.problems else 0


def _restore_file(settings: Settings, file: Path, question: str, *, yes: bool) -> str | None:
    from headway.cli.database import backup as database_backup
    from headway.cli.database import numbers

    copy = database_backup.checked_copy(settings, file)
    try:
        confirm(question, yes=yes)
        numbers.go_on_after(str(copy), numbers.given(settings))
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
