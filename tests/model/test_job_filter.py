"""A job filter and its form in a query."""

from __future__ import annotations

import pytest

from headway.errors import BadInput
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State

EVERYTHING = JobFilter(
    frozenset({State.FAILED, State.QUEUED}),
    "shop.greet",
    "k:1",
    "TIMEOUT",
    "ada",
    1_700_000_000_000_000,
    1_700_000_000_000_001,
    "50%",
    "desk/1",
    7,
    8,
    True,
)


@pytest.mark.parametrize("wanted", [JobFilter(), EVERYTHING, JobFilter(q="fog"), JobFilter(group_id=1)])
def test_a_filter_survives_the_query(wanted: JobFilter) -> None:
    assert JobFilter.from_query(wanted.to_query()) == wanted


def test_running_jobs_with_a_stop_request_are_asked_for_by_their_old_name() -> None:
    wanted = JobFilter.from_query({"status": ["cancellationrequested"]})
    assert wanted == JobFilter(frozenset({State.RUNNING}), stopping=True)
    assert JobFilter.from_query(wanted.to_query()) == wanted


def test_a_query_names_only_the_given_fields() -> None:
    assert JobFilter().to_query() == {}
    assert JobFilter(statuses=frozenset({State.PAUSED, State.ERROR})).to_query() == {"status": ["ERROR", "PAUSED"]}


def test_a_query_is_read_with_the_words_of_callers() -> None:
    asked = {"status": ["failed,canceled"], "failure_kind": "lost", "since": "2026-03-01T09:00:00Z", "task": None}
    found = JobFilter.from_query(asked)
    assert found.statuses == {State.FAILED, State.CANCELLED}
    assert (found.failure_kind, found.since, found.task) == ("LOST", 1_772_355_600_000_000, None)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"status": ["lost"]}, "--status: there is no status 'lost'"),
        ({"status": ["error"]}, "--status: 'error' is ambiguous.* FAILED .* ERROR"),
        ({"status": ["queued", "CancellationRequested"]}, "cannot be combined"),
        ({"failure_kind": "late"}, "--failure-kind: there is no kind 'late'"),
        ({"since": "yesterday"}, "since"),
        ({"target": "x" * 1_000}, "target"),
    ],
)
def test_a_wrong_field_is_refused_by_its_label(asked: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        JobFilter.from_query(asked, labels={"status": "--status", "failure_kind": "--failure-kind"})
