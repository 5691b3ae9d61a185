"""Retention against the checker: histories that are pruned while they are lived, and while they are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.engine.maintenance.pruner import Pruner
from headway.store.db import open_database
from headway.verify import Report, check
from tests.support.deadlines import join
from tests.support.waiting import until
from tests.support.world import WORKER
from tests.system import test_verify_plans
from tests.system import test_verify_random_histories as random_histories

RETENTION = 40.0
STEPS = 40
ROUNDS = 6
SEEDS = range(100) if os.environ.get("HEADWAY_PROOF") else (0, 3)


def pruner(world: Any) -> Pruner:
    return Pruner(world.db, retention=RETENTION, artifacts=Path("nowhere"))


def prune(world: Any) -> None:
    """All that may go."""
    one = pruner(world)
    while one.tick() == 0.0:
        pass


def told(report: Report) -> list[str]:
    return [f"{one.invariant} {one.thing}: {one.text}" for one in report.findings]


@pytest.mark.parametrize("kind", [random_histories.Weather, test_verify_plans.Weather], ids=["jobs", "plans"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_without_its_beginning_has_no_findings(
    database_url: str, kind: Callable[[str, int], Any], seed: int
) -> None:
    world = kind(database_url, 1_000 + seed)
    with closing(world.db):
        pruned = 0
        for _ in range(ROUNDS):
            world.live(STEPS)
            before = world.check(settle=0.0)
            assert told(before) == []
            prune(world)
            after = world.check(settle=0.0)
            assert told(after) == []
            pruned += before.counted["jobs"] - after.counted["jobs"]
        assert pruned > 5, "the test prunes nothing, and shows nothing"


def test_a_history_that_is_pruned_while_it_is_read_has_no_findings(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engine.maintenance.pruner.BATCH", 5)  # many small transactions
    world = random_histories.Weather(database_url, 77)
    with closing(world.db):
        world.live(300)
        world.beat(WORKER)
        stop = threading.Event()
        findings: list[str] = []
        seen: list[int] = []

        def read() -> None:
            with closing(open_database(database_url, clock=world.clock)) as database:
                while not stop.is_set():
                    report = check(database, settle=0.0)
                    findings.extend(told(report))
                    seen.append(report.counted["jobs"])

        reader = threading.Thread(target=read, name="verify", daemon=True)
        reader.start()
        until(lambda: seen, "a first reading")
        one = pruner(world)
        while one.tick() == 0.0:
            pass
        whole = len(seen)
        until(lambda: len(seen) > whole + 1, "a last reading")
        stop.set()
        join(reader)
        assert findings == []
        assert seen[-1] < seen[0], "nothing was pruned, and nothing is shown"
