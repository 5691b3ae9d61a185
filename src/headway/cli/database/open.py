"""Opens the database and loads the user's app; reports a problem with either in one line."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.app import App
from headway.config import masked
from headway.engine.tasks.registry import unknown_text
from headway.errors import BadInput, Refused, Unreachable
from headway.model.values.names import check_name
from headway.store.db import Database, open_database
from headway.store.migrations import refuse_newer, versions
from headway.store.queue.lanes import unknown_resource

if TYPE_CHECKING:
    from types import ModuleType

    from headway.config import Settings

T = TypeVar("T")
AGAIN_SECONDS = 2.0


def is_file(settings: Settings) -> bool:
    return not settings.database.startswith(("postgresql://", "postgres://"))


def shown(settings: Settings) -> str:
    """Returns the database for display, without its password."""
    if not is_file(settings):
        return masked(settings.database)
    return settings.database if "/" in settings.database else f"./{settings.database}"


# --- the database -------------------------------------------------------------------------------------------------


def open_existing(settings: Settings) -> Database:
    """Opens a database that has Headway's schema; creates and changes nothing."""
    _refuse_missing(settings)
    database = open_database(settings.database, listen=settings.listen)
    try:
        refuse_foreign(database, shown(settings))
    except BaseException:
        database.close()
        raise
    return database


def _refuse_missing(settings: Settings) -> None:
    path = Path(settings.database)
    if is_file(settings) and not path.exists():
        raise Unreachable(
            f"no database at {shown(settings)}",
            hint="start with `headway up`, or name one with --database",
            code="no_database",
        )
    if is_file(settings) and not path.is_file():
        raise Unreachable(
            f"{shown(settings)} is not a file", hint="name a database file with --database", code="no_database"
        )


def refuse_foreign(database: Database, name: str) -> None:
    """Refuses a database without Headway's schema, or with the schema of another version."""
    with database.read() as tx:
        ((has_schema,),) = tx.run(f"schema_found_{database.dialect}")
        if not has_schema:
            raise Unreachable(
                f"{name} has no Headway schema yet",
                hint="create it with `headway up` or `headway db migrate`",
                code="no_database",
            )
        ((version,),) = tx.run("schema_version")
    refuse_newer(version)
    if version < versions()[-1]:
        raise Refused(
            f"{name} has schema {version}, this Headway needs {versions()[-1]}", hint="run `headway db migrate`"
        )


def refuse_folder(settings: Settings) -> None:
    if is_file(settings) and Path(settings.database).is_dir():
        raise Unreachable(f"{shown(settings)} is a folder", hint="name a database file with --database")


def refuse_unknown(app: App, task: str, resources: Iterable[str] = ()) -> None:
    """Refuses an unknown task or resource before a missing database file is created.

    An existing database may know tasks and resources of other apps, so it is checked later.
    """
    path = Path(app.settings.database)
    if not is_file(app.settings) or path.exists() or not path.absolute().parent.is_dir():
        return
    if task not in app.tasks:
        raise BadInput(unknown_text(task, app.registry.specs), code="unknown_task", field="task")
    for name in resources:
        if check_name(name, field="resources") not in app.settings.resources:
            raise unknown_resource(name, list(app.settings.resources))


def await_database(app: App, say: Callable[[str], None], *, wait: bool, begin: Callable[[], T]) -> T:
    """Calls `begin`, and with `wait` calls it again every two seconds while the database is unreachable.

    `begin` opens the app's database and creates it if it is missing. The whole of it is repeated, because the
    connection may break after the database was opened.
    """
    refuse_folder(app.settings)
    logged = False
    while True:
        try:
            return begin()
        except Unreachable as error:
            if not wait:
                raise
            if not logged:
                say(f"headway: {error}; trying again every {AGAIN_SECONDS:g} s")
                logged = True
            time.sleep(AGAIN_SECONDS)


# --- the app ------------------------------------------------------------------------------------------------------


def load_app(where: str) -> App:
    """Imports the App named by `module:app` or `path/to/file.py:app`."""
    place, _, name = where.rpartition(":")
    if not place or not name.isidentifier():
        raise BadInput(f"--app must name a module and the app in it, like shop.jobs:app or jobs.py:app, not {where!r}")
    module = _import_file(Path(place)) if place.endswith(".py") else _import(place, str(Path.cwd()))
    app = getattr(module, name, None)
    if isinstance(app, App):
        return app
    others = sorted(n for n, value in vars(module).items() if isinstance(value, App))
    hint = f"did you mean {place}:{others[0]}?" if others else "create one there with `app = App()`"
    raise BadInput(f"{place} has no App named {name}", hint=hint, field="app")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadInput(f"--app: there is no file {path}", hint="check the path", field="app")
    module = _import(path.stem, str(path.parent.absolute()))
    if Path(getattr(module, "__file__", None) or "").absolute() != path.absolute():
        raise BadInput(f"--app: another module has the name {path.stem}", hint=f"rename {path}", field="app")
    return module


def _import(name: str, folder: str) -> ModuleType:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(
                f"--app: there is no module {name}",
                hint="run headway in its folder, or name its file, like jobs.py:app",
                field="app",
            ) from None
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> BadInput:
    return BadInput(
        f"--app: {name} cannot be imported: {type(error).__name__}: {error}{_where(error)}",
        hint="correct it",
        field="app",
    )


def _where(error: Exception) -> str:
    """Returns the file and line of the user's code that failed, or an empty text."""
    if isinstance(error, SyntaxError):
        return ""  # its message names the line
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or "importlib" in trace.tb_frame.f_code.co_filename:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
