"""What `headway.testing` gives to the tests of others: a clock, jobs run here and now, and what was enqueued."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import App, Context, Fail, Retry, Skip
from headway.errors import BadInput, JobFailed
from headway.testing import FrozenClock, assert_enqueued, drain, isolated
from headway.verify import check

app = App(database="never-opened.db", retry={"max_attempts": 2, "base_delay": "10s"})
seen: list[str] = []


@app.task("note.write")
def write(text: str) -> str:
    seen.append(text)
    return text.upper()


@app.task("note.later")
async def later(ctx: Context, text: str) -> int:
    seen.append(text)
    return ctx.attempt


@app.task("note.thread", isolation="thread")
def in_a_thread(ctx: Context) -> int:
    return os.getpid()


@app.task("note.process")
def in_a_process(ctx: Context) -> int:
    return os.getpid()


@app.task("note.double")
def double(text: str) -> None:
    write.enqueue(text=text)
    write.enqueue(text=text)


@app.task("note.end")
def end(how: str) -> None:
    match how:
        case "skip":
            raise Skip("nothing to write")
        case "fail":
            raise Fail("no pencil")
        case "retry":
            raise Retry("the pencil is blunt", after="5m")
    raise ValueError(how)


@app.task("note.count")
def count(ctx: Context, to: int) -> int:
    begun = ctx.last_checkpoint or 0
    for n in ctx.progress(range(begun, to), "line"):
        ctx.checkpoint(n + 1)
        ctx.spend(lines=1)
        if n == 1:
            raise OSError("interrupted")
    return to - begun


@app.task("note.attach")
def attach(ctx: Context, path: str) -> None:
    ctx.log.info("attaching")
    ctx.attach(path)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock("2026-03-01T09:00:00Z")


@pytest.fixture
def here(database_url: str, clock: FrozenClock) -> Iterator[App]:
    seen.clear()
    with isolated(app, database_url, clock=clock) as one:
        yield one
        assert check(one.database, lease=3600).findings == []


# --- the clock ---


def test_a_frozen_clock_moves_when_it_is_told_to() -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    before, at = clock.now(), clock.monotonic()
    clock.advance("1m30s")
    clock.advance(0.5)
    assert (clock.now() - before, clock.monotonic() - at) == (90_500_000, 90.5)


def test_a_frozen_clock_has_a_time_zone_and_never_goes_back() -> None:
    with pytest.raises(BadInput, match="no time zone"):
        FrozenClock("2026-01-01T00:00:00")
    with pytest.raises(BadInput, match="must not be negative"):
        FrozenClock().advance(-1)


def test_the_time_of_the_app_is_the_clocks(here: App, clock: FrozenClock) -> None:
    job = write.enqueue(text="a")
    clock.advance("1h")
    drain(here)
    row = job.row
    assert (row.started_at or 0) - row.created_at == 3_600_000_000
    assert row.finished_at == clock.now()


# --- drain ---


def test_drain_runs_what_may_run_in_order_and_counts_it(here: App) -> None:
    jobs = [write.using(priority=priority).enqueue(text=str(priority)) for priority in (1, 3, 2)]
    assert drain(here) == 3
    assert seen == ["3", "2", "1"]
    assert [job.result() for job in jobs] == ["1", "3", "2"]
    assert drain(here) == 0


def test_every_kind_of_task_runs_in_this_process(here: App) -> None:
    jobs = [in_a_thread.enqueue(), in_a_process.enqueue()]
    word = later.enqueue(text="async")
    assert drain(here) == 3
    assert [job.result() for job in jobs] == [os.getpid()] * 2
    assert (word.result(), seen) == (1, ["async"])


def test_jobs_that_jobs_make_run_too(here: App) -> None:
    double.enqueue(text="a")
    assert drain(here) == 3
    assert seen == ["a", "a"]


def test_a_limit_ends_it_earlier(here: App) -> None:
    write.enqueue_many([{"text": str(n)} for n in range(5)])
    assert drain(here, limit=2) == 2
    assert drain(here) == 3


def test_a_job_runs_when_its_time_has_come(here: App, clock: FrozenClock) -> None:
    job = write.using(delay="10m").enqueue(text="a")
    assert drain(here) == 0
    clock.advance("10m")
    assert drain(here) == 1
    assert job.result() == "A"


def test_a_late_tick_is_skipped(here: App, clock: FrozenClock) -> None:
    job = write.using(expires_at="2026-03-01T09:01:00Z").enqueue(text="a")
    clock.advance("1m")
    assert drain(here) == 0
    assert (job.status, job.row.reason, job.run) == ("SKIPPED", "expired", None)


def test_retries_follow_the_clock(here: App, clock: FrozenClock) -> None:
    job = end.enqueue(how="raise")
    runs = [drain(here)]
    for wait in ("10s", "20s", "1d"):
        clock.advance(wait)
        runs.append(drain(here))
    assert runs == [1, 1, 1, 0]
    with pytest.raises(JobFailed, match="ValueError: raise"):
        job.result()


def test_how_tasks_say_that_they_end(here: App, clock: FrozenClock) -> None:
    skipped, failed, again = (end.enqueue(how=how) for how in ("skip", "fail", "retry"))
    assert drain(here) == 3
    assert (skipped.status, skipped.row.reason) == ("SKIPPED", "nothing to write")
    assert (failed.status, failed.row.exhausted) == ("FAILED", 1)
    assert (again.status, again.row.exhausted) == ("FAILED", 0)
    clock.advance("4m59s")
    assert drain(here) == 0
    clock.advance("1s")
    assert drain(here) == 1


def test_checkpoints_and_meters_go_with_the_chain(here: App, clock: FrozenClock) -> None:
    job = count.using(budget={"lines": 10}).enqueue(to=5)
    drain(here)
    clock.advance("10s")
    drain(here)
    assert (job.status, job.result()) == ("FAILED", 3)
    with here.database.read() as tx:
        assert tx.run("read_report", job_id=job.id + 1)[0][3] == '{"lines": 5.0}'


def test_beyond_its_budget_a_job_ends_for_good(here: App) -> None:
    job = count.using(budget={"lines": 1}).enqueue(to=5)
    drain(here)
    kind = job.row.failure_kind
    assert (job.status, kind and kind.value, job.row.exhausted) == ("FAILED", "BUDGET", 1)


def test_log_and_files_are_kept(here: App, tmp_path: Path) -> None:
    here.configure(None, {"artifacts": str(tmp_path / "kept")})
    (tmp_path / "note.txt").write_text("hello")
    job = attach.enqueue(path=str(tmp_path / "note.txt"))
    drain(here)
    run = job.run
    assert run is not None
    assert (run.artifacts, len(list((tmp_path / "kept").rglob("*")))) == ('["note.txt"]', 2)


# --- what was enqueued ---


def test_assert_enqueued_finds_unfinished_jobs_by_task_and_params(here: App) -> None:
    write.enqueue(text="a")
    write.using(hold=True).enqueue(text="b")
    assert_enqueued(here, "note.write")
    assert_enqueued(here, "note.write", text="b")
    assert_enqueued(here, "note.write", count=2)
    assert_enqueued(here, "note.double", count=0)


def test_assert_enqueued_says_what_it_found_instead(here: App) -> None:
    write.enqueue(text="a")
    with pytest.raises(AssertionError, match=r"expected a job of note.write with {'text': 'b'}, found 0.*'text': 'a'"):
        assert_enqueued(here, "note.write", text="b")
    with pytest.raises(AssertionError, match=r"expected 2 jobs of note\.write with {}, found 1"):
        assert_enqueued(here, "note.write", count=2)
    drain(here)
    with pytest.raises(AssertionError, match="enqueued: none"):
        assert_enqueued(here, "note.write")


# --- an app of its own ---


def test_an_isolated_app_is_as_before_afterwards(database_url: str, tmp_path: Path) -> None:
    other = App(database=str(tmp_path / "own.db"), slots=7)
    task = other.task("note.one")(write.function)
    with other:
        task.enqueue(text="own")
        with isolated(other, database_url):
            assert other.settings.slots == 7
            assert_enqueued(other, "note.one", count=0)
            task.enqueue(text="other")
            assert_enqueued(other, "note.one", text="other")
        assert other.settings.database == str(tmp_path / "own.db")
        assert_enqueued(other, "note.one", text="own", count=1)
