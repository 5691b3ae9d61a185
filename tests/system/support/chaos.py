"""The chaos run: workers and clients on PostgreSQL behind a pooler, with every fault at once, from a seeded plan.

`python -m tests.system.support.chaos --minutes 10 --workers 4 --jobs 20000 --seed 1` runs it and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from tests.system.support.chaos_checks import (
    back_after,
    check_acknowledged,
    check_ledger,
    finished_times,
    rate,
    read_diaries,
    read_ledger,
)
from tests.system.support.chaos_faults import KINDS, Faults
from tests.system.support.chaos_site import MARK, Installation, Process, tail

BACK_WITHIN = 10.0
WARM_SECONDS = 30.0
COMPLETED = "select count(*) from hw_job where status = 6"
UNFINISHED = "select count(*) from hw_job where status < 6"
RUNNING = (
    "select j.id, j.fence, j.task, w.pid, w.state from hw_job j left join hw_worker w on w.id = j.worker_id"
    " where j.status = 3"
)


@dataclass(frozen=True)
class Plan:
    """How long and how hard: `seconds` of faults, `calm` seconds before them, `after` seconds behind them."""

    seed: int = 1
    seconds: float = 27.0
    workers: int = 4
    jobs: int = 700
    pause: float = 0.8
    calm: float = 5.0
    after: float = 12.5
    drain: float = 180.0
    without: frozenset[str] = frozenset()

    @property
    def per_second(self) -> float:
        return self.jobs / (self.calm + self.seconds + self.after)


@dataclass
class Result:
    """What happened, and what was wrong with it."""

    faults: Counter[str] = field(default_factory=Counter)
    facts: dict[str, object] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def table(self) -> str:
        rows = [*sorted(self.faults.items()), *self.facts.items(), ("findings", len(self.wrong))]
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"  ! {text}" for text in self.wrong[:40])])


@dataclass(frozen=True)
class Times:
    """Moments of a run, by the clock that the database reads too."""

    calm: float
    faults: float
    last: float
    end: float


class Chaos:
    """One run on one installation: calm, faults, the time after them, and the checks."""

    def __init__(self, plan: Plan, folder: Path, stack: ExitStack) -> None:
        self.plan = plan
        self.folder = folder
        self.site = Installation(folder, stack, workers=plan.workers)
        self.faults = Faults(self.site, Random(plan.seed))
        self.result = Result(self.faults.done)
        stack.callback(self.site.ended.set)

    def run(self) -> Result:
        helpers = [
            threading.Thread(target=work, daemon=True) for work in (self.site.keep_workers, self.site.decide_held)
        ]
        for helper in helpers:
            helper.start()
        times = self._attack()
        self.site.until(lambda: self.site.count(UNFINISHED) == 0, self.plan.drain, "the end of all jobs")
        self._check_running()
        self.site.ended.set()
        for helper in helpers:
            helper.join(600)
        self._end_workers()
        self._check(times)
        self.result.wrong += self.site.wrong
        return self.result

    def _attack(self) -> Times:
        plan, site = self.plan, self.site
        site.start_clients(plan.seed, plan.per_second)
        self._await_pace()
        calm = time.time()
        time.sleep(plan.calm)
        faults = time.time()
        self.faults.strike_for(plan.seconds, pause=plan.pause, without=plan.without)
        time.sleep(plan.after)
        end = time.time()
        self._end_clients()
        self.result.facts["unfinished at the clients' end"] = site.count(UNFINISHED)
        return Times(calm, faults, self.faults.last, end)

    def _await_pace(self) -> None:
        """Until what comes in is finished within a second; a slow machine has its pace when the children are there."""
        deadline = time.monotonic() + WARM_SECONDS
        self.site.until(lambda: self.site.count(COMPLETED) > self.plan.per_second, 90.0, "the first jobs", vital=True)
        while time.monotonic() < deadline and not 0 <= self.site.count(UNFINISHED) < self.plan.per_second:
            time.sleep(0.1)

    def _end_clients(self) -> None:
        for client in self.site.clients:
            client.tell("")
        self._end(self.site.clients, 90.0)

    def _end_workers(self) -> None:
        for worker in self.site.workers:
            worker.process.terminate()
        self._end(self.site.workers, 60.0)
        self.site.until(lambda: not self._left(), 10.0, "the end of all processes")
        self.result.wrong += [f"a process was left behind: {text}" for text in self._left()]

    def _end(self, processes: list[Process], seconds: float) -> None:
        for process in processes:
            try:
                code = process.process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0 and not self._had_no_handler(process, code):
                self.result.wrong.append(f"{process.name} ended with {code}: {tail(self.folder / process.name)}")

    def _had_no_handler(self, process: Process, code: int | None) -> bool:
        """Whether a stop signal met a worker that had only been started: a signal has its usual effect until the
        command handles it, which it does before it registers."""
        fresh = process in self.site.workers and code == -signal.SIGTERM and not self.site.registered(process)
        if fresh:
            self.site.say(f"{process.name} was stopped before it had begun")
        return fresh

    def _left(self) -> list[str]:
        """Processes of this run that are still there, found by the mark in their environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(MARK) == self.site.mark:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
        return found

    # --- the checks ---

    def _check_running(self) -> None:
        """Nothing is RUNNING, with or without a process of a living worker."""
        with self.site.direct() as connection:
            found = connection.execute(RUNNING).fetchall()
        mine = {worker.process.pid for worker in self.site.workers}
        self.result.facts["RUNNING at the end"] = len(found)
        for job_id, fence, task, pid, state in found:
            ghost = pid not in mine or state == "gone"
            what = "RUNNING without a process" if ghost else "still RUNNING"
            self.result.wrong.append(f"{what}: job {job_id}.{fence} ({task}) of pid {pid} ({state})")

    def _check(self, times: Times) -> None:
        result, facts = self.result, self.result.facts
        diaries, runs = read_diaries(self.folder), read_ledger(self.folder / "ledger")
        with self.site.direct() as connection:
            result.wrong += [*diaries.wrong, *check_acknowledged(connection, diaries)]
            ends = finished_times(connection)
            facts["jobs"] = connection.execute("select count(*) from hw_job").fetchall()[0][0]
            late = "select count(*) from hw_event where kind = 'job.late_write_rejected'"
            facts["late writes rejected"] = connection.execute(late).fetchall()[0][0]
        result.wrong += check_ledger(runs)
        result.wrong += self._verified()
        facts |= {f"enqueue {word}": diaries.count(word) for word in ("acked", "unknown", "refused")}
        facts |= {f"diary {word}": count for word, count in sorted(diaries.notes.items())}
        facts["executions"] = len(runs)
        facts["decided by a person"] = self.site.decided
        facts["answers lost"] = f"{self.site.front.lost}, and {self.site.front.held} commits that arrived late"
        facts["workers started"] = sum(worker.starts for worker in self.site.workers)
        facts["workers ended with"] = dict(sum((worker.codes for worker in self.site.workers), Counter()))
        facts["errors in workers' logs"] = self._errors()
        self._check_throughput(ends, times)

    def _check_throughput(self, ends: list[float], times: Times) -> None:
        # A client that catches up makes more for a moment than it is asked for.
        calm = min(rate(ends, times.calm, times.faults), self.plan.per_second)
        back = back_after(ends, calm, since=times.last, until=times.end)
        stays = rate(ends, times.last + (back or 0.0), times.end)
        self.result.facts["finished per second before"] = f"{calm:.1f}"
        self.result.facts["finished per second during"] = f"{rate(ends, times.faults, times.last):.1f}"
        self.result.facts["finished per second after"] = f"{stays:.1f}"
        self.result.facts["back after"] = "never" if back is None else f"{back:.1f} s"
        if back is None or back > BACK_WITHIN:
            self.result.wrong.append(f"throughput was not back within {BACK_WITHIN:g} s of the last fault: {back}")
        elif stays < 0.8 * calm:
            self.result.wrong.append(f"throughput came back and fell again: {stays:.1f} of {calm:.1f} per second")

    def _verified(self) -> list[str]:
        """What `headway verify --quiet` says."""
        command = [sys.executable, "-m", "headway", "verify", "--quiet", "--json", "--database", self.site.url]
        done = subprocess.run(command, env=self.site.env, cwd=self.folder, capture_output=True, text=True, timeout=600)
        self.result.facts["verify"] = "0 findings" if done.returncode == 0 else f"exit {done.returncode}"
        if done.returncode == 0:
            return []
        if done.returncode != 4:
            return [f"verify: {done.stderr[-2000:]}"]
        found = json.loads(done.stdout)["findings"]
        counts = Counter(finding["invariant"] for finding in found)
        some = [f"{finding['invariant']} {finding['thing']}: {finding['text']}" for finding in found[:10]]
        return [f"verify: {dict(counts)}", *some]

    def _errors(self) -> dict[str, int]:
        """Errors that a round of a worker ended with, for the reader: a round that fails is tried again."""
        found: Counter[str] = Counter()
        for file in self.folder.glob("worker-*.log"):
            lines = file.read_text(errors="replace").splitlines()
            found.update(line[:100] for line in lines if line.startswith(("psycopg.", "headway.errors.", "Assertion")))
        return dict(found.most_common(8))


def run(plan: Plan, folder: Path) -> Result:
    with ExitStack() as stack:
        return Chaos(plan, folder, stack).run()


def main() -> int:
    reader = argparse.ArgumentParser(prog="python -m tests.system.support.chaos")
    reader.add_argument("--minutes", type=float, default=10.0, help="how long the faults last")
    reader.add_argument("--workers", type=int, default=4)
    reader.add_argument("--jobs", type=int, default=20_000)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--pause", type=float, default=0.8, help="mean seconds between two faults")
    reader.add_argument("--without", action="append", default=[], choices=KINDS, help="leave out a kind of fault")
    reader.add_argument("--folder", type=Path, help="where logs, diaries and the ledger are kept")
    asked = reader.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="headway-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        seed=asked.seed,
        seconds=asked.minutes * 60,
        workers=asked.workers,
        jobs=asked.jobs,
        pause=asked.pause,
        without=frozenset(asked.without),
    )
    result = run(plan, folder)
    print(f"chaos, seed {asked.seed}, {asked.minutes:g} min, {asked.workers} workers; files in {folder}")
    print(result.table())
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
