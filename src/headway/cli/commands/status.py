"""Shows the state of the installation: `status`, `top`, `workers ls`, `verify`, `version`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

workers = family("List workers, the processes that run jobs.")


def _stats_table(seen: Json) -> Table:
    from headway.cli.tables.pages import pairs

    def spread(found: Json) -> str:
        if not found["count"]:
            return "none"
        return ", ".join(f"{name} {found[name]:.1f} s" for name in ("p50", "p90", "p99")) + f" of {found['count']}"

    ended = {name: sum(span[name] for span in seen["throughput"]) for name in ("completed", "failed", "other")}
    states = ", ".join(f"{count} {state}" for state, count in seen["counts"].items() if count) or "no jobs"
    hour = ", ".join(f"{count} {name}" for name, count in ended.items())
    waits, durations = spread(seen["waits"]), spread(seen["durations"])
    return pairs([("jobs", states), ("last hour", hour), ("waited", waits), ("ran", durations)])


def _overview(backend: Backend, *, listed: int = 10) -> Json:
    return {**backend.where, **backend.overview(listed=listed)}


def _page(seen: Json) -> list[RenderableType]:
    from headway.cli.commands.targets import blocked_text
    from headway.cli.output import one_line
    from headway.cli.tables.pages import pairs
    from headway.cli.tables.times import age, moment
    from headway.text.findings import NO_WORKER

    counts, now = seen["counts"], moment(seen["at"])
    plus = "+" if seen["counts_at_least"] else ""
    alive = [worker for worker in seen["workers"] if worker["state"] != "gone"]
    slots = sum(worker["slots"] for worker in alive)
    wait = seen["oldest_wait"]
    unfinished = ("RUNNING", "QUEUED", "SCHEDULED", "WAITING", "PAUSED", "ERROR")
    ended = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")
    rows: list[tuple[str, object]] = [
        ("database", seen["database"]),
        ("server", seen["server"]),
        ("queue", _pauses(seen["queue"], now) or "open"),
        ("targets", blocked_text(seen["blocked_targets"])),
        ("workers", f"{len(alive)} with {slots} slots" if alive else f"none: {NO_WORKER.remedy.line}"),
        ("jobs", ", ".join(f"{counts[name]}{plus} {name.lower()}" for name in unfinished if counts[name]) or "none"),
        ("last 24 h", ", ".join(f"{counts[name]} {name.lower()}" for name in ended if counts[name]) or "none"),
        ("oldest wait", f"{age(wait['queued_at'], now)}, job {wait['job_id']}" if wait else None),
    ]
    if seen["missed_ticks"]:
        rows.append(("missed", _missed(seen["missed_ticks"])))
    return [pairs([(name, one_line(str(value)) if value else None) for name, value in rows])]


def _missed(unseen: list[Json]) -> str:
    from headway.text.findings import missed_remedy, some
    from headway.text.schedules import missed_words

    words = some([missed_words(schedule["name"], schedule["count"]) for schedule in unseen])
    return f"{words}: {missed_remedy(unseen[0]['name'], several=len(unseen) > 1).line}"


def _pauses(queue: Json, now: int) -> str:
    from headway.cli.commands.queue import pauses

    named = zip(("paused", "paused for all tenants"), pauses(queue), strict=True)
    return "; ".join(word + _note(pause, now) for word, pause in named if pause is not None)


def _note(pause: Json, now: int) -> str:
    from headway.cli.tables.times import about, moment

    until = f" for {about((moment(pause['until']) - now) / 1e6)} more" if pause["until"] else ""
    return until + (f": {pause['note']}" if pause["note"] else "")


def _tables(seen: Json) -> list[RenderableType]:
    from headway.cli.tables.jobs import job_table, queue_table
    from headway.cli.tables.times import moment

    parts: list[RenderableType] = []
    if seen["running"]:
        parts += ["", job_table(seen["running"], moment(seen["at"]))]
    if seen["waiting"]:
        parts += ["", queue_table(seen["waiting"], moment(seen["at"]))]
    return parts


def register(root: typer.Typer) -> None:
    @command(root, "status")
    def status(call: Invocation) -> None:
        """Show the queue, targets, workers, jobs by state and the oldest wait."""
        with call.backend() as backend:
            seen = _overview(backend)
        call.out.answer(seen, lambda: _page(seen))

    @command(root, "stats")
    def stats(call: Invocation) -> None:
        """Show jobs by state, the throughput of the last hour, waiting times and durations."""
        with call.backend() as backend:
            seen = backend.stats()
        call.out.answer(seen, lambda: [_stats_table(seen)])

    @command(root, "top")
    def top(
        call: Invocation,
        interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two refreshes.")] = "1s",
    ) -> None:
        """Show status, running jobs and the queue, and refresh them until Ctrl-C."""
        from headway.model.values.times import seconds

        pause = max(0.1, seconds(interval, field="interval"))
        with call.backend() as backend:
            if call.out.as_json or not call.out.stdout.is_terminal:
                seen = _overview(backend)
                call.out.answer(seen, lambda: [*_page(seen), *_tables(seen)])
            else:
                _refresh(call, backend, pause)

    @command(root, "verify")
    def verify(
        call: Invocation,
        quiet: Annotated[bool, typer.Option("--quiet", help="Expect that all work has ended.")] = False,
    ) -> int:
        """Check the recorded history against every promise of Headway. Exits 4 if one was broken."""
        from headway.verify import check

        with call.local() as backend:
            lease, recovery = backend.settings.lease, backend.settings.recovery_interval
            report = check(backend.database, quiet=quiet, lease=lease, recovery=recovery)
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

        call.out.answer({"version": __version__}, lambda: [f"headway {__version__}"])


def _refresh(call: Invocation, backend: Backend, pause: float) -> None:
    from rich.console import Group
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=call.out.stdout, screen=True, auto_refresh=False) as live:
        while True:
            seen = _overview(backend, listed=max(5, call.out.stdout.size.height // 2 - 6))
            live.update(Group(*_page(seen), *_tables(seen)), refresh=True)
            time.sleep(pause)


@command(workers, "ls")
def ls(call: Invocation) -> None:
    """List workers and the jobs they run, including workers that ended within the last hour."""
    from headway.cli.tables.jobs import worker_table
    from headway.text.findings import NO_WORKER

    empty = [f"no workers: {NO_WORKER.remedy.line}"]
    with call.backend() as backend:
        page, now = backend.workers(), backend.now()
    call.out.page(page, lambda found: worker_table(found, now), empty=empty)
