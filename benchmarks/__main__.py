"""`python -m benchmarks [names…]`: run the measurements and print one table. Exit code 1 if a contender failed."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks import disk, postgres
from benchmarks.frame import Bench, Contender, Measurement, Outcome, Result, measure, rehearse
from benchmarks.measurements import ALL
from benchmarks.table import as_json, number, table

ROLES = ("ours", "peer", "raw")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [measurement.name for measurement in ALL]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(names)}; all without")
    parser.add_argument("--quick", action="store_true", help="one tiny iteration of each: do they still run?")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds, medians of them (default 3)")
    parser.add_argument("--roles", default=",".join(ROLES), help="only these contenders, such as ours,raw")
    parser.add_argument("--json", action="store_true", help="JSON with every round instead of the table")
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.names) - set(names):
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if unknown := set(chosen.roles.split(",")) - set(ROLES):
        parser.error(f"no such role: {', '.join(sorted(unknown))}; there are {', '.join(ROLES)}")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    return chosen


def select(names: Sequence[str], roles: Sequence[str]) -> list[Measurement]:
    chosen = [measurement for measurement in ALL if not names or measurement.name in names]
    kept = [replace(m, contenders=tuple(c for c in m.contenders if c.role in roles)) for m in chosen]
    return [measurement for measurement in kept if measurement.contenders]


@contextmanager
def bench(parent: Path, measurements: Sequence[Measurement], *, quick: bool) -> Iterator[Bench]:
    """The folder and, if any contender wants one, the PostgreSQL. Without one its contenders fail, the rest runs."""
    wanted = any(c.store == "postgres" for m in measurements for c in m.contenders)
    with TemporaryDirectory(dir=parent, prefix="headway-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if not wanted:
            yield Bench(folder, quick, None)
            return
        server = postgres.running(folder, quick=quick)
        try:
            started = server.__enter__()
        except Exception as error:  # said in the table, at every contender that needed it
            yield Bench(folder, quick, None, f"no PostgreSQL: {error}")
            return
        try:
            yield Bench(folder, quick, started)
        finally:
            server.__exit__(None, None, None)


def caption(kind: str, where: Bench, rounds: int) -> str:
    server = f", PostgreSQL {where.postgres.version()}" if where.postgres else ""
    how = "quick: figures mean nothing" if where.quick else f"medians of {rounds} interleaved rounds"
    return f"{how}; Python {platform.python_version()}{server}; files on {kind}{memory_warning(kind)}"


def memory_warning(kind: str) -> str:
    return ", in memory: durable commits cost nothing here" if kind in disk.IN_MEMORY else ""


def say(measurement: Measurement, turn: int, contender: Contender, outcome: Outcome) -> None:
    found = " ".join(f"{name} {number(value)}" for name, value in outcome.reading.items()) or outcome.status
    print(
        f"{measurement.name}, round {turn}: {contender.role}, {contender.label}: {found}", file=sys.stderr, flush=True
    )


def run(chosen: argparse.Namespace) -> int:
    parent, kind = disk.choose()
    if kind in disk.IN_MEMORY and not chosen.quick:
        print(f"TMPDIR and this folder are both on {kind}: set TMPDIR to a folder on a disk.", file=sys.stderr)
        return 2
    measurements = select(chosen.names, chosen.roles.split(","))
    with bench(parent, measurements, quick=chosen.quick) as where:
        if chosen.quick:
            results = rehearse(where, measurements, say)
        else:
            results = [measure(where, m, rounds=chosen.rounds, progress=say) for m in measurements]
        show(results, chosen, caption(kind, where, chosen.rounds))
    return report(results)


def show(results: Sequence[Result], chosen: argparse.Namespace, about: str) -> None:
    if chosen.json:
        print(json.dumps(as_json(results, quick=chosen.quick, caption=about), indent=2))
        return
    # Without a terminal (a file, a pipe), lines are not folded to 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=180)
    console.print(table(results, quick=chosen.quick, caption=about))


def report(results: Sequence[Result]) -> int:
    """Every failure in full, after the table."""
    failures = [(result, label, outcome) for result in results for label, outcome in result.failures()]
    for result, label, outcome in failures:
        print(f"\n{result.measurement.name}, {label}: {outcome.detail}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(run(arguments(None)))
