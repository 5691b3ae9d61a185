"""The log of one job, followed: every line once, and an end when the job has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.engine.events.log_follower import PAGE, LogFollower
from headway.errors import NotFound
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed
from headway.store.jobs import reports
from tests.support.life import Life


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


def write(life: Life, claim: Claim, *lines: str) -> None:
    chunk = [(life.clock.now(), "INFO", line) for line in lines]
    life.database.transact("log", lambda tx: reports.add_log(tx, {claim.job_id: chunk}))


def follower(life: Life, job_id: int, after: int = 0) -> LogFollower:
    return LogFollower(life.database, life.client.tenant_id, job_id, after=after)


def test_a_log_is_followed_to_its_end(life: Life) -> None:
    claim = life.claim(life.enqueue())
    following = follower(life, claim.job_id)
    assert not following.look().ended
    write(life, claim, "one", "two")
    first = following.look()
    assert [line.message for line in first.lines] == ["one", "two"]
    assert not first.ended
    assert following.look().lines == []
    write(life, claim, "three")
    life.end(claim, Completed("null"))
    last = following.look()
    assert [line.message for line in last.lines] == ["three"]
    assert last.ended
    again = follower(life, claim.job_id, after=first.position).look()
    assert [line.message for line in again.lines] == ["three"]


def test_a_long_log_ends_with_its_last_page(life: Life) -> None:
    claim = life.claim(life.enqueue())
    for n in range(PAGE + 3):
        write(life, claim, str(n))
    life.end(claim, Completed("null"))
    following = follower(life, claim.job_id)
    first = following.look()
    assert (len(first.lines), first.ended, first.wait) == (PAGE, False, 0.0)
    second = following.look()
    assert (len(second.lines), second.ended) == (3, True)


def test_lines_of_other_jobs_in_between_are_left_out(life: Life) -> None:
    life.set_limit(None)
    one, other = life.claim(life.enqueue()), life.claim(life.enqueue())
    following = follower(life, one.job_id)
    for n in range(3):
        write(life, other, "not mine")
        write(life, one, str(n))
    assert [line.message for line in following.look().lines] == ["0", "1", "2"]


def test_a_paused_job_goes_on(life: Life) -> None:
    following = follower(life, life.in_state("paused"))
    assert not following.look().ended


def test_another_tenants_job_is_not_found(life: Life) -> None:
    job_id = life.enqueue()
    with pytest.raises(NotFound):
        LogFollower(life.database, life.client.tenant_id + 1, job_id).look()


def test_a_job_that_is_pruned_while_it_is_followed_has_ended(life: Life) -> None:
    job_id = life.in_state("queued")
    following = follower(life, job_id)
    following.look()
    following.job_id += 1_000_000  # as if it were gone
    assert following.look().ended


def test_much_at_once_is_stored_in_chunks_and_read_in_pages(life: Life) -> None:
    """A burst of lines was one chunk of up to 10 MiB, and every reader of it had it in memory."""
    claim = life.claim(life.enqueue())
    texts = [f"{n} {'x' * 5_000}" for n in range(100)]
    write(life, claim, *texts)
    life.end(claim, Completed("null"))
    assert max(len(row[0]) for row in life.sql("select lines from hw_log")) < 2 * reports.CHUNK
    following = follower(life, claim.job_id)
    pages = [following.look()]
    while not pages[-1].ended:
        assert pages[-1].wait == 0
        pages.append(following.look())
    assert [line.message for page in pages for line in page.lines] == texts
    assert all(sum(len(line.message) for line in page.lines) < 4 * reports.CHUNK for page in pages)
