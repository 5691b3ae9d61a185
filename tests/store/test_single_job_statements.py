"""SQLite has statements of their own for a turn of one job: whatever state a job is in, they do to it what those for
many do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headway.model.jobs.job import Claim
from headway.store import workers
from headway.store.db import Row, Tx
from headway.store.queue import claims
from tests.support import committed
from tests.support.life import BROKEN, HOUR, Life

# What differs between two jobs that are otherwise the same.
OWN = {"id", "job_id", "thing_id", "position", "slot"}


class Case(NamedTuple):
    """How a job comes to be as it is, how it is asked for, and whether it is for the taking, or the ending."""

    make: Callable[[Life], int]
    lands: bool
    fence: int = 0
    worker: int = 0


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    with Life(str(tmp_path / "one.db")) as life:
        life.set_limit(None)
        yield life


def left(life: Life, job_id: int) -> Any:
    """All that is stored of a job, without the numbers it has to itself."""
    found: dict[str, Any] = {}
    for table, where in (
        ("job", f"id = {job_id}"),
        ("run", f"job_id = {job_id}"),
        ("result", f"job_id = {job_id}"),
        ("event", f"thing = 'job' and thing_id = {job_id} order by version"),
    ):
        columns = [name for (name,) in life.sql(f"select name from pragma_table_info('hw_{table}')")]
        rows = life.sql(f"select {', '.join(columns)} from hw_{table} where {where}")
        found[table] = [{k: v for k, v in zip(columns, row, strict=True) if k not in OWN} for row in rows]
    return found


def resumed(life: Life) -> int:
    """One that was claimed before: its run goes on."""
    job_id = life.in_state("PAUSED")
    life.client.resume(job_id)
    return job_id


def expired(life: Life, job_id: int) -> int:
    with life.database.transaction("past") as tx:
        tx.connection.execute(f"update hw_job set expires_at = {life.clock.now()} where id = {job_id}")  # type: ignore[attr-defined]
    return job_id


def running(life: Life) -> int:
    return life.claim(life.enqueue(params='{"n":1}')).job_id


def stopping(life: Life) -> int:
    job_id = running(life)
    life.client.cancel(job_id)
    return job_id


def again(life: Life) -> int:
    return life.claim(resumed(life)).job_id


TAKEN = {
    "queued": Case(lambda life: life.enqueue(params='{"n":1}'), lands=True),
    "claimed before": Case(resumed, lands=True),
    "expires later": Case(lambda life: life.enqueue(expires_at=life.clock.now() + HOUR), lands=True),
    "expired": Case(lambda life: expired(life, life.enqueue()), lands=False),
    "expired, claimed before": Case(lambda life: expired(life, resumed(life)), lands=True),
    "held": Case(lambda life: life.enqueue(hold=True), lands=False),
    "running": Case(running, lands=False),
    "failed": Case(lambda life: life.run(life.enqueue(), BROKEN).id, lands=False),
    "by a worker that was given up": Case(lambda life: life.enqueue(), lands=False, worker=1),
}
ENDED = {
    "running": Case(running, lands=True, fence=1),
    "asked to stop": Case(stopping, lands=True, fence=1),
    "claimed twice": Case(again, lands=True, fence=2),
    "an older fence": Case(again, lands=False, fence=1),
    "another worker's": Case(running, lands=False, fence=1, worker=1),
    "paused": Case(lambda life: life.in_state("PAUSED"), lands=False, fence=1),
    "ended": Case(lambda life: life.run(life.enqueue(), BROKEN).id, lands=False, fence=1),
}


def gone(life: Life) -> int:
    worker_id = life.new_worker()
    life.database.transact("retire", lambda tx: workers.retire(tx, worker_id, "gone", actor=life.actor()))
    return worker_id


@pytest.mark.parametrize("name", TAKEN)
def test_one_is_taken_as_many_are(life: Life, name: str) -> None:
    case = TAKEN[name]
    one, many = case.make(life), case.make(life)
    worker_id = gone(life) if case.worker else life.worker_id
    actor = life.actor()

    def batch(tx: Tx) -> list[Row]:
        return tx.run("take", picks=json.dumps({many: 902}), worker_id=worker_id, actor=actor.text())

    taken = life.database.transact("one", lambda tx: committed.take(tx, worker_id, actor, [one], [901]))
    theirs = [claim._replace(job_id=one, slot=901) for claim in map(Claim._make, life.database.transact("many", batch))]
    assert taken == theirs
    assert left(life, one) == left(life, many)
    assert bool(taken) is case.lands


@pytest.mark.parametrize(("result", "code"), [(None, None), ('{"a":"b"}', None), ('{"exit_code":4}', 4)])
@pytest.mark.parametrize("name", ENDED)
def test_one_ends_as_many_do(life: Life, name: str, result: str | None, code: int | None) -> None:
    case = ENDED[name]
    one, many = case.make(life), case.make(life)
    life.clock.advance(3.0)
    worker_id = life.new_worker() if case.worker else life.worker_id
    actor = life.actor()

    def batch(tx: Tx) -> list[Row]:
        results = json.dumps({} if result is None else {many: [case.fence, result]})
        codes = json.dumps({} if code is None else {many: code})
        more = {"results": results, "codes": codes}
        return tx.run("complete", ended=json.dumps({many: case.fence}), **more, worker_id=worker_id, actor=actor.text())

    def single(tx: Tx) -> set[int]:
        results = {} if result is None else {one: result}
        codes = {} if code is None else {one: code}
        return claims.complete(tx, worker_id, actor, {one: case.fence}, results, codes).result()

    landed = life.database.transact("one", single)
    theirs = life.database.transact("many", batch)
    assert left(life, one) == left(life, many)
    assert (landed, theirs) == (({one}, [(many,)]) if case.lands else (set(), []))
