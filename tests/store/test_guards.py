"""The schema forbids what the code says cannot happen: each tampering statement is refused, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
import psycopg
import pytest

from headway.model.jobs.outcome import StoppedByRequest
from tests.support import committed
from tests.support.life import Life, raw_connection

REFUSED = (apsw.ConstraintError, psycopg.IntegrityError)


@pytest.fixture
def raw(shared_life: Life) -> Iterator[Any]:
    with raw_connection(shared_life.url) as connection:
        yield connection


def refuse(life: Life, raw: Any, statement: str, words: str) -> None:
    before = life.everything()
    with pytest.raises(REFUSED, match=words):
        raw.execute(statement)
    assert life.everything() == before, statement


# --- records ---

RUN_FIXED = "a run is a record: its fixed columns never change"
RUN_ONCE = "a run is a record: its end is written once"
RUNS = [
    ("update hw_run set params = '[]'", RUN_FIXED),
    ("update hw_run set task = 'other'", RUN_FIXED),
    ("update hw_run set worker_id = 1", RUN_FIXED),
    ("update hw_run set started_at = 0", RUN_FIXED),
    ("update hw_run set tenant_id = 2", RUN_FIXED),
    ("update hw_run set job_id = job_id + 1000000", RUN_FIXED),
    ("update hw_run set started_at = started_at", RUN_FIXED),
]
ENDED_RUNS = [
    ("update hw_run set status = 6", RUN_ONCE),
    ("update hw_run set error = 'nothing happened'", RUN_ONCE),
    ("update hw_run set exit_code = 0", RUN_ONCE),
    ("update hw_run set artifacts = '[]'", RUN_ONCE),
    ("update hw_run set finished_at = null, status = null", RUN_ONCE),
]


@pytest.mark.parametrize(("statement", "words"), RUNS)
@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_a_runs_fixed_columns_never_change(shared_life: Life, raw: Any, state: str, statement: str, words: str) -> None:
    job_id = shared_life.in_state(state)
    refuse(shared_life, raw, f"{statement} where job_id = {job_id}", words)


@pytest.mark.parametrize(("statement", "words"), ENDED_RUNS)
def test_a_runs_end_is_written_once(shared_life: Life, raw: Any, statement: str, words: str) -> None:
    refuse(shared_life, raw, f"{statement} where job_id = {shared_life.in_state('FAILED')}", words)


EVENTS = [
    "version = 9",
    "at = 0",
    "actor = '{}'",
    "kind = 'job.completed'",
    "data = null",
    "status = 6",
    "thing_id = 1",
]


@pytest.mark.parametrize("change", EVENTS)
def test_events_are_append_only(shared_life: Life, raw: Any, change: str) -> None:
    job_id = shared_life.in_state("FAILED")
    refuse(shared_life, raw, f"update hw_event set {change} where thing_id = {job_id}", "events are append-only")


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("hw_event", "thing_id", "only pruning deletes them"),
        ("hw_run", "job_id", "only pruning deletes it"),
        ("hw_job", "id", "only pruning does"),
    ],
)
def test_only_pruning_deletes(shared_life: Life, raw: Any, table: str, column: str, words: str) -> None:
    job_id = shared_life.in_state("FAILED")
    refuse(shared_life, raw, f"delete from {table} where {column} = {job_id}", words)


@pytest.mark.parametrize("table", ["hw_event", "hw_run", "hw_job"])
def test_truncating_is_deleting(postgres_life: Life, table: str) -> None:
    postgres_life.in_state("FAILED")
    with raw_connection(postgres_life.url) as connection:
        refuse(postgres_life, connection, f"truncate {table}", "record|append-only|never deleted")


# --- jobs ---

JOBS = [
    ("RUNNING", "params = '[]'", "Cannot modify params after dispatch"),
    ("resumed", "params = '[]'", "Cannot modify params after dispatch"),
    ("COMPLETED", "params = '[]'", "Cannot modify params after dispatch"),
    ("COMPLETED", "status = 2, finished_at = null, queued_at = 1", "a finished job stays as it ended"),
    ("COMPLETED", "status = 7", "a finished job stays as it ended"),
    ("expired", "status = 2, finished_at = null, queued_at = 1", "a finished job stays as it ended"),
    ("CANCELLED", "status = 6", "a finished job stays as it ended"),
    ("FAILED", "status = 3, finished_at = null, worker_id = 1, slot = 1", "a finished job stays as it ended"),
    ("RUNNING", "status = 2, worker_id = null, slot = null", "RUNNING never goes back to the queue"),
    ("RUNNING", "status = 0, worker_id = null, slot = null", "RUNNING never goes back to the queue"),
    ("RUNNING", "status = 1, not_before = 1, worker_id = null, slot = null", "RUNNING never goes back to the queue"),
    ("RUNNING", "fence = 0", "a fence only rises"),
    ("resumed", "fence = 0", "a fence only rises"),
    # What a row in a state must have and must not have.
    ("QUEUED", "status = 3", "(?i)check"),
    ("QUEUED", "status = 3, worker_id = 1, slot = 1, claimed_at = 1", "(?i)check"),  # without a fence
    ("QUEUED", "status = 6, gate = 0", "(?i)check"),  # without an end
    ("QUEUED", "finished_at = 1", "(?i)check"),
    ("QUEUED", "status = 1, gate = 0", "(?i)check"),  # without a time
    ("QUEUED", "status = 0", "(?i)check"),  # with an open gate
    ("QUEUED", "queued_at = null", "(?i)check"),
    ("QUEUED", "worker_id = 1", "(?i)check"),
    ("QUEUED", "stop = 'cancel'", "(?i)check"),
    ("QUEUED", "priority = 101", "(?i)check"),
    ("QUEUED", "priority = -1", "(?i)check"),
    ("QUEUED", "status = 10", "(?i)check"),
    ("RUNNING", "worker_id = null", "(?i)check"),
    ("RUNNING", "slot = null", "(?i)check"),
    ("RUNNING", "stop = 'please'", "(?i)check"),
    ("RUNNING", "gate = 1", "(?i)check"),
]


@pytest.mark.parametrize(("state", "change", "words"), JOBS)
def test_a_job_cannot_be_brought_into_an_impossible_state(
    shared_life: Life, raw: Any, state: str, change: str, words: str
) -> None:
    job_id = shared_life.in_state(state)
    refuse(shared_life, raw, f"update hw_job set {change} where id = {job_id}", words)


# --- uniqueness ---


def test_one_running_job_per_slot(shared_life: Life, raw: Any) -> None:
    life = shared_life
    one, other = life.in_state("RUNNING"), life.in_state("RUNNING")
    slot = life.job(one).slot
    refuse(life, raw, f"update hw_job set slot = {slot} where id = {other}", "(?i)unique")
    # When the first has ended its slot is free.
    life.client.cancel(one)
    assert life.end(life.held(one), StoppedByRequest())
    raw.execute(f"update hw_job set slot = {slot} where id = {other}")


def test_a_claim_into_a_taken_slot_fails_as_a_whole(shared_life: Life) -> None:

    life = shared_life
    running, one, other = life.in_state("RUNNING"), life.enqueue(), life.enqueue()
    slot = life.job(running).slot or 0
    before = life.everything()
    with pytest.raises(REFUSED):
        life.database.transact(
            "claim", lambda tx: committed.take(tx, life.worker_id, life.actor(), [one, other], [slot + 5000, slot])
        )
    assert life.everything() == before
    assert life.claim(one).fence == 1


@pytest.mark.parametrize("holder", ["RUNNING", "PAUSED", "ERROR"])
@pytest.mark.parametrize("second", ["RUNNING", "PAUSED", "ERROR"])
def test_one_holder_per_target(shared_life: Life, raw: Any, holder: str, second: str) -> None:
    life = shared_life
    target = life.enqueue()  # any number that no other test uses
    one, other = life.in_state(holder), life.in_state(second)
    raw.execute(f"update hw_job set target_id = {target} where id = {one}")
    refuse(life, raw, f"update hw_job set target_id = {target} where id = {other}", "(?i)unique")
    for state in ("QUEUED", "COMPLETED", "FAILED", "WAITING"):  # these hold nothing
        raw.execute(f"update hw_job set gate = 0, target_id = {target} where id = {life.in_state(state)}")


COPY = """
insert into hw_job (id, tenant_id, bucket_id, status, position, created_at, queued_at, retry_auto, retry_of,
  task, params, options, created_by)
