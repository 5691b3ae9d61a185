"""The frame: what a measurement is, how its contenders take turns, and what becomes of their figures."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from benchmarks import postgres

ROOT = Path(__file__).resolve().parent.parent

Role = Literal["ours", "peer", "raw"]
Store = Literal["sqlite", "postgres"]
Reading = Mapping[str, float]  # what one run of a contender found; "rate" is jobs per second
Medians = Mapping[str, Reading]  # by the contender's label


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender: a function called with the URLs of its fresh databases and with its settings.

    `quick` replaces settings in a quick run, `needs` names the modules without which it is "not installed",
    `limit` is when it is stopped.
    """

    label: str
    role: Role
    store: Store
    function: Callable[..., float | dict[str, float]]
    settings: Mapping[str, object] = field(default_factory=dict)
    quick: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    databases: int = 1
    limit: float = 60.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure drawn from the medians, and the bound that it must reach or, with `at_most`, must not pass."""

    text: str
    figure: Callable[[Medians], float]
    bound: float
    at_most: bool = False
    unit: str = "×"

    def met(self, figure: float) -> bool:
        return figure <= self.bound if self.at_most else figure >= self.bound


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: whose figures stand side by side, and the goals among them."""

    title: str
    ours: str
    peers: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    goals: tuple[Goal, ...] = ()
    values: tuple[str, ...] = ("rate",)
    unit: str = "/s"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the goals. `once` is for contenders that take their own medians because filling is what costs."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    lines: tuple[Line, ...]
    once: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of one contender ended."""

    status: Literal["ok", "error", "stopped", "not built", "not installed"]
    reading: Reading = field(default_factory=dict)
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.status in ("error", "stopped")


@dataclass(frozen=True, slots=True)
class Result:
    """A measurement and every outcome of every contender, in order."""

    measurement: Measurement
    outcomes: Mapping[str, list[Outcome]]

    def medians(self) -> dict[str, Reading]:
        """Only of contenders that never failed: half a contender is no figure."""
        return {
            label: median([outcome.reading for outcome in outcomes])
            for label, outcomes in self.outcomes.items()
            if outcomes and all(outcome.status == "ok" for outcome in outcomes)
        }

    def trouble(self, label: str) -> Outcome | None:
        return next((outcome for outcome in self.outcomes.get(label, []) if outcome.status != "ok"), None)

    def failures(self) -> list[tuple[str, Outcome]]:
        return [(label, out) for label, outs in self.outcomes.items() for out in outs if out.failed]


def median(readings: Iterable[Reading]) -> Reading:
    rows = list(readings)
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


# Goals


def times(ours: str, other: str, factor: float, *, name: str | None = None) -> Goal:
    """At least `factor` times another contender's rate."""
    return best(ours, (other,), factor, name=name or other)


def best(ours: str, others: tuple[str, ...], factor: float, *, name: str) -> Goal:
    """At least `factor` times the best of several, all of which must have been measured."""
    return Goal(f"≥ {factor:g} × {name}", lambda m: m[ours]["rate"] / max(m[o]["rate"] for o in others), factor)


def within(ours: str, over: str, under: str, factor: float, *, text: str, at_most: bool = False) -> Goal:
    """One value of a contender against another value of the same."""
    return Goal(text, lambda m: m[ours][over] / m[ours][under], factor, at_most)


def at_most(ours: str, value: str, bound: float, unit: str, *, name: str = "") -> Goal:
    return Goal(f"{name or value} ≤ {bound:g} {unit}", lambda m: m[ours][value], bound, True, unit)


# Running


@dataclass(slots=True)
class Bench:
    """Where a run takes place: a folder on disk, and a PostgreSQL once a contender needs it."""

    folder: Path
    quick: bool
    postgres: postgres.Postgres | None
    why_not: str = ""

    @contextmanager
    def databases(self, contender: Contender) -> Iterator[tuple[Path, list[str]]]:
        with TemporaryDirectory(dir=self.folder) as name, ExitStack() as stack:
            if contender.store == "sqlite":
                urls = [str(Path(name) / f"headway-{n}.db") for n in range(contender.databases)]
            elif self.postgres is None:
                raise RuntimeError(self.why_not)
            else:
                urls = stack.enter_context(self.postgres.databases(contender.databases))
            yield Path(name), urls

    def run(self, contender: Contender) -> Outcome:
        missing = [name for name in contender.needs if importlib.util.find_spec(name) is None]
        if missing:
            return Outcome("not installed", detail=", ".join(missing))
        try:
            with self.databases(contender) as (folder, urls):
                return self._run(contender, folder, urls)
        except Exception as error:  # a contender that cannot even start belongs in the table like any other
            return Outcome("error", detail=f"{type(error).__name__}: {error}")

    def _run(self, contender: Contender, folder: Path, urls: list[str]) -> Outcome:
        request, answer, errors = folder / "request.json", folder / "answer.json", folder / "stderr.txt"
        request.write_text(json.dumps(self._request(contender, urls)))
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "benchmarks.child", str(request), str(answer)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": python_path()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            stopped = wait_or_kill(process, contender.limit)
        if stopped:
            return Outcome("stopped", detail=f"stopped after {contender.limit:.0f} s")
        tail = errors.read_text(errors="replace")[-2_000:]
        if not answer.exists():
            return Outcome("error", detail=f"ended with code {process.returncode}\n{tail}")
        found = json.loads(answer.read_text())
        if found["status"] == "error":
            found["detail"] += f"\n{tail}"
        return Outcome(**found)

    def _request(self, contender: Contender, urls: list[str]) -> dict[str, object]:
        settings = {**contender.settings, **(contender.quick if self.quick else {})}
        module, function = contender.function.__module__, contender.function.__name__
        return {"module": module, "function": function, "urls": urls, "settings": settings}


def python_path() -> str:
    """Ours first, then what was given, absolute: a contender's current folder is its own."""
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join([str(ROOT), *(str(Path(entry).resolve()) for entry in given)])


def wait_or_kill(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a contender; afterwards its whole process group is gone. True if it had to be stopped."""
    try:
        process.wait(timeout=limit)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


Progress = Callable[[Measurement, int, Contender, Outcome], None]


def measure(bench: Bench, measurement: Measurement, *, rounds: int, progress: Progress) -> Result:
    """All contenders once, then all again: whatever the machine does meanwhile, it does to all of them."""
    outcomes: dict[str, list[Outcome]] = {contender.label: [] for contender in measurement.contenders}
    for number in range(1, (1 if measurement.once else rounds) + 1):
        for contender in measurement.contenders:
            so_far = outcomes[contender.label]
            if any(outcome.status != "ok" for outcome in so_far):
                continue
            so_far.append(bench.run(contender))
            progress(measurement, number, contender, so_far[-1])
    return Result(measurement, outcomes)


def rehearse(bench: Bench, measurements: Iterable[Measurement], progress: Progress) -> list[Result]:
    """Everything once and side by side, for the sake of running at all: the figures mean nothing."""
    chosen = list(measurements)
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        futures = {(m.name, c.label): pool.submit(bench.run, c) for m in chosen for c in m.contenders}
        results = []
        for m in chosen:
            outcomes = {}
            for c in m.contenders:
                outcomes[c.label] = [futures[m.name, c.label].result()]
                progress(m, 1, c, outcomes[c.label][0])
            results.append(Result(m, outcomes))
    return results
