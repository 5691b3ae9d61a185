"""Groups on both databases: stages, failures, holds, results, cancelling, retrying."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.engine.client import limits
from headway.engine.maintenance.pruner import Pruner
from headway.engine.maintenance.recovery import Recovery
from headway.errors import BadInput, NotFound, WrongState
from headway.model.groups.group import Member, NewGroup, Verdict
from headway.model.jobs.job import SYSTEM
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Interrupted, Lost, Skipped, StoppedByRequest
from headway.model.jobs.states import State
from headway.model.queue.policies import Concurrency
from headway.store.db import Row, Tx
from headway.store.groups import views as group_views
from headway.store.postgres.transaction import PostgresTx
from headway.store.queue import queue_views
from headway.store.sqlite.transaction import SqliteTx
from headway.verify import check
from tests.support.life import BROKEN, Life
from tests.support.plans import finish, group, group_events, job_of, make, member, new_group, states


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        limits.settle(life.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
        yield life
        life.check_versions()
        # Claims are made by hand here, out of turn; and one stop request is taken away.
        found = [f for f in check(life.database).findings if f.invariant not in ("I-11", "I-13")]
        assert [f"{f.invariant} {f.thing}: {f.text}" for f in found] == []


@contextmanager
def counting(life: Life) -> Iterator[Counter[str]]:
    """How often each statement is run."""
    calls: Counter[str] = Counter()
    kind: type[Tx] = PostgresTx if life.database.dialect == "postgres" else SqliteTx
    run = kind.run

    def counted(tx: Tx, name: str, /, **params: object) -> list[Row]:
        calls[name] += 1
        return run(tx, name, **params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "run", counted)
        patch.setattr(kind, "run_all", Tx.run_all)  # one by one
        patch.setattr(kind, "send", Tx.send)
        yield calls


# --- stages ---


def test_all_is_there_from_the_start_and_runs_in_order(life: Life) -> None:
    made = make(life, "import", "sync", "ad ldap")
    assert states(life, made) == {"import": "QUEUED", "sync": "WAITING", "ad": "WAITING", "ldap": "WAITING"}
    assert (group(life, made).status, group(life, made).stage, group(life, made).stages) == ("RUNNING", 0, 3)
    finish(life, made, "import")
    assert states(life, made) == {"import": "COMPLETED", "sync": "QUEUED", "ad": "WAITING", "ldap": "WAITING"}
    finish(life, made, "sync")
    finish(life, made, "ad")
    assert group(life, made).status == "RUNNING"
    finish(life, made, "ldap")
    assert group(life, made).status == "COMPLETED"
    assert group(life, made).finished_at is not None
    assert group_events(life, made) == ["group.created", "group.advanced", "group.advanced", "group.finished"]
    assert life.events(job_of(life, made, "ad")) == ["job.created", "job.released", "job.claimed", "job.completed"]


def test_a_parallel_group_has_one_stage(life: Life) -> None:
    made = make(life, "a b c")
    assert set(states(life, made).values()) == {"QUEUED"}
    for step in "abc":
        finish(life, made, step)
    assert group(life, made).status == "COMPLETED"


# Execution flow 7: options A, B and C.
@pytest.mark.parametrize(
    ("on_failure", "third"), [("stop", "CANCELLED"), ("continue", "COMPLETED"), ("skip", "SKIPPED")]
)
def test_a_failure_decides_about_the_rest(life: Life, on_failure: str, third: str) -> None:
    made = make(life, "one", "two", "three", on_failure=on_failure)
    finish(life, made, "one")
    finish(life, made, "two", BROKEN)
    if on_failure == "continue":
        finish(life, made, "three")
    assert states(life, made) == {"one": "COMPLETED", "two": "FAILED", "three": third}
    assert group(life, made).status == "PARTIAL"
    if third != "COMPLETED":
        job = life.job(job_of(life, made, "three"))
        assert (job.reason, job.fence, life.run_status(job.id)) == ("predecessor failed", 0, "no run")


def test_a_failure_that_is_tolerated_stops_nothing(life: Life) -> None:
    made = make(life, "a? b", "c")
    finish(life, made, "a", BROKEN)
    finish(life, made, "b")
    finish(life, made, "c")
    assert group(life, made).status == "PARTIAL"


def test_who_may_not_fail_stops_the_group_and_leaves_its_neighbours_alone(life: Life) -> None:
    made = make(life, "a? b c", "d")
    finish(life, made, "b", BROKEN)
    finish(life, made, "a", BROKEN)
    assert states(life, made)["d"] == "WAITING"
    finish(life, made, "c")
    assert states(life, made) == {"a": "FAILED", "b": "FAILED", "c": "COMPLETED", "d": "CANCELLED"}


def test_a_job_that_skips_itself_has_not_failed(life: Life) -> None:
    made = make(life, "a", "b")
    finish(life, made, "a", Skipped("nothing to do"))
    finish(life, made, "b")
    assert group(life, made).status == "COMPLETED"


class Twice:
    """A user's own policy: one failure is fine, two are not."""

    def judge(self, failed: list[Member]) -> Verdict:
        return Verdict.GO_ON if len(failed) < 2 else Verdict.SKIP


