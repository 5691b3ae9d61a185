"""What is shown of jobs costs no more than it must, and says the same as the longer way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from headway.model.jobs.outcome import Failed, FailureKind
from headway.model.jobs.retry import RetryPolicy
from headway.store.db import Tx
from headway.store.jobs import available_actions
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views
from headway.store.queue import queue_views
from tests.support.life import TASK, Life


@contextmanager
def statements(tx: Tx) -> Iterator[list[str]]:
    """The names of the statements that run, in order."""
    seen: list[str] = []
    run = tx.run

    def seeing(name: str, /, **params: Any) -> Any:
        seen.append(name)
        return run(name, **params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tx, "run", seeing)
        yield seen


def test_a_new_job_takes_two_statements(life: Life) -> None:
    life.enqueue()
    job_id = life.enqueue()
    with life.database.read() as tx, statements(tx) as seen:
        assert job_views.view(tx, 1, job_id).rank == 2
    assert seen == ["read_job", "queue_order"]


def test_many_jobs_take_no_more_than_one(life: Life) -> None:
    ids = [life.enqueue() for _ in range(5)]
    with life.database.read() as tx, statements(tx) as seen:
        assert [(one.job.id, one.rank) for one in job_views.views_of(tx, 1, ids[::-1])] == [
            (job_id, 5 - n) for n, job_id in enumerate(ids[::-1])
        ]
    assert seen == ["read_jobs", "queue_order"]


def test_the_chain_of_a_job_is_read_without_params(life: Life) -> None:
    """1,000 retries with 200 KB of params each once made 200 MB of the page of a job."""
    first = life.enqueue(retry=RetryPolicy(max_attempts=0))
    ids = [first]
    for _ in range(3):
        life.end(life.claim(ids[-1]), Failed(FailureKind.EXCEPTION, "broken"))
        ids.append(life.client.retry(ids[-1], params={"n": 1, "long": "x" * 1_000}).id)
    with life.database.read() as tx:
        view = job_views.view(tx, 1, ids[1])
        case, shown = available_actions.case(tx, view, now=life.client.time_in(tx))
        whole = jobs.chain(tx, first)
    assert [job.id for job in case.chain] == [one.job.id for one in shown] == ids
    assert {job.params for job in case.chain} == {"{}"}
    assert [replace(job, params="{}") for job in whole] == list(case.chain)
    assert "long" in case.job.params


def test_only_queued_jobs_are_ranked_and_others_between_them_are_not_counted(life: Life) -> None:
    held, first = life.enqueue(hold=True), life.enqueue()
    life.enqueue(delay=1_000_000)
    second = life.enqueue()
    with life.database.read() as tx:
        ranks = [one.rank for one in job_views.views_of(tx, 1, [held, first, second])]
        assert job_views.ranks(tx, 2, [first]) == {}
    assert ranks == [None, 1, 2]


def test_a_retry_that_was_never_claimed_shows_the_meters_it_carries(life: Life) -> None:
    job_id = life.enqueue(retry=RetryPolicy(3, base_delay=0.0, jitter=0.0))
    claim = life.claim(job_id)
    life.database.transact("spend", lambda tx: tx.run("save_spent", rows=f'[[{job_id}, "{{\\"tokens\\": 7.0}}"]]'))
    life.end(claim, Failed(FailureKind.EXCEPTION, "broken"))
    with life.database.read() as tx:
        (retry,) = job_views.chain_after(tx, 1, job_id)
    assert retry.run is None
    assert retry.retries_used == 1
    assert retry.report is not None
    assert retry.report.spent == {"tokens": 7.0}


@pytest.mark.parametrize("seed", range(12))
def test_the_beginning_of_the_queue_says_what_each_job_says_by_itself(life: Life, seed: int) -> None:
    """A first page takes itself for the line, a job by itself looks at all of it."""
    rng = random.Random(seed)
    for _ in range(14):
        fields: dict[str, Any] = {"task": rng.choice([TASK, "other"]), "priority": rng.choice([0, 0, 5])}
        if rng.random() < 0.4:
            fields["target"] = rng.choice(["desk", "lab"])
        if rng.random() < 0.3:
            fields.update(rng.choice([{"hold": True}, {"delay": 1_000_000}]))
        life.enqueue(**fields)
    life.set_limit(rng.choice([1, 2, None]))
    life.claim_next(rng.choice([0, 1, 3]))
    with life.database.read() as tx:
        page = queue_views.queue_page(tx, 1, 5)
        for one in page.items:
            told = queue_views.explain(tx, 1, one.view.job.id)
            assert one.blockers == list(told.blockers)
            assert one.view.rank == told.rank
        rest = queue_views.queue_page(tx, 1, 50, page.next) if page.next else page
        assert all(one.blockers == list(queue_views.explain(tx, 1, one.view.job.id).blockers) for one in rest.items)
