"""What takes longer than usual says so, and so does what waits for it."""

from __future__ import annotations

import pytest

from headway.dashboard.expected_durations import behind_late
from headway.model.explain.blockers import Blocker
from headway.model.jobs.outcome import Completed
from headway.testing import FrozenClock
from tests.support.forms import read
from tests.support.life import Life
from tests.support.service import serving

pytestmark = pytest.mark.shown

BUSY = Blocker("lane", "the global lane is full", by="job 3, job 12", job_ids=(3, 12))


def test_the_named_actor() -> None:
    late = {12: "longer than usual: 9 of 10 took under 4 min"}
    assert behind_late([BUSY], late) == "when job 12 ends, which runs longer than usual: 9 of 10 took under 4 min"
    assert behind_late([BUSY], {1: "x"}) is None
    assert behind_late([Blocker("paused", "the queue is paused")], late) is None
    somebody = Blocker(
        "reservation", "gpu is reserved: the reservation goes first", by="the job 12 people, reservation 5"
    )
    assert behind_late([somebody], late) is None, "that is a name"


def test_longer_than_usual_is_said_instead_of_any_moment(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")  # all of it within the lease of the worker
    with serving(database_url, clock=clock) as site, Life(database_url, clock=clock) as life:
        for _ in range(10):
            claim = life.claim(life.enqueue())
            clock.advance("2s")
            life.end(claim, Completed("1"))
        running = life.enqueue()
        life.claim(running)
        waiting = life.enqueue()
        clock.advance("1s")
        assert "about 1 s left" in read(site.http, "/")
        assert "longer than usual" not in read(site.http, "/")
        clock.advance("30s")
        beyond = "longer than usual: 9 of 10 took under 2 s"
        behind = f"when job {running} ends, which runs {beyond}"
        first = read(site.http, "/")
        assert first.index(beyond) < first.index('id="line"'), "where it runs"
        for path in ("/", "/queue"):
            text = read(site.http, path)
            assert behind in text, path
            assert "any moment" not in text, path
        assert f"Usually 2 s; {beyond}." in read(site.http, f"/jobs/{running}")
        of_waiting = read(site.http, f"/jobs/{waiting}")
        assert "should have begun: what is in its way takes longer than usual" in of_waiting
        assert f'<a href="/ui/jobs/{running}">job {running}</a> ends, which runs {beyond}.' in of_waiting
        assert "any moment" not in of_waiting
