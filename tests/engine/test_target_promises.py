"""Promises about targets and starvation: who holds what after a failure, and that with aging nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway import App, Context, Fail
from headway.engine.client.limits import settle
from headway.errors import WrongState
from headway.model.jobs.outcome import Completed, Lost
from headway.model.queue.policies import Concurrency
from headway.testing import FrozenClock, drain, isolated
from headway.verify import check
from tests.support.life import ADA, BROKEN, FINAL, Life

app = App(database="never-opened.db")
NOW = {"max_attempts": 2, "base_delay": 0}


@app.task("desk.click")
def click(button: str = "ok") -> str:
    if button == "broken":
        raise RuntimeError("the window did not open")
    return button


@app.task("desk.write", budget={"tokens": 10})
def write(ctx: Context) -> None:
    ctx.spend(tokens=11)
    ctx.check()


@app.task("desk.give_up")
def give_up() -> None:
    raise Fail("no use")


@pytest.fixture
def here(database_url: str) -> Iterator[App]:
    with isolated(app, database_url, clock=FrozenClock("2026-03-01T09:00:00Z")) as one:
        yield one
        assert check(one.database).findings == []


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life
        assert check(life.database).findings == []


# --- failures on a target ---


def test_the_first_failure_holds_unless_retries_were_asked_for(here: App) -> None:
    job = click.using(target="desk-1").enqueue(button="broken")
    behind = click.using(target="desk-1").enqueue()
    assert drain(here) == 1
    assert (job.status, behind.status) == ("ERROR", "QUEUED")
    assert job.run is not None
    assert job.run.status is None  # open until somebody decides
    assert job.row.reason is not None
    assert job.row.reason.startswith("RuntimeError: the window did not open")


def test_with_retries_only_the_last_failure_holds(here: App) -> None:
    job = click.using(target="desk-1", retry=NOW).enqueue(button="broken")
    behind = click.using(target="desk-1").enqueue()
    assert drain(here) == 3
    chain = [here.job(job.id + n).status for n in (0, 2, 3)]  # each retry took the place of the one before
    assert (chain, behind.status) == (["FAILED", "FAILED", "ERROR"], "QUEUED")


def test_on_error_fail_never_holds(here: App) -> None:
    failing = click.using(target="desk-1", on_error="fail", retry=NOW).enqueue(button="broken")
    given_up = give_up.using(target="desk-1", on_error="fail").enqueue()
    behind = click.using(target="desk-1").enqueue()
    assert drain(here) == 5
    assert (failing.status, given_up.status, behind.status) == ("FAILED", "FAILED", "COMPLETED")


def test_over_its_budget_a_job_on_a_target_waits_for_a_person(here: App) -> None:
    job = write.using(target="desk-1").enqueue()
    elsewhere = write.enqueue()
    drain(here)
    assert (job.status, elsewhere.status) == ("ERROR", "FAILED")
    assert job.row.failure_kind is not None
    assert (job.row.failure_kind.value, job.row.reason) == ("BUDGET", "budget for tokens used up: 11 of 10")
    with pytest.raises(WrongState, match="over its budget"):
        job.resume()
    job.resume(budget={"tokens": 100})
    assert drain(here) == 1
    assert job.status == "COMPLETED"


def test_a_lost_job_holds_its_target(life: Life) -> None:
    lost, behind = life.enqueue(target="desk-1", retry=0), life.enqueue(target="desk-1")
    assert life.pick(9) == [lost]
    assert life.end(life.claim(lost), Lost("the worker is gone"))
    assert (life.status(lost), life.pick(9)) == ("ERROR", [])
    life.client.release(lost)
    assert life.pick(9) == [behind]


def test_targets_run_side_by_side_and_each_one_job_at_a_time(life: Life) -> None:
    """Beside the global lane, whose limit is 1."""
    ids = [life.enqueue(target=name) for name in ("a", "b", "a", None, "b", None)]
    assert life.pick(9) == [ids[0], ids[1], ids[3]]
    claims = life.take(*life.pick(9))
    assert life.pick(9) == []
    assert life.end(claims[1], Completed("1"))
    assert life.pick(9) == [ids[4]]


def test_a_resumed_job_is_the_only_one_that_starts_there(life: Life) -> None:
    first = life.enqueue(target="a", retry=0)
    life.enqueue(target="a", priority=90)
    (held,) = life.take(*life.pick(1))
    assert held.job_id != first  # the better one went first
    assert life.end(held, FINAL)
    better = life.enqueue(target="a", priority=100)
    life.client.resume(held.job_id)
    assert life.pick(9) == [held.job_id]
    fence = held.fence
    again = life.claim(held.job_id)
    assert again.fence > fence
    assert life.end(again, Completed("1"))
    assert life.pick(9) == [better]


def test_a_retry_takes_the_place_of_the_failed_job(life: Life) -> None:
    first, second = (life.enqueue(target="a", retry=1) for _ in range(2))
    assert life.end(life.take(*life.pick(1))[0], BROKEN)
    life.clock.advance(60)  # its backoff
    (retry,) = life.pick(9)
    assert (life.job(retry).retry_of, life.status(second)) == (first, "QUEUED")


# --- starvation ---


def flood(life: Life, rounds: int) -> int | None:
    """Urgent jobs keep coming, one a minute, and one job runs at a time. When the old one had its turn, if it had."""
    old = life.enqueue(priority=0)
    for n in range(rounds):
        life.enqueue(priority=5)
        (claim,) = life.take(*life.pick(1))
        if claim.job_id == old:
            return n
        assert life.end(claim, Completed("1"))
        life.clock.advance(60)
    return None


def test_a_low_priority_job_gets_its_turn_under_a_flood(life: Life) -> None:
    settle(life.database, Concurrency(aging=60.0), {}, actor=ADA, adopt=True)
    assert flood(life, 50) == 6  # five minutes make it equal, and ties go to the higher plain priority


def test_without_aging_the_order_is_strict(life: Life) -> None:
    assert flood(life, 50) is None