def test_a_policy_of_the_users_own(life: Life) -> None:
    made = make(life, "a b", "c d", "e", on_failure=f"{__name__}.Twice")
    finish(life, made, "a", BROKEN)
    finish(life, made, "b")
    assert states(life, made)["c"] == "QUEUED"
    finish(life, made, "c", BROKEN)
    finish(life, made, "d", BROKEN)
    assert states(life, made)["e"] == "SKIPPED"


# --- chains ---


def test_a_member_is_judged_by_the_last_job_of_its_chain(life: Life) -> None:
    new = NewGroup("g", "sequential", "stop", (member(life, 0, "a", retry=2), member(life, 1, "b")))
    made = life.client.groups.create(new)
    first = job_of(life, made, "a")
    finish(life, made, "a", BROKEN)
    assert job_of(life, made, "a") != first
    assert states(life, made) == {"a": "QUEUED", "b": "WAITING"}
    finish(life, made, "a", BROKEN)
    finish(life, made, "a")
    assert states(life, made) == {"a": "COMPLETED", "b": "QUEUED"}


@pytest.mark.parametrize("outcome", [Lost("gone"), Interrupted("shut down"), Failed(FailureKind.TIMEOUT, "late")])
def test_whatever_ends_a_member_advances_the_group(life: Life, outcome: Lost | Interrupted | Failed) -> None:
    new = NewGroup("g", "sequential", "continue", (member(life, 0, "a", retry=1), member(life, 1, "b")))
    made = life.client.groups.create(new)
    finish(life, made, "a", outcome)
    assert states(life, made) == {"a": "QUEUED", "b": "WAITING"}
    finish(life, made, "a")
    assert states(life, made)["b"] == "QUEUED"


def test_a_manual_retry_stays_in_the_group_while_its_stage_is_open(life: Life) -> None:
    made = make(life, "a b", "c")
    finish(life, made, "a", BROKEN)
    again = life.client.retry(job_of(life, made, "a"))
    assert (again.group_id, again.stage, again.step) == (made, 0, "a")
    finish(life, made, "b")
    assert states(life, made)["c"] == "WAITING"
    finish(life, made, "a")
    assert states(life, made) == {"a": "COMPLETED", "b": "COMPLETED", "c": "QUEUED"}
    finish(life, made, "c", BROKEN)
    later = life.client.retry(job_of(life, made, "c"))
    assert (later.group_id, later.stage, later.step) == (None, None, None)
    assert group(life, made).status == "PARTIAL"


# --- people ---


def test_a_held_member_holds_its_group_until_a_person_decides(life: Life) -> None:
    new = NewGroup("g", "sequential", "stop", (member(life, 0, "a", target="desk"), member(life, 1, "b")))
    made = life.client.groups.create(new)
    life.claim_next(1)
    held = job_of(life, made, "a")
    assert life.end(life.held(held), BROKEN)
    assert states(life, made) == {"a": "ERROR", "b": "WAITING"}
    assert group_events(life, made)[-1] == "group.held"
    life.client.resolve(held, {"by": "hand"})
    assert states(life, made) == {"a": "COMPLETED", "b": "QUEUED"}


