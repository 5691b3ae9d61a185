"""`apply`: creates and changes templates, schedules, targets and webhooks from a TOML file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.command import Invocation, command
from headway.cli.commands.run import AppOption
from headway.cli.output import Json


def register(root: typer.Typer) -> None:
    @command(root, "apply")
    def apply(
        call: Invocation,
        file: Annotated[str, typer.Argument(metavar="FILE", help="TOML file.", show_default=False)],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without storing them.")] = False,
        app: AppOption = None,
    ) -> None:
        """Create or change the templates, schedules, targets and webhooks that a file names; others stay unchanged."""
        from headway.errors import HeadwayError
        from headway.model import manifest

        text = _text(file)
        wanted = manifest.read(text, file)
        with call.backend(app, tasks=True) if dry_run else call.new_backend(app) as backend:
            try:
                done = backend.apply(text, wanted, file, dry_run=dry_run)
            except HeadwayError as error:
                if not call.out.as_json:  # in JSON the error carries the secrets
                    _show(call, error.facts.get("secrets", {}))
                raise
        if call.out.as_json:
            call.out.data(done)
            return
        for change in done["items"]:
            call.out.lines(_line(change))
        for name in done["left"]:
            call.out.say(
                f"schedule {name} is not in this file and stays: delete it with"
                f" `headway schedules delete {shlex.quote(name)}`"
            )
        _show(call, done.get("secrets", {}))
        call.out.say(_summary(sum(change["change"] != "=" for change in done["items"]), dry_run=dry_run))


def _line(change: Json) -> str:
    words = "; ".join(change["differences"]) or ("unchanged" if change["change"] == "=" else "")
    return f"{change['change']} {change['thing']} {change['name']}" + (f": {words}" if words else "")


def _show(call: Invocation, secrets: Mapping[str, str]) -> None:
    for url, secret in secrets.items():
        call.out.lines(f"the secret of {url}, which is not shown again: {secret}")


def _text(file: str) -> str:
    from headway.errors import BadInput

    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}): name another file", field="file") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 text (byte {error.start}): save it as UTF-8", field="file") from None


def _summary(count: int, *, dry_run: bool) -> str:
    if not count:
        return "no changes: everything is as in the file"
    what = f"{count} change{'' if count == 1 else 's'}"
    return f"{what}; nothing was stored: run again without --dry-run" if dry_run else f"{what} applied"
