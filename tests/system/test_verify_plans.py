"""`headway verify` on groups and schedules: nothing in a true history, each broken promise in a damaged one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from headway.clock import SECOND
from headway.engine.client import limits
from headway.engine.maintenance.pruner import Pruner
from headway.errors import HeadwayError
from headway.model.groups import group as plan
from headway.model.groups.group import Conclusion, Group, NewGroup, Verdict
from headway.model.jobs.job import SYSTEM, Claim
from headway.model.jobs.outcome import Completed, Lost, Outcome, Skipped, StoppedByRequest
from headway.model.queue.policies import Concurrency
from headway.model.schedules import ticks
from headway.model.schedules.definition import CATCH_UPS, OVERLAPS, Definition
from headway.model.schedules.ticks import PlannedTick
from headway.model.values.times import instant_text
from headway.store import workers
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.queue import claims
from headway.verify.tick_oracle import Every, Times, cron
from tests.support.life import BROKEN, FINAL, Life
from tests.support.plans import finish, job_of, make, member, new_group
from tests.support.schedules import DAY, HOUR, MINUTE, Clockwork
from tests.support.world import EVENTS, World, broken

GROUPS = "thing in ('group', 'execution')"


class Town(World):
    """A world with groups and schedules, by the verbs of a client; and what can be done behind its back."""

    def __init__(self, url: str) -> None:
        self.life = Life(url)
        self.db = self.life.database
        limits.settle(self.db, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
        self.clockwork = Clockwork(self.life)
        self.client = self.life.client

    def run(self, work: Callable[[Tx], Any], *, after: float = 10.0) -> Any:
        self.life.clock.advance(after)
        return self.db.transact("step", work)

    # --- groups ---

    def make(self, *stages: str, **fields: Any) -> int:
        self.life.clock.advance(10)
        return make(self.life, *stages, **fields)

    def end(self, group_id: int, *steps: str, outcome: Any = None) -> None:
        for step in steps:
            self.life.clock.advance(10)
            finish(self.life, group_id, step, outcome)

    def fails(self, group_id: int, *steps: str) -> None:
        self.end(group_id, *steps, outcome=FINAL)

    def job(self, group_id: int, step: str) -> int:
        return job_of(self.life, group_id, step)

    def complete_alone(self, group_id: int, step: str) -> None:
        """As if nobody looked after the group."""
        self.life.clock.advance(10)
        claim = self.life.claim(self.job(group_id, step))
        self.run(
            lambda tx: claims.complete(
                tx, self.life.worker_id, self.life.actor(), {claim.job_id: claim.fence}, {}
            ).result()
        )

    def plan(self, *steps: str, **fields: Any) -> int:
        """The execution of a schedule with these steps, one after the other. A name that ends with `?` may fail."""
        wishes = [
            {"task": "sync", "name": step.rstrip("?"), "continue_on_failure": step.endswith("?")} for step in steps
        ]
        self.clockwork.create(steps=wishes, **fields)
        self.clockwork.advance("5m")
        return 1

    # --- schedules ---

    def tick(self, minutes: float = 5, times: int = 1) -> None:
        for _ in range(times):
            self.clockwork.advance(minutes * 60)

    def execute(self, *numbers: int) -> None:
        for number in numbers:
            self.life.clock.advance(1)
            self.clockwork.work(number)

    def redefine(self, old: str, new: str) -> None:
        """As if it had always been defined so."""
        self.tamper(
            f"update hw_event set data = replace(data, '{old}', '{new}') where thing = 'schedule'",
            f"update hw_schedule set definition = replace(definition, '{old}', '{new}')",
            without=EVENTS,
        )

    def forget(self, condition: str) -> None:
        self.tamper(f"delete from hw_event where {condition}", without=("hw_event_kept",))


@pytest.fixture
def town(database_url: str) -> Iterator[Town]:
    made = Town(database_url)
    yield made
    made.life.database.close()


# --- true histories -----------------------------------------------------------------------------------------------


def live_through_groups(w: Town) -> None:
    """Every way for a group to go on and to end."""
    w.end(w.make("a", "b c", "d"), *"abcd")
    w.fails(w.make("a", "b"), "a")
    w.fails(w.make("a", "b", on_failure="skip"), "a")
    going_on = w.make("a b?", "c", on_failure="continue")
    w.fails(going_on, "a", "b")
    w.end(going_on, "c", outcome=Skipped("nothing to do"))
    w.end(w.make("a?", "b"), "a", outcome=FINAL)
    w.end(5, "b")
    w.client.groups.cancel(w.make("a", "b"))
    retried = w.client.groups.retry(2)
    w.end(retried, "a", "b")
    _held_and_cancelled(w)
    first = w.make("a")
    then = w.client.groups.create(new_group(w.life, "x", "y", after_id=first))
    w.end(first, "a")
    w.end(then, "x", "y")


def _held_and_cancelled(w: Town) -> None:
    held = w.client.groups.create(new_group(w.life, "a b", "c"))
    w.client.interrupt(w.job(held, "c"))
    claim = w.life.claim(w.job(held, "a"))
    w.client.interrupt(claim.job_id)
    w.life.end(claim, StoppedByRequest())
    w.client.cancel(w.job(held, "b"))
    w.client.resume(w.job(held, "c"))
    w.client.resolve(claim.job_id, {"ok": 1})


def live_through_schedules(w: Town) -> None:
    """Ticks that fire, meet others, are missed; edits; a night on which the clock is put forward."""
    w.clockwork.create()
    w.clockwork.create("often", interval=90, overlap="queue", jitter=20)
    w.clockwork.create("allowed", cron="*/7 * * * *", overlap="allow", catch_up="all", cap=3, window=3600)
    start = w.clockwork.began
    w.clockwork.create("once", times=[instant_text(start + n * HOUR) for n in (1, 2, 9)], catch_up="none")
    w.clockwork.create("night", cron="30 2 * * *", timezone="Europe/Berlin", overlap="cancel_running")
    w.clockwork.create("bounded", cron="*/10 * * * *", start=instant_text(start + HOUR), end=instant_text(start + DAY))
    w.tick(5, times=8)
    w.execute(1, 2, 3)
    w.tick(1, times=10)
    w.client.schedules.edit("nightly", {"cron": "*/3 * * * *", "catch_up": "none"})
    w.client.schedules.disable("often")
    w.tick(2, times=5)
    w.client.schedules.run("often", force=True)
    w.client.schedules.enable("often")
    w.tick(60 * 30)
    w.client.schedules.run("nightly", force=True)
    w.client.schedules.backfill("once", start, start + 3 * HOUR)
    w.client.schedules.delete("allowed")
    w.tick(60 * 24, times=4)


def test_true_groups_have_no_findings(town: Town) -> None:
    live_through_groups(town)
    report = town.check(quiet=True)
    assert report.findings == []
    assert report.counted["groups"] == 10


def test_true_schedules_have_no_findings(town: Town) -> None:
    live_through_schedules(town)
    report = town.check()
    assert report.findings == []
    outcomes = {outcome for (outcome,) in town.life.sql("select distinct outcome from hw_tick")}
    assert outcomes == {"FIRED", "SKIPPED", "MISSED", "COALESCED"}
    assert report.counted["ticks"] > 40


def test_ticks_decided_at_once_do_not_run_beside_each_other(town: Town) -> None:
    """Both are on time: the first waited for its jitter until the second came. Disabling decides them together."""
    step, began = 20 * SECOND, town.clockwork.began
    first = next(n for n in range(1, 1_000) if ticks.jitter_of(1, began + n * step, 19) > 15 * SECOND)
    start = instant_text(began + first * step)
    town.clockwork.create(interval=20, jitter=19, overlap="cancel_running", start=start)
    town.life.clock.advance((first + 1) * 20 + 1)
    town.client.schedules.disable("nightly")
    assert [status for _, status, _ in town.clockwork.executions()] == ["CANCELLED", "IN_PROGRESS"]
    assert town.check().findings == []


def test_pages_join_without_a_seam(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    live_through_groups(town)
    live_through_schedules(town)
    town.tamper(
        "update hw_group set status = 'CANCELLED' where id in (1, 4)",
        "update hw_tick set count = 99 where outcome = 'SKIPPED'",
    )
    whole = town.check()
    monkeypatch.setattr("headway.verify.history.GROUPS_PER_PAGE", 2)
    monkeypatch.setattr("headway.verify.history.TICKS_PER_PAGE", 3)
    assert len(whole.findings) > 5
    assert town.check() == whole


def test_pruned_rows_are_not_missed(town: Town, tmp_path: Any) -> None:
    live_through_groups(town)
    town.clockwork.create()
    town.tick(times=3)
    for number in (11, 12, 13):
        town.execute(number)
    pruner = Pruner(town.db, retention=1.0, artifacts=tmp_path)
    town.life.clock.advance("1h")
    while pruner.tick() == 0.0:
        pass
    assert town.life.sql("select count(*) from hw_group")[0][0] < 5
    town.tick(times=2)
    assert town.check().findings == []


# --- damage -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    invariant: str
    says: str
    work: Callable[[Town], None]

    def __str__(self) -> str:
        return f"{self.invariant}-{self.work.__name__}"


DAMAGES: list[Damage] = []


def damage(invariant: str, says: str) -> Callable[[Callable[[Town], None]], None]:
    return lambda work: DAMAGES.append(Damage(invariant, says, work))


@damage("I-15", "stage 1 was opened (version 2, group.advanced) before job 2 of an earlier one had ended")
def stage_opened_early(w: Town) -> None:
    made = w.make("a b", "c")
    w.end(made, "a")
    w.run(lambda tx: groups._open(tx, groups.lock(tx, made), 1, "advanced", SYSTEM))
    w.end(made, "b", "c")


@damage("I-15", "version 3, group.advanced opens stage 1 after stage 1")
def stage_opened_twice(w: Town) -> None:
    made = w.make("a", "b")
    w.end(made, "a")
    w.run(lambda tx: groups._open(tx, groups.lock(tx, made), 1, "advanced", SYSTEM))
    w.end(made, "b")


@damage("I-15", "job 2 of stage 1 was queued, and its stage never opened")
def member_let_go_alone(w: Town) -> None:
    made = w.make("a", "b")
    w.run(lambda tx: tx.run("release_stage", group_id=made, stage=1, actor=SYSTEM.text()))


@damage("I-15", "job 2 of stage 1 was queued before job 1 of an earlier stage had ended")
def member_claimed_early(w: Town) -> None:
    made = w.make("a", "b")
    w.end(made, "a", "b")
    w.tamper(
        "update hw_event set id = -3 where thing = 'job' and thing_id = 2 and kind = 'job.released'",
        "update hw_event set id = -2 where thing = 'job' and thing_id = 2 and kind = 'job.claimed'",
        without=EVENTS,
    )


@damage("I-15", "all jobs of its open stage 0 have ended, and the next did not open")
def stage_forgotten(w: Town) -> None:
    w.complete_alone(w.make("a", "b"), "a")


@damage("I-15", "it has not ended, and all its jobs have")
def end_forgotten(w: Town) -> None:
    w.complete_alone(w.make("a"), "a")


@damage("I-15", "it ended (version 2, group.finished) before job 2 of stage 0")
def concluded_before_the_retry(w: Town) -> None:
    new = new_group(w.life)
    one = member(w.life, 0, "a", retry=1)
    made = w.client.groups.create(type(new)("plan", "staged", "stop", (one,)))
    w.end(made, "a", outcome=BROKEN)
    w.run(lambda tx: groups._conclude(tx, groups.lock(tx, made), SYSTEM))


@damage("I-15", "version 3, group.finished comes after its end (version 2, group.finished)")
def concluded_twice(w: Town) -> None:
    made = w.make("a")
    w.end(made, "a")
    w.tamper("update hw_group set finished_at = null, status = 'RUNNING'")
    w.run(lambda tx: groups._conclude(tx, groups.lock(tx, made), SYSTEM))


def _conclude_as(w: Town, status: str, error: str = "null") -> None:
    w.tamper(
        f"update hw_group set status = '{status}', error = {error}",
        'update hw_event set data = \'{"status": "' + status + "\"}' where kind like '%.finished'",
        without=EVENTS,
    )


@damage("I-15", "it ended COMPLETED, and its members make it PARTIAL")
def failure_overlooked(w: Town) -> None:
    w.fails(w.make("a", "b"), "a")
    _conclude_as(w, "COMPLETED")


@damage("I-15", "it ended PARTIAL, and its members make it COMPLETED")
def success_overlooked(w: Town) -> None:
    w.end(w.make("a"), "a")
    _conclude_as(w, "PARTIAL")


@damage("I-15", "it ended COMPLETED, and its members make it FAILED")
def failed_step_overlooked(w: Town) -> None:
    w.fails(w.plan("a", "b"), "a")
    _conclude_as(w, "COMPLETED")


@damage("I-15", "it ended FAILED, and its members make it COMPLETED")
def tolerated_step_counted(w: Town) -> None:
    w.fails(w.plan("a?"), "a")
    _conclude_as(w, "FAILED")


@damage("I-15", "its error names no step that failed: None")
def error_without_a_step(w: Town) -> None:
    w.fails(w.plan("import", "export"), "import")
    _conclude_as(w, "FAILED")


@damage(
    "I-15", "stage 1 was opened (version 2, group.advanced), though step 'a' of stage 0 failed and on_failure is stop"
)
def policy_ignored(w: Town) -> None:
    made = w.make("a", "b", on_failure="continue")
    w.fails(made, "a")
    w.end(made, "b")
    w.tamper("update hw_group set on_failure = 'stop'")


@damage("I-15", "ended CANCELLED for an earlier failure, and on_failure is continue")
def cancelled_against_the_policy(w: Town) -> None:
    w.fails(w.make("a", "b"), "a")
    w.tamper("update hw_group set on_failure = 'continue'")


@damage("I-15", "ended SKIPPED for an earlier failure, and on_failure is stop")
def skipped_against_the_policy(w: Town) -> None:
    w.fails(w.make("a", "b", on_failure="skip"), "a")
    w.tamper("update hw_group set on_failure = 'stop'")


@damage("I-15", "ended CANCELLED for an earlier failure, and nothing before it failed")
def cancelled_for_nothing(w: Town) -> None:
    w.fails(w.make("a", "b"), "a")
    w.tamper("update hw_job set options = '{\"continue_on_failure\":true}' where step = 'a'")


@damage("I-15", "of stage 0 was created after its stage had closed")
def retry_in_a_closed_stage(w: Town) -> None:
    made = w.make("a", "b")
    w.fails(made, "a")
    again = w.client.retry(1)
    w.life.run(again.id, Skipped("enough"))
    w.tamper(f"update hw_job set group_id = {made}, stage = 0, step = 'a' where id = {again.id}")


@damage("I-15", "it began (version 2, group.begun) before 1, which it had to follow, had ended")
def follower_begun_early(w: Town) -> None:
    first = w.make("a")
    then = w.make("b", after_id=first)
    w.run(lambda tx: groups.begin(tx, groups.lock(tx, then), SYSTEM))


@damage("I-15", "it waits for 1, which has ended")
def follower_forgotten(w: Town) -> None:
    over, under_way = w.make("a"), w.make("b")
    w.end(over, "a")
    w.make("c", after_id=under_way)
    w.tamper(f"update hw_group set after_id = {over} where stage = -1")


@damage("I-15", "was created after the cancel (version 2, group.cancelling)")
def retry_of_what_was_cancelled(w: Town) -> None:
    made = w.client.groups.create(type(new_group(w.life))("plan", "staged", "stop", (member(w.life, 0, "a", retry=1),)))
    w.end(made, "a", outcome=BROKEN)
    w.client.groups.cancel(made)
    w.tamper("update hw_event set id = -1 where kind = 'group.cancelling'", without=EVENTS)


@damage("I-15", "its row says that it was not cancelled, its events the opposite")
def cancel_wiped(w: Town) -> None:
    w.client.groups.cancel(w.make("a"))
    w.tamper("update hw_group set cancelled_by = null")


@damage("I-15", "it ended COMPLETED (version 2, group.finished), its row says PARTIAL, None")
def row_of_its_own(w: Town) -> None:
    w.end(w.make("a"), "a")
    w.tamper("update hw_group set status = 'PARTIAL'")


@damage("I-15", "it has 0 events and 1 jobs")
def group_without_a_history(w: Town) -> None:
    w.make("a")
    w.forget(GROUPS)


@damage("I-15", "it has a history (from number")
def group_without_a_row(w: Town) -> None:
    w.make("a")
    w.tamper("delete from hw_group")


@damage("I-15", "not with its group")
def member_added_later(w: Town) -> None:
    w.make("a b")
    (other,) = [w.life.enqueue()]
    w.tamper(f"update hw_job set group_id = 1, stage = 0, step = 'x' where id = {other}")
    w.tamper("update hw_event set at = at + 99000000 where thing_id = 3 and thing = 'job'", without=EVENTS)


@damage("I-15", "is a second 'a', and no retry of the first")
def step_twice(w: Town) -> None:
    w.make("a b")
    w.tamper("update hw_job set step = 'a'")


@damage("I-15", "its events open stage 0, its row has stage 1")
def stage_of_its_own(w: Town) -> None:
    w.make("a", "b")
    w.tamper("update hw_group set stage = 1")


@damage("I-02", "is for members of a group, and it has none")
def released_without_a_group(w: Town) -> None:
    job_id = w.life.enqueue(hold=True)
    w.client.resume(job_id)
    w.tamper("update hw_event set kind = 'job.released' where kind = 'job.resumed'", without=EVENTS)


@damage("I-02", "its history ends with version 1, its row has version 2")
def version_of_its_own(w: Town) -> None:
    w.make("a")
    w.tamper("update hw_group set version = 2")


@damage("I-18", "it belongs to tenant 2, job 1 to tenant 1")
def group_of_another_tenant(w: Town) -> None:
    w.make("a")
    w.tamper("insert into hw_tenant (id, name, created_at) values (2, 'b', 1)", "update hw_group set tenant_id = 2")


@damage("I-18", "it belongs to tenant 2, schedule 1 to tenant 1")
def tick_of_another_tenant(w: Town) -> None:
    w.plan("a")
    w.tamper("update hw_tick set tenant_id = 2")


# --- ticks ---


@damage("I-14", "1 ticks from")
def tick_lost(w: Town) -> None:
    w.clockwork.create()
    w.tick(times=3)
    w.tamper("delete from hw_tick where id = 2")


@damage("I-14", "1 ticks from")
def decided_without_a_row(w: Town) -> None:
    w.clockwork.create()
    w.tick(times=2)
    w.tamper(f"update hw_schedule set decided_until = decided_until + {5 * MINUTE}, next_at = next_at + {5 * MINUTE}")


@damage("I-14", "is decided twice")
def tick_decided_twice(w: Town) -> None:
    w.clockwork.create()
    w.tick(times=3)
    w.tamper(
        "insert into hw_tick (tenant_id, schedule_id, nominal_at, until, count, outcome, decided_at)"
        " select tenant_id, schedule_id, nominal_at, until, 1, 'MISSED', decided_at from hw_tick where id = 2"
    )


@damage("I-14", "ticks until")
def count_wrong(w: Town) -> None:
    w.clockwork.create()
    w.tick(60)
    w.tamper("update hw_tick set count = count - 1 where outcome = 'COALESCED'")


@damage("I-14", "is not a time of the schedule")
def tick_at_another_time(w: Town) -> None:
    w.clockwork.create()
    w.tick()
    w.tamper(
        "update hw_tick set nominal_at = nominal_at - 1000000, until = until - 1000000",
        "update hw_group set nominal_at = nominal_at - 1000000",
    )


@damage("I-14", "is not a time of the schedule")
def the_hour_of_the_night_that_does_not_exist(w: Town) -> None:
    """On the night the clock is put forward 02:30 comes at 03:00, which is 01:00 UTC."""
    night = datetime(2027, 3, 28, tzinfo=UTC)
    w.life.clock.time = round(night.timestamp()) * SECOND
    w.clockwork.create(cron="30 2 * * *", timezone="Europe/Berlin")
    w.tick(90)
    assert w.check().findings == []
    late = round(night.timestamp() + 5400) * SECOND
    w.tamper(f"update hw_tick set nominal_at = {late}, until = {late}", f"update hw_group set nominal_at = {late}")


@damage("I-14", "which does not exist")
def fired_into_nothing(w: Town) -> None:
    w.plan("a")
    w.tamper("update hw_tick set execution_id = 99")


@damage("I-14", "no tick of schedule 1 at")
def execution_out_of_nowhere(w: Town) -> None:
    w.clockwork.create()
    number = w.client.schedules.run("nightly")
    w.tamper(f"update hw_group set reason = 'tick', nominal_at = created_at where id = {number}")


@damage("I-14", "which is a backfill of schedule 1")
def fired_something_else(w: Town) -> None:
    w.plan("a")
    w.tamper("update hw_group set reason = 'backfill'")


@damage("I-14", "while 1 was unfinished, and overlap is skip")
def overlap_against_skip(w: Town) -> None:
    w.clockwork.create(overlap="allow")
    w.tick(times=2)
    w.redefine('"overlap":"allow"', '"overlap":"skip"')


@damage("I-14", "while 1 was unfinished, and did not wait for it")
def overlap_against_queue(w: Town) -> None:
    w.clockwork.create(overlap="allow")
    w.tick(times=2)
    w.redefine('"overlap":"allow"', '"overlap":"queue"')


@damage("I-14", "and one waited already")
def two_in_the_queue(w: Town) -> None:
    w.clockwork.create(overlap="queue", catch_up="all")
    w.tick(17)
    assert w.check().findings == []
    w.redefine('"catch_up":"all"', '"catch_up":"last"')
    w.tamper("update hw_tick set decided_at = nominal_at + 1")


@damage("I-14", "MISSED at 1767229200000000 has no event")
def missed_without_an_event(w: Town) -> None:
    w.clockwork.create(cron="0 * * * *", catch_up="none")
    w.tick(119)
    w.forget("kind = 'schedule.tick.missed'")


@damage("I-14", "and it was decided in time, at")
def missed_within_its_tolerance(w: Town) -> None:
    w.clockwork.create(cron="0 * * * *", catch_up="none")
    w.tick(64)
    w.tamper(f"update hw_tick set tolerance = {5 * MINUTE}")


@damage("I-14", "for its overlap, which is allowed")
def skipped_though_allowed(w: Town) -> None:
    w.clockwork.create()
    w.tick(times=2)
    w.redefine('"overlap":"skip"', '"overlap":"allow"')


@damage("I-14", "for its overlap, and nothing ran at")
def skipped_for_nothing(w: Town) -> None:
    w.client.templates.create("t", "sync")
    w.clockwork.create(template="t")
    w.client.templates.archive("t")
    w.tick()
    w.tamper("update hw_tick set reason = 'overlap'")


@damage("I-14", "when it had been missed, at")
def caught_up_against_none(w: Town) -> None:
    w.clockwork.create(cron="0 * * * *")
    w.tick(119)
    w.redefine('"catch_up":"last"', '"catch_up":"none"')


@damage("I-14", "and so had later ones, and catch_up is last")
def caught_up_more_than_the_last(w: Town) -> None:
    w.clockwork.create(catch_up="all", overlap="allow")
    w.tick(17)
    w.redefine('"catch_up":"all"', '"catch_up":"last"')


@damage("I-14", "fired at")
def caught_up_beyond_the_cap(w: Town) -> None:
    w.clockwork.create(catch_up="all", cap=3)
    w.tick(17)
    w.redefine('"cap":3', '"cap":2')


@damage("I-14", "and the window is 600000000")
def caught_up_beyond_the_window(w: Town) -> None:
    w.clockwork.create(catch_up="all", window=3600)
    w.tick(17)
    w.redefine('"window":3600', '"window":600')


@damage("I-14", "within the window, and only 3 of 4 fired")
def caught_up_too_little(w: Town) -> None:
    w.clockwork.create(catch_up="all", cap=3)
    w.tick(27)
    w.redefine('"cap":3', '"cap":4')


@damage("I-14", "and no later one stands for them")
def coalesced_into_nothing(w: Town) -> None:
    w.clockwork.create()
    w.tick(16)
    w.execute(1)
    w.client.schedules.disable("nightly")
    w.tamper("update hw_tick set decided_at = decided_at + 1 where outcome = 'FIRED'")


@damage("I-14", "and it was decided in time")
def missed_though_in_time(w: Town) -> None:
    w.clockwork.create(catch_up="none")
    w.tick(16)
    w.tamper("update hw_tick set decided_at = until + 1000000 where outcome = 'MISSED'")


@damage("I-14", "before its time")
def fired_too_early(w: Town) -> None:
    w.plan("a")
    w.tamper("update hw_tick set decided_at = nominal_at - 1")


@damage("I-14", "the schedule was off then (version 2, schedule.disabled)")
def fired_while_disabled(w: Town) -> None:
    w.clockwork.create()
    w.client.schedules.disable("nightly")
    w.tick()
    w.client.schedules.enable("nightly")
    nominal = w.clockwork.began + 5 * MINUTE
    w.tamper(
        "insert into hw_tick (tenant_id, schedule_id, nominal_at, until, count, outcome, decided_at)"
        f" values (1, 1, {nominal}, {nominal}, 1, 'MISSED', {nominal + HOUR})"
    )


@damage("I-14", "and later only up to")
def time_turned_back(w: Town) -> None:
    w.clockwork.create(cron="0 0 * * *")
    w.tamper(f"update hw_schedule set decided_until = decided_until - {MINUTE}")


@damage("I-14", "but its row decides the next one at None")
def next_time_lost(w: Town) -> None:
    w.clockwork.create()
    w.tamper("update hw_schedule set next_at = null")
    w.life.clock.advance("5m")


@damage("I-14", "but its row decides the next one at")
def next_time_too_late(w: Town) -> None:
    w.clockwork.create()
    w.tamper(f"update hw_schedule set next_at = next_at + {HOUR}")


@damage("I-14", "has no event")
def skipped_in_silence(w: Town) -> None:
    w.clockwork.create()
    w.tick(times=2)
    w.forget("thing = 'tick'")


@damage("I-14", "and start and end are")
def fired_outside(w: Town) -> None:
    w.clockwork.create(end=instant_text(w.clockwork.began + HOUR))
    w.tick()
    w.redefine(instant_text(w.clockwork.began + HOUR), instant_text(w.clockwork.began + MINUTE))


@damage("I-14", "its row is at version 1 and differs")
def redefined_in_silence(w: Town) -> None:
    w.clockwork.create(cron="0 0 * * *")
    w.tamper("update hw_schedule set definition = replace(definition, '\"skip\"', '\"allow\"')")


@damage("I-14", "its history does not begin with its creation")
def schedule_without_a_history(w: Town) -> None:
    w.clockwork.create()
    w.forget("thing = 'schedule'")


@damage("I-14", "which had fired before")
def filled_in_though_fired(w: Town) -> None:
    w.clockwork.create()
    w.tick()
    w.execute(1)
    w.tick(1)
    (made,) = w.client.schedules.backfill("nightly", w.clockwork.began - 6 * MINUTE, w.clockwork.began - 4 * MINUTE)
    w.tamper(f"update hw_group set nominal_at = {w.clockwork.began + 5 * MINUTE} where id = {made}")


@pytest.mark.parametrize("case", DAMAGES, ids=str)
def test_damage_is_found(town: Town, case: Damage) -> None:
    case.work(town)
    report = town.check()
    assert broken(report) == {case.invariant}, report.findings
    assert any(case.says in finding.text for finding in report.findings), report.findings


# --- whatever happens ---------------------------------------------------------------------------------------------

WHENS: list[dict[str, Any]] = [
    {"cron": "*/5 * * * *"},
    {"cron": "*/20 1-4 * * *", "timezone": "Europe/Berlin"},
    {"interval": 77},
    {"interval": 300, "jitter": 200},
    {"cron": "*/2 * * * *", "jitter": 30},
]


class Weather(Town):
    """Does things at random, as far as they are allowed."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url)
        self.rng = random.Random(seed)
        # The night before the clock is put forward in Berlin.
        self.life.clock.time = round(datetime(2027, 3, 27, 22, 10, tzinfo=UTC).timestamp()) * SECOND
        self.held: list[Claim] = []
        for n, when in enumerate(WHENS):
            self._schedule(f"s{n}", when)
        self.new()

    def live(self, steps: int) -> None:
        usual = [self.new, *[self.work] * 5]
        for _ in range(steps):
            rare = self.rng.random()
            act = self.person if rare < 0.15 else self.plan_otherwise if rare < 0.22 else self.rng.choice(usual)
            with suppress(HeadwayError):  # not in this state
                act()
            if self.rng.random() < 0.7:
                self.life.clock.advance(self.rng.choice((0.5, 3, 20, 45, 150)))
            if self.rng.random() < 0.02:
                self.life.clock.advance(self.rng.choice((1000, 7000, 40_000)))
            if self.rng.random() < 0.6:
                self.clockwork.round()
        self.db.transact("beat", lambda tx: workers.beat(tx, self.life.worker_id, 60.0))

    def _schedule(self, name: str, when: dict[str, Any]) -> None:
        rng = self.rng
        steps = [
            {"task": "sync", "index": rng.randrange(3), "name": f"x{n}", "continue_on_failure": rng.random() < 0.3}
            for n in range(rng.randint(1, 4))
        ]
        how = {"overlap": rng.choice(OVERLAPS), "catch_up": rng.choice(CATCH_UPS), "cap": 3, "window": 2000}
        self.clockwork.create(name, **when, **how, steps=steps, on_failure=rng.choice(("stop", "skip", "continue")))

    def new(self) -> None:
        rng = self.rng
        members = [
            member(self.life, stage, f"{stage}.{n}", tolerated=rng.random() < 0.3, retry=rng.choice((0, 0, 1)))
            for stage in range(rng.randint(1, 4))
            for n in range(rng.randint(1, 3))
        ]
        policy = rng.choice(("stop", "stop", "skip", "continue"))
        open_ones = self._ids("select id from hw_group where finished_at is null and kind = 'group'")
        after = rng.choice(open_ones) if open_ones and rng.random() < 0.3 else None
        self.client.groups.create(NewGroup("plan", "staged", policy, tuple(members), after_id=after))

    def _ids(self, text: str) -> list[int]:
        return [number for (number,) in self.life.sql(text + " order by 1")]

    def work(self) -> None:
        self.db.transact("promote", lambda tx: claims.promote(tx, SYSTEM))
        if len(self.held) < 9:
            self.held += self.life.claim_next(self.rng.randint(1, 9 - len(self.held)))
        while self.held and self.rng.random() < 0.85:
            self._end_one()

    def _end_one(self) -> None:
        claim = self.held.pop(self.rng.randrange(len(self.held)))
        usual: list[Outcome] = [Completed(), Completed(), Completed(), BROKEN, FINAL, Skipped("no"), Lost("gone")]
        outcome = self.rng.choice(usual)
        if self.rng.random() < 0.15:
            with suppress(HeadwayError):
                self.client.interrupt(claim.job_id)
                outcome = StoppedByRequest()
        self.life.end(claim, outcome)

    def person(self) -> None:
        rng, client = self.rng, self.client
        if rng.random() < 0.4:
            found = self._ids("select id from hw_group")
            rng.choice((client.groups.cancel, client.groups.retry))(rng.choice(found))
            return
        job_id = rng.choice(self._ids("select id from hw_job"))
        verbs = (client.cancel, client.interrupt, client.resume, client.resume, client.release, client.retry)
        rng.choice(verbs)(job_id)

    def plan_otherwise(self) -> None:
        rng, schedules = self.rng, self.client.schedules
        name, now = f"s{rng.randrange(len(WHENS))}", self.life.clock.now()
        acts: list[Callable[[], Any]] = [
            lambda: schedules.edit(name, {"overlap": rng.choice(OVERLAPS), "catch_up": rng.choice(CATCH_UPS)}),
            lambda: schedules.edit(name, {**rng.choice(WHENS), "end": rng.choice((None, instant_text(now + HOUR)))}),
            lambda: schedules.disable(name),
            lambda: schedules.enable(name),
            lambda: schedules.enable(name),
            lambda: schedules.run(name, force=rng.random() < 0.5),
            lambda: schedules.backfill(name, now - 10 * MINUTE, now),
            lambda: schedules.delete(name),
            lambda: self._schedule(name, rng.choice(WHENS)),
        ]
        rng.choice(acts)()