def held_by(life: Life, group_id: int) -> list[str]:
    """As the page of the group and the list of groups tell it."""
    with life.database.read() as tx:
        seen = group_views.group_view(tx, life.client.tenant_id, group_id)
        page = group_views.groups_page(tx, life.client.tenant_id)
    (listed,) = [view for view in page.items if view.group.id == group_id]
    assert listed.held_by == seen.held_by
    return [step.step for step in seen.held_by]


def test_a_member_on_hold_holds_its_group_when_its_stage_is_open(life: Life) -> None:
    made = make(life, "a b", "c d")
    first, later = job_of(life, made, "a"), job_of(life, made, "d")
    life.client.interrupt(later)
    assert (held_by(life, made), group_events(life, made)) == ([], ["group.created"])
    for _ in range(2):  # once is enough
        life.client.interrupt(first)
    assert (held_by(life, made), group_events(life, made)) == (["a"], ["group.created", "group.held"])
    finish(life, made, "b")
    life.client.resume(first)
    assert held_by(life, made) == []
    finish(life, made, "a")
    assert held_by(life, made) == ["d"]
    assert group_events(life, made)[2:] == ["group.advanced", "group.held"]
    finish(life, made, "c")
    life.client.resume(later)
    finish(life, made, "d")
    assert (held_by(life, made), group(life, made).status) == ([], "COMPLETED")


def test_a_member_that_is_made_on_hold_holds_its_group_from_the_start(life: Life) -> None:
    members = (member(life, 0, "a", hold=True), member(life, 0, "b"), member(life, 1, "c", hold=True))
    made = life.client.groups.create(NewGroup("g", "staged", "stop", members))
    assert (held_by(life, made), group_events(life, made)) == (["a"], ["group.created", "group.held"])
    life.client.groups.cancel(made)
    assert held_by(life, made) == []


@pytest.mark.parametrize("verb", ["release", "cancel"])
def test_giving_up_a_held_member_counts_as_a_failure(life: Life, verb: str) -> None:
    new = NewGroup("g", "sequential", "stop", (member(life, 0, "a", target="desk"), member(life, 1, "b")))
    made = life.client.groups.create(new)
    life.claim_next(1)
    assert life.end(life.held(job_of(life, made, "a")), BROKEN)
    getattr(life.client, verb)(job_of(life, made, "a"))
    assert states(life, made)["b"] == "CANCELLED"
    assert group(life, made).status == "PARTIAL"


def test_a_call_cancelled_by_a_person_failed(life: Life) -> None:
    made = make(life, "a", "b", "c")
    life.client.cancel(job_of(life, made, "a"))
    assert states(life, made) == {"a": "CANCELLED", "b": "CANCELLED", "c": "CANCELLED"}
    assert group(life, made).status == "PARTIAL"


def test_a_stage_that_ended_before_it_began_is_passed(life: Life) -> None:
    made = make(life, "a", "b?", "c")
    life.client.cancel(job_of(life, made, "b"))
    finish(life, made, "a")
    assert states(life, made) == {"a": "COMPLETED", "b": "CANCELLED", "c": "QUEUED"}


def test_a_hold_outlives_the_opening_of_its_stage(life: Life) -> None:
    made = make(life, "a", "b")
    held = job_of(life, made, "b")
    life.client.interrupt(held)
    assert life.job(held).hold == 1
    finish(life, made, "a")
    assert states(life, made)["b"] == "WAITING"
    assert group(life, made).stage == 1
    life.client.resume(held)
    assert states(life, made)["b"] == "QUEUED"


def test_a_hold_that_ends_early_still_waits_for_its_stage(life: Life) -> None:
    made = make(life, "a", "b")
    held = job_of(life, made, "b")
    life.client.interrupt(held)
    life.client.resume(held)
    assert (states(life, made)["b"], life.job(held).hold) == ("WAITING", 0)
    finish(life, made, "a")
    assert states(life, made)["b"] == "QUEUED"


def test_cancelling_a_group(life: Life) -> None:
    made = make(life, "a b c", "d")
    running = life.claim(job_of(life, made, "a"))
    finish(life, made, "b")
    life.client.groups.cancel(made)
    assert states(life, made) == {"a": "RUNNING", "b": "COMPLETED", "c": "CANCELLED", "d": "CANCELLED"}
    assert group(life, made).status == "RUNNING"
    assert life.end(running, StoppedByRequest())
    assert states(life, made)["a"] == "CANCELLED"
    assert group(life, made).status == "CANCELLED"
    with pytest.raises(WrongState, match="already ended"):
        life.client.groups.cancel(made)


