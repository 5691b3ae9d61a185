"""`schedules import`: the lines of a crontab as schedules, all of them or none."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call, command

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.model.crontab import Crontab, Entry
    from headway.model.schedule import Definition

_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """A line with the name its schedule gets; `there`: a schedule of this name says the same already."""

    entry: Entry
    name: str
    definition: Definition
    there: bool


def register(schedules: typer.Typer) -> None:
    @command(schedules, "import")
    def import_(
        call: Call,
        file: Annotated[str, typer.Argument(metavar="CRONTAB", help="A file, or - for stdin.", show_default=False)],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
        user_column: Annotated[
            bool, typer.Option("--user-column", help="A sixth field names a user, as in /etc/crontab.")
        ] = False,
        timezone: Annotated[
            str | None,
            typer.Option(metavar="ZONE", help="Where its times are meant; this machine's zone if not given."),
        ] = None,
        disabled: Annotated[bool, typer.Option("--disabled", help="Do not let them fire yet.")] = False,
    ) -> None:
        """Make a schedule of each line of a crontab: crontab -l | headway schedules import -"""
        from headway.model import crontab
        from headway.model.cron import check_zone

        zone = check_zone(timezone) if timezone is not None else local_zone()
        home = None if user_column else os.path.expanduser("~")
        found = crontab.read(_text(file), zone=zone, home=home, user_column=user_column)
        _refuse(file, list(found.problems))
        with call.desk() if dry_run else call.workshop(bare=True) as desk:
            wanted = _named(desk, file, found)
            if not dry_run:
                for one in wanted:
                    if not one.there:
                        desk.client.schedules.create(one.name, one.definition.facts(), enabled=not disabled)
        _answer(call, found, wanted, zone, dry_run=dry_run)


def _text(file: str) -> str:
    from headway.errors import BadInput

    try:
        if file == "-":
            data = sys.stdin.buffer.read(_LARGEST)
        else:
            with open(Path(file), "rb") as opened:
                data = opened.read(_LARGEST)
        return data.decode()
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}): name another file", field="file") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 text (byte {error.start})", field="file") from None


def local_zone() -> str:
    """The zone by which cron reads its times on this machine."""
    from headway.errors import BadInput
    from headway.model.cron import check_zone

    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    for name in (os.environ.get("TZ", "").lstrip(":"), linked.removeprefix("posix/").removeprefix("right/")):
        with suppress(BadInput):
            return check_zone(name)
    return "UTC"


def _refuse(file: str, problems: list[str]) -> None:
    """All of them at once, and nothing is stored."""
    from headway.errors import BadInput

    if problems:
        lines = [f"{file}: {problem}" for problem in problems]
        raise BadInput("\n".join(lines), code="bad_crontab", problems=lines, subject=file)


def _named(desk: Desk, file: str, found: Crontab) -> list[Wanted]:
    """Each line with a name that is free, or that of the same schedule; whatever cannot run is refused."""
    from headway.errors import BadInput

    problems, wanted, taken = [], [], set[str]()
    for entry in found.entries:
        try:
            definition = desk.client.schedules.check(entry.definition)
        except BadInput as error:
            problems.append(f"line {entry.line}: {error}")
            continue
        one = _name(desk, entry, definition, taken)
        taken.add(one.name)
        wanted.append(one)
    _refuse(file, problems)
    return wanted


def _name(desk: Desk, entry: Entry, definition: Definition, taken: set[str]) -> Wanted:
    number = 1
    while True:
        name = entry.name if number == 1 else f"{entry.name}-{number}"
        number += 1
        if name in taken:
            continue
        stored = desk.schedule_named(name)
        if stored is None or stored.parsed == definition:
            return Wanted(entry, name, definition, stored is not None)


def _answer(call: Call, found: Crontab, wanted: list[Wanted], zone: str, *, dry_run: bool) -> None:
    from headway.api.wire.plans import in_words

    made = [one for one in wanted if not one.there]
    if call.out.as_json:
        items: list[dict[str, Any]] = [
            {"line": one.entry.line, "name": one.name, "made": not one.there and not dry_run, **one.definition.facts()}
            for one in wanted
        ]
        call.out.data({"items": items, "left_out": list(found.left_out), "timezone": zone, "next": None})
        return
    for one in wanted:
        sign = "=" if one.there else "+"
        call.out.show(f"{sign} {one.name}: {in_words(one.definition)} (line {one.entry.line})")
    for line in found.left_out:
        call.out.say(f"left out: {line}")
    there = f", {len(wanted) - len(made)} there already" if len(made) < len(wanted) else ""
    verb = "would be made" if dry_run else "made"
    call.out.say(f"{len(made)} schedule{'' if len(made) == 1 else 's'} {verb}{there}; times are read in {zone}")
