"""Behind a transaction pooler: every transaction on another connection, and nothing of a session survives one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from headway.engine.client import Client
from headway.engine.finish import Ended, finish
from headway.engine.recovery import Recovery
from headway.engine.registry import Registry
from headway.model.job import Claim
from headway.model.outcome import Completed, Outcome
from headway.store import workers
from headway.store.db import Tx
from headway.store.migrate import migrate
from headway.store.postgres import PostgresDatabase, PostgresTx
from headway.testing import FrozenClock
from tests.support.life import ADA, BROKEN, Life

CONNECTIONS = 3


class Pooled(PostgresDatabase):
    """As pgbouncer does it: a few connections, the longest unused one next, and DISCARD ALL after each transaction."""

    def __init__(self, url: str, *, listen: str | None, clock: FrozenClock) -> None:
        super().__init__(url, clock=clock, listen=listen)
        prepare = self.pool.kwargs["prepare_threshold"]  # type: ignore[index]
        self.resets = 0
        self.pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            url,
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            kwargs={"autocommit": True, "prepare_threshold": prepare},
            reset=self._reset,
            open=False,
        )

    def _reset(self, connection: psycopg.Connection[Any]) -> None:
        # Past psycopg, which would otherwise learn that its prepared statements are gone.
        assert connection.pgconn.exec_(b"discard all").status == 1
        self.resets += 1


@pytest.fixture
def pooled(postgres_url: str) -> Iterator[Life]:
    clock = FrozenClock()
    database = Pooled(postgres_url, listen=postgres_url, clock=clock)
    with Life(postgres_url, database=database, clock=clock) as life:
        yield life


def turn(life: Life, ended: list[tuple[Claim, Outcome]], worker_id: int | None = None) -> list[Claim]:
    """A worker's turn, as the worker writes it: ends and claims in one transaction."""
    owner = worker_id or life.worker_id

    def work(tx: Tx) -> list[Claim]:
        tx.run("pin_plans")
        assert not finish(tx, owner, life.actor(owner), [Ended(claim, outcome) for claim, outcome in ended])
        return life.claim_in(tx, [0, 1], owner)

    return life.database.transact("turn", work)


def test_a_whole_life(pooled: Life) -> None:
    life = pooled
    first = life.enqueue(params='{"n":1}', key="k")
    many = life.client.enqueue_many([life.new(priority=p) for p in (1, 2, 3)])
    assert life.client.enqueue(life.new(key="k")) == (first, False)
    life.client.move(first, to="front")
    # Claim, end, claim the next in the same transaction.
    (claim,) = turn(life, [])
    assert claim.job_id == first
    (following,) = turn(life, [(claim, Completed('{"ok":true}'))])
    assert following.job_id == many[2][0]
    # A failure, its retry when its time has come, and its end.
    (third,) = turn(life, [(following, BROKEN)])
    life.clock.advance(10)
    (retry,) = turn(life, [(third, Completed())])
    assert (retry.attempt, life.job(retry.job_id).retry_of) == (2, following.job_id)
    (last,) = turn(life, [(retry, Completed())])
    assert turn(life, [(last, Completed())]) == []
    assert {life.status(job_id) for job_id, _ in [(first, True), *many]} == {"COMPLETED", "FAILED"}
    life.check_versions()
    database = life.database
    assert isinstance(database, Pooled)
    assert database.resets > 20


def test_a_worker_that_is_gone_is_recovered(pooled: Life) -> None:
    life = pooled
    gone = life.new_worker()
    job_id = life.enqueue()
    assert turn(life, [], worker_id=gone)
    assert life.database.transact("beat", lambda tx: workers.beat(tx, gone, 60.0))
    life.database.transact("leave", lambda tx: workers.retire(tx, gone, "shut down"))
    Recovery(life.database).tick()
    assert life.status(job_id) == "FAILED"
    assert life.client.retry(job_id).status.name == "QUEUED"
    assert len(turn(life, [])) == 1


def test_what_people_do_in_between(pooled: Life) -> None:
    life = pooled
    for state in ("WAITING", "PAUSED", "ERROR", "stopped", "expired", "retried"):
        life.in_state(state)
    life.client.pause_queue(note="lunch")
    life.enqueue()
    assert turn(life, []) == []
    life.client.resume_queue()
    assert len(turn(life, [])) == 1


def test_plans_are_pinned_for_their_own_transaction_only(pooled: Life) -> None:
    """A pooler lends the connection to somebody else next."""
    tx = pooled.database.begin("pinned")
    assert isinstance(tx, PostgresTx)
    tx.run("pin_plans")
    assert tx.connection.execute("show enable_seqscan").fetchall() == [("off",)]
    tx.commit()
    assert tx.connection.execute("show enable_seqscan").fetchall() == [("on",)]
    pooled.database.end(tx)


def test_every_connection_is_used(pooled: Life) -> None:
    found = {pooled.sql("select pg_backend_pid()")[0][0] for _ in range(3 * CONNECTIONS)}
    assert len(found) == CONNECTIONS


def test_prepared_statements_would_not_survive_this(postgres_url: str) -> None:
    """So the tests above can fail: without `listen` statements are prepared, and the pooler forgets them."""
    clock = FrozenClock()
    database = Pooled(postgres_url, listen=None, clock=clock)
    client = Client(database, Registry(), actor=ADA)

    def live() -> None:
        migrate(database)
        for _ in range(2 * CONNECTIONS):
            client.pause_queue()

    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        live()
    database.close()
