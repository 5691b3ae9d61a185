"""The queue in pages and by filters, how many jobs fit one, when those that wait may start, who is held, how long jobs
waited, and which schedule is next."""

from __future__ import annotations

import pytest

from headway.clock import micros
from headway.errors import NotFound
from headway.model.explain.forecast import Estimate
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.outcome import Completed
from headway.model.jobs.states import State
from headway.store import stats
from headway.store.jobs.held import held
from headway.store.paging import count_jobs
from headway.store.queue import queue_views
from headway.store.queue.queue_views import WaitingJob
from headway.store.schedules import schedules
from tests.support.life import TASK, Life

IN_LINE = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED})


def whole(life: Life, filters: JobFilter, size: int) -> list[list[int]]:
    """All pages of the queue."""
    found: list[list[int]] = []
    cursor = None
    with life.database.read() as tx:
        while True:
            page = queue_views.queue_page(tx, 1, size, cursor, filters=filters)
            found.append([one.view.job.id for one in page.items])
            if (cursor := page.next) is None:
                return found


def test_what_fits_comes_in_claim_order_and_every_job_once(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_views, "SIFTED", 4)  # so that a page takes several steps
    made = [life.enqueue(task="a" if n % 3 == 0 else "b", priority=n % 2, hold=n == 6) for n in range(24)]
    wanted = [job_id for n, job_id in enumerate(made) if n % 3 == 0]
    ordered = sorted(wanted, key=lambda job_id: (-life.job(job_id).priority, job_id))
    pages = whole(life, JobFilter(task="a"), 3)
    assert [job_id for page in pages for job_id in page] == ordered
    assert all(len(page) <= 3 for page in pages)
    assert [page for page in whole(life, JobFilter(frozenset({State.WAITING}), task="a"), 3) if page] == [[made[6]]]
    assert not any(whole(life, JobFilter(task="nothing like it"), 3))


def test_a_filter_by_target_is_about_that_target(life: Life) -> None:
    mine = [life.enqueue(target="desk"), life.enqueue(target="desk")]
    life.enqueue(target="other")
    assert whole(life, JobFilter(target="desk"), 50) == [mine]
    with pytest.raises(NotFound):
        whole(life, JobFilter(target="nowhere"), 50)


def test_jobs_that_fit_are_counted_by_state(life: Life) -> None:
    for name in ("QUEUED", "QUEUED", "WAITING", "SCHEDULED", "RUNNING", "PAUSED", "ERROR", "FAILED", "COMPLETED"):
        life.in_state(name, task="a")
    life.in_state("QUEUED", task="b")
    unfinished = IN_LINE | {State.RUNNING, State.PAUSED, State.ERROR}
    with life.database.read() as tx:
        found, complete = count_jobs(tx, 1, JobFilter(unfinished, task="a"))
        failed, _ = count_jobs(tx, 1, JobFilter(frozenset({State.FAILED})))
    assert complete
    assert found == {**dict.fromkeys(unfinished, 1), State.QUEUED: 2}
    assert failed == {State.FAILED: 1}


def seen(life: Life) -> list[WaitingJob]:
    with life.database.read() as tx:
        return queue_views.queue(tx, 1, 50, lives=lambda worker: True, foresee=True)


def test_those_in_line_say_when_they_start(life: Life) -> None:
    life.set_limit(1)
    claim = life.claim(life.enqueue())
    life.clock.advance(10)
    life.end(claim, Completed("{}"))
    life.claim(life.enqueue())
    waiting = [life.enqueue(), life.enqueue(), life.enqueue(task="unheard of"), life.enqueue(hold=True)]
    now = life.clock.now()
    starts = {one.view.job.id: one.start for one in seen(life)}
    expected = [Estimate(at, at) for at in (now + micros(10), now + micros(20))]
    assert [starts[job_id] for job_id in waiting] == [*expected, None, None]


def test_a_queue_that_nobody_asked_about_is_not_foreseen(life: Life) -> None:
    life.enqueue()
    with life.database.read() as tx:
        assert [one.start for one in queue_views.queue(tx, 1, 50, lives=lambda worker: True)] == [None]
    assert [one.start is not None for one in seen(life)] == [True]


def test_held_jobs_say_since_when_and_who_waits_behind_them(life: Life) -> None:
    alone = life.in_state("PAUSED")
    life.clock.advance(60)
    broken = life.in_state("ERROR", target="desk")
    since = life.clock.now()
    life.enqueue(target="desk")
    life.clock.advance(60)
    with life.database.read() as tx:
        found = held(tx, 1, 10)
    assert [(one.view.job.id, one.since, one.waiting) for one in found] == [
        (broken, since, 1),
        (alone, since - micros(60), 0),
    ]


def test_how_long_jobs_waited_by_when_they_began(life: Life) -> None:
    jobs = [life.enqueue(), life.enqueue()]
    for job_id, wait in zip(jobs, (4, 8), strict=True):
        life.clock.advance(wait)
        claim = life.claim(job_id)
        life.end(claim, Completed("{}"))
    with life.database.read() as tx:
        spans = stats.stats(tx, 1).spans
        found = stats.waits(tx, 1, spans)
    assert [one.since for one in found] == [one.since for one in spans]
    assert [(one.count, one.mean, one.longest) for one in found if one.count] == [(2, 8.0, 12.0)]


def test_the_next_ticks_come_first(life: Life) -> None:
    for name, every in (("slow", "3h"), ("fast", "5m"), ("off", "1m")):
        life.client.schedules.create(name, {"interval": every, "steps": [{"task": TASK}]})
    life.client.schedules.disable("off")
    with life.database.read() as tx:
        assert [one.name for one in schedules.upcoming(tx, 1, 9)] == ["fast", "slow"]
        assert [one.name for one in schedules.upcoming(tx, 1, 1)] == ["fast"]
        assert schedules.upcoming(tx, 2, 9) == []
