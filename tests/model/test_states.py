"""The table of moves and `decide()`, against tables written out by hand from the domain."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.jobs.actions import Change, RunEnd
from headway.model.jobs.finish import FinishInputs, decide
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
from headway.model.jobs.states import EDGES, MOVES, State, StopRequest, Verb
from tests.support.job_rows import ADA, standing
from tests.support.properties import examples

NUMBERS = [
    "WAITING",
    "SCHEDULED",
    "QUEUED",
    "RUNNING",
    "PAUSED",
    "ERROR",
    "COMPLETED",
    "FAILED",
    "SKIPPED",
    "CANCELLED",
]

# From domain, §2, row by row.
LEGAL = {
    "WAITING": "SCHEDULED QUEUED SKIPPED CANCELLED",
    "SCHEDULED": "QUEUED WAITING SKIPPED CANCELLED",
    "QUEUED": "RUNNING WAITING SKIPPED CANCELLED",
    "RUNNING": "COMPLETED FAILED SKIPPED PAUSED ERROR CANCELLED",
    "PAUSED": "QUEUED COMPLETED FAILED CANCELLED",
    "ERROR": "QUEUED COMPLETED FAILED CANCELLED",
    "COMPLETED": "",
    "FAILED": "",
    "SKIPPED": "",
    "CANCELLED": "",
}

# Which verb may be used in which state, and what it may lead to; `=` is the state itself.
VERBS = """
           WAITING          SCHEDULED QUEUED    RUNNING                                         PAUSED    ERROR     COMPLETED FAILED SKIPPED CANCELLED
