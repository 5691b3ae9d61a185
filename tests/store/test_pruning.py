"""Pruning: whole chains past retention and nothing else, counted, with files that nobody needs any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.engine.execution import artifacts
from headway.engine.maintenance.pruner import BATCH, INTERVAL, Pruner
from headway.errors import NotFound
from headway.model.jobs.outcome import Completed
from headway.store import workers
from headway.store.db import Database
from tests.support.gates import Gated
from tests.support.life import BROKEN, FINAL, Life, raw_connection

DAY = 86400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def pruner(database: Database, folder: Path = Path("nowhere")) -> Pruner:
    return Pruner(database, retention=DAY, artifacts=folder)


def ids(life: Life) -> set[int]:
    return {row[0] for row in life.sql("select id from hw_job")}


def tally(life: Life) -> int:
    return sum(row[0] for row in life.sql("select count from hw_tally where name = 'jobs'"))


def run_dry(one: Pruner) -> int:
    """Ticks until there is nothing more to do at once."""
    ticks = 0
    while one.tick() == 0.0:
        ticks += 1
    return ticks


STATES = ["WAITING", "SCHEDULED", "QUEUED", "resumed", "RUNNING", "PAUSED", "ERROR"]
ENDED = ["COMPLETED", "FAILED", "SKIPPED", "expired", "CANCELLED", "stopped"]


def test_only_what_has_ended_goes_and_only_past_retention(life: Life) -> None:
    old = {life.in_state(state) for state in ENDED}
    kept = {life.in_state(state) for state in STATES}
    life.clock.advance(DAY + 10)
    young = {life.in_state(state) for state in ENDED}
    run_dry(pruner(life.database))
    assert ids(life) == kept | young
    assert tally(life) == len(old)
    for table, column in (("hw_run", "job_id"), ("hw_result", "job_id"), ("hw_event", "thing_id")):
        left = {
            row[0] for row in life.sql(f"select {column} from {table}" + " where thing = 'job'" * (table == "hw_event"))
        }
        assert not left & old
    life.check_versions()


def test_retention_is_kept_to_the_microsecond(life: Life) -> None:
    ended_at = life.job(life.in_state("COMPLETED")).finished_at
    assert ended_at is not None
    one = pruner(life.database)
    assert [one.prune(ended_at), one.prune(ended_at + 1)] == [0, 1]


def test_everything_that_hangs_on_a_job_goes_with_it(life: Life) -> None:
    job_id = life.enqueue()
    claim = life.claim(job_id)

    def report(tx: Any) -> None:
        tx.run("save_checkpoint", job_id=job_id, checkpoint="{}")
        tx.run("add_log", rows=f'[[{job_id}, "[]"]]')
        tx.run("add_artifact", job_id=job_id, name="a", size=1, sha256="aa", path="aa/aa")

    life.database.transact("report", report)
    assert life.end(claim, Completed("1"))
    life.clock.advance(2 * DAY)
    assert pruner(life.database).prune(life.clock.now()) == 1
    everything = life.everything()
    assert all(rows == [] for name, rows in everything.items() if name != "event")
    assert life.sql("select count(*) from hw_artifact") == [(0,)]
    assert life.sql("select count(*) from hw_event where thing = 'job'") == [(0,)]
    with pytest.raises(NotFound):
        life.job(job_id)


def test_a_chain_goes_as_a_whole_or_not_at_all(life: Life) -> None:
    """Its first jobs ended long ago, its last one did not: none of them goes."""
    first = life.in_state("retried")
    life.clock.advance(2 * DAY)
    retry = life.client.retry(first).id
    one = pruner(life.database)
    assert run_dry(one) == 0
    assert ids(life) == {first, retry}
    life.run(retry, FINAL)
    by_hand = life.client.retry(retry).id
    other = life.client.retry(first).id  # two branches by hand
    life.run(by_hand, Completed())
    life.clock.advance(2 * DAY)
    run_dry(one)  # on PostgreSQL the keys under which the retries were made are old by now, and go
    assert ids(life) == {first, retry, by_hand, other}
    assert run_dry(one) == 0
    life.run(other, FINAL)
    assert run_dry(one) == 0  # the last one ended just now
    life.clock.advance(2 * DAY)
    assert run_dry(one) == 1
    assert ids(life) == set()
    assert tally(life) == 4


def test_chains_that_cannot_go_do_not_hide_those_behind_them(life: Life) -> None:
    """More old chains with an open end than one batch holds, all older than the one that may go."""
    life.set_limit(None)
    blocked = [job_id for job_id, _ in life.client.enqueue_many([life.new() for _ in range(BATCH + 50)])]
    for start in range(0, len(blocked), 50):
        for claim in life.take(*blocked[start : start + 50]):
            assert life.end(claim, BROKEN)
    life.clock.time += 1
    free = {life.in_state("COMPLETED"), life.in_state("FAILED")}
    life.clock.advance(2 * DAY)
    one = pruner(life.database)
    assert free <= ids(life)
    assert run_dry(one) == 1
    assert not free & ids(life)
    assert len(ids(life)) == 2 * len(blocked)
    # The next pass begins at the beginning again.
    for job_id, _ in life.sql("select id, retry_of from hw_job where retry_auto = 1"):
        life.client.cancel(job_id)
    life.clock.advance(2 * DAY)
    assert run_dry(one) >= 2
    assert ids(life) == set()
    assert tally(life) == 2 * len(blocked) + 2


def test_without_retention_nothing_goes(life: Life) -> None:
    life.in_state("COMPLETED")
    life.clock.advance(1000 * DAY)
    assert Pruner(life.database, retention=None, artifacts=Path("nowhere")).tick() == INTERVAL
    assert len(ids(life)) == 1


def test_after_pruning_the_guards_are_up_again(life: Life) -> None:
    gone, kept = life.in_state("COMPLETED"), life.in_state("QUEUED")
    life.clock.advance(2 * DAY)
    assert pruner(life.database).prune(life.clock.now()) == 1
    assert life.sql("select active from hw_pruning") == [(0,)]
    with raw_connection(life.url) as raw, pytest.raises(Exception, match="only pruning"):
        raw.execute(f"delete from hw_job where id = {kept}")
    assert gone not in ids(life)


def test_a_pruning_that_fails_leaves_everything(life: Life) -> None:
    job_id = life.in_state("COMPLETED")
    life.clock.advance(2 * DAY)
    with raw_connection(life.url) as raw:
        if life.database.dialect == "sqlite":
            raw.execute("create trigger broken before delete on hw_job begin select raise(abort, 'not now'); end")
        else:
            raw.execute("alter table hw_tally add constraint broken check (count > 5)")
    before = life.everything(job_id)
    with pytest.raises(Exception, match=r"not now|broken"):
        pruner(life.database).prune(life.clock.now())
    assert life.everything(job_id) == before
    assert life.sql("select active from hw_pruning") == [(0,)]
    assert tally(life) == 0


def test_the_tally_goes_on_counting_per_tenant(life: Life) -> None:
    for expected in (2, 4):
        life.in_state("COMPLETED")
        life.in_state("FAILED")
        life.clock.advance(2 * DAY)
        run_dry(pruner(life.database))
        assert life.sql("select tenant_id, name, count from hw_tally") == [(1, "jobs", expected)]


# --- files ---


def attach(life: Life, folder: Path, content: str) -> tuple[int, Path]:
    job_id = life.enqueue()
    claim = life.claim(job_id)
    source = folder.parent / "made"
    source.write_text(content)
    kept = artifacts.keep(folder, str(source))
    facts = {"name": "made", "size": kept.size, "sha256": kept.sha256, "path": kept.path}
    life.database.transact("attach", lambda tx: tx.run("add_artifact", job_id=job_id, **facts))
    assert life.end(claim, Completed())
    return job_id, folder / kept.path


def test_a_file_goes_with_the_last_job_that_names_it(life: Life, folder: Path) -> None:
    _, shared = attach(life, folder, "same")
    _, own = attach(life, folder, "own")
    life.clock.advance(2 * DAY)
    later, same = attach(life, folder, "same")
    assert same == shared
    one = pruner(life.database, folder)
    run_dry(one)
    assert (shared.exists(), own.exists(), ids(life)) == (True, False, {later})
    life.clock.advance(2 * DAY)
    run_dry(one)
    assert not shared.exists()


def test_two_jobs_of_one_batch_with_the_same_file(life: Life, folder: Path) -> None:
    _, shared = attach(life, folder, "same")
    attach(life, folder, "same")
    life.clock.advance(2 * DAY)
    assert pruner(life.database, folder).prune(life.clock.now()) == 2
    assert not shared.exists()


def test_a_file_that_is_gone_already_is_no_problem(life: Life, folder: Path) -> None:
    _, file = attach(life, folder, "gone")
    file.unlink()
    life.clock.advance(2 * DAY)
    assert pruner(life.database, folder).prune(life.clock.now()) == 1


# --- workers ---


def test_workers_that_are_gone_go_too_with_their_processes_unless_a_job_still_speaks_of_them(life: Life) -> None:
    gone, owner, parent = life.new_worker(), life.new_worker(), life.new_worker()
    life.claim(life.enqueue(), worker_id=owner)

    def leave(tx: Any) -> None:
        workers.adopt(tx, parent, slot=0, tag="t", pid=1, process_start=1)
        workers.adopt(tx, owner, slot=0, tag="kept", pid=2, process_start=1)
        for worker_id in (gone, owner, parent):
            workers.retire(tx, worker_id, "shut down")

    life.database.transact("leave", leave)
    life.in_state("COMPLETED")
    life.clock.advance(2 * DAY)
    pruner(life.database).prune(life.clock.now())
    left = {row[0] for row in life.sql("select id from hw_worker")}
    assert left == {life.worker_id, owner}
    assert life.sql("select tag from hw_process") == [("kept",)]


# --- races, on PostgreSQL ---


@pytest.fixture
def gated(postgres_url: str) -> Any:
    database = Gated(postgres_url)
    with Life(postgres_url, database=database) as life:
        yield life


def raced(life: Life, statement: str, meanwhile: Callable[[], object]) -> int:
    """Prunes, and does something else just before a statement of the pruning."""
    database = life.database
    assert isinstance(database, Gated)
    database.before(statement, meanwhile)
    return pruner(database).prune(life.client.get(1).finished_at + 10**15)  # type: ignore[operator]


def test_a_job_that_is_retried_while_it_is_being_pruned_stays(gated: Life) -> None:
    life = gated
    job_id = life.in_state("FAILED")
    other = life.in_state("COMPLETED")
    assert raced(life, "lock_jobs", lambda: life.client.retry(job_id)) == 1
    assert other not in ids(life)
    assert len(life.sql("select id from hw_job")) == 2
    assert life.sql(f"select id from hw_job where retry_of = {job_id}") != []


def test_two_pruners_at_once_count_each_job_once(gated: Life) -> None:
    life = gated
    for _ in range(3):
        life.in_state("COMPLETED")
    before = life.client.get(1).finished_at or 0
    deleted: list[int] = []
    assert raced(life, "lock_jobs", lambda: deleted.append(pruner(life.database).prune(before + 10**15))) == 0
    assert deleted == [3]
    assert tally(life) == 3


def test_a_cancelled_job_that_was_paused_is_pruned_with_its_closed_run(life: Life) -> None:
    job_id = life.in_state("PAUSED")
    life.client.cancel(job_id)
    life.clock.advance(2 * DAY)
    assert run_dry(pruner(life.database)) == 1
    assert ids(life) == set()
