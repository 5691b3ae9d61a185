"""Real workers on one database, killed, frozen and started again at random while jobs come in: nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from headway import Job
from tests.support.deadlines import join
from tests.support.figures import Figure
from tests.system.support.record import Record, dump
from tests.system.support.started import Program, Site, site, until

pytestmark = pytest.mark.alone

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
ROUNDS = 300 if PROOF else 12
LEASE = 3.0
WISHES = {"lease": LEASE, "heartbeat": 0.5, "recovery": 0.3, "slots": 3, "grace": 0.3}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


class Storm:
    """Three workers that are never left in peace."""

    def __init__(self, here: Site, rng: Random) -> None:
        self.here = here
        self.rng = rng
        self.programs = [here.start(**WISHES) for _ in range(3)]
        self.done: Counter[str] = Counter()
        self.frozen: list[threading.Timer] = []

    def strike(self) -> None:
        """One worker at random: killed, ended, frozen for longer than its lease, or it loses its heartbeat."""
        n = self.rng.randrange(len(self.programs))
        program = self.programs[n]
        blow = self.rng.choice(["kill", "kill", "end", "freeze", "behead"])
        if program.process.poll() is not None:
            blow = "found dead"  # its own heartbeat ended it, for it could not renew and did not stop in time
        self.done[blow] += 1
        match blow:
            case "found dead":
                self.replace(n, lambda: None)
            case "kill":
                self.replace(n, program.kill)
            case "end":
                self.replace(n, lambda: program.signal(signal.SIGTERM))
            case "behead":
                if (heartbeat := program.heartbeat()) is not None:
                    heartbeat.kill()
            case "freeze":
                self.freeze(program)

    def replace(self, n: int, end: Callable[[], None]) -> None:
        end()
        self.programs[n] = self.here.start(**WISHES)

    def freeze(self, program: Program) -> None:
        """Until its lease is over, in a thread of its own: it may hold a lock that we are waiting for."""
        tree = program.tree()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        timer = threading.Timer(LEASE + 1.0, thaw, [tree])
        timer.start()
        self.frozen.append(timer)

    def calm_down(self) -> None:
        for timer in self.frozen:
            join(timer)


def thaw(tree: list[psutil.Process]) -> None:
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def enqueue(here: Site, rng: Random, n: int) -> Job:
    kind = rng.choice(["async", "thread", "process"])
    wishes = {"retry": {"max_attempts": 1000, "base_delay": 0.05, "max_delay": 0.2}, "priority": rng.randint(0, 3)}
    return here.enqueue(f"steps.{kind}", f"job-{n}", wishes=wishes, steps=rng.randint(1, 40))


def test_nothing_is_lost_in_a_storm(here: Site, figure: Figure) -> None:
    rng = Random(4711)
    storm = Storm(here, rng)
    jobs: list[Job] = []
    for _ in range(ROUNDS):
        jobs += [enqueue(here, rng, len(jobs) + more) for more in range(3)]
        await_news(here)
        storm.strike()
    storm.calm_down()
    until(lambda: all(last_of(here, job) == "COMPLETED" for job in jobs), 120.0)
    for program in storm.programs:
        program.signal(signal.SIGTERM)
        code = program.wait()  # one that was frozen last may be found dead, as in `strike`
        assert code == 0 or "the heartbeat ends worker" in program.log.read_text(), code
    wrong = here.findings() + list(broken(here, jobs))
    done = ", ".join(f"{count} × {blow}" for blow, count in sorted(storm.done.items()))
    figure(f"storm on {here.app.database.dialect}: {done}; {len(jobs)} jobs, {len(wrong)} findings")
    assert wrong == []


def await_news(here: Site) -> None:
    """Until more work has begun, as it does sooner or later however hard the last blow was."""
    before = begun(here)
    until(lambda: begun(here) >= before + 2)


def begun(here: Site) -> int:
    return sum(file.stat().st_size > 0 and file.read_bytes().count(b"\n") for file in here.folder.glob("job-*.began"))


def last_of(here: Site, job: Job) -> str:
    return job._last().status.name


def broken(here: Site, jobs: list[Job]) -> Iterator[str]:
    """Work runs once under each fence, does no stored step again, and completes once in each chain."""
    record = Record(dump(here.app.database))
    for n, job in enumerate(jobs):
        runs = Counter(line[0] for line in here.lines(f"job-{n}.began"))
        yield from (f"{word} ran {count} times" for word, count in runs.items() if count > 1)
        chain = record.chain(job.id)
        completed = [one for one in chain if record.state(one) == "COMPLETED"]
        if completed != chain[-1:]:
            yield f"the chain {chain} completed with {completed}"
        stored = [int(step) for _, step in here.lines(f"job-{n}.stored")]
        if len(stored) != len(set(stored)):
            yield f"steps of job {job.id} were done again after they were stored: {stored}"
