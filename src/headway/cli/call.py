"""What every command has in common: the options --json, --database and --config, and the way to the database."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.out import Out

if TYPE_CHECKING:
    from headway.app import App
    from headway.config import Settings
    from headway.engine.client import Client
    from headway.store.db import Database, Tx

SHARED: dict[str, Any] = {
    "as_json": Annotated[bool, typer.Option("--json", help="Answer in JSON.")],
    "database": Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="FILE|URL",
            help="An SQLite file or a postgresql:// address, instead of the one in the settings.",
        ),
    ],
    "config": Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The settings, instead of headway.toml."),
    ],
}
_DEFAULTS: dict[str, object] = {"as_json": False, "database": None, "config": None}


@dataclass(frozen=True, slots=True)
class Desk:
    """An open database with what is needed to work on it."""

    settings: Settings
    database: Database
    client: Client

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self.database.read() as tx:
            yield tx

    @property
    def tenant_id(self) -> int:
        return self.client.tenant_id


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command: how it is to answer, and what it said about the settings."""

    out: Out = field(default_factory=Out)
    config: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> Settings:
        from headway.config import load

        return load(self.config, os.environ, self.flags)

    @contextmanager
    def desk(self, tasks: App | None = None) -> Iterator[Desk]:
        """A database that is there already: looking creates nothing. With an app, its tasks are known too."""
        from headway.app import App
        from headway.cli.opening import client_of, open_existing

        settings = self.settings()
        database = open_existing(settings)
        try:
            yield Desk(settings, database, client_of(tasks or App(), settings, database))
        finally:
            database.close()

    @contextmanager
    def workshop(self, app: App) -> Iterator[Desk]:
        """A database to make things in, made itself if it is not there, and an app whose tasks they may name."""
        from headway.cli.opening import refuse_folder

        refuse_folder(app.settings)
        with app:
            yield Desk(app.settings, app.database, app.client)

    def app(self, where: str | None) -> App:
        """The app that --app or the settings name, or one that has the built-in tasks only."""
        from headway.cli.opening import load_app

        _importable_here()
        where = where or self.settings().app
        if not where:
            return self.bare_app()
        app = load_app(where)
        app.configure(self.config, self.flags)
        return app

    def bare_app(self) -> App:
        """An app that has the built-in tasks only."""
        from headway.app import App

        _importable_here()
        app = App()
        app.configure(self.config, self.flags)
        return app


def _importable_here() -> None:
    """A policy of the user's own is found in the current folder too; last, so that it is in nobody's way."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


def command(
    family: typer.Typer, name: str, *, shared: Sequence[str] = tuple(SHARED), **wishes: Any
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Declares a command. The function gets a Call first and may return an exit code."""

    def declare(function: Callable[..., int | None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        @wraps(function)
        def callback(*, as_json: bool, database: str | None = None, config: Path | None = None, **given: Any) -> None:
            flags = {"database": database} if database is not None else {}
            code = function(Call(Out(as_json=as_json), config, flags), **given)
            raise typer.Exit(code or 0)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=SHARED[name])
            for name in shared
        ]
        parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *more]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        callback.__annotations__ = {p.name: p.annotation for p in parameters}
        family.command(name, **wishes)(callback)
        return callback

    return declare


def family(help: str) -> typer.Typer:
    """A noun with verbs below it."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
