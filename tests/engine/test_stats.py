"""A tenant at a glance: counts, throughput, waits and durations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.model.jobs.outcome import Completed
from headway.store import stats as store_stats
from headway.store.stats import Stats, spread
from tests.support.life import Life


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


def stats(life: Life, tenant_id: int | None = None) -> Stats:
    with life.database.read() as tx:
        return store_stats.stats(tx, tenant_id or life.client.tenant_id)


def test_an_empty_tenant(life: Life) -> None:
    found = stats(life)
    assert set(found.counts.by_status.values()) == {0}
    assert len(found.spans) == 12
    assert all(span.completed == span.failed == span.other == 0 for span in found.spans)
    assert found.waits.count == found.durations.count == 0
    assert found.waits.mean is None


def test_counts_throughput_waits_and_durations(life: Life) -> None:
    job_id = life.enqueue()
    life.clock.advance(20)
    claim = life.claim(job_id)
    life.clock.advance(40)
    life.end(claim, Completed("null"))
    life.clock.advance(600)
    life.in_state("failed")
    life.in_state("cancelled")
    life.in_state("queued")
    found = stats(life)
    assert found.counts.by_status["QUEUED"] == 1
    assert (found.counts.by_status["COMPLETED"], found.counts.by_status["FAILED"]) == (1, 1)
    assert [(span.completed, span.failed, span.other) for span in found.spans[-3:]] == [(1, 0, 0), (0, 0, 0), (0, 1, 1)]
    assert found.spans[-1].since <= found.now < found.spans[-1].since + store_stats.SPAN
    assert found.complete_since == found.spans[0].since
    assert (found.waits.count, found.waits.mean, found.waits.p50, found.waits.p99) == (2, 10.0, 20.0, 20.0)
    assert (found.durations.count, found.durations.mean) == (2, 20.0)


def test_ends_before_the_hour_are_left_out(life: Life) -> None:
    life.in_state("completed")
    life.clock.advance("2h")
    assert sum(span.completed for span in stats(life).spans) == 0
    assert stats(life).durations.count == 1


def test_another_tenants_jobs_are_left_out(life: Life) -> None:
    life.in_state("completed")
    life.in_state("queued")
    found = stats(life, life.client.tenant_id + 1)
    assert set(found.counts.by_status.values()) == {0}
    assert found.durations.count == 0
    assert sum(span.completed for span in found.spans) == 0


def test_too_much_is_said_to_be_counted_in_part(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.in_state("completed")
    life.clock.advance(600)
    later = life.clock.now()
    for _ in range(3):
        life.in_state("completed")
    monkeypatch.setattr(store_stats, "ENDED", 2)
    found = stats(life)
    assert found.complete_since == later
    assert sum(span.completed for span in found.spans) == 2


def test_a_resumed_jobs_wait_is_left_out(life: Life) -> None:
    job_id = life.in_state("paused")
    life.clock.advance(50)
    life.client.resume(job_id)
    life.end(life.claim(job_id), Completed("null"))
    assert stats(life).waits.count == 0


def test_a_spread() -> None:
    found = spread([float(n) for n in range(1, 101)])
    assert (found.count, found.mean, found.p50, found.p90, found.p99) == (100, 50.5, 51.0, 91.0, 100.0)
    assert spread([3.0]).p99 == 3.0
