"""Several schedulers, people and workers at the same schedule at once: every tick is decided once, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from headway.engine.scheduler.fire import fire, ready
from headway.engine.scheduler.scheduler import ASIDE, Scheduler
from headway.errors import WrongState
from headway.model.jobs.outcome import Completed
from headway.store.schedules import schedules
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.life import Life
from tests.support.pair import Pair
from tests.support.schedules import MINUTE, Clockwork, teach
from tests.support.waiting import PATIENCE, at_once


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair


@pytest.fixture
def clockwork(pair: Pair) -> Clockwork:
    clockwork = Clockwork(pair)
    clockwork.scheduler.tick()
    return clockwork


# --- several schedulers ---


def test_any_number_of_schedulers_fire_each_tick_once(database_url: str) -> None:
    """Sixty schedules of every kind, six schedulers of their own processes, an hour of time in leaps."""
    clock = FrozenClock()
    with ExitStack() as stack:
        lives = [stack.enter_context(Life(database_url, clock=clock)) for _ in range(6)]
        for life in lives:
            teach(life)
        first = Clockwork(lives[0])
        for n in range(60):
            overlap = ("skip", "queue", "allow", "cancel_running")[n % 4]
            first.create(f"s{n}", cron="*/3 * * * *", overlap=overlap, catch_up=("last", "none", "all")[n % 3])
        schedulers = [Scheduler(life.client) for life in lives]
        for leap in (180, 180, 1000, 60, 500, 1680):
            clock.advance(leap)
            for future in at_once([lambda one=one: _until_idle(one) for one in schedulers]):  # type: ignore[misc]
                future.result()
        found = lives[0].sql("select schedule_id, sum(count) from hw_tick group by schedule_id order by schedule_id")
        assert found == [(n, 20) for n in range(1, 61)]
        spans = lives[0].sql("select schedule_id, nominal_at, until from hw_tick order by schedule_id, nominal_at")
        for (one, _, end), (other, start, _) in pairwise(spans):
            assert one != other or start == end + 3 * MINUTE
        assert lives[0].sql(
            "select count(*) from hw_tick t where outcome = 'FIRED' and not exists"
            " (select 1 from hw_group g where g.id = t.execution_id and g.nominal_at = t.nominal_at)"
        ) == [(0,)]
        lives[0].check_versions()
        clock.advance("10m")
        assert [str(one) for one in check(lives[0].database).findings if one.invariant in ("I-14", "I-15")] == []


def _until_idle(scheduler: Scheduler) -> None:
    while scheduler.tick() <= ASIDE:
        pass


def test_schedules_locked_by_another_scheduler_are_passed_by(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create()
    second = Scheduler(pair.client)
    second.tick()
    pair.clock.advance("5m")
    with pair.open_at("fire:commit", clockwork.scheduler.tick) as future:
        assert second.tick() == ASIDE
    assert future.result() == 0.0
    assert second.tick() > 1
    assert clockwork.ticks() == [(5, 1, "FIRED")]


def test_a_decision_made_from_an_older_look_changes_nothing(pair: Pair, clockwork: Clockwork) -> None:
    """As if no lock were there: the conditional update is the first wall."""
    made = clockwork.create(overlap="allow")
    pair.clock.advance("5m")
    old = ready(pair.client, clockwork.schedules.get(made.id))
    clockwork.round()
    assert pair.database.transact("fire", lambda tx: fire(tx, [old], now=pair.clock.now())) == []
    assert clockwork.ticks() == [(5, 1, "FIRED")]


def test_the_schema_is_the_second_wall(database_url: str) -> None:
    with Life(database_url) as life:
        clockwork = Clockwork(life)
        made = clockwork.create(overlap="allow")
        clockwork.advance("5m")
        for table, columns in {
            "hw_tick": "tenant_id, schedule_id, nominal_at, until, count, outcome, execution_id, decided_at",
            "hw_group": "tenant_id, kind, name, mode, on_failure, status, stage, stages, schedule_id, reason,"
            " nominal_at, created_at, created_by",
        }.items():
            with pytest.raises(Exception, match=r"(?i)unique"), life.database.transaction("tamper") as tx:
                tx.connection.execute(f"insert into {table} ({columns}) select {columns} from {table}")  # type: ignore[attr-defined]
        assert made.id == 1
        assert clockwork.ticks() == [(5, 1, "FIRED")]


# --- a scheduler and a person ---


def test_a_schedule_edited_after_it_was_read_has_its_turn_with_the_new_definition(
    pair: Pair, clockwork: Clockwork
) -> None:
    clockwork.create(overlap="allow", steps=[{"task": "sync", "name": "old"}])
    pair.clock.advance("5m")
    read = ready(pair.client, clockwork.schedules.get("nightly"))
    clockwork.schedules.edit("nightly", {"steps": [{"task": "sync", "name": "new"}]})
    pair.clock.advance("5m")
    clockwork.scheduler._fire([read])
    clockwork.round()
    assert clockwork.ticks() == [(5, 1, "FIRED"), (10, 1, "FIRED")]
    assert [clockwork.jobs(n)[0][0] for n in (1, 2)] == ["old", "new"]


def test_a_run_by_hand_goes_by_the_definition_that_holds_when_it_is_made(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(steps=[{"task": "sync", "name": "old"}])
    edit = {"steps": [{"task": "sync", "name": "new"}]}
    pair.gated.before("run_schedule:schedule_by_id", lambda: clockwork.schedules.edit("nightly", edit))
    assert [step for step, *_ in clockwork.jobs(clockwork.schedules.run("nightly"))] == ["new"]


def test_an_edit_waits_for_a_scheduler_and_decides_nothing_again(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(overlap="allow")
    pair.clock.advance("5m")
    with pair.open_at("fire:commit", clockwork.scheduler.tick):
        edit = pair.waiting(lambda: clockwork.schedules.edit("nightly", {"note": "x"}))
    assert edit.result(PATIENCE).version == 2
    assert clockwork.ticks() == [(5, 1, "FIRED")]


def test_a_scheduler_passes_by_what_a_person_is_disabling(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(overlap="allow")
    pair.clock.advance("5m")
    with pair.open_at("disable_schedule:commit", lambda: clockwork.schedules.disable("nightly")):
        assert clockwork.scheduler.tick() == ASIDE
    clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "FIRED")]


def test_two_people_editing_at_once_both_succeed(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create()
    with pair.open_at("edit_schedule:commit", lambda: clockwork.schedules.edit("nightly", {"note": "x"})):
        other = pair.waiting(lambda: clockwork.schedules.edit("nightly", {"jitter": 30}))
    other.result(PATIENCE)
    stored = clockwork.schedules.get("nightly")
    assert (stored.parsed.note, stored.parsed.jitter, stored.version) == ("x", 30.0, 3)


def test_two_manual_runs_at_once_are_one(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create()
    with pair.open_at("run_schedule:commit", lambda: clockwork.schedules.run("nightly")) as first:
        second = pair.waiting(lambda: clockwork.schedules.run("nightly"))
    assert first.result() == 1
    assert isinstance(second.exception(PATIENCE), WrongState)


def test_two_people_making_a_schedule_of_one_name_make_one(pair: Pair, clockwork: Clockwork) -> None:
    with pair.open_at("create_schedule:commit", clockwork.create):
        second = pair.waiting(clockwork.create)
    assert "already" in str(second.exception(PATIENCE))
    assert pair.sql("select count(*) from hw_schedule") == [(1,)]


# --- a scheduler and a worker ---


def test_what_waits_for_an_execution_that_is_just_ending_begins_at_once(pair: Pair, clockwork: Clockwork) -> None:
    """The tick comes while the last job's end is not committed: it waits for it, and is not left behind."""
    clockwork.create(overlap="queue")
    clockwork.advance("5m")
    claim = pair.claim(pair.sql("select id from hw_job")[0][0])
    pair.clock.advance("5m")
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())) as finish:
        tick = pair.waiting(clockwork.scheduler.tick)
    assert finish.result()
    assert tick.result(PATIENCE) == 0.0
    assert clockwork.executions() == [(1, "COMPLETED", None), (2, "IN_PROGRESS", None)]


