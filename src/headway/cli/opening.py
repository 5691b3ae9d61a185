"""The way to the database and to the user's app; whatever is wrong with either is said in one line."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.app import App, current_user
from headway.config import masked
from headway.engine.client import Client
from headway.engine.registry import unknown_text
from headway.errors import BadInput, Refused, Unreachable
from headway.model.retry import RetryPolicy
from headway.model.values import check_name
from headway.store.db import Database, open_database
from headway.store.lanes import unknown_resource
from headway.store.migrate import refuse_newer, versions

if TYPE_CHECKING:
    from types import ModuleType

    from headway.config import Settings

AGAIN_SECONDS = 2.0


def is_file(settings: Settings) -> bool:
    return not settings.database.startswith(("postgresql://", "postgres://"))


def shown(settings: Settings) -> str:
    """The database for people: without its password."""
    if not is_file(settings):
        return masked(settings.database)
    return settings.database if "/" in settings.database else f"./{settings.database}"


# --- the database -------------------------------------------------------------------------------------------------


def open_existing(settings: Settings) -> Database:
    """A database that Headway has made before. Nothing is created, nothing is changed."""
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
            f"no database at {shown(settings)}: start with `headway up`, or name one with --database",
            code="no_database",
        )
    if is_file(settings) and not path.is_file():
        raise Unreachable(f"{shown(settings)} is not a file: name a database file with --database", code="no_database")


def refuse_foreign(database: Database, name: str) -> None:
    """Refuses what is no database of Headway, or one of another version."""
    with database.read() as tx:
        ((found,),) = tx.run(f"schema_found_{database.dialect}")
        if not found:
            raise Unreachable(
                f"{name} is not a database of Headway yet: `headway up` or `headway db migrate` makes it one",
                code="no_database",
            )
        ((version,),) = tx.run("schema_version")
    refuse_newer(version)
    if version < versions()[-1]:
        raise Refused(f"{name} has schema {version}, this Headway needs {versions()[-1]}: run `headway db migrate`")


def refuse_folder(settings: Settings) -> None:
    if is_file(settings) and Path(settings.database).is_dir():
        raise Unreachable(f"{shown(settings)} is a folder: name a database file with --database")


def refuse_unknown(app: App, task: str, resources: Iterable[str] = ()) -> None:
    """What this app and its settings do not have is nowhere if there is no database yet: none is made to find out."""
    path = Path(app.settings.database)
    if not is_file(app.settings) or path.exists() or not path.absolute().parent.is_dir():
        return
    if task not in app.tasks:
        raise BadInput(unknown_text(task, app.registry.specs), code="unknown_task", field="task")
    for name in resources:
        if check_name(name, field="resources") not in app.settings.resources:
            raise unknown_resource(name, list(app.settings.resources))


def await_database(app: App, say: Callable[[str], None], *, wait: bool) -> Database:
    """The app's database, made if it is not there. While it cannot be reached, tries again every two seconds."""
    refuse_folder(app.settings)
    said = False
    while True:
        try:
            return app.database
        except Unreachable as error:
            if not wait:
                raise
            if not said:
                say(f"headway: {error}; trying again every {AGAIN_SECONDS:g} s")
                said = True
            time.sleep(AGAIN_SECONDS)


def client_of(app: App, settings: Settings, database: Database, tenant: str = "default") -> Client:
    retry = RetryPolicy(settings.retry.max_attempts, settings.retry.base_delay)
    return Client(
        database,
        app.registry,
        actor=current_user(),
        tenant=tenant,
        retry=retry,
        resources=settings.resources,
        reservation_ttl=settings.reservation_ttl,
        allow_private=settings.webhooks.allow_private,
    )


# --- the app ------------------------------------------------------------------------------------------------------


def load_app(where: str) -> App:
    """The App behind `module:app` or `path/to/file.py:app`."""
    place, _, name = where.rpartition(":")
    if not place or not name.isidentifier():
        raise BadInput(f"--app must name a module and the app in it, like shop.jobs:app or jobs.py:app, not {where!r}")
    module = _import_file(Path(place)) if place.endswith(".py") else _import(place, str(Path.cwd()))
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    others = sorted(n for n, value in vars(module).items() if isinstance(value, App))
    hint = f"did you mean {place}:{others[0]}?" if others else "make one there with `app = App()`"
    raise BadInput(f"{place} has no App named {name}: {hint}", field="app")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadInput(f"--app: there is no file {path}: check the path", field="app")
    module = _import(path.stem, str(path.parent.absolute()))
    if Path(getattr(module, "__file__", None) or "").absolute() != path.absolute():
        raise BadInput(f"--app: another module is named {path.stem} already: rename {path}", field="app")
    return module


def _import(name: str, folder: str) -> ModuleType:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(
                f"--app: there is no module {name}: run headway in its folder, or name its file, like jobs.py:app",
                field="app",
            ) from None
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> BadInput:
    return BadInput(
        f"--app: {name} cannot be imported: {type(error).__name__}: {error}{_where(error)}: correct it", field="app"
    )


def _where(error: Exception) -> str:
    """The line of the user's code that failed."""
    if isinstance(error, SyntaxError):
        return ""  # says it itself
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or "importlib" in trace.tb_frame.f_code.co_filename:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
