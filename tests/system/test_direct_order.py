"""[running] → [direct calls, in order] → [queue], between real processes under load, read from the history alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from tests.support.figures import Figure
from tests.system.support import calls
from tests.system.support.started import SECONDS, Site, site, until

pytestmark = pytest.mark.alone

THREADS, CALLS, JOBS = 6, 30, 120
IN_A_ROW = 8
POOLS = {"gpu": 1, "remote": 2}
NEEDS = (["gpu"], ["remote"], ["gpu", "remote"])
ENDS = {"job.completed", "job.failed", "job.skipped", "job.cancelled", "job.paused", "job.error"}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    """One lane for everything, and room for one."""
    with site(database_url, tmp_path) as found:
        limits.settle(found.app.database, Concurrency(limit=1), {}, actor=SYSTEM, adopt=True)
        yield found


Lanes = tuple[int, ...]
Event = tuple[str, int, str, Lanes]


def history(site: Site) -> list[Event]:
    """What happened to jobs and reservations, and on which lanes, in order: all that counts here happened under the
    claim lock."""
    text = """select e.thing, e.thing_id, e.kind, coalesce(b.lanes, r.lanes) from hw_event e
      left join hw_reservation r on e.thing = 'reservation' and r.id = e.thing_id
      left join hw_job j on e.thing = 'job' and j.id = e.thing_id left join hw_bucket b on b.id = j.bucket_id
      where e.thing in ('job', 'reservation') order by e.id"""
    return [(thing, number, kind, tuple(json.loads(lanes))) for thing, number, kind, lanes in ask(site, text)]


def ask(site: Site, text: str) -> list[tuple[Any, ...]]:
    with site.app.database.read() as tx:
        return [tuple(row) for row in tx.connection.execute(text).fetchall()]  # type: ignore[attr-defined]


@dataclass
class Board:
    """The lanes as their history tells them. Whatever is not as it should be is written down."""

    capacity: dict[int, int]
    line: dict[int, Lanes] = field(default_factory=dict)
    active: dict[int, Lanes] = field(default_factory=dict)
    inside: dict[tuple[str, int], Lanes] = field(default_factory=dict)
    streaks: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    jobs_between: int = 0
    order: str = ""
    wrong: list[str] = field(default_factory=list)

    def tell(self, thing: str, number: int, kind: str, lanes: Lanes) -> None:
        who = (thing, number)
        if kind == "reservation.created":
            self.line[number] = self.active[number] = lanes
        elif kind == "reservation.granted":
            self._grant(number, lanes)
            self._enter(who, lanes)
        elif kind in ("reservation.released", "reservation.expired"):
            for places in (self.line, self.active):
                places.pop(number, None)
            self.inside.pop(who, None)
        elif kind == "job.claimed":
            self._claim(number, lanes)
            self._enter(who, lanes)
        elif kind in ENDS:
            self.inside.pop(who, None)

    def _enter(self, who: tuple[str, int], lanes: Lanes) -> None:
        self.inside[who] = lanes
        self.order += who[0][0]
        for lane in lanes:
            if sum(lane in others for others in self.inside.values()) > self.capacity[lane]:
                self.wrong.append(f"too many on lane {lane}: {self.inside}")

    def _grant(self, number: int, lanes: Lanes) -> None:
        del self.line[number]
        passed = [other for other, wanted in self.line.items() if other < number and set(wanted) & set(lanes)]
        if passed:
            self.wrong.append(f"reservation {number} was let in, and {passed} stood before it")
        self.streaks.update(lanes)
        self.longest = max(self.longest, *self.streaks.values())

    def _claim(self, number: int, lanes: Lanes) -> None:
        reserved = {lane for wanted in self.active.values() for lane in wanted}
        for lane in reserved.intersection(lanes):
            self.jobs_between += 1
            if self.streaks[lane] < IN_A_ROW:
                self.wrong.append(f"job {number} was claimed on lane {lane}, which {self.active} have reserved")
        for lane in lanes:
            self.streaks[lane] = 0


def told(site: Site) -> Board:
    capacity = {lane: limit for lane, limit in ask(site, "select id, capacity from hw_lane") if limit is not None}
    board = Board(capacity)
    for event in history(site):
        board.tell(*event)
    assert not board.wrong, "\n".join(board.wrong[:10])
    return board


@pytest.mark.parametrize(
    "bad",
    [
        [("job", 1, "job.claimed", (1,))],
        [("job", 1, "job.claimed", (2,))],
        [("reservation", 2, "reservation.granted", (1,))],
        [("reservation", 1, "reservation.granted", (1, 2)), ("reservation", 2, "reservation.granted", (1,))],
    ],
)
def test_the_judge_of_histories_finds_what_it_is_there_for(bad: list[Event]) -> None:
    board = Board({1: 1, 2: 1})
    made: list[Event] = [
        ("reservation", 1, "reservation.created", (1, 2)),
        ("reservation", 2, "reservation.created", (1,)),
    ]
    for event in made + bad:
        board.tell(*event)
    assert board.wrong


# --- under load ---------------------------------------------------------------------------------------------------


def test_direct_calls_come_next_while_workers_have_more_to_do_than_they_can(here: Site, figure: Figure) -> None:
    for _ in range(2):
        here.start(slots=4)
    here.enqueue("waits.async", "first")
    here.await_began("first")
    here.go("load")
    file = str(here.folder / "load")
    jobs = here.app.tasks["waits.async"].enqueue_many([{"file": file}] * JOBS)

    def call_often(thread: int) -> list[object]:
        task = "waits.process" if thread == 0 else "waits.async"
        return [here.app.direct(task, {"file": file}) for _ in range(CALLS)]

    with ThreadPoolExecutor(THREADS) as pool:
        asked = [pool.submit(call_often, n) for n in range(THREADS)]
        until(lambda: len(told(here).line) == THREADS)
        began = time.monotonic()
        here.go("first")
        answers = [answer for one in asked for answer in one.result()]
    took = time.monotonic() - began
    until(lambda: all(job.status == "COMPLETED" for job in jobs[-3:]))
    until(lambda: not told(here).inside)
    board = told(here)
    assert len(answers) == len(set(answers)) == THREADS * CALLS, "each call has a number of its own"
    assert board.order.count("r") == THREADS * CALLS
    assert board.jobs_between > 0, "the load was too small: no job ever waited behind a call"
    assert board.longest == IN_A_ROW, "while jobs waited, a row of direct calls was longer than it may be"
    assert here.findings() == []
    figure(
        f"{here.app.database.dialect}: {len(answers)} direct calls of {THREADS} threads beside {JOBS} jobs of 2"
        f" workers in {took:.1f} s, in order; {board.jobs_between} jobs by the burst rule"
    )


def test_nothing_slips_past_a_call_that_needs_several_lanes(here: Site, figure: Figure) -> None:
    """Jobs and calls on one resource, on the other and on both: a call that waits for one has the other closed, too."""
    limits.settle(here.app.database, Concurrency(policy="per_resource"), POOLS, actor=SYSTEM, adopt=True)
    here.go("load")
    file, task = str(here.folder / "load"), here.app.tasks["waits.async"]
    jobs = [job for pools in NEEDS for job in task.using(resources=pools).enqueue_many([{"file": file}] * (JOBS // 2))]
    here.app.client.pause_queue()
    for _ in range(2):
        here.start(slots=4)
    until(lambda: len(ask(here, "select id from hw_worker where kind = 'worker'")) == 2)

    def call_often(thread: int) -> int:
        direct = task.using(resources=NEEDS[thread % len(NEEDS)])
        return len([direct.call(file=file) for _ in range(CALLS)])

    with ThreadPoolExecutor(THREADS) as pool:
        asked = [pool.submit(call_often, n) for n in range(THREADS)]
        here.app.client.resume_queue()
        assert sum(one.result() for one in asked) == THREADS * CALLS
    until(lambda: all(job.status == "COMPLETED" for job in jobs))
    until(lambda: not told(here).inside)
    board = told(here)
    assert board.jobs_between > 0, "no job ever went between the calls"
    assert here.findings() == []
    figure(f"{here.app.database.dialect}: {THREADS * CALLS} calls and {len(jobs)} jobs on 2 resources, in order")


def test_after_eight_calls_in_a_row_one_job_goes_first(here: Site) -> None:
    here.start(slots=2)
    first = here.enqueue("waits.async", "first")
    here.await_began("first")
    queued = [here.enqueue("waits.async", "rest") for _ in range(3)]
    here.go("rest")
    with lined_up(here, IN_A_ROW + 3) as threads:
        here.go("first")
        for thread in threads:
            thread.join(SECONDS)
    for job in (first, *queued):
        here.await_state(job, "COMPLETED")
    until(lambda: not told(here).inside)
    assert told(here).order == "j" + "r" * IN_A_ROW + "j" + "rrr" + "jj"
    assert here.findings() == []


@contextmanager
def lined_up(site: Site, count: int) -> Iterator[list[threading.Thread]]:
    """So many direct calls, one after the other, that wait for their turn."""
    file = str(site.folder / "rest")
    threads: list[threading.Thread] = []
    for n in range(count):
        threads.append(threading.Thread(target=site.app.direct, args=("waits.async", {"file": file})))
        threads[-1].start()
        until(lambda n=n: len(told(site).line) == n + 1)  # type: ignore[misc]
    yield threads
    for thread in threads:
        thread.join(SECONDS)


# --- callers that go away -----------------------------------------------------------------------------------------


@contextmanager
def calling(site: Site, task: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that makes a direct call."""
    process = subprocess.Popen(
        [sys.executable, str(Path(calls.__file__)), task, str(site.folder / name)],
        env=os.environ | {"HEADWAY_DATABASE": site.url, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=site.folder,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def ends(site: Site) -> list[tuple[Any, ...]]:
    return ask(site, "select status, outcome from hw_reservation order by id")


def test_a_caller_that_is_killed_while_it_waits_gives_its_place_back(here: Site) -> None:
    worker = here.start(recovery=600.0)
    running = here.enqueue("waits.async", "first")
    here.await_began("first")
    behind = here.enqueue("waits.async", "rest")
    here.go("rest")
    with calling(here, "waits.async", "rest") as process:
        until(lambda: len(told(here).line) == 1)
        process.kill()
        process.wait(60)
        assert ends(here) == [("ACTIVE", None)]
        Recovery(here.app.database).tick()
        assert ends(here) == [("EXPIRED", "ABANDONED")]
    assert running.status == "RUNNING", "nothing is preempted"
    here.go("first")
    here.await_state(behind, "COMPLETED")
    assert worker.process.poll() is None
    assert told(here).order == "jj"
    assert here.findings() == []


@pytest.mark.parametrize("kind", ["async", "thread", "process"])
def test_a_caller_that_is_killed_while_it_runs_gives_its_place_back_to_the_queue(here: Site, kind: str) -> None:
    with calling(here, f"waits.{kind}", "call") as process:
        _, pid = here.await_began("call")
        here.start()
        behind = here.enqueue("waits.async", "rest")
        here.go("rest")
        process.kill()
        process.wait(60)
        here.await_state(behind, "COMPLETED")
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    assert ends(here) == [("EXPIRED", "ABANDONED")]
    assert told(here).order == "rj"
    assert here.lines("call.ended") == []
    assert here.findings() == []


def test_the_work_of_a_killed_caller_is_ended_before_its_lane_is_free(here: Site) -> None:
    """Its processes are deaf to signals, and hold on."""
    with calling(here, "stubborn.process", "call") as process:
        here.await_began("call")
        until(lambda: len(here.pids("call")) == 3)
        here.start()
        behind = here.enqueue("waits.async", "rest")
        here.go("rest")
        process.kill()
        process.wait(60)
        here.await_state(behind, "COMPLETED")
        living = [pid for pid in here.pids("call") if psutil.pid_exists(pid)]
        assert [pid for pid in living if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE] == []
    assert told(here).order == "rj"
