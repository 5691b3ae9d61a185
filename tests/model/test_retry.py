"""How long a retry waits, who pays for it, and when a chain is at its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.jobs.actions import RunEnd
from headway.model.jobs.finish import decide
from headway.model.jobs.outcome import Failed, FailureKind, Interrupted, Lost, Outcome
from headway.model.jobs.retry import RetryPolicy, paid, retries
from headway.model.jobs.states import State
from tests.support.job_rows import standing

BROKEN = Failed(FailureKind.EXCEPTION, "broken")
HUNDRED_YEARS = 36_525 * 86_400.0


def half() -> float:
    return 0.5


def chain(policy: RetryPolicy, outcomes: list[Outcome]) -> list[float | str]:
    """The waits of a chain whose runs end like this, and the word it ends with."""
    failures: list[FailureKind] = []
    waits: list[float | str] = []
    for outcome in outcomes:
        found = decide(standing(policy, retries_used=paid(failures)), outcome, half)
        if found.retry is None:
            return [*waits, "exhausted" if found.job.exhausted else found.job.status.name]
        assert found.job.failure_kind is not None
        failures.append(found.job.failure_kind)
        waits.append(found.retry)
    return waits


def test_an_always_failing_job_runs_four_times() -> None:
    assert chain(RetryPolicy(), [BROKEN] * 9) == [10, 20, 40, "exhausted"]


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert chain(RetryPolicy(max_attempts=0), [BROKEN]) == ["exhausted"]


def test_an_interrupted_run_pays_nothing_and_waits_for_nothing() -> None:
    shutdown = Interrupted()
    expected = [0, 10, 0, 0, 20, 0, 40, 0, "exhausted"]
    outcomes: list[Outcome] = [
        *(shutdown, BROKEN, shutdown, shutdown, BROKEN, shutdown, BROKEN, shutdown, BROKEN),
    ]
    assert chain(RetryPolicy(), outcomes) == expected


def test_a_lost_run_pays_like_a_failed_one() -> None:
    assert chain(RetryPolicy(), [Lost("gone"), BROKEN, Lost("gone"), Lost("gone")]) == [10, 20, 40, "exhausted"]


def test_a_delay_of_its_own_uses_up_an_attempt_all_the_same() -> None:
    own = Failed(FailureKind.EXCEPTION, "later", retry_after=3.0)
    assert chain(RetryPolicy(), [own, own, BROKEN, own]) == [3, 3, 40, "exhausted"]


@pytest.mark.parametrize("kind", [FailureKind.BAD_PARAMS, FailureKind.BUDGET])
def test_a_certain_failure_is_never_retried(kind: FailureKind) -> None:
    assert chain(RetryPolicy(max_attempts=100), [Failed(kind, "no")]) == ["exhausted"]
    assert chain(RetryPolicy(), [BROKEN, Failed(kind, "no", retry_after=1.0)]) == [10, "exhausted"]


def test_a_cap_and_jitter_bound_the_wait() -> None:
    capped = RetryPolicy(max_attempts=9, base_delay=10, max_delay=25)
    assert [capped.delay(n, half) for n in range(4)] == [10, 20, 25, 25]
    spread = RetryPolicy(base_delay=10, jitter=0.5)
    assert [spread.delay(0, dice) for dice in (lambda: 0.0, half)] == [10.0, 12.5]
    assert spread.delay(0, lambda: 0.999) == pytest.approx(14.995)
    both = RetryPolicy(base_delay=10, max_delay=12, jitter=0.5)
    assert [both.delay(n, half) for n in range(2)] == [12, 12]


@given(st.integers(0, 10**6), st.floats(0, HUNDRED_YEARS), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_however_long_the_chain_the_wait_can_be_stored(used: int, base: float, jitter: float, dice: float) -> None:
    """Someone who asks for a retry of his own a hundred times and then fails must not get a delay past 64 bits."""
    wait = RetryPolicy(max_attempts=10**6, base_delay=base, jitter=jitter).delay(used, lambda: dice)
    assert 0 <= wait <= 2 * HUNDRED_YEARS
    assert round(wait * 1_000_000) + 4_000_000_000_000_000 < 2**63


@given(st.integers(0, 20))
def test_each_wait_is_twice_the_one_before(used: int) -> None:
    policy = RetryPolicy(base_delay=1.5)
    assert policy.delay(used + 1, half) == 2 * policy.delay(used, half)


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from(FailureKind), st.booleans())
def test_retried_failures(most: int, used: int, kind: FailureKind, final: bool) -> None:
    never = final or kind.name in ("BAD_PARAMS", "BUDGET")
    expected = not never and (most > 0 if kind.name == "INTERRUPTED" else used < most)
    assert retries(RetryPolicy(max_attempts=most), kind, used=used, final=final) == expected


def test_only_interruptions_are_free() -> None:
    assert [kind.name for kind in FailureKind if paid([kind]) == 0] == ["INTERRUPTED"]
    assert paid(list(FailureKind)) == len(FailureKind) - 1


def test_a_chain_that_is_exhausted_ends_failed_with_its_run() -> None:
    found = decide(standing(retries_used=3), BROKEN, half)
    assert (found.job.status, found.job.exhausted) == (State.FAILED, 1)
    assert found.run == RunEnd(State.FAILED, "broken")