def test_members_are_cancelled_together_whatever_they_wait_for(life: Life) -> None:
    """Those that never ran in one statement, whose runs are closed one by one."""
    members = [member(life, 0, f"s{n}") for n in range(20)]
    members += [member(life, 0, "hold", hold=True), member(life, 0, "later", not_before=life.clock.now() + 10**9)]
    members += [member(life, 0, "desk", target="desk"), member(life, 0, "runs"), member(life, 0, "pauses")]
    members += [member(life, 0, "resumed"), member(life, 1, "next")]
    made = life.client.groups.create(NewGroup("g", "staged", "stop", tuple(members)))
    runs = life.claim(job_of(life, made, "runs"))
    for step in ("pauses", "resumed"):
        life.client.interrupt(life.claim(job_of(life, made, step)).job_id)
        assert life.end(life.held(job_of(life, made, step)), StoppedByRequest())
    life.client.resume(job_of(life, made, "resumed"))
    with counting(life) as calls:
        life.client.groups.cancel(made)
    assert sum(calls.values()) < 30, "it goes from one member to the next"
    assert states(life, made).pop("runs") == "RUNNING"
    assert {state for step, state in states(life, made).items() if step != "runs"} == {"CANCELLED"}
    waited = life.job(job_of(life, made, "hold"))
    assert (waited.hold, waited.gate, waited.finished_at) == (0, 0, life.clock.now())
    assert waited.reason == f"cancelled by {life.client.actor.shown}"
    assert life.events(waited.id) == ["job.created", "job.cancelled"]
    assert life.run_status(waited.id) == "no run"
    for step in ("pauses", "resumed"):
        assert life.run_status(job_of(life, made, step)) is State.FAILED
    assert life.end(runs, StoppedByRequest())
    assert group(life, made).status == "CANCELLED"


def test_a_retry_of_a_large_group_reads_it_at_once(life: Life) -> None:
    made = life.client.groups.create(
        NewGroup("g", "parallel", "stop", tuple(member(life, 0, f"s{n}") for n in range(40)))
    )
    life.client.groups.cancel(made)
    with counting(life) as calls:
        life.client.groups.retry(made)
    assert sum(calls.values()) < 30, "it goes from one member to the next"


def test_a_cancelled_group_makes_no_retries(life: Life) -> None:
    new = NewGroup("g", "parallel", "stop", (member(life, 0, "a", retry=3),))
    made = life.client.groups.create(new)
    running = life.claim(job_of(life, made, "a"))
    life.client.groups.cancel(made)
    life.sql_write("update hw_job set stop = null, stop_by = null")  # as if the request had come to nothing
    assert life.end(running, BROKEN)
    assert states(life, made) == {"a": "FAILED"}
    assert group(life, made).status == "CANCELLED"


# --- results ---


def test_results_of_earlier_steps_are_filled_in_when_the_stage_opens(life: Life) -> None:
    wants = json.dumps({"rows": {"$result": "a"}, "list": [{"$result": "b"}, 1]})
    members = (member(life, 0, "a"), member(life, 0, "b", tolerated=True), member(life, 1, "c", params=wants))
    made = life.client.groups.create(NewGroup("g", "staged", "stop", members))
    finish(life, made, "a", Completed(result='{"n":3}'))
    assert json.loads(life.job(job_of(life, made, "c")).params) == json.loads(wants)
    finish(life, made, "b", BROKEN)
    job = life.job(job_of(life, made, "c"))
    assert json.loads(job.params) == {"rows": {"n": 3}, "list": [None, 1]}
    life.claim(job.id)
    ((snapshot,),) = life.sql(f"select params from hw_run where job_id = {job.id}")
    assert json.loads(snapshot) == {"rows": {"n": 3}, "list": [None, 1]}
    assert life.end(life.held(job.id), Completed())


