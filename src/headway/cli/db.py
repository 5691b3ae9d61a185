"""The database itself: `db migrate`, `backup`, `restore`, `check`, `promote`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command, family
from headway.cli.choosing import Yes, confirm

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.store.sealing import Moved

db = family("Make, copy and check the database.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="An empty database: postgresql://user@host/name.")]


@command(db, "migrate")
def migrate(call: Call) -> None:
    """Make the database, or bring its schema up to date."""
    from headway.cli.opening import refuse_folder, shown
    from headway.store.db import open_database
    from headway.store.migrate import migrate, versions

    settings = call.settings()
    refuse_folder(settings)
    database = open_database(settings.database, listen=settings.listen)
    try:
        done = migrate(database)
    finally:
        database.close()
    if call.out.as_json:
        call.out.data({"database": shown(settings), "schema": versions()[-1], "migrated": done})
    elif done:
        call.out.show(f"{shown(settings)} has schema {versions()[-1]} now")
    else:
        call.out.show(f"{shown(settings)} is up to date: schema {versions()[-1]}")


@command(db, "check")
def check(call: Call) -> int:
    """Ask the database to check itself. `headway verify` checks what is recorded in it."""
    from headway.cli.opening import shown

    with call.local() as desk:
        problems = desk.database.check()
    if call.out.as_json:
        call.out.data({"database": shown(desk.settings), "problems": problems})
    elif problems:
        for one in problems:
            call.out.lines(one)
        call.out.say(f"{shown(desk.settings)} is damaged: restore a backup with `headway db restore FILE`")
    else:
        call.out.show(f"{shown(desk.settings)} is sound")
    return 5 if problems else 0


@command(db, "backup")
def backup(call: Call, file: File) -> None:
    """Copy the whole database into FILE while others work."""
    from headway.cli import copying
    from headway.errors import Refused

    if file.exists():
        raise Refused(f"{file} exists already: name a new file, or remove it")
    if not file.absolute().parent.is_dir():
        raise Refused(f"there is no folder {file.absolute().parent}: create it")
    with call.local() as desk:
        copying.backup(desk.database, file)
    size = file.stat().st_size
    if call.out.as_json:
        call.out.data({"file": str(file), "bytes": size})
    else:
        call.out.show(f"{file}: {size / 1e6:.1f} MB")


@command(db, "restore")
def restore(
    call: Call,
    file: File,
    yes: Yes = False,
    although_moved: Annotated[
        bool, typer.Option("--although-moved", help="Also over a file whose data were moved to PostgreSQL.")
    ] = False,
) -> None:
    """Replace the database by a backup. Refused while a worker lives; a file's former state is kept beside it."""
    from headway.cli import copying
    from headway.cli.opening import is_file, shown
    from headway.errors import NotFound

    settings = call.settings()
    if not file.is_file():
        raise NotFound(f"there is no file {file}: name a backup made by `headway db backup`")
    both = _refuse_busy(settings, although_moved=although_moved)
    question = f"replace {shown(settings)} by {file}" + (f", although {both}" if both else "")
    if is_file(settings):
        kept = _restore_file(settings, file, question, yes=yes)
    else:
        confirm(question, yes=yes)
        copying.restore_postgres(settings, file)
        kept = None
    if call.out.as_json:
        call.out.data({"database": shown(settings), "restored": str(file), "kept": kept, "warning": both})
    else:
        call.out.show(f"{shown(settings)} is as in {file} now" + (f"; what it was is in {kept}" if kept else ""))
        if both:
            call.out.say(f"headway: {both}: use only one of them")


@command(db, "promote")
def promote(call: Call, url: Url, yes: Yes = False) -> None:
    """Move everything from the SQLite file to PostgreSQL: all or nothing. Refused while anybody works; the file is
    closed afterwards."""
    from headway.errors import Refused

    settings = call.settings()
    try:
        from headway.cli import promoting
    except ImportError as error:
        raise Refused("PostgreSQL needs its driver: install headway[postgres]", code="missing_driver") from error
    promoting.answer(call.out, settings, url, promoting.promote(call.out, settings, url, yes=yes))


def _restore_file(settings: Settings, file: Path, question: str, *, yes: bool) -> str | None:
    from headway.cli import copying

    copy = copying.checked_copy(settings, file)
    try:
        confirm(question, yes=yes)
        return copying.restore_file(settings, copy)
    finally:
        copying.drop(copy)


def _refuse_busy(settings: Settings, *, although_moved: bool) -> str | None:
    """No worker may live in a database that is replaced. One that is damaged or not there has none to ask about; one
    whose data were moved is replaced for whoever says that he knows. What that means, in words."""
    from headway.cli.idle import refuse_workers
    from headway.cli.opening import is_file, open_existing
    from headway.errors import Refused, Unreachable
    from headway.store.sealing import Moved

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
    both = f"its data {verb} in {seal.url}, and every job that waits would run in both"
    if not although_moved:
        raise Refused(f"{both}: only if that database is lost for good, add --although-moved", code=moved.code)
    return both
