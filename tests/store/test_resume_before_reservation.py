"""A resumed job and a reservation that waits for its target: the job goes on, the reservation has its turn then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.engine.client import limits
from headway.engine.direct import reservations as direct_reservations
from headway.model.jobs.job import SYSTEM
from headway.model.jobs.outcome import Completed, Failed, FailureKind
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from headway.store.queue import reservations
from headway.store.queue.lanes import BucketCache
from headway.verify import check
from tests.support.life import Life


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        limits.settle(life.database, Concurrency(), {"gpu": 1}, actor=SYSTEM, adopt=True)
        yield life


@pytest.mark.parametrize("resources", [(), ("gpu",)])
def test_neither_waits_for_ever(life: Life, resources: tuple[str, ...]) -> None:
    ((held, _),) = life.client.enqueue_many([life.new(target="desk", resources=resources)])
    (claim,) = life.database.transact("claim", lambda tx: life.claim_in(tx, [0]))
    assert life.end(claim, Failed(FailureKind.EXCEPTION, "no", final=True))
    lanes = BucketCache(life.database)

    def reserve(tx: Tx) -> tuple[int, bool]:
        target_id = life.client.lanes.target(life.client.tenant_id, "desk")
        wish = direct_reservations.ReservationRequest(life.client.tenant_id, "ada", resources, target_id)
        return direct_reservations.reserve(tx, lanes, wish, SYSTEM, ttl=60_000_000)

    number, granted = life.database.transact("reserve", reserve)
    assert not granted
    life.client.resume(held)
    (again,) = life.database.transact("claim", lambda tx: life.claim_in(tx, [1]))
    assert again.job_id == held
    assert life.end(again, Completed())
    life.database.transact("claim", lambda tx: life.claim_in(tx, []))
    with life.database.read() as tx:
        found = reservations.find(tx, number)
    assert found is not None
    assert found.granted_at is not None
    assert check(life.database).findings == []