promote    -                QUEUED    -         -                                               -         -         -         -      -       -
expire     SKIPPED          SKIPPED   SKIPPED   -                                               -         -         -         -      -       -
claim      -                -         RUNNING   -                                               -         -         -         -      -       -
finish     -                -         -         COMPLETED,FAILED,SKIPPED,CANCELLED,PAUSED,ERROR -         -         -         -      -       -
hold       =                WAITING   WAITING   -                                               -         -         -         -      -       -
cancel     CANCELLED        CANCELLED CANCELLED =                                               CANCELLED CANCELLED -         -      -       -
interrupt  =                WAITING   WAITING   =                                               -         -         -         -      -       -
resume     WAITING,SCHEDULED,QUEUED -         -         -                                               QUEUED    QUEUED    -         -      -       -
resolve    -                -         -         -                                               COMPLETED COMPLETED -         -      -       -
release    -                -         -         -                                               FAILED    FAILED    -         -      -       -
retry      -                -         -         -                                               FAILED    FAILED    -         =      -       =
edit       =                =         =         -                                               -         -         -         -      -       -
move       =                =         =         -                                               -         -         -         -      -       -
skip       SKIPPED          -         -         -                                               -         -         -         -      -       -
"""  # noqa: E501


def cells() -> list[tuple[str, str, frozenset[str] | None]]:
    head, *lines = VERBS.strip().splitlines()
    found: list[tuple[str, str, frozenset[str] | None]] = []
    for verb, *row in (line.split() for line in lines):
        for state, cell in zip(head.split(), row, strict=True):
            targets = frozenset(state if word == "=" else word for word in cell.split(","))
            found.append((verb, state, None if cell == "-" else targets))
    return found


def test_states_keep_the_numbers_they_are_stored_under() -> None:
    assert [State(n).name for n in range(10)] == NUMBERS
    assert [state.name for state in State if state.terminal] == ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
    assert [state.name for state in State if state.claimable_later] == ["WAITING", "SCHEDULED", "QUEUED"]


def test_the_edges_are_those_of_the_domain() -> None:
    by_hand = {(origin, target) for origin, targets in LEGAL.items() for target in targets.split()}
    assert {(origin.name, target.name) for origin, target in EDGES} == by_hand


def test_the_table_names_every_verb() -> None:
    assert {verb for verb, _, _ in cells()} == {verb.value for verb in Verb}


@pytest.mark.parametrize(("verb", "state", "targets"), cells())
def test_each_verb_in_each_state(verb: str, state: str, targets: frozenset[str] | None) -> None:
    found = MOVES[Verb(verb)].get(State[state])
    assert (None if found is None else frozenset(s.name for s in found)) == targets


# --- decide ---

FIRST = RetryPolicy()
NONE = RetryPolicy(max_attempts=0)


def half() -> float:
    return 0.5


def failure(kind: str, **more: Any) -> Failed:
    return Failed(FailureKind(kind), f"{kind.lower()} happened", **more)


EXCEPTION, FINAL = failure("EXCEPTION"), failure("EXCEPTION", final=True)
LOST, REMAINS = Lost("gone"), Lost("gone", remains=True)
RETRIED = "FAILED retry=10"
LAST = "FAILED exhausted"

# (what the row says, outcome) -> state, and what else is recorded. Where nothing is said there is no target,
# no stop request, three retries left, on_lost = retry, on_error = hold.
DECISIONS: list[tuple[dict[str, Any], Outcome, str]] = [
    ({}, Completed('{"a":1}'), "COMPLETED"),
    ({}, Skipped("nothing new"), "SKIPPED"),
    ({}, EXCEPTION, RETRIED),
    ({}, failure("EXIT_CODE", exit_code=3), RETRIED),
    ({}, failure("TIMEOUT"), RETRIED),
    ({}, failure("UNKNOWN_TASK"), RETRIED),
    ({}, failure("EXCEPTION", retry_after=5.0), "FAILED retry=5"),
    ({}, failure("EXCEPTION", retry_after=0.0), "FAILED retry=0"),
    ({}, FINAL, LAST),
    ({}, failure("BAD_PARAMS"), LAST),
    ({}, failure("BUDGET"), LAST),
    ({}, failure("BUDGET", retry_after=1.0), LAST),
    ({}, LOST, RETRIED),
    ({}, REMAINS, "ERROR"),
    ({}, Interrupted(), "FAILED retry=0"),
    ({}, StoppedByRequest(), "FAILED retry=0"),
    # The count.
    ({"retries_used": 1}, EXCEPTION, "FAILED retry=20"),
    ({"retries_used": 2}, EXCEPTION, "FAILED retry=40"),
    ({"retries_used": 3}, EXCEPTION, LAST),
    ({"retries_used": 3}, failure("EXCEPTION", retry_after=5.0), LAST),
    ({"retries_used": 3}, LOST, LAST),
    ({"retries_used": 3}, Interrupted(), "FAILED retry=0"),
    ({"retries_used": 9}, EXCEPTION, LAST),
    ({"policy": NONE}, EXCEPTION, LAST),
    ({"policy": NONE}, LOST, LAST),
    ({"policy": NONE}, Interrupted(), "PAUSED"),
    ({"policy": NONE}, StoppedByRequest(), "PAUSED"),
    ({"group_cancelled": True}, EXCEPTION, LAST),
    ({"group_cancelled": True}, LOST, LAST),
    # On a target only the last failure holds it.
    ({"on_target": True}, Completed(), "COMPLETED"),
    ({"on_target": True}, Skipped("nothing new"), "SKIPPED"),
    ({"on_target": True}, EXCEPTION, RETRIED),
    ({"on_target": True, "policy": NONE}, EXCEPTION, "ERROR"),
    ({"on_target": True, "retries_used": 3}, EXCEPTION, "ERROR"),
    ({"on_target": True}, FINAL, "ERROR"),
    ({"on_target": True}, failure("BAD_PARAMS"), "ERROR"),
    ({"on_target": True}, failure("BUDGET"), "ERROR"),
    ({"on_target": True}, LOST, RETRIED),
    ({"on_target": True, "policy": NONE}, LOST, "ERROR"),
    ({"on_target": True}, Interrupted(), "PAUSED"),
    ({"on_target": True, "on_error": "fail", "policy": NONE}, EXCEPTION, LAST),
    ({"on_target": True, "on_error": "fail"}, FINAL, LAST),
    ({"on_target": True, "on_error": "fail"}, failure("BUDGET"), LAST),
    ({"on_error": "fail"}, EXCEPTION, RETRIED),
    # Lost.
    ({"on_lost": "hold"}, LOST, "ERROR"),
    ({"on_lost": "hold"}, EXCEPTION, RETRIED),
    ({"on_lost": "fail"}, LOST, LAST),
    ({"on_lost": "fail"}, REMAINS, "ERROR"),
    ({"on_lost": "fail", "on_target": True}, LOST, "ERROR"),
    ({"on_lost": "fail", "on_target": True, "on_error": "fail"}, LOST, LAST),
    ({"on_lost": "fail"}, EXCEPTION, RETRIED),
    # Shutdown.
    ({"on_shutdown": "pause"}, Interrupted(), "PAUSED"),
    ({"on_shutdown": "resume"}, Interrupted(), "PAUSED resume"),
    ({"on_shutdown": "resume", "on_target": True}, Interrupted(), "PAUSED resume"),
    ({"on_shutdown": "retry"}, Interrupted(), "FAILED retry=0"),
    ({"on_shutdown": "pause"}, EXCEPTION, RETRIED),
    ({"on_shutdown": "resume"}, LOST, RETRIED),
    # A cancel.
    ({"stop": StopRequest.CANCEL}, Completed(), "COMPLETED"),
    ({"stop": StopRequest.CANCEL}, Skipped("nothing new"), "SKIPPED"),
    ({"stop": StopRequest.CANCEL}, EXCEPTION, "CANCELLED"),
    ({"stop": StopRequest.CANCEL}, StoppedByRequest(), "CANCELLED"),
    ({"stop": StopRequest.CANCEL}, Interrupted(), "CANCELLED"),
    ({"stop": StopRequest.CANCEL}, LOST, "CANCELLED"),
    ({"stop": StopRequest.CANCEL, "on_lost": "hold"}, LOST, "CANCELLED"),
    ({"stop": StopRequest.CANCEL, "on_target": True}, FINAL, "CANCELLED"),
    ({"stop": StopRequest.CANCEL, "over_budget": "tokens"}, failure("BUDGET"), "CANCELLED"),
    # An interrupt.
    ({"stop": StopRequest.INTERRUPT}, Completed(), "COMPLETED"),
    ({"stop": StopRequest.INTERRUPT}, Skipped("nothing new"), "SKIPPED"),
    ({"stop": StopRequest.INTERRUPT}, StoppedByRequest(), "PAUSED"),
    ({"stop": StopRequest.INTERRUPT}, EXCEPTION, "PAUSED"),
    ({"stop": StopRequest.INTERRUPT}, FINAL, "PAUSED"),
    ({"stop": StopRequest.INTERRUPT}, LOST, "PAUSED"),
    ({"stop": StopRequest.INTERRUPT}, Interrupted(), "PAUSED"),
    ({"stop": StopRequest.INTERRUPT, "on_shutdown": "resume"}, Interrupted(), "PAUSED"),
    ({"stop": StopRequest.INTERRUPT, "over_budget": "tokens"}, StoppedByRequest(), LAST),
    ({"stop": StopRequest.INTERRUPT, "over_budget": "tokens", "on_target": True}, StoppedByRequest(), "ERROR"),
    ({"stop": StopRequest.INTERRUPT}, failure("BUDGET"), LAST),
    ({"stop": StopRequest.INTERRUPT, "on_target": True}, failure("BUDGET"), "ERROR"),
]


def shown(found: Change) -> str:
    words = [found.job.status.name]
    words += [f"retry={found.retry:g}"] if found.retry is not None else []
    words += ["exhausted"] if found.job.exhausted else []
    words += ["resume"] if found.then_resume else []
    return " ".join(words)


@pytest.mark.parametrize(("row", "outcome", "expected"), DECISIONS)
def test_outcomes_lead_to_states(row: dict[str, Any], outcome: Outcome, expected: str) -> None:
    assert shown(decide(standing(**row), outcome, half)) == expected


def test_facts_recorded_with_a_success() -> None:
    found = decide(standing(), Completed('{"a":1}', exit_code=0), half)
    assert (found.job.status, found.kind, found.data) == (State.COMPLETED, "job.completed", {"exit_code": 0})
    assert (found.run, found.result) == (RunEnd(State.COMPLETED, exit_code=0), '{"a":1}')
    assert (found.job.failure_kind, found.job.reason, found.job.exhausted) == (None, None, 0)
    assert (found.retry, found.then_resume) == (None, False)


def test_facts_recorded_with_a_failure() -> None:
    found = decide(standing(), failure("EXIT_CODE", exit_code=3), half)
    assert found.run == RunEnd(State.FAILED, "exit_code happened", 3)
    assert found.job.failure_kind is FailureKind.EXIT_CODE


def test_the_canceller_and_the_reason_are_in_the_runs_error() -> None:
    cancelled = standing(stop=StopRequest.CANCEL, stop_by=ADA)
    assert decide(cancelled, StoppedByRequest(), half).run == RunEnd(State.FAILED, "cancelled by ada")
    found = decide(cancelled, EXCEPTION, half)
    assert found.run == RunEnd(State.FAILED, "cancelled by ada: exception happened")
    assert found.job.reason == "cancelled by ada"


def test_the_interrupter_is_the_reason() -> None:
    found = decide(standing(stop=StopRequest.INTERRUPT, stop_by=ADA), StoppedByRequest(), half)
    assert (found.job.reason, found.run) == ("interrupted by ada", None)
    assert found.job.failure_kind is FailureKind.INTERRUPTED


def test_the_meter_is_named_when_an_interrupt_finds_the_budget_used_up() -> None:
    over = standing(stop=StopRequest.INTERRUPT, over_budget="budget for tokens used up: 9 of 5")
    found = decide(over, StoppedByRequest(), half)
    assert found.run == RunEnd(State.FAILED, "budget for tokens used up: 9 of 5")
    assert found.job.failure_kind is FailureKind.BUDGET


def test_a_lost_claim_says_so_in_the_words_people_search_for() -> None:
    found = decide(standing(), Lost("worker 3f was lost"), half)
    assert found.run == RunEnd(State.FAILED, "Scheduler crash recovery: worker 3f was lost")
    assert found.job.failure_kind is FailureKind.LOST


# --- decide, whatever comes ---

OUTCOMES: list[Outcome] = [
    Completed(),
    Completed("1", exit_code=0),
    Skipped("nothing"),
    StoppedByRequest(),
    StoppedByRequest(exit_code=-15),
    Interrupted(),
    LOST,
    REMAINS,
    *(
        Failed(kind, "error", final=final, retry_after=after)
        for kind, final, after in product(FailureKind, (False, True), (None, 0.0, 7.5))
    ),
]
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(0, 5),
    base_delay=st.sampled_from([0.0, 0.5, 10.0]),
    max_delay=st.sampled_from([None, 0.0, 15.0]),
    jitter=st.sampled_from([0.0, 1.0]),
)
standings = st.builds(
    standing,
    policy=policies,
    retries_used=st.integers(0, 6),
    stop=st.sampled_from([None, StopRequest.CANCEL, StopRequest.INTERRUPT]),
    on_target=st.booleans(),
    on_lost=st.sampled_from(["retry", "hold", "fail"]),
    on_error=st.sampled_from(["hold", "fail"]),
    on_shutdown=st.sampled_from([None, "retry", "pause", "resume"]),
    over_budget=st.sampled_from([None, "budget for tokens used up"]),
    group_cancelled=st.booleans(),
)


def check(given: FinishInputs, outcome: Outcome, found: Change) -> None:
    state = found.job.status
    run = found.run and found.run.status
    assert state.name in LEGAL["RUNNING"].split()
    worked = isinstance(outcome, Completed | Skipped)
    if worked:
        assert state is (State.COMPLETED if isinstance(outcome, Completed) else State.SKIPPED)
    elif given.job.stop is StopRequest.CANCEL:
        assert state is State.CANCELLED
    else:
        assert state in (State.FAILED, State.PAUSED, State.ERROR)
    # The run is closed exactly when the job ends, with a status a run may have.
    assert (run is not None) == state.terminal
    assert run is None or run is {State.CANCELLED: State.FAILED}.get(state, state)
    assert (run is State.FAILED) == (state.terminal and not worked)
    # A failure is decided once: a retry or the word that there is none, never both, and nothing on other ends.
    assert (found.retry is not None) + found.job.exhausted == (state is State.FAILED)
    assert not found.then_resume or (state is State.PAUSED and given.job.stop is None)
    if found.retry is not None:
        check_retry(given, found)


def check_retry(given: FinishInputs, found: Change) -> None:
    assert found.retry is not None
    assert found.retry >= 0
    assert given.job.stop is None
    assert not given.group_cancelled
    assert found.job.failure_kind not in (None, FailureKind.BAD_PARAMS, FailureKind.BUDGET)
    assert given.options.retry.max_attempts > 0
    assert found.job.failure_kind is FailureKind.INTERRUPTED or given.retries_used < given.options.retry.max_attempts


@settings(max_examples=examples(300), deadline=None)
@given(standings, st.sampled_from(OUTCOMES))
def test_every_decision_is_a_legal_and_whole_one(given: FinishInputs, outcome: Outcome) -> None:
    check(given, outcome, decide(given, outcome, half))


def test_every_combination_of_wishes_is_decided() -> None:
    """The same without chance: all wishes, all outcomes."""
    wishes = product(
        (None, StopRequest.CANCEL, StopRequest.INTERRUPT),
        (False, True),
        ("retry", "hold", "fail"),
        ("hold", "fail"),
        (None, "retry", "pause", "resume"),
        (0, 3),
        (NONE, FIRST),
    )
    for stop, target, lost, error, shutdown, used, policy in wishes:
        options: dict[str, Any] = {"on_lost": lost, "on_error": error, "on_shutdown": shutdown}
        given = standing(policy, retries_used=used, stop=stop, stop_by=ADA, on_target=target, **options)
        for outcome in OUTCOMES:
            check(given, outcome, decide(given, outcome, half))


def test_final_failures_are_never_retried() -> None:
    for outcome in OUTCOMES:
        if isinstance(outcome, Failed) and outcome.final:
            assert decide(standing(), outcome, half).retry is None
