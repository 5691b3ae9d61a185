"""`service print`: a file for systemd or launchd that runs Headway as it would run here, and what to do with it."""

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

from headway.cli.call import Call, command, family
from headway.cli.serving import NONE, AppOption, Roles, Slots, named_roles

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.model.units import Wanted

service = family("Run Headway as a service of this machine.")


class Kind(StrEnum):
    SYSTEMD = "systemd"
    LAUNCHD = "launchd"


KindOption = Annotated[
    Kind | None, typer.Argument(metavar="[systemd|launchd]", help="For which of the two. Default: this system's.")
]


@dataclass(frozen=True, slots=True)
class Printed:
    """A file with the name it is to have, how it is put in its place, and what else there is to do."""

    kind: str
    name: str
    text: str
    install: list[str]
    notes: list[str]


@command(service, "print")
def print_(
    call: Call,
    kind: KindOption = None,
    app: AppOption = None,
    slots: Slots = None,
    roles: Roles = NONE,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="As whom it runs. Default: who asks.")] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the service is called.")] = "headway",
    env_file: Annotated[
        Path, typer.Option(metavar="FILE", help="Where it finds HEADWAY_* variables and secrets.")
    ] = Path("headway.env"),
) -> None:
    """Print a file that runs Headway from this folder as a service. What to do with it is said on stderr."""
    wanted_roles = named_roles(roles)
    call.flags["slots"] = slots
    with redirect_stdout(sys.stderr):  # what an app prints when it is imported is no part of the file
        settings = call.app(app).settings
    argv = [*program(), *_verb(wanted_roles), *_options(call, settings, slots)]
    made = printed(kind or _usual(), call, settings, argv, user=user, name=name, env_file=env_file.absolute())
    if call.out.as_json:
        facts = {"kind": made.kind, "name": made.name, "text": made.text, "install": made.install}
        call.out.data({**facts, "notes": made.notes})
        return
    print(made.text, end="")
    call.out.say(f"Write it into {made.name}, then:")
    for line in made.install:
        call.out.say(f"  {line}")
    for note in made.notes:
        call.out.say(note)


def _usual() -> Kind:
    return Kind.LAUNCHD if sys.platform == "darwin" else Kind.SYSTEMD


# --- the command --------------------------------------------------------------------------------------------------


def program() -> list[str]:
    """This installation of Headway, wherever it is called from: its script, or its interpreter."""
    script = Path(sys.executable).absolute().with_name("headway")
    return [str(script)] if os.access(script, os.X_OK) else [str(Path(sys.executable).absolute()), "-m", "headway"]


def _verb(roles: list[str]) -> list[str]:
    from headway.composing import ROLES

    if roles == ["worker"]:
        return ["work"]
    return ["up"] if set(roles) == set(ROLES) else ["up", "--roles", ",".join(roles)]


def _options(call: Call, settings: Settings, slots: int | None) -> Iterator[str]:
    """What the folder and its settings do not say by themselves. A password is in no argument: everybody sees those."""
    if settings.app is not None and not _from_file(call, settings, "app"):
        yield from ("--app", settings.app)
    if call.config is not None:
        yield from ("--config", str(_plain(call.config)))
    if "database" in call.flags and not _secret(settings):
        yield from ("--database", _absolute(settings))
    if slots is not None:
        yield from ("--slots", str(slots))


def _from_file(call: Call, settings: Settings, name: str) -> bool:
    return settings.source_of((name,)).startswith(f"{call.config or 'headway.toml'}:")


def _secret(settings: Settings) -> bool:
    from headway.config import masked

    return masked(settings.database) != settings.database


def _plain(path: Path) -> Path:
    """Absolute, and without detours. Where there are none, links stay: they may lead elsewhere tomorrow."""
    return path.resolve() if ".." in path.parts else path.absolute()


def _absolute(settings: Settings) -> str:
    from headway.cli.opening import is_file

    return str(_plain(Path(settings.database))) if is_file(settings) else settings.database


# --- the file -----------------------------------------------------------------------------------------------------


def printed(
    kind: Kind, call: Call, settings: Settings, argv: list[str], *, user: str | None, name: str, env_file: Path
) -> Printed:
    from headway.cli.opening import is_file
    from headway.model import units

    folder = Path.cwd()
    whose = user or _own_name()
    wanted = units.Wanted(
        name,
        argv,
        str(folder),
        str(env_file),
        settings.shutdown_grace,
        whose if kind is Kind.SYSTEMD else user,
        () if is_file(settings) else ("postgresql.service",),
    )
    notes = list(_notes(call, settings, env_file, whose))
    if kind is Kind.SYSTEMD:
        return Printed(kind, f"{name}.service", units.systemd(wanted), _systemctl(name), notes)
    text = units.launchd(wanted, log=str(folder / f"{name}.log"))
    return Printed(kind, f"{name}.plist", text, _launchctl(wanted), notes)


def _own_name() -> str:
    """Systemd takes the number of a user who has no name."""
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


def _launchctl(wanted: Wanted) -> list[str]:
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


def _notes(call: Call, settings: Settings, env_file: Path, whose: str) -> Iterator[str]:
    from headway.config.sources import NOT_SETTINGS, PREFIX

    found = {name for name in os.environ if name.startswith(PREFIX) and not name.startswith(NOT_SETTINGS)}
    found.discard("HEADWAY_APP")  # is an argument
    found |= {where.removeprefix("env:") for where in settings.secrets.values() if where.startswith("env:")}
    if "database" in call.flags and _secret(settings):
        found.add("HEADWAY_DATABASE")
    if found:
        make = f"install -m 600 -o {whose} /dev/null {shlex.quote(str(env_file))}"
        yield (
            f"A service does not have the variables of this shell, and a password is in no argument. Make {env_file}"
            f" (`{make}`) and write them there, as NAME=value: {', '.join(sorted(found))}."
        )
    if whose == "root":
        yield "It runs as root, and so do its tasks: name another user with --user."
    yield f"{whose} must be able to write in {Path.cwd()}, and wherever else the settings point."