def test_an_execution_that_ends_while_the_next_is_made_begins_it(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(overlap="queue")
    clockwork.advance("5m")
    claim = pair.claim(pair.sql("select id from hw_job")[0][0])
    pair.clock.advance("5m")
    with pair.open_at("fire:commit", clockwork.scheduler.tick):
        finish = pair.waiting(lambda: pair.end(claim, Completed()))
    assert finish.result(PATIENCE)
    assert clockwork.executions() == [(1, "COMPLETED", None), (2, "IN_PROGRESS", None)]
    assert pair.sql("select status from hw_job where group_id = 2") == [(2,)]


def test_cancelling_what_runs_and_its_own_end_do_not_lock_each_other_out(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(overlap="cancel_running")
    clockwork.advance("5m")
    claim = pair.claim(pair.sql("select id from hw_job")[0][0])
    pair.clock.advance("5m")
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())):
        tick = pair.waiting(clockwork.scheduler.tick)
    tick.result(PATIENCE)
    assert pair.gated.conflicts == 0
    assert clockwork.executions() == [(1, "COMPLETED", None), (2, "IN_PROGRESS", None)]


def test_a_backfill_behind_an_execution_that_is_just_ending_begins(pair: Pair, clockwork: Clockwork) -> None:
    clockwork.create(catch_up="none")
    clockwork.advance("30m")
    running = clockwork.executions()[-1][0]
    claim = pair.claim(pair.sql(f"select id from hw_job where group_id = {running}")[0][0])
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())):
        filling = pair.waiting(lambda: clockwork.schedules.backfill("nightly", clockwork.began + 1, pair.clock.now()))
    made = filling.result(PATIENCE)
    assert len(made) == 5
    assert clockwork.executions()[1][1:] == ("IN_PROGRESS", None)


# --- the ledger as it is read ---


def test_the_ledger_is_read_page_by_page(database_url: str) -> None:
    with Life(database_url) as life:
        clockwork = Clockwork(life)
        clockwork.create()
        for _ in range(7):
            clockwork.advance("5m")
        seen: list[int] = []
        cursor = None
        while True:
            page = clockwork.schedules.ticks("nightly", limit=3, cursor=cursor)
            seen += [clockwork.minutes(tick.nominal_at) for tick in page.items]
            if (cursor := page.next) is None:
                break
        assert seen == [35, 30, 25, 20, 15, 10, 5]
        with life.database.read() as tx:
            assert schedules.fired(tx, 1, 0, life.clock.now()) == {clockwork.began + 5 * MINUTE}
