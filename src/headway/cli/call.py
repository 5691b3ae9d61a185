"""What every command has in common: --json, and the way to a database or to a server."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from headway.cli.out import Out

if TYPE_CHECKING:
    from headway.app import App
    from headway.cli.desk import LocalDesk
    from headway.cli.remote.desk import RemoteDesk
    from headway.cli.remote.server import Server
    from headway.config import Settings

    Desk: TypeAlias = LocalDesk | RemoteDesk

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
    "tenant": Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Act for this tenant instead of default; also HEADWAY_TENANT."),
    ],
    "server": Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Ask this server instead of a database; also HEADWAY_SERVER."),
    ],
    "token": Annotated[
        str | None,
        typer.Option("--token", metavar="TEXT", help="Who we are there; also HEADWAY_TOKEN."),
    ],
    "token_file": Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="A file with the token. Default: ~/.config/headway/token."),
    ],
}
DEFAULT = "default"
_DEFAULTS: dict[str, object] = {**dict.fromkeys(SHARED), "as_json": False}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command: how it is to answer, and what it said about the settings, or about a server."""

    out: Out = field(default_factory=Out)
    config: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    server: Server | None = None
    tenant: str | None = None

    def settings(self) -> Settings:
        from headway.config import load

        self._refuse_server()
        return load(self.config, os.environ, self.flags)

    def _refuse_server(self) -> None:
        """Whoever needs the settings works on this machine."""
        from headway.errors import BadInput

        if self.server is not None:
            text = "this command works on the database itself, not over a server: leave --server and HEADWAY_SERVER out"
            raise BadInput(text, code="local_only", field="server")

    @contextmanager
    def desk(self, app: str | None = None, *, tasks: bool = False) -> Iterator[Desk]:
        """A server, or a database that is there already: looking creates nothing. With `tasks` those of the app are
        known too."""
        if self.server is not None:
            with self._remote(app) as there:
                yield there
        else:
            with self.local(self.app(app) if tasks else None) as here:
                yield here

    @contextmanager
    def local(self, tasks: App | None = None) -> Iterator[LocalDesk]:
        """A database that is there already."""
        from headway.app import App
        from headway.cli.desk import LocalDesk
        from headway.cli.opening import client_of, open_existing

        settings = self.settings()
        database = open_existing(settings)
        try:
            yield LocalDesk(settings, lambda: client_of(tasks or App(), settings, database, self.tenant or DEFAULT))
        finally:
            database.close()

    @contextmanager
    def workshop(
        self, app: str | None = None, *, bare: bool = False, task: str | None = None, resources: Sequence[str] = ()
    ) -> Iterator[Desk]:
        """A server, or a database to make things in, made itself if it is not there, and an app whose tasks they may
        name: with `bare` the built-in ones only."""
        if self.server is not None:
            with self._remote(app) as there:
                yield there
            return
        from headway.cli.desk import Workshop
        from headway.cli.opening import refuse_folder, refuse_unknown

        loaded = self.bare_app() if bare else self.app(app)
        if task is not None:
            refuse_unknown(loaded, task, resources)
        refuse_folder(loaded.settings)
        loaded.tenant = self.tenant or loaded.tenant
        with loaded:
            yield Workshop(loaded)

    @contextmanager
    def _remote(self, app: str | None) -> Iterator[RemoteDesk]:
        from headway.cli.remote.desk import RemoteDesk
        from headway.cli.remote.link import Link
        from headway.errors import BadInput

        if app is not None:
            raise BadInput("--app is for the local database: a server knows its tasks itself", field="app")
        assert self.server is not None
        link = Link(self.server, self.out.say)
        try:
            yield RemoteDesk(link)
        finally:
            link.close()

    def app(self, where: str | None) -> App:
        """The app that --app or the settings name, or one that has the built-in tasks only."""
        from headway.cli.opening import load_app

        self._refuse_server()
        _importable_here()
        found = where or self.settings().app
        if not found:
            return self.bare_app()
        app = load_app(found)
        app.configure(self.config, {**self.flags, "app": where})
        return app

    def bare_app(self) -> App:
        """An app that has the built-in tasks only."""
        from headway.app import App

        self._refuse_server()
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
        common = [name for name in shared if name not in {p.name for p in own}]

        @wraps(function)
        def callback(**given: Any) -> None:
            said = {name: given.pop(name, None) for name in common}
            code = function(_call(**{**dict.fromkeys(SHARED), **said}), **given)
            raise typer.Exit(code or 0)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=SHARED[name])
            for name in common
        ]
        parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *more]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        callback.__annotations__ = {p.name: p.annotation for p in parameters}
        family.command(name, **wishes)(callback)
        return callback

    return declare


def _call(
    *,
    as_json: bool,
    database: str | None,
    config: Path | None,
    tenant: str | None,
    server: str | None,
    token: str | None,
    token_file: Path | None,
) -> Call:
    flags = {"database": database} if database is not None else {}
    call = Call(Out(as_json=as_json), config, flags, tenant=tenant or os.environ.get("HEADWAY_TENANT") or None)
    if (server, token, token_file) == (None, None, None) and not os.environ.get("HEADWAY_SERVER"):
        return call
    from headway.cli.remote.server import Wanted, choose

    return replace(call, server=choose(Wanted(server, token, token_file, database, call.tenant), os.environ))


def family(help: str) -> typer.Typer:
    """A noun with verbs below it."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