def test_a_member_on_hold_gets_its_results_too(life: Life) -> None:
    wants = [member(life, 1, step, params='{"x":{"$result":"a"}}') for step in ("b", "c")]
    made = life.client.groups.create(NewGroup("g", "staged", "stop", (member(life, 0, "a"), *wants)))
    life.client.interrupt(job_of(life, made, "b"))
    finish(life, made, "a", Completed(result="7"))
    life.client.resume(job_of(life, made, "b"))
    assert [life.job(job_of(life, made, step)).params for step in ("b", "c")] == ['{"x":7}', '{"x":7}']


def test_an_edit_may_name_results_too(life: Life) -> None:
    made = make(life, "a", "b")
    job_id = job_of(life, made, "b")
    life.client.edit(job_id, params={"x": {"$result": "a"}})
    with pytest.raises(BadInput, match="did you mean a"):
        life.client.edit(job_id, params={"x": {"$result": "aa"}})
    finish(life, made, "a", Completed(result="7"))
    assert json.loads(life.job(job_id).params) == {"x": 7}
    life.client.edit(job_id, params={"y": [{"$result": "a"}]})
    assert json.loads(life.job(job_id).params) == {"y": [7]}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ('{"x":{"$result":"nobody"}}', "no step is named 'nobody'"),
        ('{"x":{"$result":"b"}}', "is not in an earlier stage"),
    ],
)
def test_a_result_that_will_not_be_there_is_refused(life: Life, params: str, words: str) -> None:
    members = (member(life, 0, "a"), member(life, 1, "b", params=params))
    with pytest.raises(BadInput, match=words) as refused:
        life.client.groups.create(NewGroup("g", "staged", "stop", members))
    assert refused.value.field == "steps[1].params"
    assert life.sql("select count(*) from hw_job") == [(0,)]


# --- retrying a group ---


def test_a_retry_keeps_what_succeeded(life: Life) -> None:
    wants = '{"x":{"$result":"a"},"y":{"$result":"c"}}'
    steps = [member(life, 0, "a"), member(life, 1, "b"), member(life, 1, "c"), member(life, 2, "d", params=wants)]
    made = life.client.groups.create(NewGroup("g", "staged", "stop", tuple(steps)))
    finish(life, made, "a", Completed(result="1"))
    finish(life, made, "b", BROKEN)
    finish(life, made, "c", Completed(result="3"))
    assert group(life, made).status == "PARTIAL"
    again = life.client.groups.retry(made)
    assert states(life, again) == {"b": "QUEUED", "d": "WAITING"}
    assert (group(life, again).retry_of, group(life, again).stage, group(life, again).stages) == (made, 1, 3)
    with pytest.raises(WrongState, match="already being retried"):
        life.client.groups.retry(made)
    finish(life, again, "b", Completed(result="2"))
    assert json.loads(life.job(job_of(life, again, "d")).params) == {"x": 1, "y": 3}
    finish(life, again, "d")
    assert (group(life, again).status, group(life, made).status) == ("COMPLETED", "PARTIAL")
    with pytest.raises(WrongState, match="nothing in it failed"):
        life.client.groups.retry(again)


def test_only_what_has_ended_can_be_retried(life: Life) -> None:
    made = make(life, "a")
    with pytest.raises(WrongState, match="can be retried when it has ended"):
        life.client.groups.retry(made)
    finish(life, made, "a")


# --- one after another ---


def test_a_group_that_follows_another_begins_with_its_end(life: Life) -> None:
    first = make(life, "a")
    second = make(life, "a b", after_id=first)
    third = make(life, "a", after_id=second)
    assert (states(life, second), group(life, second).stage) == ({"a": "WAITING", "b": "WAITING"}, -1)
    finish(life, first, "a", BROKEN)
    assert states(life, second) == {"a": "QUEUED", "b": "QUEUED"}
    assert states(life, third) == {"a": "WAITING"}
    assert group_events(life, second) == ["group.created", "group.begun"]
    finish(life, second, "a")
    finish(life, second, "b")
    finish(life, third, "a")
    assert group(life, third).status == "COMPLETED"


def test_who_waits_for_one_that_is_cancelled_waits_for_the_one_before(life: Life) -> None:
    first = make(life, "a")
    second = make(life, "a", after_id=first)
    third = make(life, "a", after_id=second)
    life.client.groups.cancel(second)
    assert group(life, second).status == "CANCELLED"
    assert states(life, third) == {"a": "WAITING"}
    finish(life, first, "a")
    assert states(life, third) == {"a": "QUEUED"}
    finish(life, third, "a")