@pytest.fixture
def weather(database_url: str) -> Iterator[Callable[[int], Weather]]:
    made: list[Weather] = []

    def make_one(seed: int) -> Weather:
        made.append(Weather(database_url, seed))
        return made[-1]

    yield make_one
    for one in made:
        one.db.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_true_history_has_no_findings_whatever_happens(weather: Callable[[int], Weather], seed: int) -> None:
    w = weather(seed)
    w.live(250)
    report = w.check(settle=0.0)  # steps follow each other here, so also on PostgreSQL nothing has to settle
    assert report.findings == []
    assert w.check().findings == []
    assert report.counted["groups"] > 60
    assert report.counted["ticks"] > 60


def _go_on(on_failure: str, stage: object) -> Verdict:
    return Verdict.GO_ON


def _well(group: Group, members: object) -> Conclusion:
    return Conclusion("COMPLETED")


def _always(nominal: int, overlap: str, before: object) -> PlannedTick:
    return PlannedTick(nominal, nominal, 1, "FIRED")


def _unrecorded(*_: object) -> list[PlannedTick]:
    return []


def _a_second_off(self: ticks.ByInterval, after: int, until: int) -> Iterator[int]:
    """Times that `next` does not know. With jitter such a tick may be due for ever, and no round would end."""
    return (nominal - SECOND for nominal in real_between(self, after, until))


