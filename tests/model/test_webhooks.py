"""What follows a try: waits that double, four tries in all, and the circuit breaker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.model.webhooks.webhook import (
    DELIVERED,
    FAILED,
    FIRST_PROBE,
    LONGEST_PROBE,
    OPENS_AFTER,
    PENDING,
    SECOND,
    Delivery,
    Endpoint,
    Outcome,
    after_try,
    answered,
    wait_for_probe,
)

NOW = 1_000 * SECOND
REFUSED = Outcome(500, "it answered 500")
HOOK = Endpoint(
    3, 1, "https://a.example", "[]", None, "whsec_", None, None, 4, 1, None, 0, None, None, 1, "{}", None, 1
)
NEW = Delivery(
    *(7, 1, 3, 1, "job.run.failed", 5, None, None, None, PENDING, 0, 0, 4, NOW, None, 0, None, None, None, 1),
    *(None, None, 0),
)


def tried(delivery: Delivery, outcome: Outcome, *, usable: bool = True, random: float = 0.0) -> Delivery:
    return after_try(delivery, outcome, usable=usable, now=NOW, random=lambda: random)


def test_a_refused_delivery_is_tried_four_times_with_doubling_waits() -> None:
    waits, delivery = [], NEW
    while delivery.status == PENDING:
        delivery = tried(delivery, REFUSED)
        waits.append(None if delivery.due_at is None else (delivery.due_at - NOW) // SECOND)
    assert (delivery.status, delivery.tries, waits) == (FAILED, 4, [1, 2, 4, None])


@pytest.mark.parametrize(("outcome", "usable"), [(Outcome(410, "gone"), True), (REFUSED, False)])
def test_a_delivery_without_a_receiver_is_not_tried_again(outcome: Outcome, usable: bool) -> None:
    ended = tried(NEW, outcome, usable=usable)
    assert (ended.status, ended.tries, ended.due_at) == (FAILED, 1, None)


def test_an_accepted_delivery_ends_and_closes_the_breaker() -> None:
    accepted = Outcome(200, None)
    assert tried(replace(NEW, tries=3), accepted).status == DELIVERED
    failing = replace(HOOK, failures=9, opened_at=1, probe_at=2, reason="it answered 500")
    closed = answered(failing, accepted, probe=True, now=NOW)
    assert (closed.failures, closed.opened_at, closed.probe_at, closed.reason) == (0, None, None, None)


def test_repeated_failures_open_the_breaker_and_only_probes_count_from_then_on() -> None:
    endpoint = HOOK
    for _ in range(OPENS_AFTER):
        assert endpoint.opened_at is None
        endpoint = answered(endpoint, REFUSED, probe=False, now=NOW)
    assert (endpoint.opened_at, endpoint.probe_at) == (NOW, NOW + round(FIRST_PROBE * SECOND))
    assert answered(endpoint, REFUSED, probe=False, now=NOW) == endpoint
    assert answered(endpoint, REFUSED, probe=True, now=NOW).failures == OPENS_AFTER + 1
    assert wait_for_probe(OPENS_AFTER + 1) == 2 * FIRST_PROBE
    assert wait_for_probe(10_000) == LONGEST_PROBE
