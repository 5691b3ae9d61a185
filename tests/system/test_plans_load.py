"""Several worker processes and a scheduler on one database, some hundred groups and executions whose steps fail, are
retried and cancelled while workers are killed: every group is concluded once, no stage begins early."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.tasks.plan import Plan, Started, Step
from headway.errors import WrongState
from tests.support.figures import Figure
from tests.system.support import stages
from tests.system.support.record import Record, dump
from tests.system.support.started import Program, Site, site, until

pytestmark = pytest.mark.alone

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
GROUPS = 3_000 if PROOF else 250
SCHEDULES = 12
SECONDS = 600.0 if PROOF else 60.0
PROCESSES = 3
KILLS = 60 if PROOF else 5
PENDING = 60
WISHES = {"lease": 10.0, "heartbeat": 0.5, "recovery": 0.3, "slots": 6, "grace": 5.0}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


class People:
    """Whoever makes plans, cancels some and tries failed ones again while the workers work."""

    def __init__(self, here: Site, rng: Random) -> None:
        self.here = here
        self.rng = rng
        self.made: list[Started] = []
        self.did: Counter[str] = Counter()

    def step(self, n: int) -> Step:
        """A third of them fails at first; a third of those for good."""
        rng = self.rng
        retry = {"max_attempts": rng.choice([0, 1, 2]), "base_delay": 0.01}
        wishes = {"name": f"s{n}", "retry": retry, "continue_on_failure": rng.random() < 0.2, "on_lost": "retry"}
        if rng.random() < 0.1:
            wishes["target"], wishes["on_error"] = f"desk-{rng.randrange(5)}", "fail"
        seconds = rng.choice([0.0, 0.0, 0.0, 0.02, 0.1])
        return self.here.app.tasks["load.async"].using(**wishes).step(seconds=seconds, fails=rng.random() < 0.33)

    def make(self) -> None:
        rng = self.rng
        plan: Plan = self.here.app.plan("load", on_failure=rng.choice(["stop", "continue", "skip"]))
        n = 0
        for _ in range(rng.randint(1, 4)):
            width = rng.randint(1, 4)
            plan.then(*(self.step(n + more) for more in range(width)))
            n += width
        self.made.append(plan.start())
        self.did["made"] += 1

    def schedule(self, n: int) -> None:
        steps = [{"index": index, "name": f"s{index}", "task": "load.async"} for index in range(2)]
        overlap = self.rng.choice(["skip", "queue", "allow", "cancel_running"])
        definition = {"interval": 1, "steps": steps, "overlap": overlap, "catch_up": self.rng.choice(["last", "all"])}
        self.here.app.client.schedules.create(f"every second {n}", definition)

    def meddle(self) -> None:
        chosen = self.rng.choice(self.made)
        with suppress(WrongState):  # it has ended, or nothing in it failed, or somebody retries it already
            if self.rng.random() < 0.5:
                chosen.cancel()
                self.did["cancel"] += 1
            else:
                self.made.append(chosen.retry())
                self.did["retry"] += 1

    def count(self, table: str, condition: str) -> int:
        with self.here.app.database.read() as tx:
            text = f"select count(*) from {table} where {condition}"
            return int(tx.connection.execute(text).fetchall()[0][0])  # type: ignore[attr-defined]


def test_every_group_is_concluded_once(here: Site, figure: Figure) -> None:
    rng = Random(4)
    people = People(here, rng)
    programs = [here.start(**WISHES) for _ in range(PROCESSES)]
    for n in range(SCHEDULES):
        people.schedule(n)
    scheduler = Scheduler(here.app.client)
    scheduler.start()
    began, kills = time.monotonic(), 0
    for n in range(GROUPS):
        people.make()
        if n % 2:
            people.meddle()
        if n % (GROUPS // KILLS) == GROUPS // KILLS // 2:
            kills += 1
            until(lambda: people.count("hw_group", "finished_at is null") < PENDING)
            strike(people, programs)
    scheduler.stop()
    scheduler.join(10.0)
    for n in range(SCHEDULES):
        here.app.client.schedules.disable(f"every second {n}")
    until(lambda: not people.count("hw_group", "finished_at is null"), SECONDS)
    seconds = time.monotonic() - began
    until(lambda: people.count("hw_worker", "gone_at is null") >= PROCESSES)  # the last one to start listens, too
    for program in programs:
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
    record = Record(dump(here.app.database))
    wrong = here.findings() + list(stages.wrong(record))
    ends = Counter(f"{group['kind']} {group['status']}" for group in record.rows["hw_group"])
    lost = people.count("hw_job", "failure_kind = 'LOST'")
    jobs, did = len(record.jobs), ", ".join(f"{count} × {verb}" for verb, count in sorted(people.did.items()))
    many = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    figure(f"{here.app.database.dialect}: {jobs} jobs in {seconds:.0f} s, {kills} killed, {lost} lost, {did}")
    figure(f"{many}; {len(record.rows['hw_tick'])} rows of ticks, {len(wrong)} findings")
    assert wrong == []
    assert ends.keys() >= {"group COMPLETED", "group PARTIAL", "group CANCELLED", "execution COMPLETED"}
    assert kills == KILLS
    assert lost >= 1
    assert people.did.keys() >= {"cancel", "retry"}


def strike(people: People, programs: list[Program]) -> None:
    """Kills a worker that is at work."""
    n = people.rng.randrange(len(programs))
    pid = programs[n].pid
    mine = f"status = 3 and worker_id in (select id from hw_worker where pid = {pid})"

    def at_work() -> bool:
        if not people.count("hw_job", "status <= 2"):
            people.make()
        return people.count("hw_job", mine) > 0

    until(at_work)
    programs[n].kill()
    programs[n] = people.here.start(**WISHES)
