"""Every write of a worker carries its fence: under a stale one nothing changes, and one event says it was tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.engine.tasks.registry import Registry
from headway.engine.worker import report_buffer
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.report_buffer import BufferedReports
from headway.engine.worker.worker import Worker
from headway.errors import LeaseLost
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.store.db import Tx
from headway.store.jobs import reports
from tests.support.life import BROKEN, Life
from tests.support.waiting import at_once

OUTCOMES: list[Outcome] = [
    Completed('{"late":true}'),
    Completed(exit_code=0),
    Skipped("late"),
    Failed(FailureKind.EXCEPTION, "late"),
    StoppedByRequest(),
    Interrupted(),
    Lost("late"),
]


class Zombie:
    """Somebody who still believes in a claim that has ended. Each attempt goes the way a worker goes."""

    def __init__(self, life: Life, claim: Claim, worker_id: int) -> None:
        self.life = life
        self.claim = claim
        self.worker_id = worker_id

    def attempts(self) -> dict[str, Callable[[], bool]]:
        """Each answers whether it was let through."""
        found: dict[str, Callable[[], bool]] = {
            "progress": lambda: self._note(progress=(1.0, 2.0, "late")),
            "spend": lambda: self._note(spent={"tokens": 9.0}),
            "log": lambda: self._note(lines=[(1, "INFO", "late")]),
            "checkpoint": lambda: self._fenced(
                lambda tx: tx.run("save_checkpoint", job_id=self.claim.job_id, checkpoint="{}")
            ),
        }
        for outcome in OUTCOMES:
            found[repr(outcome)] = lambda o=outcome: self.life.end(self.claim, o, worker_id=self.worker_id)  # type: ignore[misc]
        return found

    def _note(self, **reported: object) -> bool:
        pending = [BufferedReports(self.claim, **reported)]  # type: ignore[arg-type]
        return not self.life.database.transact("notes", lambda tx: report_buffer.store(tx, self.worker_id, pending))

    def _fenced(self, save: Callable[[Tx], object]) -> bool:
        def work(tx: Tx) -> None:
            reports.require(tx, self.worker_id, (self.claim.job_id, self.claim.fence))
            save(tx)

        try:
            self.life.database.transact("fenced", work)
        except LeaseLost:
            return False
        return True

    def reject(self) -> None:
        held = (self.claim.job_id, self.claim.fence)
        actor = self.life.actor(self.worker_id)
        self.life.database.transact("reject", lambda tx: reports.reject_late(tx, held, actor))


def lost_and_retried(life: Life) -> Zombie:
    """Its worker was given up: the job is FAILED, another one runs in its place."""
    claim = life.claim(life.enqueue(), worker_id=(owner := life.new_worker()))
    assert life.end(claim, Lost("gone"), worker_id=owner)
    return Zombie(life, claim, owner)


def lost_and_resumed(life: Life) -> Zombie:
    """The same job runs again, under the next fence, on another worker."""
    job_id = life.enqueue(on_lost="hold")
    claim = life.claim(job_id, worker_id=(owner := life.new_worker()))
    assert life.end(claim, Lost("gone"), worker_id=owner)
    life.client.resume(job_id)
    assert life.claim(job_id).fence == claim.fence + 1
    return Zombie(life, claim, owner)


def resumed_by_itself(life: Life) -> Zombie:
    """The same job runs again on the same worker: only the fence tells the two apart."""
    job_id = life.enqueue(on_lost="hold")
    claim = life.claim(job_id)
    assert life.end(claim, Lost("gone"))
    life.client.resume(job_id)
    life.claim(job_id)
    return Zombie(life, claim, life.worker_id)


def somebody_else(life: Life) -> Zombie:
    """The fence is right, and the claim is another worker's."""
    return Zombie(life, life.claim(life.enqueue()), life.new_worker())


def of_the_future(life: Life) -> Zombie:
    """A fence that was never given."""
    claim = life.claim(life.enqueue())
    return Zombie(life, claim._replace(fence=claim.fence + 1), life.worker_id)


def cancelled(life: Life) -> Zombie:
    claim = life.claim(life.enqueue())
    life.client.cancel(claim.job_id)
    assert life.end(claim, StoppedByRequest())
    return Zombie(life, claim, life.worker_id)


SITUATIONS = [lost_and_retried, lost_and_resumed, resumed_by_itself, somebody_else, of_the_future, cancelled]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_changes_under_a_stale_fence(shared_life: Life, situation: Callable[[Life], Zombie]) -> None:
    zombie = situation(shared_life)
    before = shared_life.everything()
    for name, attempt in zombie.attempts().items():
        assert not attempt(), name
        assert shared_life.everything() == before, name


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_late_write_leaves_exactly_one_event_however_often_it_comes(
    shared_life: Life, situation: Callable[[Life], Zombie]
) -> None:
    zombie = situation(shared_life)
    job_id, status = zombie.claim.job_id, shared_life.status(zombie.claim.job_id)
    for _ in range(3):
        zombie.reject()
    assert shared_life.events(job_id).count("job.late_write_rejected") == 1
    assert shared_life.sql(
        f"select fence, status from hw_event where thing_id = {job_id} and kind = 'job.late_write_rejected'"
    ) == [(zombie.claim.fence, int(shared_life.job(job_id).status))]
    assert shared_life.status(job_id) == status
    shared_life.check_versions()


