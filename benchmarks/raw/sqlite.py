"""The raw limits of SQLite through apsw: WAL, synchronous=FULL, BEGIN IMMEDIATE, the default cache."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import apsw

from benchmarks.raw.rows import BULK, SCHEMA, Claimed, Rates, edges, expect, now, params


def connect(path: str) -> apsw.Connection:
    """A writer as the house opens it: one pragma per call, each read back, since a pragma can fail in silence."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5_000)
    for name, value, expected in (("journal_mode", "wal", "wal"), ("synchronous", "full", 2)):
        connection.execute(f"pragma {name} = {value}").fetchall()
        found = connection.execute(f"pragma {name}").fetchall()[0][0]
        if found != expected:
            raise RuntimeError(f"pragma {name} is {found}, not {expected}")
    return connection


def create(path: str, jobs: int = 0) -> apsw.Connection:
    connection = connect(path)
    connection.execute(SCHEMA.format(pk="integer primary key", key="integer primary key"))
    for start in range(0, jobs, BULK):
        insert(connection, params(min(BULK, jobs - start)))
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    return connection


INSERT_JOBS = """
insert into job (id, bucket_id, task, status, gate, position, created_at, params)
select ?2 + d.key, 1, 'noop', 2, 1, (?2 + d.key) * 1048576, ?3, d.value from json_each(?1) d"""
INSERT_CREATED = """
insert into event (job_id, version, kind, at, actor)
select ?2 + d.key, 1, 'created', ?3, 'client' from json_each(?1) d"""
NEXT_ID = "select coalesce(max(id), 0) + 1 from job"


def insert(connection: apsw.Connection, jobs: Sequence[str]) -> None:
    """One commit: the jobs and their events."""
    connection.execute("begin immediate")
    first = connection.execute(NEXT_ID).fetchall()[0][0]
    bindings = (json.dumps(jobs), first, now())
    connection.execute(INSERT_JOBS, bindings)
    connection.execute(INSERT_CREATED, bindings)
    connection.execute("commit")


INSERT_JOB = """
insert into job (id, bucket_id, task, status, gate, position, created_at, params)
values (?1, 1, 'noop', 2, 1, ?1 * 1048576, ?2, ?3)"""
INSERT_EVENT = "insert into event (job_id, version, kind, at, actor) values (?1, 1, 'created', ?2, 'client')"


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    connection = create(url)
    rows = params(jobs)
    start = time.monotonic()
    for row in rows:
        connection.execute("begin immediate")
        new = connection.execute(NEXT_ID).fetchall()[0][0]
        at = now()
        connection.execute(INSERT_JOB, (new, at, row))
        connection.execute(INSERT_EVENT, (new, at))
        connection.execute("commit")
    return jobs / (time.monotonic() - start)


def enqueue_bulk(url: str, *, jobs: int, batch: int = BULK) -> float:
    connection = create(url)
    rows = params(jobs)
    start = time.monotonic()
    for at in range(0, jobs, batch):
        insert(connection, rows[at : at + batch])
    return jobs / (time.monotonic() - start)


FINISH_JOBS = """
update job set status = 6, finished_at = ?2, version = version + 1, worker_id = null, slot = null, lease_until = null
from json_each(?1) d where job.id = cast(d.key as integer) and job.fence = d.value and job.status = 3
returning job.id"""
FINISH_RUNS = "update run set status = 6, finished_at = ?2 from json_each(?1) d where run.job_id = d.value"
FINISH_EVENTS = """
insert into event (job_id, version, kind, at, actor, fence)
select job.id, job.version, 'completed', ?2, 'worker', job.fence from json_each(?1) d join job on job.id = d.value"""
FINISH_RESULTS = "insert into result (job_id, value) select d.value, 'null' from json_each(?1) d"
PICK = """
select id from job where bucket_id = 1 and gate = 1 order by priority desc, position, created_at, id limit ?"""
CLAIM_JOBS = """
update job set status = 3, gate = 0, fence = fence + 1, version = version + 1, worker_id = 1, slot = d.key,
  lease_until = ?2 + 60000000, started_at = ?2
from json_each(?1) d where job.id = d.value returning job.id, job.fence, job.task, job.params"""
CLAIM_RUNS = """
insert into run (job_id, task, params, worker_id, started_at)
select job.id, job.task, job.params, 1, ?2 from json_each(?1) d join job on job.id = d.value"""
CLAIM_EVENTS = """
insert into event (job_id, version, kind, at, actor, fence)
select job.id, job.version, 'claimed', ?2, 'worker', job.fence from json_each(?1) d join job on job.id = d.value"""


def finish(connection: apsw.Connection, done: Claimed) -> None:
    at = now()
    landed = [row[0] for row in connection.execute(FINISH_JOBS, (json.dumps(dict(done)), at))]
    bindings = (json.dumps(landed), at)
    connection.execute(FINISH_RUNS, bindings)
    connection.execute(FINISH_EVENTS, bindings)
    connection.execute(FINISH_RESULTS, bindings[:1])


def claim(connection: apsw.Connection, count: int) -> Claimed:
    picks = [row[0] for row in connection.execute(PICK, (count,))]
    if not picks:
        return []
    bindings = (json.dumps(picks), now())
    claimed = [(row[0], row[1]) for row in connection.execute(CLAIM_JOBS, bindings)]
    connection.execute(CLAIM_RUNS, bindings)
    connection.execute(CLAIM_EVENTS, bindings)
    return claimed


def drain(url: str, *, jobs: int, batch: int) -> Rates:
    """Finish `batch` and claim `batch` in one transaction, until nothing is left."""
    connection = create(url, jobs)
    finished = [(time.monotonic(), 0)]
    claimed: Claimed = []
    while True:
        connection.execute("begin immediate")
        if claimed:
            finish(connection, claimed)
        done, claimed = len(claimed), claim(connection, batch)
        connection.execute("commit")
        finished.append((time.monotonic(), done))
        if not claimed:
            break
    expect(len(connection.execute("select job_id from result").fetchall()), jobs)
    return {"rate": jobs / (finished[-1][0] - finished[0][0]), **edges(finished)}
