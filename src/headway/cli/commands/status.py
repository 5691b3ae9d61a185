"""Shows the state of the installation: `status`, `top`, `workers ls`, `verify`, `version`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.cli.command import Desk
    from headway.engine.monitoring.overview import Overview
    from headway.model.explain.snapshot import Pause

workers = family("List workers, the processes that run jobs.")


def overview_json(seen: Overview, desk: Desk) -> dict[str, Any]:
    from headway.api.schemas import system

    return {**desk.where, **system.overview_json(seen)}


def _page(seen: Overview, desk: Desk) -> list[RenderableType]:
    from headway.cli.commands.targets import blocked_text
    from headway.cli.output import one_line
    from headway.cli.tables.jobs import about, pairs
    from headway.text.findings import NO_WORKER

    counts = seen.counts.by_status
    plus = "+" if seen.counts.at_least else ""
    alive = [worker for worker, lives in seen.workers if lives]
    slots = sum(worker.slots for worker in alive)
    wait = seen.counts.longest_wait
    unfinished = ("RUNNING", "QUEUED", "SCHEDULED", "WAITING", "PAUSED", "ERROR")
    ended = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")
    rows: list[tuple[str, object]] = [
        *desk.where.items(),
        ("queue", _pauses(seen) or "open"),
        ("targets", blocked_text(seen.blocked)),
        ("workers", f"{len(alive)} with {slots} slots" if alive else f"none: {NO_WORKER.remedy.line}"),
        ("jobs", ", ".join(f"{counts[name]}{plus} {name.lower()}" for name in unfinished if counts[name]) or "none"),
        ("last 24 h", ", ".join(f"{counts[name]} {name.lower()}" for name in ended if counts[name]) or "none"),
        ("oldest wait", f"{about((seen.now - wait[1]) / 1e6)}, job {wait[0]}" if wait else None),
    ]
    return [pairs([(name, one_line(str(value)) if value else None) for name, value in rows])]


def _pauses(seen: Overview) -> str:
    pauses = (("paused", seen.pause), ("paused for all tenants", seen.everybody))
    return "; ".join(word + _note(pause, seen.now) for word, pause in pauses if pause is not None)


def _note(pause: Pause, now: int) -> str:
    from headway.cli.tables.jobs import about

    until = f" for {about((pause.until - now) / 1e6)} more" if pause.until else ""
    return until + (f": {pause.note}" if pause.note else "")


def _tables(seen: Overview) -> list[RenderableType]:
    from headway.cli.tables.jobs import job_table, queue_table

    parts: list[RenderableType] = []
    if seen.running:
        parts += ["", job_table(seen.running, seen.now)]
    if seen.waiting:
        parts += ["", queue_table(seen.waiting, seen.now)]
    return parts


def register(root: typer.Typer) -> None:
    @command(root, "status")
    def status(call: Invocation) -> None:
        """Show the queue, targets, workers, jobs by state and the oldest wait."""
        with call.desk() as desk:
            seen = desk.overview()
            if call.out.as_json:
                call.out.data(overview_json(seen, desk))
            else:
                call.out.show(*_page(seen, desk))

    @command(root, "top")
    def top(
        call: Invocation,
        interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two refreshes.")] = "1s",
    ) -> None:
        """Show status, running jobs and the queue, and refresh them until Ctrl-C."""
        from headway.model.values.json import seconds

        pause = max(0.1, seconds(interval, field="interval"))
        with call.desk() as desk:
            if call.out.as_json or not call.out.stdout.is_terminal:
                _once(call, desk)
            else:
                _refresh(call, desk, pause)

    @command(root, "verify")
    def verify(
        call: Invocation,
        quiet: Annotated[bool, typer.Option("--quiet", help="Expect that all work has ended.")] = False,
    ) -> int:
        """Check the recorded history against every promise of Headway. Exits 4 if one was broken."""
        from headway.verify import check

        with call.local() as desk:
            lease, recovery = desk.settings.lease, desk.settings.recovery_interval
            report = check(desk.database, quiet=quiet, lease=lease, recovery=recovery)
        if call.out.as_json:
            found = [{"invariant": f.invariant, "thing": f.thing, "text": f.text} for f in report.findings]
            call.out.data({"findings": found, "counted": report.counted})
        else:
            for finding in report.findings:
                call.out.lines(f"{finding.invariant} {finding.thing}: {finding.text}")
            counts = ", ".join(f"{count} {name}" for name, count in report.counted.items())
            call.out.say(f"checked: {counts}")
        return 4 if report.findings else 0

    @command(root, "version", shared=["as_json"])
    def version(call: Invocation) -> None:
        """Print the version."""
        from headway import __version__

        if call.out.as_json:
            call.out.data({"version": __version__})
        else:
            call.out.show(f"headway {__version__}")


def _once(call: Invocation, desk: Desk) -> None:
    seen = desk.overview()
    if call.out.as_json:
        call.out.data(overview_json(seen, desk))
    else:
        call.out.show(*_page(seen, desk), *_tables(seen))


def _refresh(call: Invocation, desk: Desk, pause: float) -> None:
    from rich.console import Group
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=call.out.stdout, screen=True, auto_refresh=False) as live:
        while True:
            seen = desk.overview(listed=max(5, call.out.stdout.size.height // 2 - 6))
            live.update(Group(*_page(seen, desk), *_tables(seen)), refresh=True)
            time.sleep(pause)


@command(workers, "ls")
def ls(call: Invocation) -> None:
    """List workers and the jobs they run, including workers that ended within the last hour."""
    from headway.api.schemas.jobs import worker_json
    from headway.cli.tables.jobs import worker_table
    from headway.text.findings import NO_WORKER

    with call.desk() as desk:
        found, now = desk.workers(), desk.now()
    if call.out.as_json:
        call.out.data({"items": [worker_json(worker, alive=alive) for worker, alive in found], "next": None})
    elif not found:
        call.out.say(f"no workers: {NO_WORKER.remedy.line}")
    else:
        call.out.show(worker_table(found, now))
