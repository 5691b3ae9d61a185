"""Targets: one job at a time, who holds one and for how long, and what opens it again. On both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.app import App
from headway.engine.client.client import Client
from headway.engine.maintenance.recovery import Recovery
from headway.errors import NotFound, WrongState
from headway.model.jobs.job import Claim, Options
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.model.jobs.retry import RetryPolicy
from headway.store import workers
from tests.support.life import ADA, BROKEN, FINAL, Life

SECOND = 1_000_000
LOST = Lost("the worker is gone")
BUDGET = Failed(FailureKind.BUDGET, "tokens used up")


def ids(taken: list[Claim]) -> list[int]:
    return [claim.job_id for claim in taken]


def held(life: Life, **fields: object) -> tuple[int, int]:
    """A job in ERROR that holds the desk, and the one behind it."""
    job_id, behind = life.enqueue(target="desk", retry=0, **fields), life.enqueue(target="desk")
    (claim,) = life.claim_next(9)
    assert life.end(claim, FINAL)
    assert life.status(job_id) == "ERROR"
    return job_id, behind


# --- one at a time ---


def test_one_runs_on_a_target_and_the_next_one_after_it_in_queue_order(life: Life) -> None:
    first = life.enqueue(target="desk")
    made = [life.enqueue(target="desk", priority=priority) for priority in (0, 5, 0, 5)]
    order = [made[1], made[3], first, made[0], made[2]]
    for job_id in order:
        taken = life.claim_next(9)
        assert ids(taken) == [job_id]
        assert life.claim_next(9) == []
        assert life.end(taken[0], Completed())
    assert life.claim_next(9) == []


def test_different_targets_run_side_by_side_also_beside_the_lane_of_all(life: Life) -> None:
    made = [life.enqueue(target="desk"), life.enqueue(), life.enqueue(target="lab"), life.enqueue(target="desk")]
    assert ids(life.claim_next(9)) == made[:3]


def test_the_same_name_in_another_tenant_is_another_target(life: Life) -> None:
    with life.database.transaction("tenant") as tx:
        life.database.execute_script(tx, "insert into hw_tenant (name, created_at) values ('other', 0);")
    other = Client(life.database, life.client.registry, actor=ADA, tenant="other")
    ours, theirs = life.enqueue(target="desk"), other.enqueue(life.new(target="desk"))[0]
    assert ids(life.claim_next(9)) == [ours, theirs]
    other.pause_target("desk")
    assert life.sql("select count(*) from hw_target where paused_at is not null") == [(1,)]


def test_a_head_that_waits_for_a_resource_keeps_the_others_behind_it(life: Life) -> None:
    """The queue of a target is strict: nobody overtakes, also who would need less."""
    life.client.lanes.defined = {"ollama": 1}
    busy = life.enqueue(resources=("ollama",))
    head = life.enqueue(target="desk", resources=("ollama",))
    small = life.enqueue(target="desk")
    taken = life.claim_next(9)
    assert ids(taken) == [busy]
    assert life.end(taken[0], Completed())
    assert ids(life.claim_next(9)) == [head]
    assert life.status(small) == "QUEUED"


def test_many_jobs_on_many_targets_in_one_go(life: Life) -> None:
    places = [None, "desk", "lab", "desk", None, "shed", "lab", "desk"]
    life.set_limit(None)
    made = [job_id for job_id, _ in life.client.enqueue_many([life.new(target=place) for place in places])]
    rounds = [[0, 1, 2, 4, 5], [3, 6], [7]]
    for expected in rounds:
        taken = life.claim_next(50)
        assert ids(taken) == [made[n] for n in expected]
        assert all(life.end(claim, Completed()) for claim in taken)


def test_many_of_one_kind_on_one_target(life: Life) -> None:
    made = [job_id for job_id, _ in life.client.enqueue_alike(life.new(target="desk"), ["{}"] * 5)]
    for job_id in made:
        (claim,) = life.claim_next(50)
        assert claim.job_id == job_id
        assert claim.target_id is not None
        assert life.end(claim, Completed())


# --- what makes another one the first ---

CHANGES: dict[str, tuple[Callable[[Life, list[int]], object], int | None]] = {
    "its first is cancelled": (lambda life, jobs: life.client.cancel(jobs[0]), 1),
    "its first is put on hold": (lambda life, jobs: life.client.interrupt(jobs[0]), 1),
    "its first gets a lower place": (lambda life, jobs: life.client.move(jobs[0], to="bottom"), 1),
    "another one is moved to the top": (lambda life, jobs: life.client.move(jobs[2], to="top"), 2),
    "another one is moved before it": (lambda life, jobs: life.client.move(jobs[1], before=jobs[0]), 1),
    "another one gets a better priority": (lambda life, jobs: life.client.edit(jobs[2], priority=3), 2),
    "its first expires": (lambda life, jobs: life.clock.advance(100), 1),
    "one that waited for its time is better": (lambda life, jobs: life.clock.advance(30), 3),
    "it is paused": (lambda life, jobs: life.client.pause_target("desk"), None),
    "nothing": (lambda life, jobs: life.client.edit(jobs[0], params={"n": 2}), 0),
}


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_the_first_of_a_target_is_chosen_anew(life: Life, change: str, opened: bool) -> None:
    act, first = CHANGES[change]
    now = life.clock.now()
    jobs = [life.enqueue(target="desk", expires_at=now + 100 * SECOND), life.enqueue(target="desk")]
    jobs += [life.enqueue(target="desk")]
    if first == 3:
        jobs += [life.enqueue(target="desk", priority=9, delay=30 * SECOND)]
    if opened:
        assert life.pick(9) == jobs[:1]
    act(life, jobs)
    assert ids(life.claim_next(9)) == ([] if first is None else [jobs[first]])


# --- who holds it ---


@pytest.mark.parametrize("state", ["PAUSED", "ERROR", "RUNNING", "interrupting", "cancelling"])
def test_a_job_that_is_not_over_keeps_its_target_and_others_go_on(life: Life, state: str) -> None:
    life.in_state(state, target="desk")
    life.enqueue(target="desk", priority=9)
    other = life.enqueue(target="lab")
    assert ids(life.claim_next(9)) == [other]
    assert life.claim_next(9) == []


def test_a_resumed_job_keeps_the_hold_and_is_the_only_one_that_can_be_claimed_there(life: Life) -> None:
    job_id, _ = held(life)
    life.client.resume(job_id)
    life.enqueue(target="desk", priority=100)
    taken = life.claim_next(9)
    assert [(claim.job_id, claim.fence) for claim in taken] == [(job_id, 2)]
    assert life.end(taken[0], Completed())
    assert life.run_status(job_id) == 6


def test_a_resumed_job_goes_first_whatever_is_moved_before_it(life: Life) -> None:
    job_id, behind = held(life)
    life.client.resume(job_id)
    life.client.edit(job_id, priority=0)
    life.client.move(behind, to="front")
    assert life.pick(9) == [job_id]
    life.client.move(job_id, to="bottom")
    assert life.pick(9) == [job_id]


@pytest.mark.parametrize("state", ["PAUSED", "ERROR"])
@pytest.mark.parametrize(
    ("verb", "status", "next_is"),
    [
        ("resume", "RUNNING", "itself"),
        ("resolve", "COMPLETED", "behind"),
        ("release", "FAILED", "behind"),
        ("cancel", "CANCELLED", "behind"),
        ("retry", "FAILED", "new"),
    ],
)
def test_decisions_about_a_held_target(life: Life, state: str, verb: str, status: str, next_is: str) -> None:
    job_id = life.in_state(state, target="desk")
    behind = life.enqueue(target="desk")
    assert life.claim_next(9) == []
    answer = getattr(life.client, verb)(job_id)
    expected = {"itself": job_id, "behind": behind, "new": answer.id}[next_is]
    assert ids(life.claim_next(9)) == [expected]
    assert life.status(job_id) == status
    if verb == "retry":
        new, old = life.job(answer.id), life.job(job_id)
        assert (new.retry_of, new.priority, new.position, new.target_id) == (
            job_id, old.priority, old.position, old.target_id,
        )  # fmt: skip


def test_releasing_a_target_ends_its_holder(life: Life) -> None:
    job_id, behind = held(life)
    assert life.client.release_target("desk").id == job_id
    assert life.status(job_id) == "FAILED"
    assert ids(life.claim_next(9)) == [behind]
    with pytest.raises(WrongState):
        life.client.release_target("desk")  # it runs
    with pytest.raises(NotFound):
        life.client.release_target("nowhere")


# --- failures ---

# A job on a target: how it ends, by what it asked for. `+`: a retry takes its place; `open`: the next one may run.
ENDS: dict[str, tuple[Outcome, str, str, str, str]] = {
    #              outcome       as usual      asks for retries  on_error=fail  on_lost=hold
    "completed": (Completed(), "COMPLETED open", "COMPLETED open", "COMPLETED open", "COMPLETED open"),
    "skipped": (Skipped("no"), "SKIPPED open", "SKIPPED open", "SKIPPED open", "SKIPPED open"),
    "broken": (BROKEN, "ERROR", "FAILED+", "FAILED open", "ERROR"),
    "final": (FINAL, "ERROR", "ERROR", "FAILED open", "ERROR"),
    "budget": (BUDGET, "ERROR", "ERROR", "FAILED open", "ERROR"),
    "lost": (LOST, "ERROR", "FAILED+", "FAILED open", "ERROR"),
    "remains": (Lost("could not be ended", remains=True), "ERROR", "ERROR", "ERROR", "ERROR"),
    "shutdown": (Interrupted(), "PAUSED", "PAUSED", "PAUSED", "PAUSED"),
}
WISHES: list[dict[str, object]] = [{"retry": 0}, {"retry": 2}, {"retry": 0, "on_error": "fail"}, {"on_lost": "hold"}]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("asked", range(4))
def test_how_a_job_on_a_target_ends(life: Life, end: str, asked: int) -> None:
    outcome, *expected = ENDS[end]
    wishes = {"retry": 0, **WISHES[asked]}
    job_id, behind = life.enqueue(target="desk", **wishes), life.enqueue(target="desk")
    (claim,) = life.claim_next()
    assert life.end(claim, outcome)
    retries = life.sql(f"select id, status, priority, position from hw_job where retry_of = {job_id}")
    state = life.status(job_id) + "+" * len(retries)
    after = ids(life.claim_next())
    assert state + (" open" if after == [behind] and not retries else "") == expected[asked]
    assert after == ([behind] if retries or "open" in expected[asked] else [])


def test_a_retry_takes_its_place_and_only_the_last_failure_holds(life: Life) -> None:
    first = life.enqueue(target="desk", retry=RetryPolicy(1, 10.0))
    behind, last = life.enqueue(target="desk"), life.enqueue(target="desk")
    (claim,) = life.claim_next(9)
    assert life.end(claim, BROKEN)
    ((retry,),) = life.sql(f"select id from hw_job where retry_of = {first}")
    (claim,) = life.claim_next(9)
    assert claim.job_id == behind  # while the retry waits for its time the target is open
    life.clock.advance(10)
    assert life.end(claim, Completed())
    (claim,) = life.claim_next(9)
    assert claim.job_id == retry  # before the last one: it stands where the failed one stood
    assert life.end(claim, BROKEN)
    assert (life.status(first), life.status(retry)) == ("FAILED", "ERROR")
    assert life.claim_next(9) == []
    life.client.resolve(retry)
    assert ids(life.claim_next(9)) == [last]


def test_a_retry_that_is_due_at_once_goes_before_what_waits_behind(life: Life) -> None:
    first = life.enqueue(target="desk", retry=RetryPolicy(2, 0.0))
    behind = life.enqueue(target="desk")
    for _ in range(2):
        (claim,) = life.claim_next(9)
        assert claim.job_id != behind
        assert life.end(claim, BROKEN)
    (claim,) = life.claim_next(9)
    assert life.end(claim, BROKEN)
    assert life.status(claim.job_id) == "ERROR"
    assert [claim.attempt, life.status(first)] == [3, "FAILED"]
    assert life.claim_next(9) == []


def test_after_a_shutdown_a_job_that_wants_it_is_resumed_and_keeps_its_target(life: Life) -> None:
    job_id = life.enqueue(target="desk", on_shutdown="resume")
    life.enqueue(target="desk", priority=9)
    (claim,) = life.claim_next(9)[:1]
    assert claim.job_id != job_id  # the better one was first
    assert life.end(claim, Completed())
    (claim,) = life.claim_next(9)
    assert life.end(claim, Interrupted())
    life.enqueue(target="desk", priority=9)
    assert [(c.job_id, c.fence) for c in life.claim_next(9)] == [(job_id, 2)]


def test_an_interrupt_pauses_it_and_a_cancel_opens_the_target(life: Life) -> None:
    job_id, behind = life.enqueue(target="desk"), life.enqueue(target="desk")
    (claim,) = life.claim_next(9)
    life.client.interrupt(job_id)
    assert life.end(claim, StoppedByRequest())
    assert (life.status(job_id), life.claim_next(9)) == ("PAUSED", [])
    life.client.resume(job_id)
    (claim,) = life.claim_next(9)
    life.client.cancel(job_id)
    assert life.end(claim, StoppedByRequest())
    assert life.status(job_id) == "CANCELLED"
    assert ids(life.claim_next(9)) == [behind]


@pytest.mark.parametrize(
    ("wishes", "state", "opens"),
    [
        ({"retry": 0}, "ERROR", False),
        ({"retry": 0, "on_error": "fail"}, "FAILED", True),
        ({"retry": 0, "on_lost": "hold"}, "ERROR", False),
        ({"retry": RetryPolicy(1, 0.0)}, "FAILED", False),
    ],
)
def test_recovery_of_a_lost_job_on_a_target(life: Life, wishes: dict[str, object], state: str, opens: bool) -> None:
    job_id, behind = life.enqueue(target="desk", **wishes), life.enqueue(target="desk")
    gone = life.new_worker()
    (claim,) = life.claim_next(9, worker_id=gone)
    life.database.transact("leave", lambda tx: workers.retire(tx, gone, "lost"))
    assert life.claim_next(9) == []
    for _ in range(2):  # twice changes nothing
        Recovery(life.database).tick()
        assert life.status(job_id) == state
    assert not life.end(claim, Completed(), worker_id=gone)
    retries = [row[0] for row in life.sql(f"select id from hw_job where retry_of = {job_id}")]
    assert ids(life.claim_next(9)) == ([behind] if opens else retries)


# --- how often it is tried again ---


async def nothing() -> None: ...


@pytest.mark.parametrize(
    ("declared", "wished", "attempts"),
    [
        ({}, {}, 0),
        ({"retry": 2}, {}, 2),
        ({}, {"retry": 1}, 1),
        ({"retry": 5}, {"retry_policy": {"max_attempts": 4}}, 4),
    ],
)
def test_on_a_target_nothing_is_tried_again_unless_somebody_asks_for_it(
    database_url: str, declared: dict[str, Any], wished: dict[str, Any], attempts: int
) -> None:
    with App(database_url, retry={"max_attempts": 3, "base_delay": 7.0}) as app:
        task = app.task("nothing", **declared)(nothing)
        there, elsewhere = task.using(target="desk", **wished).enqueue(), task.using(**wished).enqueue()
        by_name = app.enqueue("nothing", target="desk", **wished)
        policies = [Options.parse(app.client.get(job.id).options).retry for job in (there, by_name, elsewhere)]
    assert [policy.max_attempts for policy in policies] == [attempts, attempts, attempts or 3]
    assert policies[0].base_delay == 7.0


# --- pauses ---


def test_a_paused_target_lets_what_runs_go_on_and_nothing_else_start(life: Life) -> None:
    first, second = life.enqueue(target="desk"), life.enqueue(target="desk")
    other = life.enqueue(target="lab")
    taken = life.claim_next(9)
    life.client.pause_target("desk", note="new cable")
    assert all(life.end(claim, Completed()) for claim in taken)
    assert life.claim_next(9) == []
    assert life.sql("select pause_note from hw_target where name = 'desk'") == [("new cable",)]
    life.client.resume_target("desk")
    life.client.resume_target("desk")  # it goes on already
    assert ids(life.claim_next(9)) == [second]
    kinds = life.sql("select kind from hw_event where thing = 'target' and thing_id = 1 order by version")
    assert [kind for (kind,) in kinds] == ["target.created", "target.paused", "target.resumed"]
    assert {life.status(first), life.status(other)} == {"COMPLETED"}


def test_a_paused_target_keeps_a_resumed_job_too(life: Life) -> None:
    job_id, _ = held(life)
    life.client.pause_target("desk")
    life.client.resume(job_id)
    assert life.claim_next(9) == []
    life.client.resume_target("desk")
    assert ids(life.claim_next(9)) == [job_id]


def test_a_target_that_does_not_exist_cannot_be_paused(life: Life) -> None:
    with pytest.raises(NotFound, match="first job"):
        life.client.pause_target("nowhere")
    assert life.sql("select count(*) from hw_target") == [(0,)]


def test_jobs_of_a_paused_queue_stay_where_they_are_on_their_targets(life: Life) -> None:
    job_id = life.enqueue(target="desk")
    life.client.pause_queue()
    assert life.claim_next(9) == []
    life.client.resume_queue()
    life.client.pause_queue(everybody=True)
    assert life.claim_next(9) == []
    life.client.resume_queue(everybody=True)
    assert ids(life.claim_next(9)) == [job_id]
