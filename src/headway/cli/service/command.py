"""`service print`: prints a service file for systemd or launchd, and the commands that install it."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.up import NONE, AppOption, Roles, Slots, named_roles

if TYPE_CHECKING:
    from headway.cli.service.units import UnitConfig
    from headway.config import Settings

service = family("Run Headway as a service of this machine.")


class InitSystem(StrEnum):
    """The supported service managers."""

    SYSTEMD = "systemd"
    LAUNCHD = "launchd"


KindOption = Annotated[
    InitSystem | None,
    typer.Argument(metavar="[systemd|launchd]", help="Service manager (default: that of this system)."),
]


@dataclass(frozen=True, slots=True)
class Printed:
    """A service file with its name, the commands that install it, and further notes."""

    kind: str
    name: str
    text: str
    install: list[str]
    notes: list[str]


@command(service, "print")
def print_(
    call: Invocation,
    kind: KindOption = None,
    app: AppOption = None,
    slots: Slots = None,
    roles: Roles = NONE,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="User to run as (default: current user).")] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the service.")] = "headway",
    env_file: Annotated[Path, typer.Option(metavar="FILE", help="File with HEADWAY_* variables and secrets.")] = Path(
        "headway.env"
    ),
) -> None:
    """Print a service file that runs Headway from this folder. Installation steps are printed on stderr."""
    wanted_roles = named_roles(roles)
    call.flags["slots"] = slots
    with redirect_stdout(sys.stderr):  # an app may print during its import, and stdout is the service file
        settings = call.app(app).settings
    argv = [*program(), *_verb(wanted_roles), *_options(call, settings, slots)]
    made = printed(kind or _usual(), call, settings, argv, user=user, name=name, env_file=env_file.absolute())
    if call.out.as_json:
        facts = {"kind": made.kind, "name": made.name, "text": made.text, "install": made.install}
        call.out.data({**facts, "notes": made.notes})
        return
    print(made.text, end="")
    call.out.say(f"Save it as {made.name}, then run:")
    for line in made.install:
        call.out.say(f"  {line}")
    for note in made.notes:
        call.out.say(note)


def _usual() -> InitSystem:
    return InitSystem.LAUNCHD if sys.platform == "darwin" else InitSystem.SYSTEMD


# --- the command --------------------------------------------------------------------------------------------------


def program() -> list[str]:
    """Returns the absolute command of this installation: its script, or its interpreter with -m."""
    script = Path(sys.executable).absolute().with_name("headway")
    return [str(script)] if os.access(script, os.X_OK) else [str(Path(sys.executable).absolute()), "-m", "headway"]


def _verb(roles: list[str]) -> list[str]:
    from headway.runtime import ROLES

    if roles == ["worker"]:
        return ["work"]
    return ["up"] if set(roles) == set(ROLES) else ["up", "--roles", ",".join(roles)]


def _options(call: Invocation, settings: Settings, slots: int | None) -> Iterator[str]:
    """Yields the options that the settings in this folder do not already have.

    A database address with a password is left out, because every user can read the arguments of a process.
    """
    if settings.app is not None and not _from_file(call, settings, "app"):
        yield from ("--app", settings.app)
    if call.config is not None:
        yield from ("--config", str(_plain(call.config)))
    if "database" in call.flags and not _secret(settings):
        yield from ("--database", _absolute(settings))
    if slots is not None:
        yield from ("--slots", str(slots))


def _from_file(call: Invocation, settings: Settings, name: str) -> bool:
    return settings.source_of((name,)).startswith(f"{call.config or 'headway.toml'}:")


def _secret(settings: Settings) -> bool:
    from headway.config import masked

    return masked(settings.database) != settings.database


def _plain(path: Path) -> Path:
    """Makes a path absolute. Resolves it only if it has `..`; otherwise links stay, because they may change later."""
    return path.resolve() if ".." in path.parts else path.absolute()


def _absolute(settings: Settings) -> str:
    from headway.cli.database.open import is_file

    return str(_plain(Path(settings.database))) if is_file(settings) else settings.database


# --- the file -----------------------------------------------------------------------------------------------------


def printed(
    kind: InitSystem,
    call: Invocation,
    settings: Settings,
    argv: list[str],
    *,
    user: str | None,
    name: str,
    env_file: Path,
) -> Printed:
    from headway.cli.database.open import is_file
    from headway.cli.service import units

    folder = Path.cwd()
    whose = user or _own_name()
    wanted = units.UnitConfig(
        name,
        argv,
        str(folder),
        str(env_file),
        settings.shutdown_grace,
        whose if kind is InitSystem.SYSTEMD else user,
        () if is_file(settings) else ("postgresql.service",),
    )
    notes = list(_notes(call, settings, env_file, whose))
    if kind is InitSystem.SYSTEMD:
        return Printed(kind, f"{name}.service", units.systemd(wanted), _systemctl(name), notes)
    text = units.launchd(wanted, log=str(folder / f"{name}.log"))
    return Printed(kind, f"{name}.plist", text, _launchctl(wanted), notes)


def _own_name() -> str:
    """Returns the name of the current user, or the number if it has no name; systemd accepts both."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _systemctl(name: str) -> list[str]:
    return [
        f"sudo install -m 644 {name}.service /etc/systemd/system/",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable --now {name}.service",
        f"journalctl -u {name} -f",
    ]


def _launchctl(wanted: UnitConfig) -> list[str]:
    file = f"{wanted.name}.plist"
    if wanted.user is not None:
        place = "/Library/LaunchDaemons"
        return [
            f"sudo install -m 644 -o root -g wheel {file} {place}/",
            f"sudo launchctl bootstrap system {place}/{file}",
            f"sudo launchctl print system/{wanted.name}",
        ]
    return [
        f"install -m 644 {file} ~/Library/LaunchAgents/",
        f"launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{file}",
        f"launchctl print gui/$(id -u)/{wanted.name}",
    ]


def _notes(call: Invocation, settings: Settings, env_file: Path, whose: str) -> Iterator[str]:
    from headway.config.sources import NOT_SETTINGS, PREFIX

    variables = {name for name in os.environ if name.startswith(PREFIX) and not name.startswith(NOT_SETTINGS)}
    variables.discard("HEADWAY_APP")  # the app is an argument
    variables |= {secret.variable for secret in settings.secrets.values() if secret.variable is not None}
    if "database" in call.flags and _secret(settings):
        variables.add("HEADWAY_DATABASE")
    if variables:
        make = f"install -m 600 -o {whose} /dev/null {shlex.quote(str(env_file))}"
        yield (
            f"A service does not have the variables of this shell, and no argument holds a password. Create {env_file}"
            f" (`{make}`) and write these variables there, as NAME=value: {', '.join(sorted(variables))}."
        )
    if whose == "root":
        yield "The service and its tasks run as root: name another user with --user."
    yield f"{whose} must be able to write in {Path.cwd()} and in the other folders that the settings name."
