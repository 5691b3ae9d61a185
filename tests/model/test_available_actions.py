"""Which verbs apply to a job: exactly those that do not refuse it. What is said of the others, and of what comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import WrongState
from headway.model.explain.blockers import Blocker, Explanation
from headway.model.explain.durations import is_overdue
from headway.model.explain.forecast import Estimate
from headway.model.jobs import actions
from headway.model.jobs.available_actions import (
    VERBS,
    Case,
    Prospect,
    closed_fields,
    done,
    last_retry,
    needs_budget,
    prospects,
)
from headway.model.jobs.job import SYSTEM, JobRecord, Options
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import MOVES, State, StopRequest, Verb
from headway.text.job_next import becomes
from tests.support.job_rows import NOW, a_job
from tests.support.properties import examples

S = State


def a_case(status: State, *, fields: dict[str, Any] | None = None, **facts: Any) -> Case:
    job = a_job(status, **{"options": Options().text(), **(fields or {})})
    facts.setdefault("chain", (job,))
    return Case(job, NOW, **facts)


def of(case: Case, verb: Verb) -> Prospect:
    return next(one for one in prospects(case) if one.verb is verb)


def applying(case: Case) -> set[Verb]:
    return {one.verb for one in prospects(case) if one.applies}


# --- which apply --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", S)
def test_no_verb_applies_that_the_table_of_moves_does_not_know(status: State) -> None:
    runs = {5: S.FAILED if status in (S.FAILED, S.CANCELLED) else status}
    for one in prospects(a_case(status, runs=runs)):
        if one.applies:
            assert status in MOVES[one.verb], one
        else:
            assert one.why_not, one


TRIALS: dict[Verb, Callable[[JobRecord, Case], object]] = {
    Verb.CANCEL: lambda job, _: actions.cancel(job, actor=SYSTEM, now=NOW),
    Verb.INTERRUPT: lambda job, _: actions.interrupt(job, actor=SYSTEM),
    Verb.RESOLVE: lambda job, _: actions.resolve(job, result="1", by="ada", now=NOW),
    Verb.RELEASE: lambda job, _: actions.release(job, by="ada", now=NOW),
    Verb.EDIT: lambda job, _: actions.edit(job, priority=7, now=NOW),
    Verb.MOVE: lambda job, _: actions.move(job, priority=1, position=2),
    Verb.RESUME: lambda job, case: actions.resume(
        job, now=NOW, spent=case.spent, budget={"tokens": 1e9}, stage_open=case.stage_open
    ),
}


@given(
    status=st.sampled_from(list(S)),
    verb=st.sampled_from(list(TRIALS)),
    stop=st.sampled_from([None, *StopRequest]),
    hold=st.booleans(),
    claimed=st.booleans(),
    stage_open=st.booleans(),
    spent=st.booleans(),
)
@settings(max_examples=examples(400), deadline=None)
def test_an_offer_says_what_the_verb_does(
    status: State, verb: Verb, stop: StopRequest | None, hold: bool, claimed: bool, stage_open: bool, spent: bool
) -> None:
    fields: dict[str, Any] = {"options": Options(budget=(("tokens", 10.0),)).text()}
    if status is S.RUNNING:
        fields["stop"] = stop
    if status is S.WAITING:
        fields["hold"] = int(hold)
    if status is S.QUEUED:
        fields["fence"] = int(claimed)
    case = a_case(status, fields=fields, stage_open=stage_open, spent={"tokens": 11.0} if spent else {})
    try:
        TRIALS[verb](case.job, case)
        allowed = True
    except WrongState:
        allowed = False
    assert of(case, verb).applies is allowed


def test_a_refusal_says_only_what_stands_in_the_way() -> None:
    assert of(a_case(S.COMPLETED), Verb.RESUME).why_not == (
        "only a PAUSED or ERROR job, or one on hold, can be resumed"
    )
    assert of(a_case(S.RUNNING, fields={"stop": StopRequest.CANCEL}), Verb.INTERRUPT).why_not == "it is being cancelled"


def test_held_jobs_have_all_the_ways_out() -> None:
    ways = {Verb.RESUME, Verb.RESOLVE, Verb.RETRY, Verb.RELEASE, Verb.CANCEL}
    assert applying(a_case(S.PAUSED)) == applying(a_case(S.ERROR)) == ways


def test_a_budget_that_is_used_up_has_to_grow_before_a_resume() -> None:
    fields = {"options": Options(budget=(("tokens", 10.0),)).text()}
    over = a_case(S.PAUSED, fields=fields, spent={"tokens": 11.0})
    assert of(over, Verb.RESUME).applies
    assert needs_budget(over) == "budget for tokens used up: 11 of 10"
    assert needs_budget(a_case(S.PAUSED, fields=fields, spent={"tokens": 10.0})) is None


# --- retries ------------------------------------------------------------------------------------------------------


def chained(case: Case, *later: JobRecord, **facts: Any) -> Case:
    return replace(case, chain=(*case.chain, *later), **facts)


def retry_of(case: Case, number: int, status: State, **fields: Any) -> JobRecord:
    return a_job(status, **{"id": number, "retry_of": case.job.id, "retry_auto": 1, "attempt": 2, **fields})


def test_only_a_failed_run_is_retried() -> None:
    assert of(a_case(S.FAILED, runs={5: S.FAILED}), Verb.RETRY).applies
    assert of(a_case(S.CANCELLED, runs={5: S.FAILED}), Verb.RETRY).applies
    never_ran = of(a_case(S.CANCELLED), Verb.RETRY)
    assert never_ran.why_not == "only a job whose run FAILED, or a PAUSED or ERROR job, can be retried"
    assert not of(a_case(S.COMPLETED, runs={5: S.COMPLETED}), Verb.RETRY).applies


@pytest.mark.parametrize("status", [S.SCHEDULED, S.QUEUED])
def test_a_retry_that_waits_is_brought_forward(status: State) -> None:
    case = a_case(S.FAILED, runs={5: S.FAILED})
    found = of(chained(case, retry_of(case, 9, status)), Verb.RETRY)
    assert found.effect == "Job 9, its automatic retry, is queued now."


def test_nothing_is_retried_twice_at_once() -> None:
    case = a_case(S.FAILED, runs={5: S.FAILED})
    found = of(chained(case, retry_of(case, 9, S.RUNNING)), Verb.RETRY)
    assert found.why_not == "it is being retried already: job 9 is RUNNING"
    ended = chained(case, retry_of(case, 9, S.FAILED), runs={5: S.FAILED, 9: S.FAILED})
    assert of(ended, Verb.RETRY).applies


def test_a_key_that_another_job_has_stops_a_retry() -> None:
    fields = {"key": "fog"}
    assert of(a_case(S.FAILED, fields=fields, runs={5: S.FAILED}, key_holder=8), Verb.RETRY).why_not == (
        "its key 'fog' is taken by job 8"
    )
    assert of(a_case(S.PAUSED, fields=fields, key_holder=5), Verb.RETRY).applies  # its own


def test_the_last_retry_is_found_along_the_automatic_links() -> None:
    case = a_case(S.FAILED)
    second = retry_of(case, 9, S.FAILED)
    third = replace(retry_of(case, 12, S.RUNNING), retry_of=9)
    by_hand = retry_of(case, 15, S.QUEUED, retry_auto=0)
    assert last_retry(chained(case, second, third, by_hand)) == third
    assert last_retry(chained(case, by_hand)) is None


def test_in_a_group_the_last_job_of_the_step_decides() -> None:
    member = {"group_id": 3, "stage": 0, "step": "load"}
    case = a_case(S.FAILED, fields=member, runs={5: S.FAILED, 9: S.COMPLETED})
    by_hand = retry_of(case, 9, S.COMPLETED, retry_auto=0, **member)
    assert last_retry(chained(case, by_hand)) == by_hand
    assert not of(chained(case, by_hand), Verb.RETRY).applies


# --- fields -------------------------------------------------------------------------------------------------------


def test_fields_close_one_by_one() -> None:
    assert closed_fields(a_job(S.SCHEDULED), NOW) == {}
    assert closed_fields(a_job(S.QUEUED), NOW).keys() == {"not_before"}
    resumed = closed_fields(a_job(S.QUEUED, fence=1), NOW)
    assert resumed["params"] == "Cannot modify params after dispatch"
    assert closed_fields(a_job(S.SCHEDULED, group_id=3), NOW).keys() == {"expires_at"}
    assert closed_fields(a_job(S.RUNNING), NOW).keys() == {"params", "priority", "not_before", "expires_at"}


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", S)
def test_every_state_says_what_happens_next(status: State) -> None:
    for fields in ({}, {"fence": 0}, {"target_id": 2}, {"group_id": 4, "step": "a", "stage": 0}):
        told = becomes(a_case(status, fields=fields, target="desk-1" if "target_id" in fields else None))
        assert told
        assert all(text.endswith(".") for text in told)


def explained(*blockers: Blocker, rank: int | None = 3, estimate: Estimate | None = None) -> Explanation:
    return Explanation(5, "QUEUED", rank, blockers, estimate, NOW)


def test_a_queued_job_says_its_rank_and_when_it_starts() -> None:
    lane = Blocker("lane", "the global lane is full")
    soon = Estimate(NOW + 60_000_000, NOW + 600_000_000)
    assert becomes(a_case(S.QUEUED, explained=explained(lane, estimate=soon)))[0] == (
        "It is at rank 3 of the queue and starts in about 60 s (at most 10 min)."
    )
    assert becomes(a_case(S.QUEUED, explained=explained(lane)))[0] == (
        "It is at rank 3 of the queue. Its start cannot be estimated."
    )
    assert becomes(a_case(S.QUEUED, explained=explained()))[0] == (
        "It is at rank 3 of the queue, nothing is in its way, and the next free worker takes it."
    )


def test_a_queued_job_should_have_begun_by_one_rule_on_every_page() -> None:
    lane = Blocker("lane", "the global lane is full")
    for wait, overdue in ((0, True), (500_000, True), (1_000_000, True), (1_000_001, False)):
        start = Estimate(NOW, NOW + wait)
        told = becomes(a_case(S.QUEUED, explained=explained(lane, estimate=start)))[0]
        assert ("should have begun" in told, is_overdue(start, [lane], NOW)) == (overdue, overdue), wait
    assert not is_overdue(Estimate(NOW, NOW), [], NOW), "nothing is in its way: it begins at any moment"
    assert not is_overdue(None, [lane], NOW)


def test_an_expiry_is_shown() -> None:
    waits = a_case(S.QUEUED, fields={"expires_at": NOW + 300_000_000})
    assert becomes(waits)[-1] == "If it has not started in 5 min, it is skipped."
    over = a_case(S.QUEUED, fields={"expires_at": NOW})
    assert becomes(over) == ["It has expired: the next claim skips it."]
    resumed = a_case(S.QUEUED, fields={"expires_at": NOW + 1, "fence": 1})
    assert becomes(resumed)[-1] == "It was resumed: it continues from its last checkpoint."


def test_a_running_job_says_what_a_failure_leads_to() -> None:
    def told(used: int, attempts: int, target: str | None = None, **options: Any) -> str:
        text = Options(retry=RetryPolicy(max_attempts=attempts), **options).text()
        return becomes(a_case(S.RUNNING, fields={"options": text}, used=used, target=target))[-1]

    assert told(1, 3) == "If it fails, it is tried again up to 2 times, the first time after 20 s."
    assert told(3, 3) == "If it fails, it is not tried again and stays FAILED."
    assert told(0, 0, "desk-1") == (
        "If it fails, it is not tried again: it becomes ERROR and holds desk-1 until a person decides."
    )
    assert told(0, 0, "desk-1", on_error="fail") == "If it fails, it is not tried again and stays FAILED."


def test_a_timeout_counts_all_claims() -> None:
    fields = {"options": Options(timeout=600.0).text(), "ran": 240_000_000, "claimed_at": NOW - 120_000_000}
    assert (
        becomes(a_case(S.RUNNING, fields=fields))[0] == "If it still runs in 4 min, it is stopped and fails (TIMEOUT)."
    )


def test_a_held_job_says_what_it_holds() -> None:
    ways = "resume, resolve, retry, release or cancel it"
    assert becomes(a_case(S.PAUSED, target="desk-1"))[0] == (
        f"It holds desk-1: nothing else starts there until a person decides to {ways}."
    )


def test_a_failed_job_names_who_tries_again() -> None:
    case = a_case(S.FAILED)
    later = retry_of(case, 9, S.SCHEDULED, not_before=NOW + 20_000_000)
    assert becomes(chained(case, later)) == ["Job 9 tries again in 20 s (attempt 2)."]
    assert becomes(chained(case, retry_of(case, 9, S.COMPLETED))) == ["Job 9 tried again: it ended COMPLETED."]
    by_hand = retry_of(case, 9, S.RUNNING, retry_auto=0)
    assert becomes(chained(case, by_hand)) == ["Job 9 is trying again right now (attempt 2)."]


def test_a_chain_that_is_used_up_says_so() -> None:
    used = a_case(S.FAILED, fields={"exhausted": 1, "failure_kind": FailureKind.EXCEPTION}, used=3)
    assert becomes(used) == ["All 3 automatic retries are used up. Nothing happens until a person retries it."]
    final = a_case(S.FAILED, fields={"exhausted": 1}, used=1)
    assert becomes(final) == ["It is not tried again by itself. Nothing happens until a person retries it."]


def test_what_was_done_is_said_by_what_it_led_to() -> None:
    assert done(Verb.CANCEL, a_job(S.CANCELLED)) == "Job 5 was cancelled."
    assert done(Verb.CANCEL, a_job(S.RUNNING, stop=StopRequest.CANCEL)) == (
        "Job 5 was asked to stop: it will be CANCELLED as soon as it does."
    )
    assert done(Verb.INTERRUPT, a_job(S.RUNNING, stop=StopRequest.INTERRUPT)) == (
        "Job 5 was asked to stop: it will be PAUSED as soon as it does."
    )
    assert {done(verb, a_job(status)) for verb in VERBS for status in S}  # none is without a word