select -id, tenant_id, bucket_id, 2, position, created_at, 1, {auto}, retry_of, task, params, options, created_by
from hw_job where retry_of = {job}
"""


def test_at_most_one_automatic_retry_per_job(shared_life: Life, raw: Any) -> None:
    life = shared_life
    job_id = life.in_state("retried")
    refuse(life, raw, COPY.format(auto=1, job=job_id), "(?i)unique")
    raw.execute(COPY.format(auto=0, job=job_id))  # by hand as many as one likes


def test_one_unfinished_job_per_key(shared_life: Life, raw: Any) -> None:
    life = shared_life
    life.enqueue(key="held")
    other = life.enqueue(key="other")
    refuse(life, raw, f"update hw_job set key = 'held' where id = {other}", "(?i)unique")


def test_no_event_version_twice_and_one_run_per_job(shared_life: Life, raw: Any) -> None:
    life = shared_life
    job_id = life.in_state("RUNNING")
    columns = "tenant_id, thing, thing_id, version, kind, at, actor"
    refuse(life, raw, f"insert into hw_event ({columns}) values (1, 'job', {job_id}, 2, 'x', 0, '{{}}')", "(?i)unique")
    columns = "job_id, tenant_id, task, params, worker_id, started_at"
    refuse(life, raw, f"insert into hw_run ({columns}) values ({job_id}, 1, 't', '', 1, 1)", "(?i)unique")


def test_a_run_is_open_or_has_a_status_a_run_can_have(shared_life: Life, raw: Any) -> None:
    job_id = shared_life.in_state("RUNNING")
    for change in ("status = 6", "finished_at = 1", "status = 9, finished_at = 1", "status = 3, finished_at = 1"):
        refuse(shared_life, raw, f"update hw_run set {change} where job_id = {job_id}", "(?i)check")


def test_a_lane_has_no_negative_room(shared_life: Life, raw: Any) -> None:
    refuse(shared_life, raw, "update hw_lane set capacity = -1", "(?i)check")