def _all_of_them(definition: Definition, times: ticks.Times, after: int, until: int, *_: object) -> list[PlannedTick]:
    return [PlannedTick(nominal, nominal, 1, "FIRED", waits=True) for nominal in times.last(after, until, 40)]


real_between = ticks.ByInterval.between
MISTAKES: list[tuple[str, object, str, object]] = [
    ("I-15", plan, "judge", _go_on),
    ("I-15", plan, "conclude", _well),
    ("I-14", ticks, "_one", _always),
    ("I-14", ticks, "_span", _unrecorded),
    ("I-14", ticks.ByInterval, "between", _a_second_off),
    ("I-14", ticks, "_caught_up", _all_of_them),
]


@pytest.mark.parametrize(
    ("invariant", "where", "name", "mistake"), MISTAKES, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_mistake_is_found(
    weather: Callable[[int], Weather],
    monkeypatch: pytest.MonkeyPatch,
    invariant: str,
    where: object,
    name: str,
    mistake: object,
) -> None:
    monkeypatch.setattr(where, name, mistake)
    if mistake is _a_second_off:
        monkeypatch.setattr(ticks, "jitter_of", lambda *_: 0)
    w = weather(0)
    w.live(150)
    assert broken(w.check(settle=0.0)) == {invariant}


# --- the oracle ---------------------------------------------------------------------------------------------------


def instants(*texts: str) -> list[int]:
    return [round(datetime.fromisoformat(f"{text}+00:00").timestamp()) * SECOND for text in texts]


def all_of(clock: Any, since: str, until: str) -> list[str]:
    after, end = instants(since, until)
    found: list[str] = []
    while (at := clock.first(after, end)) is not None:
        found.append(datetime.fromtimestamp(at // SECOND, UTC).strftime("%d %H:%M"))
        after = at
    assert clock.count(instants(since)[0], end) == len(found)
    return found


def test_a_fixed_time_that_the_spring_takes_away_comes_right_after_the_gap() -> None:
    nights = "2027-03-27T00:00", "2027-03-30T00:00"
    assert all_of(cron("30 2 * * *", "Europe/Berlin"), *nights) == ["27 01:30", "28 01:00", "29 00:30"]
    assert all_of(cron("*/20 2 * * *", "Europe/Berlin"), "2027-03-28T00:00", "2027-03-28T12:00") == ["28 01:00"]
    assert all_of(cron("0 */2 * * *", "Europe/Berlin"), "2027-03-28T00:30", "2027-03-28T03:00") == ["28 02:00"]


def test_a_time_that_the_autumn_repeats_comes_once_unless_hours_are_a_pattern() -> None:
    night = "2027-10-30T23:30", "2027-10-31T02:10"
    assert all_of(cron("30 2 * * *", "Europe/Berlin"), *night) == ["31 00:30"]
    assert all_of(cron("30 * * * *", "Europe/Berlin"), *night) == ["31 00:30", "31 01:30"]
    assert all_of(cron("0 * * * *", "Australia/Lord_Howe"), "2027-04-03T13:30", "2027-04-03T16:40") == [
        "03 14:00",
        "03 15:30",
        "03 16:30",
    ]


def test_days_are_alternatives_unless_one_field_begins_with_a_star() -> None:
    month = "2027-03-01T00:00", "2027-03-31T23:59"
    assert all_of(cron("0 6 13 * fri", "UTC"), *month) == ["05 06:00", "12 06:00", "13 06:00", "19 06:00", "26 06:00"]
    assert all_of(cron("0 6 */13 * mon", "UTC"), *month) == ["01 06:00"]
    assert all_of(cron("0 6 * * 6-7", "UTC"), "2027-03-05T00:00", "2027-03-08T00:00") == ["06 06:00", "07 06:00"]


def test_intervals_and_given_times() -> None:
    every = Every(100, 10)
    assert [every.count(0, 99), every.count(0, 100), every.count(100, 130), every.first(101, 200)] == [0, 1, 3, 110]
    given = Times((5, 7, 9))
    assert [given.count(5, 9), given.first(5, 6), given.first(5, 7)] == [2, None, 7]


def test_a_year_of_minutes_is_counted_not_listed() -> None:
    clock = cron("* * * * *", "America/New_York")
    since, until = instants("2027-01-01T00:00", "2028-01-01T00:00")
    assert clock.count(since, until) == 525_600
    assert sum(map(len, clock.listed.values())) < 8 * 1500
