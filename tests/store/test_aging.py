"""Aging: who waits long enough gets a turn under a flood of better jobs; without it the order is strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.clock import micros
from headway.engine.client import limits
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from tests.support.life import ADA, Life


def age(life: Life, seconds: float | None, **wishes: Any) -> None:
    limits.settle(life.database, Concurrency(aging=seconds, **wishes), {}, actor=ADA, adopt=True)


def turns(life: Life, count: int, *, each: Callable[[], object], seconds: float = 10.0) -> list[int]:
    """So many turns of one place, one after the other; before each of them something happens."""
    taken: list[int] = []
    for _ in range(count):
        each()
        (claim,) = life.claim_next()
        taken.append(claim.job_id)
        life.clock.advance(seconds)
        assert life.end(claim, Completed())
    return taken


def test_under_a_flood_a_low_job_gets_its_turn(life: Life) -> None:
    """A better one comes with every turn: after as many intervals as they are better, and one more, it is its turn."""
    age(life, 10.0)
    low = life.enqueue(priority=0)
    taken = turns(life, 12, each=lambda: life.enqueue(priority=5))
    assert taken.index(low) == 6


def test_without_aging_it_never_does(life: Life) -> None:
    age(life, None)
    low = life.enqueue(priority=0)
    assert low not in turns(life, 60, each=lambda: life.enqueue(priority=5))
    assert life.status(low) == "QUEUED"


def test_every_low_job_gets_its_turn_in_their_own_order(life: Life) -> None:
    age(life, 10.0)
    low = [life.enqueue(priority=0) for _ in range(4)]
    taken = turns(life, 40, each=lambda: life.enqueue(priority=3))
    assert [job_id for job_id in taken if job_id in low] == low


def test_within_a_priority_the_order_never_changes(life: Life) -> None:
    """Not even for one that waited longer: place first, age only against other priorities."""
    age(life, 1.0)
    old = life.enqueue()
    life.clock.advance(1000)
    young = life.enqueue()
    life.client.move(young, to="top")
    assert life.pick(9) == [young]
    life.set_limit(None)
    assert life.pick(9) == [young, old]


def test_one_that_cannot_run_does_not_stand_in_the_way_of_its_priority(life: Life) -> None:
    """The first eligible one of each priority competes, not the first one."""
    age(life, 10.0, limit=None)
    limits.settle(life.database, Concurrency(aging=10.0, limit=None), {"ollama": 1}, actor=ADA, adopt=True)
    busy = life.enqueue(resources=("ollama",))
    assert [claim.job_id for claim in life.claim_next()] == [busy]
    stuck, low = life.enqueue(resources=("ollama",)), life.enqueue()
    life.clock.advance(60)
    high = life.enqueue(priority=5)
    assert life.pick(9) == [low, high]
    assert life.end(life.held(busy), Completed())
    assert life.pick(9) == [stuck, low, high]


@pytest.mark.parametrize(("waited", "first"), [(49, "high"), (50, "high"), (59.9, "high"), (60, "low")])
def test_whole_intervals_count_and_ties_go_to_the_higher_plain_priority(life: Life, waited: float, first: str) -> None:
    age(life, 10.0)
    jobs = {"low": life.enqueue(priority=0)}
    life.clock.advance(waited)
    jobs["high"] = life.enqueue(priority=5)
    assert life.pick(1) == [jobs[first]]


def test_age_counts_to_a_hundred_at_most(life: Life) -> None:
    age(life, 1.0)
    low = life.enqueue(priority=0)
    life.clock.advance(10_000)
    top, almost = life.enqueue(priority=100), life.enqueue(priority=99)
    life.set_limit(None)
    assert life.pick(9) == [top, low, almost]


@pytest.mark.parametrize("way", ["promoted", "resumed", "resumed from a hold"])
def test_it_counts_from_the_moment_it_was_queued(life: Life, way: str) -> None:
    age(life, 10.0, limit=None)
    if way == "promoted":
        job_id = life.enqueue(delay=micros(100))
        life.clock.advance(100)
        assert life.pick(9) == [job_id]
    else:
        job_id = life.in_state("PAUSED" if way == "resumed" else "WAITING")
        life.clock.advance(100)
        life.client.resume(job_id)
    other = life.enqueue(priority=2)
    assert life.pick(9) == [other, job_id]
    life.clock.advance(30)
    better = life.enqueue(priority=2)
    assert life.pick(9) == [other, job_id, better]


def test_a_change_of_priority_does_not_make_it_younger(life: Life) -> None:
    age(life, 10.0)
    job_id = life.enqueue()
    life.clock.advance(20)
    life.client.edit(job_id, priority=1)
    other = life.enqueue(priority=2)
    assert life.pick(1) == [job_id]
    assert life.status(other) == "QUEUED"


def test_it_can_be_switched_on_and_off_while_everything_runs(life: Life) -> None:
    low = life.enqueue()
    life.clock.advance(1000)
    high = life.enqueue(priority=5)
    assert life.pick(1) == [high]
    age(life, 10.0)
    assert life.pick(1) == [low]
    age(life, None)
    assert life.pick(1) == [high]
    found = life.sql("select data from hw_event where kind = 'concurrency.changed' order by version")
    assert ['"aging": 10.0' in data for (data,) in found] == [True, False]


def test_on_targets_it_is_the_first_of_each_that_ages(life: Life) -> None:
    """The queue of a target stays strict."""
    age(life, 10.0)
    low = life.enqueue(target="desk")
    life.clock.advance(600)
    high = life.enqueue(target="desk", priority=5)
    other = life.enqueue(target="lab", priority=9)
    assert life.pick(9) == [other, high]
    assert life.status(low) == "QUEUED"


def test_many_priorities_and_kinds_of_work_at_once(life: Life) -> None:
    age(life, 10.0, limit=None)
    made = [
        (priority, life.enqueue(task=f"task{n % 5}", priority=priority)) for n, priority in enumerate(range(0, 101, 4))
    ]
    assert life.pick(50) == [job_id for _, job_id in sorted(made, reverse=True)]
    life.clock.advance(2000)
    more = [life.enqueue(priority=50) for _ in range(20)]
    assert life.pick(50) == [job_id for _, job_id in sorted(made, reverse=True)] + more
