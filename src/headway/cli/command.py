"""Declares commands and their shared options: --json, and the choice of a database or a server."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from headway.cli.output import Out

if TYPE_CHECKING:
    from headway.app import App
    from headway.cli.backend.base import Backend
    from headway.cli.backend.http import HttpBackend
    from headway.cli.backend.local import LocalBackend
    from headway.cli.backend.server_option import ServerAddress
    from headway.config import Settings

SHARED: dict[str, Any] = {
    "as_json": Annotated[bool, typer.Option("--json", help="Answer in JSON.")],
    "database": Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="FILE|URL",
            help="SQLite file or postgresql:// address (default: the database in the settings).",
        ),
    ],
    "config": Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file (default: headway.toml)."),
    ],
    "tenant": Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Tenant to act for; also HEADWAY_TENANT."),
    ],
    "server": Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Server to use instead of a database; also HEADWAY_SERVER."),
    ],
    "token": Annotated[
        str | None,
        typer.Option("--token", metavar="TEXT", help="Token for the server; also HEADWAY_TOKEN."),
    ],
    "token_file": Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with the token (default: ~/.config/headway/token)."),
    ],
}
DEFAULT = "default"
_DEFAULTS: dict[str, object] = {**dict.fromkeys(SHARED), "as_json": False}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation of a command: its output, its settings options, its server and its tenant."""

    out: Out = field(default_factory=Out)
    config: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    server: ServerAddress | None = None
    tenant: str | None = None

    def settings(self) -> Settings:
        from headway.config import load

        self._refuse_server()
        return load(self.config, os.environ, self.flags)

    def _refuse_server(self) -> None:
        """Refuses --server for a command that needs the local settings."""
        from headway.errors import BadInput

        if self.server is not None:
            text = "this command needs the database itself and cannot use a server: remove --server and HEADWAY_SERVER"
            raise BadInput(text, code="local_only", field="server")

    def refuse_shown_password(self) -> None:
        """Refuses a password in --database for a command that runs for long.

        Every process of the machine reads the arguments of the others, and a job would take the password from there.
        Starting again without the argument would come too late for a process that looks all the time.
        """
        from headway.config import holds_password
        from headway.errors import BadInput

        if holds_password(self.flags.get("database") or ""):
            text = (
                "--database holds a password, and every process of this machine can read the arguments of another one"
            )
            hint = "put the address into HEADWAY_DATABASE or headway.toml, or the password alone into ~/.pgpass"
            raise BadInput(text, hint=hint, field="database")

    @contextmanager
    def backend(self, app: str | None = None, *, tasks: bool = False) -> Iterator[Backend]:
        """Opens a server, or an existing database; never creates a database.

        With `tasks` the local backend also knows the tasks of the app.
        """
        if self.server is not None:
            with self._remote(app) as there:
                yield there
        else:
            with self.local(self.app(app) if tasks else None) as here:
                yield here

    @contextmanager
    def local(self, tasks: App | None = None) -> Iterator[LocalBackend]:
        """Opens an existing local database."""
        from headway.app import App, client_of
        from headway.cli.backend.local import LocalBackend
        from headway.cli.database.open import open_existing

        settings = self.settings()
        database = open_existing(settings)
        try:
            yield LocalBackend(settings, lambda: client_of(tasks or App(), settings, database, self.tenant or DEFAULT))
        finally:
            database.close()

    @contextmanager
    def new_backend(
        self, app: str | None = None, *, bare: bool = False, task: str | None = None, resources: Sequence[str] = ()
    ) -> Iterator[Backend]:
        """Opens a server, or a database for writing together with the app's tasks.

        A missing database is created. With `bare` only the built-in tasks are known.
        """
        if self.server is not None:
            with self._remote(app) as there:
                yield there
            return
        from headway.cli.backend.local import AppBackend
        from headway.cli.database.open import refuse_folder, refuse_unknown

        loaded = self.bare_app() if bare else self.app(app)
        if task is not None:
            refuse_unknown(loaded, task, resources)
        refuse_folder(loaded.settings)
        loaded.tenant = self.tenant or loaded.tenant
        with loaded:
            yield AppBackend(loaded)

    @contextmanager
    def _remote(self, app: str | None) -> Iterator[HttpBackend]:
        from headway.cli.backend.connection import Link
        from headway.cli.backend.http import HttpBackend
        from headway.errors import BadInput

        if app is not None:
            raise BadInput("--app needs a local database, and a server has its own tasks: remove --app", field="app")
        assert self.server is not None
        link = Link(self.server, self.out.say)
        try:
            yield HttpBackend(link)
        finally:
            link.close()

    def app(self, where: str | None) -> App:
        """Loads the app that --app or the settings name; without one, an app with the built-in tasks only."""
        from headway.cli.database.open import load_app

        self._refuse_server()
        _importable_here()
        address = where or self.settings().app
        if not address:
            return self.bare_app()
        app = load_app(address)
        app.configure(self.config, {**self.flags, "app": where})
        return app

    def bare_app(self) -> App:
        """Creates an app that has the built-in tasks only."""
        from headway.app import App

        self._refuse_server()
        _importable_here()
        app = App()
        app.configure(self.config, self.flags)
        return app


def _importable_here() -> None:
    """Appends the current folder to `sys.path`, so that a policy module there can be imported.

    It comes last, so that it cannot shadow an installed module.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


class OptionGroup:
    """Options that several commands share: a frozen dataclass whose fields are annotated as options."""

    @classmethod
    def options(cls) -> list[inspect.Parameter]:
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default if option.default_factory is MISSING else option.default_factory(),
                annotation=hints[option.name],
            )
            for option in fields(cls)  # type: ignore[arg-type]
        ]


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def command(
    family: typer.Typer, name: str, *, shared: Sequence[str] = tuple(SHARED), **click_options: Any
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Declares a command. The function takes an `Invocation` first and may return an exit code.

    A parameter of the type of an `OptionGroup` stands for the options of that group.
    """

    def declare(function: Callable[..., int | None]) -> Callable[..., None]:
        _, *declared = inspect.signature(function, eval_str=True).parameters.values()
        groups = {p.name: p.annotation for p in declared if _is_group(p.annotation)}
        own = [option for p in declared for option in (groups[p.name].options() if p.name in groups else [p])]
        common = [name for name in shared if name not in {p.name for p in own}]

        @wraps(function)
        def callback(**given: Any) -> None:
            shared_values = {name: given.pop(name, None) for name in common}
            built = {
                name: group(**{p.name: given.pop(p.name) for p in group.options()}) for name, group in groups.items()
            }
            code = function(_call(**{**dict.fromkeys(SHARED), **shared_values}), **built, **given)
            raise typer.Exit(code or 0)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=SHARED[name])
            for name in common
        ]
        parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *more]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        callback.__annotations__ = {p.name: p.annotation for p in parameters}
        family.command(name, **click_options)(callback)
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
) -> Invocation:
    flags = {"database": database} if database is not None else {}
    call = Invocation(Out(as_json=as_json), config, flags, tenant=tenant or os.environ.get("HEADWAY_TENANT") or None)
    if (server, token, token_file) == (None, None, None) and not os.environ.get("HEADWAY_SERVER"):
        return call
    from headway.cli.backend.server_option import ServerOptions, choose

    return replace(call, server=choose(ServerOptions(server, token, token_file, database, call.tenant), os.environ))


def family(help: str) -> typer.Typer:
    """Creates a command group: a noun with verbs below it."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