# --- damage ---


def test_recovery_goes_on_with_a_group_that_nobody_advanced(database_url: str) -> None:
    """As the source system's safety net: a stage ended and the next one still waits, or all have ended and the group
    has not."""
    with Life(database_url) as life:
        life.set_limit(None)
        made = make(life, "a", "b")
        follower = make(life, "a", after_id=made)
        finish(life, made, "a")
        life.sql_write(f"update hw_group set stage = 0 where id = {made}")
        life.sql_write("update hw_job set status = 0, gate = 0, queued_at = null where step = 'b'")
        Recovery(life.database).tick()
        assert (states(life, made)["b"], states(life, follower)) == ("QUEUED", {"a": "WAITING"})
        finish(life, made, "b")
        life.sql_write(f"update hw_group set finished_at = null, status = 'RUNNING' where id = {made}")
        life.sql_write(f"update hw_group set stage = -1 where id = {follower}")
        life.sql_write(f"update hw_job set status = 0, gate = 0, queued_at = null where group_id = {follower}")
        Recovery(life.database).tick()
        assert group(life, made).status == "COMPLETED"
        assert states(life, follower) == {"a": "QUEUED"}
        before = life.everything()
        Recovery(life.database).tick()
        assert life.everything() == before


# --- bad input ---


def test_an_impossible_group_is_refused_and_nothing_is_stored(life: Life) -> None:
    good = new_group(life, "a", "b")
    job = good.members[0].job
    bad = [
        (replace(good, members=()), "steps", "at least one step"),
        (replace(good, mode="sequental"), "mode", "did you mean sequential"),
        (replace(good, on_failure="stopp"), "on_failure", "did you mean stop"),
        (replace(good, on_failure="no.such.policy"), "on_failure", "cannot be imported"),
        (replace(good, members=good.members * 2), "steps", "same name"),
        (
            replace(good, members=(replace(good.members[0], job=job._replace(key="k")),)),
            "steps[0].key",
            "not for steps",
        ),
        (
            replace(good, members=(replace(good.members[0], stage=1, job=job._replace(delay=5)),)),
            "steps[0].delay",
            "first stage",
        ),
    ]
    for new, field, words in bad:
        with pytest.raises(BadInput, match=words) as refused:
            life.client.groups.create(new)
        assert refused.value.field == field
    assert life.sql("select count(*) from hw_group") == [(0,)]
    with pytest.raises(NotFound):
        life.client.groups.get(17)


def test_a_step_cannot_expire(life: Life) -> None:
    made = make(life, "a")
    with pytest.raises(WrongState, match="do not expire"):
        life.client.edit(job_of(life, made, "a"), expires_at=life.clock.now() + 10)


# --- looking ---


def test_a_retry_shows_what_it_links_to(life: Life) -> None:
    made = make(life, "a", "b c", "d")
    for step, outcome in (("a", Completed()), ("b", BROKEN), ("c", Completed())):
        finish(life, made, step, outcome)
    again = life.client.groups.retry(made)
    with life.database.read() as tx:
        seen = group_views.group_view(tx, life.client.tenant_id, again)
        page = group_views.groups_page(tx, life.client.tenant_id, limit=1)
        rest = group_views.groups_page(tx, life.client.tenant_id, limit=1, cursor=page.next)
    assert [(s.step, s.status.name, s.linked) for s in seen.steps] == [
        ("a", "COMPLETED", True),
        ("b", "QUEUED", False),
        ("c", "COMPLETED", True),
        ("d", "WAITING", False),
    ]
    assert seen.counts == {"COMPLETED": 2, "QUEUED": 1, "WAITING": 1}
    assert ([v.group.id for v in page.items], [v.group.id for v in rest.items], rest.next) == ([again], [made], None)
    life.client.groups.cancel(again)