def test_two_threads_of_a_worker_that_are_late_together_leave_one_event(shared_life: Life) -> None:
    for _ in range(5):
        zombie = lost_and_retried(shared_life)
        for done in at_once([zombie.reject] * 4):
            done.result()
        assert shared_life.events(zombie.claim.job_id).count("job.late_write_rejected") == 1
        shared_life.check_versions()


def test_under_the_right_fence_everything_lands(shared_life: Life) -> None:
    life = shared_life
    for n in range(len(OUTCOMES)):
        claim = life.claim(life.enqueue())
        attempts = list(Zombie(life, claim, life.worker_id).attempts().values())
        reporting, endings = attempts[: -len(OUTCOMES)], attempts[-len(OUTCOMES) :]
        for attempt in [*reporting, endings[n]]:
            assert attempt()
        assert life.sql(f"select done, spent, checkpoint from hw_report where job_id = {claim.job_id}") == [
            (1.0, '{"tokens": 9.0}', "{}")
        ]
        assert not any(attempt() for attempt in attempts)


def test_good_and_stale_ends_of_one_batch_do_not_disturb_each_other(shared_life: Life) -> None:
    """The worker ends many in one transaction; each is fenced by itself."""
    from headway.engine.worker.finish import Ended, finish

    life = shared_life
    good = [life.claim(life.enqueue()) for _ in range(4)]
    stale = lost_and_resumed(life).claim
    ended = [
        Ended(good[0], Completed("1")),
        Ended(stale, Completed("2")),
        Ended(good[1], BROKEN),
        Ended(good[2], Completed()),
        Ended(good[3], Skipped("no")),
    ]
    late = life.database.transact("finish", lambda tx: finish(tx, life.worker_id, life.actor(), ended))
    assert [end.claim for end in late] == [stale]
    assert [life.status(claim.job_id) for claim in good] == ["COMPLETED", "FAILED", "COMPLETED", "SKIPPED"]
    assert life.status(stale.job_id) == "RUNNING"
    assert life.sql(f"select body from hw_result where job_id = {good[0].job_id}") == [("1",)]
    life.check_versions()


def test_a_zombie_whose_job_was_pruned_meanwhile_is_only_late(life: Life) -> None:
    """It must not keep the rest of its worker's batch from being recorded."""
    from headway.engine.maintenance.pruner import Pruner

    zombie = cancelled(life)
    life.clock.advance(100)
    assert Pruner(life.database, retention=1.0, artifacts=Path("nowhere")).prune(life.clock.now()) == 1
    before = life.everything()
    for name, attempt in zombie.attempts().items():
        assert not attempt(), name
    zombie.reject()
    assert life.everything() == before


def test_the_sink_of_a_worker_rejects_records_and_stops(life: Life) -> None:
    """The same through the worker's own way of writing checkpoints."""
    worker = Worker(life.database, Registry(), WorkerConfig(slots=1))
    life.database.transact("register", worker._register)
    try:
        claim = life.claim(life.enqueue(), worker_id=worker.who.id)
        sink = worker.starter.sink_of(claim)
        sink.checkpoint('{"page":1}')
        assert life.end(claim, Lost("gone"), worker_id=worker.who.id)
        for _ in range(2):
            with pytest.raises(LeaseLost, match="no longer held under fence 1"):
                sink.checkpoint('{"page":2}')
        assert life.events(claim.job_id)[-1] == "job.late_write_rejected"
        assert life.events(claim.job_id).count("job.late_write_rejected") == 1
        found = life.sql(f"select checkpoint from hw_report where job_id = {claim.job_id}")
        assert json.loads(found[0][0]) == {"page": 1}
    finally:
        worker.waiter.close()


def test_fences_rise_with_every_claim_of_a_job_and_its_run_stays_one(shared_life: Life) -> None:
    life = shared_life
    job_id = life.enqueue()
    for fence in range(1, 5):
        claim = life.claim(job_id)
        assert claim.fence == fence
        life.client.interrupt(job_id)
        assert life.end(claim, StoppedByRequest())
        life.client.resume(job_id)
    assert life.sql(f"select count(*) from hw_run where job_id = {job_id}") == [(1,)]
    fences = life.sql(f"select fence from hw_event where thing_id = {job_id} and kind = 'job.claimed' order by version")
    assert fences == [(1,), (2,), (3,), (4,)]


def test_files_of_an_earlier_claim_are_named_by_the_run_that_a_later_one_completes(life: Life) -> None:
    job_id = life.enqueue()
    claim = life.claim(job_id)
    facts = {"name": "story.md", "size": 1, "sha256": "00", "path": "00/00"}
    life.database.transact("attach", lambda tx: tx.run("add_artifact", job_id=job_id, **facts))
    life.client.interrupt(job_id)
    assert life.end(claim, StoppedByRequest())
    life.client.resume(job_id)
    assert life.end(life.claim(job_id), Completed())
    assert life.sql(f"select artifacts from hw_run where job_id = {job_id}") == [('["story.md"]',)]
