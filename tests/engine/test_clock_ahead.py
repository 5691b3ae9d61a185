"""A clock that was years ahead for a moment: the schedule it silenced is found, named and put right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.engine.maintenance.recovery import Recovery
from headway.engine.monitoring.check import Expected, Scope
from headway.engine.monitoring.checks import CHECKS
from headway.errors import WrongState
from headway.store import workers
from headway.text.schedules import outlook
from headway.verify import check
from tests.support.life import ADA, Life
from tests.support.schedules import MINUTE, Clockwork
from tests.support.waiting import until

YEARS = 10 * 365 * 86_400.0


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


@pytest.fixture
def now(life: Life) -> Clockwork:
    return Clockwork(life)


def diagnosed(life: Life) -> tuple[str, str]:
    with life.database.read() as tx:
        scope = Scope(tx, expected=Expected({"sync", "export"}))
        (found,) = [check.answer(scope) for check in CHECKS if check.name == "schedules"]
    return found.detail, found.remedy or ""


@pytest.mark.parametrize("catch_up", ["last", "none", "all"])
def test_a_schedule_that_a_wrong_clock_silenced_is_put_right(now: Clockwork, life: Life, catch_up: str) -> None:
    one = now.create(catch_up=catch_up)
    now.advance("5m")
    life.clock.advance(YEARS)
    now.round()
    life.clock.time -= round(YEARS * 1_000_000)
    now.advance("1h")
    silent = now.schedules.get(one.id)
    fired = [tick for tick in now.ticks() if tick[2] == "FIRED" and tick[0] <= 65]
    assert fired == [(5, 1, "FIRED")], "the fault is there: an hour without a tick"
    assert silent.ahead(life.clock.now())
    detail, remedy = diagnosed(life)
    assert "silent, because a clock that was ahead decided their times: nightly until 20" in detail
    assert "headway schedules reset NAME" in remedy
    tone, words = outlook(silent, life.clock.now(), active=False)
    assert (tone, "headway schedules reset nightly" in words) == ("bad", True)

    made = now.schedules.reset("nightly")
    assert (made.name, made.definition, made.origin) == (silent.name, silent.definition, silent.origin)
    assert made.next_at == life.clock.now() + 5 * MINUTE
    assert outlook(made, life.clock.now(), active=False)[0] == "good"
    assert "can be read" in diagnosed(life)[0]
    before = now.ticks(one.id)
    for execution_id, status, _ in now.executions():
        if status not in ("COMPLETED", "CANCELLED"):
            now.work(execution_id)
    now.advance("5m")
    assert now.ticks(made.id) == [(70, 1, "FIRED")]
    assert now.ticks(one.id) == before, "what was decided stays decided"
    assert [f"{one.invariant}: {one.text}" for one in check(life.database).findings if one.invariant == "I-14"] == []


def test_a_schedule_that_is_not_ahead_is_left_alone(now: Clockwork, life: Life) -> None:
    one = now.create()
    now.advance("5m")
    with pytest.raises(WrongState, match="there is nothing to put right"):
        now.schedules.reset(one.id)
    life.clock.time -= 30_000_000  # clocks differ by a little
    assert not now.schedules.get(one.id).ahead(life.clock.now())
    assert now.schedules.get(one.id).version == one.version


# --- a lease of that time -----------------------------------------------------------------------------------------


def test_a_worker_elsewhere_that_died_while_the_clock_was_ahead_is_given_up(life: Life) -> None:
    """Its lease ends in ten years by the clock; that no beat came for a lease is seen here."""
    dead, lives = (workers.Identity(number, "elsewhere", "boot", 1, 1) for number in (70_001, 70_002))
    life.clock.advance(YEARS)
    with life.database.transaction("register") as tx:
        for who in (dead, lives):
            workers.register(tx, who, ADA, slots=1, tasks=[], lease=0.2)
    life.clock.time -= round(YEARS * 1_000_000)
    recovery = Recovery(life.database)

    def given_up() -> list[int]:
        life.database.transact("beat", lambda tx: workers.beat(tx, lives.id, 0.2))
        recovery.tick()
        return [number for (number,) in life.sql("select id from hw_worker where gone_at is not null and id > 70000")]

    assert given_up() == [], "a lease has to pass here first"
    until(given_up, "that the dead worker is given up")
    assert given_up() == [dead.id]