def test_a_page_of_groups_says_what_their_own_pages_say(life: Life) -> None:
    """Whatever their size, by a few statements: steps are counted where they are, also those that a retry links to."""
    made = make(life, "a", "b? c d", "e f")
    finish(life, made, "a")
    life.clock.advance(60)
    for step, outcome in (("b", BROKEN), ("c", BROKEN), ("d", Completed())):
        finish(life, made, step, outcome)
    again = life.client.groups.retry(made)
    life.clock.advance(60)
    finish(life, again, "b")
    life.client.interrupt(job_of(life, again, "c"))
    chain = life.client.groups.create(NewGroup("g", "parallel", "stop", (member(life, 0, "a", retry=2),)))
    finish(life, chain, "a", BROKEN)
    fails = make(life, " ".join(f"s{n}" for n in range(6)))
    for n in range(6):
        finish(life, fails, f"s{n}", BROKEN)
    make(life, "waits", after_id=chain)
    with counting(life) as calls, life.database.read() as tx:
        page = group_views.groups_page(tx, life.client.tenant_id)
    assert {name: count for name, count in calls.items() if name != "notify_others"} == {
        "groups_before": 1,
        "pin_plans": 1,
        "count_steps": 1,
        "steps_to_tell": 1,
    }
    with life.database.read() as tx:
        for listed in page.items:
            one = group_views.group_view(tx, life.client.tenant_id, listed.group.id)
            assert (listed.counts, listed.started_at) == (one.counts, one.started_at)
            assert listed.held_by == one.held_by
            assert listed.failed == one.failed[:4]
    assert [len(view.failed) for view in page.items] == [0, 4, 0, 0, 2]
    with life.database.read() as tx:
        assert group_views.groups_page(tx, life.client.tenant_id, kind="execution").items == []


def test_a_step_that_waits_says_for_whom(life: Life) -> None:
    made = make(life, "a b", "c")
    behind = make(life, "a", after_id=made)
    with life.database.read() as tx:
        (waits,) = queue_views.explain(tx, life.client.tenant_id, job_of(life, made, "c")).blockers
        (follows,) = queue_views.explain(tx, life.client.tenant_id, job_of(life, behind, "a")).blockers
    one, other = (job_of(life, made, step) for step in "ab")
    assert (waits.kind, waits.by) == ("stage", f"job {one} (a, QUEUED), job {other} (b, QUEUED)")
    assert waits.detail == f"its stage is not open yet: stage 1 of group {made} has not ended"
    assert (follows.kind, follows.by) == ("stage", f"group {made}")


def test_old_groups_are_pruned_whole(life: Life, tmp_path: Path) -> None:
    made = make(life, "a", "b")
    finish(life, made, "a", BROKEN)
    again = life.client.groups.retry(made)
    finish(life, again, "a")
    finish(life, again, "b")
    open_one = make(life, "a")
    life.clock.advance(100)
    pruner = Pruner(life.database, retention=50.0, artifacts=tmp_path)
    for _ in range(2):  # what a retry links to goes with the pass after the retry's
        while pruner.tick() == 0.0:
            pass
    assert life.sql("select id from hw_group") == [(open_one,)]
    assert life.sql("select distinct group_id from hw_job") == [(open_one,)]
    assert life.sql("select name, count from hw_tally order by name") == [("groups", 2), ("jobs", 4)]
    finish(life, open_one, "a")


# --- retries of members, results that cannot be had ---


def test_a_retried_group_fills_in_what_its_first_stage_needs(life: Life) -> None:
    steps = (member(life, 0, "a"), member(life, 1, "b", params='{"x":{"$result":"a"}}'))
    made = life.client.groups.create(NewGroup("g", "staged", "stop", steps))
    finish(life, made, "a", Completed(result="41"))
    finish(life, made, "b", BROKEN)
    again = life.client.groups.retry(made)
    assert life.job(job_of(life, again, "b")).params == '{"x":41}'
    finish(life, again, "b")


@pytest.mark.parametrize("reference", ['["z"]', '{"q":1}', "7", "null"])
def test_a_result_is_named_by_a_text(life: Life, reference: str) -> None:
    params = f'{{"x":{{"$result":{reference}}},"y":{{"$result":"a"}}}}'
    steps = (member(life, 0, "a"), member(life, 1, "b", params=params))
    with pytest.raises(BadInput, match="must be the name of an earlier step"):
        life.client.groups.create(NewGroup("g", "staged", "stop", steps))


