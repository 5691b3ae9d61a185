"""Several worker processes on one database, 10,000 jobs over targets, resources and the global lane, while people
cancel, interrupt and let go, jobs fail and workers are killed: every limit holds at every moment, nothing is lost."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from headway.engine.client import limits
from headway.errors import WrongState
from headway.model.jobs.job import SYSTEM, NewJob, Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from tests.support.figures import Figure
from tests.system.support.started import Program, Site, site

pytestmark = pytest.mark.alone

JOBS = 10_000
CHUNK = 500
TARGETS = 50
RESOURCES = {"one": 1, "two": 2, "three": 3}
GLOBAL = 2
SECONDS = 240.0
WISHES = {"lease": 10.0, "heartbeat": 0.5, "recovery": 0.5, "slots": 6, "grace": 5.0}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        wished = Concurrency(limit=GLOBAL)
        limits.settle(found.app.database, wished, RESOURCES, actor=SYSTEM, adopt=True)
        yield found


def new(rng: Random) -> NewJob:
    params = {
        "seconds": rng.choice([0.0] * 24 + [0.02, 0.2]),
        "fails": rng.random() < 0.03,
    }
    options = Options(
        retry=RetryPolicy(rng.choice([0, 1, 2]), 0.01), on_error=rng.choice(["hold", "fail", "fail"]), on_lost="retry"
    )
    needs = rng.sample(sorted(RESOURCES), rng.choice([0, 0, 0, 1, 2]))
    on_target = rng.random() < 0.6
    return NewJob(
        "load.async",
        json.dumps(params),
        options.text(),
        priority=rng.choice([0, 0, 0, 5, 9]),
        target=f"desk-{rng.randrange(TARGETS)}" if on_target else None,
        resources=tuple(sorted(needs)),
    )


class People:
    """Whoever changes things while the workers work."""

    def __init__(self, here: Site, rng: Random) -> None:
        self.here = here
        self.client = here.app.client
        self.rng = rng
        self.did: Counter[str] = Counter()

    def ids(self, condition: str, limit: int = 200) -> list[int]:
        with self.here.app.database.read() as tx:
            text = f"select id from hw_job where {condition} limit {limit}"
            return [row[0] for row in tx.connection.execute(text).fetchall()]  # type: ignore[attr-defined]

    def act(self, verb: str, job_id: int) -> None:
        with suppress(WrongState):  # it ended, or somebody took it, since we looked
            getattr(self.client, verb)(job_id)
            self.did[verb] += 1

    def meddle(self) -> None:
        """Cancels and interrupts a few jobs that wait or run."""
        for condition, verb in (("status = 3", "cancel"), ("status = 3", "interrupt"), ("status <= 2", "cancel")):
            found = self.ids(condition, 50)
            if found and self.rng.random() < 0.7:
                self.act(verb, self.rng.choice(found))

    def let_go(self) -> None:
        """What is held gets a decision, sooner or later."""
        for job_id in self.ids("status between 4 and 5", 20):
            self.act(self.rng.choice(["resume", "resolve", "release", "retry", "cancel"]), job_id)
        for job_id in self.ids("status = 0 and hold = 1", 20):
            self.act("resume", job_id)


def over_the_limit(tx: Tx) -> list[str]:
    """In one snapshot: the lanes and targets on which more runs than may."""
    capacity = {lane: (name, limit) for lane, _, _, name, limit, _ in tx.run("lanes") if limit is not None}
    lanes = {row[0]: json.loads(row[3]) for row in tx.run("all_buckets")}
    running = tx.connection.execute(  # type: ignore[attr-defined]
        "select bucket_id, target_id from hw_job where status = 3"
    ).fetchall()
    used = Counter(lane for bucket_id, _ in running for lane in lanes[bucket_id])
    held = Counter(target for _, target in running if target is not None)
    wrong = [
        f"{used[lane]} on {name}, {limit} allowed" for lane, (name, limit) in capacity.items() if used[lane] > limit
    ]
    return wrong + [f"{count} on target {target}" for target, count in held.items() if count > 1]


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_limits_hold_whatever_happens(here: Site, processes: int, figure: Figure) -> None:
    rng = Random(processes)
    for _ in range(0, JOBS, CHUNK):
        here.app.client.enqueue_many([new(rng) for _ in range(CHUNK)])
    people = People(here, rng)
    programs = [here.start(**WISHES) for _ in range(processes)]
    began, looks, kills, wrong = time.monotonic(), 0, 0, list[str]()
    while people.ids("status <= 5", 1):
        assert time.monotonic() < began + SECONDS, f"{len(people.ids('status <= 5', JOBS))} jobs are left"
        with here.app.database.read() as tx:
            wrong += over_the_limit(tx)
        looks += 1
        if looks % 4 == 0:
            people.let_go()
        if looks % 10 == 0:
            people.meddle()
        if looks % 60 == 0 and kills < 12:
            kills += 1
            strike(here, programs, rng)
    seconds = time.monotonic() - began
    for program in programs:
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
    wrong += here.findings()
    did = ", ".join(f"{count} × {verb}" for verb, count in sorted(people.did.items()))
    where = f"{processes} workers on {here.app.database.dialect}"
    figure(f"{where}: {JOBS} jobs in {seconds:.0f} s, {kills} killed, {did}; {looks} looks, {len(wrong)} findings")
    assert wrong == []
    assert kills
    assert people.did.keys() >= {"cancel", "interrupt", "resume", "release"}


def strike(here: Site, programs: list[Program], rng: Random) -> None:
    n = rng.randrange(len(programs))
    programs[n].kill()
    programs[n] = here.start(**WISHES)
