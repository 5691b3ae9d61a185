"""`schedules import`: creates a schedule for each line of a crontab; refuses the file if a line is wrong."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command

if TYPE_CHECKING:
    from headway.cli.backend.base import Backend
    from headway.cli.output import Json
    from headway.model.schedules.crontab import Crontab, CrontabEntry
    from headway.model.schedules.definition import Definition

_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """A crontab line with the name of its schedule.

    `there` is True if a schedule with this name and definition exists already.
    """

    entry: CrontabEntry
    name: str
    definition: Definition
    there: bool


def register(schedules: typer.Typer) -> None:
    @command(schedules, "import")
    def import_(
        call: Invocation,
        file: Annotated[str, typer.Argument(metavar="CRONTAB", help="File, or - for stdin.", show_default=False)],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the schedules without creating them.")] = False,
        user_column: Annotated[
            bool, typer.Option("--user-column", help="The sixth field is a user name, as in /etc/crontab.")
        ] = False,
        timezone: Annotated[
            str | None,
            typer.Option(metavar="ZONE", help="Time zone of the crontab (default: this machine's)."),
        ] = None,
        disabled: Annotated[bool, typer.Option("--disabled", help="Create the schedules disabled.")] = False,
    ) -> None:
        """Create a schedule for each line of a crontab: crontab -l | headway schedules import -"""
        from headway.model.schedules import crontab
        from headway.model.schedules.cron import check_zone

        zone = check_zone(timezone) if timezone is not None else local_zone()
        home = None if user_column else os.path.expanduser("~")
        found = crontab.read(_text(file), zone=zone, home=home, user_column=user_column)
        _refuse(file, list(found.problems))
        with call.backend() if dry_run else call.new_backend(bare=True) as backend:
            wanted = _named(backend, file, found)
            if not dry_run:
                for line in wanted:
                    if not line.there:
                        backend.schedules.create(line.name, line.definition.facts(), enabled=not disabled)
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
        raise BadInput(f"{file} is not UTF-8 text (byte {error.start}): save it as UTF-8", field="file") from None


def local_zone() -> str:
    """Returns the time zone in which cron on this machine reads its times."""
    from headway.errors import BadInput
    from headway.model.schedules.cron import check_zone

    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    for name in (os.environ.get("TZ", "").lstrip(":"), linked.removeprefix("posix/").removeprefix("right/")):
        with suppress(BadInput):
            return check_zone(name)
    return "UTC"


def _refuse(file: str, problems: list[str]) -> None:
    """Raises one error with all problems, before anything is stored."""
    from headway.errors import BadInput

    if problems:
        lines = [f"{file}: {problem}" for problem in problems]
        raise BadInput("\n".join(lines), code="bad_crontab", problems=lines, subject=file)


def _named(backend: Backend, file: str, found: Crontab) -> list[ImportedLine]:
    """Gives each line a free name, or the name of an equal schedule; refuses lines that cannot run."""
    from headway.errors import BadInput

    problems, wanted, taken = [], [], set[str]()
    for entry in found.entries:
        try:
            definition = backend.schedules.check(entry.definition)
        except BadInput as error:
            problems.append(f"line {entry.line}: {error}")
            continue
        line = _name(backend, entry, definition, taken)
        taken.add(line.name)
        wanted.append(line)
    _refuse(file, problems)
    return wanted


def _name(backend: Backend, entry: CrontabEntry, definition: Definition, taken: set[str]) -> ImportedLine:
    number = 1
    while True:
        name = entry.name if number == 1 else f"{entry.name}-{number}"
        number += 1
        if name in taken:
            continue
        stored = backend.schedules.named(name)
        if stored is None or _definition_of(stored) == definition:
            return ImportedLine(entry, name, definition, stored is not None)


def _definition_of(schedule: Json) -> Definition:
    """Parses the definition in the JSON of a schedule."""
    from headway.model.schedules.definition import FIELDS, Definition

    facts = {name: schedule[name] for name in FIELDS if schedule[name] not in (None, {})}
    if "steps" in facts:
        facts["steps"] = [{name: step[name] for name in step if name != "template_id"} for step in facts["steps"]]
    return Definition.parse(facts)


def _answer(call: Invocation, found: Crontab, wanted: list[ImportedLine], zone: str, *, dry_run: bool) -> None:
    from headway.api.schemas.schedules import in_words

    items: list[Json] = [
        {"line": line.entry.line, "name": line.name, "made": not line.there and not dry_run, **line.definition.facts()}
        for line in wanted
    ]
    data = {"items": items, "left_out": list(found.left_out), "timezone": zone, "next": None}
    lines = [
        f"{'=' if line.there else '+'} {line.name}: {in_words(line.definition)} (line {line.entry.line})"
        for line in wanted
    ]
    made = sum(not line.there for line in wanted)
    there = f", {len(wanted) - made} already existed" if made < len(wanted) else ""
    verb = "would be created" if dry_run else "created"
    summary = f"{made} schedule{'' if made == 1 else 's'} {verb}{there}; times are in {zone}"
    call.out.answer(data, lambda: lines, notes=[*(f"left out: {text}" for text in found.left_out), summary])