def test_results_that_are_too_large_are_left_to_the_context(life: Life) -> None:
    params = json.dumps({"x": [{"$result": "a"}] * 3})
    steps = (member(life, 0, "a"), member(life, 1, "b", params=params))
    made = life.client.groups.create(NewGroup("g", "staged", "stop", steps))
    finish(life, made, "a", Completed(result=json.dumps("x" * 100_000)))
    job = life.job(job_of(life, made, "b"))
    assert (job.status.name, json.loads(job.params)) == ("QUEUED", json.loads(params))
    life.client.cancel(job.id)


class Raises:
    def judge(self, failed: list[Member]) -> Verdict:
        raise RuntimeError("no idea")


def test_a_policy_that_raises_stops_the_group(life: Life) -> None:
    made = make(life, "a", "b", on_failure=f"{__name__}.Raises")
    finish(life, made, "a", BROKEN)
    assert states(life, made) == {"a": "FAILED", "b": "CANCELLED"}


def test_a_chain_in_a_group_goes_on_from_its_last_job(life: Life) -> None:
    new = NewGroup("g", "staged", "stop", (member(life, 0, "a", retry=1), member(life, 0, "b"), member(life, 1, "c")))
    made = life.client.groups.create(new)
    first = job_of(life, made, "a")
    finish(life, made, "a", BROKEN)
    finish(life, made, "a", BROKEN)
    again = life.client.retry(first)
    assert again.retry_of != first
    claim = life.claim(again.id)
    with pytest.raises(WrongState, match="already being retried"):
        life.client.retry(first)
    assert life.end(claim, Completed())
    finish(life, made, "b")
    assert states(life, made) == {"a": "COMPLETED", "b": "COMPLETED", "c": "QUEUED"}
    life.client.cancel(job_of(life, made, "c"))


def test_a_retry_does_not_keep_a_cancelled_group_open(life: Life) -> None:
    made = make(life, "a b")
    finish(life, made, "a", BROKEN)
    running = life.claim(job_of(life, made, "b"))
    life.client.groups.cancel(made)
    assert life.client.retry(job_of(life, made, "a")).group_id is None
    assert life.end(running, StoppedByRequest())
    assert group(life, made).status == "CANCELLED"


def test_a_retry_with_other_params_keeps_them_in_a_retry_of_the_group(life: Life) -> None:
    steps = (member(life, 0, "a"), member(life, 1, "b", params='{"x":{"$result":"a"}}'), member(life, 1, "c"))
    made = life.client.groups.create(NewGroup("g", "staged", "stop", steps))
    finish(life, made, "a", Completed(result="1"))
    finish(life, made, "b", BROKEN)
    again = life.client.retry(job_of(life, made, "b"), params={"y": {"$result": "a"}, "z": 2})
    assert json.loads(again.params) == {"y": 1, "z": 2}
    finish(life, made, "b", BROKEN)
    finish(life, made, "c")
    retried = life.client.groups.retry(made)
    assert json.loads(life.job(job_of(life, retried, "b")).params) == {"y": 1, "z": 2}
    life.client.groups.cancel(retried)


def test_who_says_the_words_of_the_plan_has_still_skipped_itself(life: Life) -> None:
    made = make(life, "a", "b")
    finish(life, made, "a", Skipped("predecessor failed"))
    finish(life, made, "b")
    assert group(life, made).status == "COMPLETED"


def test_a_run_that_ended_before_its_job_is_retried_before_the_group_is_judged(database_url: str) -> None:
    """Damage: its run says FAILED and the job still runs."""
    with Life(database_url) as life:
        life.set_limit(None)
        new = NewGroup("g", "sequential", "stop", (member(life, 0, "a", retry=1), member(life, 1, "b")))
        made = life.client.groups.create(new)
        claim = life.claim(job_of(life, made, "a"))
        life.sql_write(f"update hw_run set status = 7, finished_at = 1, error = 'boom' where job_id = {claim.job_id}")
        Recovery(life.database).tick()
        assert states(life, made) == {"a": "QUEUED", "b": "WAITING"}
        finish(life, made, "a")
        assert states(life, made) == {"a": "COMPLETED", "b": "QUEUED"}
