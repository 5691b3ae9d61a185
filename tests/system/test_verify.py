"""`headway verify` finds nothing in a true history, and each broken promise in a damaged one, by its own number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headway.clock import SECOND
from headway.model.jobs import actions
from headway.model.jobs.finish import decide
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Skipped
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.store import workers
from headway.store.db import Tx
from headway.store.jobs import changes as jobs
from headway.store.jobs import positions, reports
from headway.verify import Report
from headway.verify.report import KEPT_PER_INVARIANT
from tests.support.world import ANN, EVENTS, OBSERVER, RUNS, WORKER, Sabotage, Sabotages, World, broken

sabotage = Sabotages()


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    made = World(database_url)
    yield made
    made.db.close()


def live_through_everything(w: World) -> None:
    """A history with every kind of event that single jobs have, and all of it ended."""
    w.enqueue(3)
    w.complete(*w.claim(3))
    w.chain()
    _overtaken(w)
    _stopped(w)
    _waiting(w)
    _keyed(w)
    w.limit(1)
    w.enqueue(2)
    w.complete(*w.claim(2))
    w.complete(*w.claim(2))
    w.limit(None)


def _overtaken(w: World) -> None:
    """Priority, moving and editing change who goes first; what is claimed together has no order."""
    a, b, c, d = w.enqueue(4)
    (urgent,) = w.enqueue(priority=9)
    w.change(d, actions.move, priority=9, position=5)
    w.change(a, actions.edit, priority=0, position=99 << 40, now=w.clock.now())
    assert [claim.job_id for claim in w.claim(4)] == [d, urgent, b, c]
    for job_id in (b, c, d, urgent):
        w.finish(job_id, Completed("7"))
    w.complete(*w.claim())


def _stopped(w: World) -> None:
    resumed, cancelled, held = w.paused(), w.paused(), w.paused()
    w.resume(resumed)
    w.complete(*w.claim())
    w.run(lambda tx: reports.reject_late(tx, (resumed, 1), w.worker))
    w.cancel(cancelled)
    w.change(held, actions.resolve, result="1", by="Ann", now=w.clock.now())
    (running,) = w.enqueue()
    w.take(running)
    w.interrupt(running)
    w.cancel(running)
    w.finish(running, Failed(FailureKind.EXCEPTION, "boom"))
    (first,) = w.enqueue()
    w.take(first)
    w.cancel(first)
    w.finish(first, Skipped("nothing to do"))
    (broke,) = w.enqueue()
    w.take(broke)
    w.interrupt(broke)
    w.finish(broke, Failed(FailureKind.BUDGET, "no tokens left"))


def _waiting(w: World) -> None:
    now = w.clock.now()
    (held,) = w.enqueue(hold=True)
    w.interrupt(held)
    w.resume(held)
    (scheduled,) = w.enqueue(delay=50 * SECOND)
    w.enqueue(hold=True, expires_at=now + 500 * SECOND)
    (given_up,) = w.enqueue()
    w.cancel(given_up)
    w.promote()
    assert [claim.job_id for claim in w.claim(9)] == [held, scheduled]
    w.finish(held, Failed(FailureKind.EXCEPTION, "no use", final=True))
    retry = w.fail(scheduled, retry_after=2.0)
    w.change(retry, actions.bring_forward, now=now, params=None, priority=None, position=None, options=None)
    w.take(retry)
    again = w.fail(retry, FailureKind.INTERRUPTED)
    w.complete(*w.take(again))


def _keyed(w: World) -> None:
    (job_id,) = w.enqueue(key="k")
    assert w.enqueue(key="k") == []
    w.take(job_id)
    w.fail(job_id)
    assert w.enqueue(key="k") == []
    w.promote()
    w.complete(*w.claim())
    w.enqueue(key="k")
    w.complete(*w.claim())


def test_a_true_history_has_no_findings(world: World) -> None:
    live_through_everything(world)
    report = world.check(quiet=True)
    assert report.findings == []
    assert report.clean
    everything = {
        "jobs": 28,
        "events": 104,
        "runs": 26,
        "claims": 27,
        "reservations": 0,
        "running": 0,
        "groups": 0,
        "ticks": 0,
        "pruned": 0,
        "findings": 0,
    }
    assert report.counted == everything


def test_work_under_way_has_no_findings(world: World) -> None:
    world.paused()
    world.enqueue(5, expires_at=world.clock.now() + 5 * SECOND)
    (asked,) = world.enqueue()
    world.take(asked)
    world.cancel(asked)
    world.enqueue(hold=True)
    world.enqueue(delay=99 * SECOND)
    assert world.check().findings == []
    assert broken(world.check(quiet=True)) == {"I-03", "I-13"}


def test_an_empty_database_has_no_findings(world: World) -> None:
    names = ("jobs", "events", "runs", "claims", "reservations", "running", "groups", "ticks", "pruned", "findings")
    assert world.check(quiet=True) == Report([], dict.fromkeys(names, 0))


def test_pages_join_without_a_seam(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    live_through_everything(world)
    whole = world.check()
    monkeypatch.setattr("headway.verify.history.JOBS_PER_PAGE", 2)
    monkeypatch.setattr("headway.verify.history.EVENTS_PER_PAGE", 3)
    assert world.check() == whole


def test_a_history_broken_throughout_is_reported_in_part_and_counted_in_full(world: World) -> None:
    count = KEPT_PER_INVARIANT + 500
    world.enqueue(count)
    world.tamper("update hw_job set gate = 0")
    report = world.check()
    assert len(report.findings) == KEPT_PER_INVARIANT
    assert report.counted["findings"] == count


def test_a_lowered_limit_stops_nothing_that_runs(world: World) -> None:
    world.enqueue(3)
    held = world.claim(2)
    world.limit(1)
    assert world.claim() == []
    world.complete(*held)
    world.complete(*world.claim())
    assert world.check(quiet=True).findings == []


def test_a_claim_is_a_ghost_only_beyond_its_time_and_only_if_somebody_could_know(world: World) -> None:
    world.enqueue()
    world.claim()
    world.run(lambda tx: workers.beat(tx, WORKER, 60.0))
    world.clock.at += 1000 * SECOND
    assert world.check().findings == []
    world.register(OBSERVER, slots=1)
    seen: list[set[str]] = []
    for after in (149.0, 2.0):
        world.run(lambda tx: workers.beat(tx, OBSERVER, 60.0), after=after)
        seen.append(broken(world.check()))
    assert seen == [set(), {"I-08"}]
    assert world.check(lease=70.0).findings == []


@sabotage("I-01", "a row and no history")
def history_deleted(w: World) -> None:
    (job_id,) = w.enqueue()
    w.tamper(f"delete from hw_event where thing = 'job' and thing_id = {job_id}", without=("hw_event_kept",))


@sabotage("I-01", "a history (up to version 1, job.created) and no row")
def job_deleted(w: World) -> None:
    first, _ = w.enqueue(2)
    w.tamper(f"delete from hw_job where id = {first}", without=("hw_job_kept",))


@sabotage("I-01", "a history (up to version 1, job.created) and no row")
def last_job_deleted(w: World) -> None:
    _, last = w.enqueue(2)
    w.tamper(f"delete from hw_job where id = {last}", without=("hw_job_kept",))


@sabotage("I-01", "begin with its creation but with version 1, job.promoted")
def creation_renamed(w: World) -> None:
    (job_id,) = w.enqueue()
    w.tamper(f"update hw_event set kind = 'job.promoted' where thing = 'job' and thing_id = {job_id}", without=EVENTS)


@sabotage("I-01", "numbers were ever given")
def more_pruned_than_made(w: World) -> None:
    w.enqueue()
    w.tamper("insert into hw_tally (tenant_id, name, count) values (1, 'jobs', 1000)")


@sabotage("I-01", "3 runs were pruned with 2 jobs")
def tally_disagrees(w: World) -> None:
    w.enqueue(5)
    w.tamper(
        "delete from hw_job where id > 3",
        "delete from hw_event where thing = 'job' and thing_id > 3",
        "insert into hw_tally (tenant_id, name, count) values (1, 'jobs', 2), (1, 'runs', 3)",
        without=("hw_job_kept", "hw_event_kept"),
    )


@sabotage("I-01", "records can be deleted")
def protection_left_off(w: World) -> None:
    w.tamper("update hw_pruning set active = 1")


@sabotage("I-02", "QUEUED (version 1) was followed by SCHEDULED (version 2, job.edited): there is no such move")
def illegal_move(w: World) -> None:
    (job_id,) = w.enqueue()
    w.change(job_id, actions.edit, priority=3, now=w.clock.now())
    w.tamper(
        f"update hw_event set status = 1 where thing = 'job' and thing_id = {job_id} and version = 2",
        f"update hw_job set status = 1, gate = 0, not_before = 1 where id = {job_id}",
        without=EVENTS,
    )


@sabotage("I-02", "version 1 is followed by version 3")
def event_deleted(w: World) -> None:
    (job_id,) = w.enqueue()
    for position in (1, 2):
        w.change(job_id, actions.move, priority=0, position=position)
    w.tamper(
        f"delete from hw_event where thing = 'job' and thing_id = {job_id} and version = 2", without=("hw_event_kept",)
    )


@sabotage("I-02", "its row has version 2")
def last_event_deleted(w: World) -> None:
    (job_id,) = w.enqueue()
    w.change(job_id, actions.move, priority=0, position=1)
    w.tamper(
        f"delete from hw_event where thing = 'job' and thing_id = {job_id} and version = 2", without=("hw_event_kept",)
    )


@sabotage("I-02", "its history ends QUEUED (version 1), its row says WAITING")
def moved_without_an_event(w: World) -> None:
    (job_id,) = w.enqueue()
    w.tamper(f"update hw_job set status = 0, gate = 0, hold = 1 where id = {job_id}")


@sabotage("I-02", "but version 4, job.moved makes it COMPLETED")
def changed_after_the_end(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.complete(claim)
    w.event(claim.job_id, "job.moved", State.COMPLETED)


@sabotage("I-02", "but it had been claimed")
def expired_after_its_claim(w: World) -> None:
    job_id = w.paused()
    w.resume(job_id)
    w.event(job_id, "job.skipped", State.SKIPPED)
    w.tamper(
        f"update hw_job set status = 8, gate = 0, finished_at = 1 where id = {job_id}",
        f"update hw_run set status = 8, finished_at = 1 where job_id = {job_id}",
    )


@sabotage("I-02", "cannot lead to QUEUED")
def kind_and_state_disagree(w: World) -> None:
    (job_id,) = w.enqueue(delay=SECOND)
    w.promote()
    w.tamper(
        f"update hw_event set kind = 'job.held' where thing = 'job' and thing_id = {job_id} and version = 2",
        without=EVENTS,
    )


@sabotage("I-02", "it has 2 events for the versions 1 to 3")
def gap_in_the_history_of_a_worker(w: World) -> None:
    w.run(lambda tx: workers.set_state(tx, WORKER, "draining", w.worker))
    w.run(lambda tx: workers.retire(tx, WORKER, "done"))
    w.tamper(
        f"delete from hw_event where thing = 'worker' and thing_id = {WORKER} and version = 2",
        without=("hw_event_kept",),
    )


@sabotage("I-03", "ends again as FAILED (version 4, job.failed)")
def second_outcome(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.complete(claim)
    w.event(claim.job_id, "job.failed", State.FAILED, actor=w.worker, fence=claim.fence)
    w.tamper(
        f"update hw_job set status = 7, exhausted = 1 where id = {claim.job_id}",
        f"update hw_run set status = 7 where job_id = {claim.job_id}",
        without=("hw_job_absorbing", "hw_run_once"),
    )


@sabotage("I-03", "it has not ended: it is QUEUED since version 1", quiet=True)
def left_behind(w: World) -> None:
    w.enqueue()


@sabotage("I-04", "it was claimed (version 2, job.claimed) and has no run")
def run_deleted(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("delete from hw_run", without=("hw_run_kept",))


@sabotage("I-04", "it was never claimed and has a run")
def run_without_a_claim(w: World) -> None:
    (job_id,) = w.enqueue()
    w.run(lambda tx: tx.run("open_run", job_id=job_id))


@sabotage("I-04", "the job ended COMPLETED, its run FAILED")
def run_ended_otherwise(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_run set status = 7", without=("hw_run_once",))


@sabotage("I-04", "its run is still open")
def run_left_open(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_run set status = null, finished_at = null", without=("hw_run_once",))


@sabotage("I-04", "its run is closed COMPLETED while the job is RUNNING")
def run_closed_early(w: World) -> None:
    w.enqueue()
    w.claim()
    w.tamper("update hw_run set status = 6, finished_at = 1")


@sabotage("I-04", "there is no job with this number")
def loose_run(w: World) -> None:
    w.tamper(
        "insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at) values (77, 1, 't', '', 1, 1)"
    )


@sabotage("I-05", "as number 2 of lane 1: limit 1")
def claimed_over_the_limit(w: World) -> None:
    w.limit(1)
    ids = w.enqueue(2)
    w.complete(*w.take(*ids))


@sabotage("I-05", "its events lead to none")
def limit_changed_unseen(w: World) -> None:
    w.tamper("delete from hw_event where thing = 'lane'", without=("hw_event_kept",))


@sabotage("I-05", "as its job 5 in 4 slots")
def more_jobs_than_slots(w: World) -> None:
    w.complete(*w.take(*w.enqueue(5)))


@sabotage("I-05", "2 jobs run in its slot 0")
def slot_used_twice(w: World) -> None:
    w.take(*w.enqueue(2))
    w.tamper("drop index hw_job_slot", "update hw_job set slot = 0")


@sabotage("I-06", "version 2, job.claimed has fence 5 after fence 0")
def fence_skipped(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_event set fence = 5 where fence = 1", "update hw_job set fence = 5", without=EVENTS)


@sabotage("I-06", "ends the claim under fence None")
def end_without_a_fence(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_event set fence = null where kind = 'job.completed'", without=EVENTS)


@sabotage("I-06", "its last claim has fence 1, its row has fence 3")
def fence_raised_without_a_claim(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_job set fence = 3")


@sabotage("I-07", "accepted under fence 1 while fence 2 held the job")
def old_fence_accepted(w: World) -> None:
    w.resume(w.paused())
    w.complete(*w.claim())
    w.tamper("update hw_event set fence = 1 where kind = 'job.completed'", without=EVENTS)


@sabotage("I-07", "accepted when the job was PAUSED and had no claim")
def finished_after_the_claim(w: World) -> None:
    job_id = w.paused()
    w.event(job_id, "job.completed", State.COMPLETED, actor=w.worker, fence=1)
    w.tamper(
        f"update hw_job set status = 6, finished_at = 1 where id = {job_id}",
        "update hw_run set status = 6, finished_at = 1",
    )


@sabotage("I-07", "version 4, job.late_write_rejected changed the state COMPLETED")
def late_write_landed(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.complete(claim)
    w.event(claim.job_id, "job.late_write_rejected", State.FAILED, actor=w.worker, fence=1)
    w.tamper(
        "update hw_job set status = 7, exhausted = 1",
        "update hw_run set status = 7",
        without=("hw_job_absorbing", "hw_run_once"),
    )


@sabotage("I-08", "does not exist")
def worker_deleted(w: World) -> None:
    w.enqueue()
    w.claim()
    w.tamper(f"delete from hw_worker where id = {WORKER}")


@sabotage("I-08", "too long ago")
def jobs_of_a_gone_worker(w: World) -> None:
    w.enqueue()
    w.claim()
    w.register(OBSERVER, slots=1)
    w.run(lambda tx: workers.retire(tx, WORKER, "lost"))
    w.run(lambda tx: workers.beat(tx, OBSERVER, 60.0), after=151.0)


@sabotage("I-09", "RUNNING (version 2) was followed by QUEUED")
def back_to_the_queue(w: World) -> None:
    (job_id,) = w.enqueue()
    w.take(job_id)
    w.event(job_id, "job.resumed", State.QUEUED, fence=1)
    back = "update hw_job set status = 2, gate = 1, worker_id = null, slot = null"
    w.tamper(back, without=("hw_job_no_return",))


@sabotage("I-09", "it was resumed from SCHEDULED")
def resumed_from_nowhere(w: World) -> None:
    w.enqueue(delay=SECOND)
    w.promote()
    w.tamper("update hw_event set kind = 'job.resumed' where kind = 'job.promoted'", without=EVENTS)


@sabotage("I-10", "the params of the job and of its run differ")
def snapshot_rewritten(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_run set params = '{\"a\": 1}'", without=RUNS)


@sabotage("I-10", "the params of the job and of its run differ")
def params_changed_after_dispatch(w: World) -> None:
    w.enqueue()
    w.claim()
    w.tamper("update hw_job set params = '[]'", without=("hw_job_params_frozen",))


@sabotage("I-10", "first claimed at")
def start_rewritten(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_run set started_at = 1", without=RUNS)


@sabotage("I-10", "missing from the schema or disabled")
def trigger_dropped(w: World) -> None:
    on = " on hw_event" if w.db.dialect == "postgres" else ""
    w.tamper(f"drop trigger hw_event_frozen{on}")


@sabotage("I-11", "when job 2 behind it was claimed")
def claimed_out_of_turn(w: World) -> None:
    _, second = w.enqueue(2)
    w.complete(*w.take(second))


@sabotage("I-11", "when job 1 behind it was claimed")
def priority_ignored(w: World) -> None:
    (first,) = w.enqueue()
    w.enqueue(priority=5)
    w.complete(*w.take(first))


@sabotage("I-11", "when job 1 behind it was claimed")
def move_ignored(w: World) -> None:
    first, second = w.enqueue(2)
    w.change(second, actions.move, priority=0, position=1)
    w.complete(*w.take(first))
    w.complete(*w.take(second))


@sabotage("I-12", "has no retry, and its chain is not marked exhausted")
def retry_forgotten(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.force_end(claim.job_id, State.FAILED, failure=FailureKind.LOST)


@sabotage("I-12", "two transactions")
def retry_in_a_second_transaction(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.force_end(claim.job_id, State.FAILED, failure=FailureKind.LOST)
    w.run(lambda tx: jobs.insert_retry(tx, jobs.lock(tx, claim.job_id), w.worker, delay=10.0, auto=True))


@sabotage("I-12", "it had to wait 20 s and entered the queue after 10 s")
def backoff_cut_short(w: World) -> None:
    ids = w.enqueue()
    for _ in range(2):
        w.take(ids[-1])
        ids.append(w.fail(ids[-1]))
        w.tamper("update hw_job set not_before = 1 where status = 1")
        w.promote(after=10.0)


@sabotage("I-12", "it had to wait 20 s and entered the queue after 11 s")
def backoff_that_does_not_double(w: World) -> None:
    ids = w.enqueue()
    for _ in range(2):
        w.take(ids[-1])
        child = w.force_end(ids[-1], State.FAILED, failure=FailureKind.LOST, retry=10.0)
        assert child is not None
        ids.append(child)
        w.promote(after=11.0)


@sabotage("I-12", "automatic retry number 2 that used up an attempt, and 1 are allowed")
def more_retries_than_allowed(w: World) -> None:
    w.chain()
    once = Options(retry=RetryPolicy(max_attempts=1)).text()
    w.tamper(f"update hw_job set options = '{once}'")


@sabotage("I-12", "BAD_PARAMS, which is never retried")
def hopeless_retry(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.force_end(claim.job_id, State.FAILED, failure=FailureKind.BAD_PARAMS, retry=10.0)


@sabotage("I-12", "it did not take the place of job 1")
def retry_at_the_end_of_the_queue(w: World) -> None:
    _, last, _ = w.chain()
    w.tamper(f"update hw_job set position = position + 1 where id >= {last}")


@sabotage("I-12", "it has 2 automatic retries")
def two_automatic_retries(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.tamper("drop index hw_job_auto_retry")
    end = Failed(FailureKind.EXCEPTION, "boom")

    def twice(tx: Tx) -> None:
        job = jobs.lock(tx, claim.job_id)
        jobs.apply(tx, decide(w.standing(tx, job), end, lambda: 0.0), w.worker)
        for _ in range(2):
            jobs.insert_retry(tx, job, w.worker, delay=10.0, auto=True)

    w.run(twice)


@sabotage("I-12", "the links do not form a chain")
def chain_bitten_by_its_tail(w: World) -> None:
    first, _, last = w.chain()
    w.tamper(f"update hw_job set retry_auto = 1, retry_of = {last}, exhausted = 0 where id = {first}")


@sabotage("I-12", "which does not exist")
def parent_lost(w: World) -> None:
    first, *_ = w.chain()
    w.tamper(
        f"delete from hw_event where thing = 'job' and thing_id = {first}",
        f"delete from hw_run where job_id = {first}",
        f"delete from hw_job where id = {first}",
        without=("hw_event_kept", "hw_run_kept", "hw_job_kept"),
    )


@sabotage("I-13", "cancel was requested (version 3, job.stop_requested), but version 4, job.failed followed")
def cancel_lost(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.cancel(claim.job_id)
    w.force_end(claim.job_id, State.FAILED, failure=FailureKind.EXCEPTION, exhausted=True)


@sabotage("I-13", "interrupt was requested")
def interrupt_lost(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.interrupt(claim.job_id)
    w.force_end(claim.job_id, State.FAILED, failure=FailureKind.LOST, exhausted=True)


@sabotage("I-13", "but its row says nothing")
def request_wiped(w: World) -> None:
    w.enqueue()
    (claim,) = w.claim()
    w.cancel(claim.job_id)
    w.tamper("update hw_job set stop = null")


@sabotage("I-13", "it has no stop request, but its row says cancel")
def request_without_an_event(w: World) -> None:
    w.enqueue()
    w.claim()
    w.tamper("update hw_job set stop = 'cancel'")


@sabotage("I-18", "its event (version 1, job.created) to tenant 2")
def event_of_another_tenant(w: World) -> None:
    w.enqueue()
    w.tamper("update hw_event set tenant_id = 2 where thing = 'job'", without=EVENTS)


@sabotage("I-18", "its run to tenant 2")
def run_of_another_tenant(w: World) -> None:
    w.enqueue()
    w.complete(*w.claim())
    w.tamper("update hw_run set tenant_id = 2", without=RUNS)


@sabotage("I-18", "its task is 't', its bucket 1 of tenant 2")
def bucket_of_another_tenant(w: World) -> None:
    w.enqueue()
    w.tamper(
        "insert into hw_tenant (id, name, created_at) values (2, 'other', 1)", "update hw_bucket set tenant_id = 2"
    )


@sabotage("I-18", "its lane 1 belongs to tenant 9")
def lane_of_another_tenant(w: World) -> None:
    w.enqueue()
    w.tamper("update hw_lane set tenant_id = 9")


@sabotage("I-18", "which does not exist")
def unknown_tenant(w: World) -> None:
    w.enqueue()
    w.tamper("update hw_job set tenant_id = 3", "update hw_event set tenant_id = 3 where thing = 'job'", without=EVENTS)


@sabotage("I-20", "but job 1 ended at")
def key_used_twice_at_once(w: World) -> None:
    w.complete(*w.take(*w.enqueue(2)))
    w.tamper("update hw_job set key = 'k'")


@sabotage("I-20", "but job 1 has not ended")
def key_held_by_two(w: World) -> None:
    w.enqueue(2)
    w.tamper("drop index hw_job_key", "update hw_job set key = 'k'")


@sabotage("I-20", "job 2 came between it and job 1, which it retries")
def key_given_away_before_the_retry(w: World) -> None:
    first, other = w.enqueue(2)
    w.complete(*w.take(first, other)[1:])
    w.fail(first)
    late = w.clock.now()
    # As if the other job had lived between the failure and its retry.
    w.tamper(
        "update hw_job set key = 'k'",
        f"update hw_job set finished_at = {late - 30 * SECOND} where id = {first}",
        f"update hw_job set created_at = {late - 20 * SECOND}, finished_at = {late - 10 * SECOND} where id = {other}",
    )


SINGLE_JOBS = [f"I-{number:02}" for number in (*range(1, 14), 18, 20)]


def test_every_promise_about_single_jobs_is_sabotaged() -> None:
    assert {case.invariant for case in sabotage} == {*SINGLE_JOBS}


@pytest.mark.parametrize("case", sabotage, ids=str)
def test_sabotage_is_found(world: World, case: Sabotage) -> None:
    case.is_found(world)


def test_the_table_of_moves_is_the_models_table() -> None:
    """Written twice on purpose; when they part, one of them is wrong."""
    from headway.model.jobs.states import EDGES
    from headway.verify.transitions import LEGAL

    legal = {
        (State(origin), State(target)) for origin, targets in LEGAL.items() for target in targets if origin != target
    }
    assert legal == EDGES


def test_pruned_rows_are_not_missed(world: World) -> None:
    ids = json.dumps(world.chain())
    world.enqueue()
    world.complete(*world.claim())

    def prune(tx: Tx) -> None:
        tx.run("begin_pruning")
        for step in ("tally", "prune"):
            tx.run(step, ids=ids)
        tx.run("end_pruning")

    world.run(prune)
    report = world.check(quiet=True)
    assert report.findings == []
    assert (report.counted["jobs"], report.counted["pruned"]) == (1, 3)


def test_jobs_that_made_room_for_another_keep_their_order(world: World) -> None:
    first, second, last = world.enqueue(3)
    world.tamper("update hw_job set position = 7")

    def squeeze(tx: Tx) -> None:
        job = jobs.lock(tx, last)
        position = positions.beside(tx, job, jobs.lock(tx, second), ANN, before=True)
        jobs.apply(tx, actions.move(jobs.lock(tx, last), priority=0, position=position), ANN)

    world.run(squeeze)
    for job_id in (first, last, second):
        (claim,) = world.claim()
        assert claim.job_id == job_id
        world.complete(claim)
    report = world.check(quiet=True)
    assert report.findings == []
    assert report.counted["events"] == 3 * 3 + 3


def test_a_retry_by_hand_is_a_chain_of_its_own(world: World) -> None:
    *_, last = world.chain()

    def again(tx: Tx) -> int:
        return jobs.insert_retry(tx, jobs.lock(tx, last), ANN, delay=0.0, auto=False, params='{"n": 1}', priority=7)

    child = world.run(again)
    world.take(child)
    world.cancel(world.fail(child))
    held = world.paused()

    def instead(tx: Tx) -> int:
        job = jobs.lock(tx, held)
        jobs.apply(tx, actions.close_for_retry(job, by="Ann", now=world.clock.now()), ANN)
        return jobs.insert_retry(tx, replace(job, status=State.FAILED), ANN, delay=0.0, auto=False)

    world.complete(*world.take(world.run(instead)))
    assert world.check().findings == []
