"""PostgreSQL's disk is full in each phase of a job: it is said clearly, nothing is lost, and it goes on with space."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from headway.errors import CommitUnknown, Unreachable
from headway.model.jobs.outcome import Completed, Failed, FailureKind
from headway.verify import check
from tests.support.life import Life
from tests.support.postgres import fresh_database, postgres_server
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.templates import make_template

# Five refusals each.
ROUNDS = 40 if os.environ.get("HEADWAY_PROOF") else 4


class Site(NamedTuple):
    disk: SmallDisk
    life: Life


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with small_disk() as disk, postgres_server(directory=disk.path) as dsn, fresh_database(dsn) as url:
        make_template(url)
        with Life(url) as life:
            yield Site(disk, life)


def bulk(seed: int) -> str:
    """A value that no page has room for, and that cannot be made smaller."""
    return json.dumps({"bulk": random.Random(seed).randbytes(300_000).hex()})


def refused(site: Site, act: Callable[[], object]) -> None:
    """On a full disk it fails, says so, and leaves everything as it was."""
    before = site.life.everything()
    with site.disk.full():
        with pytest.raises(
            Unreachable, match="PostgreSQL's disk is full: free some space; nothing was changed"
        ) as said:
            act()
        assert not isinstance(said.value, CommitUnknown)
        assert site.life.everything() == before  # and it can be read


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_phase_of_a_job(site: Site, seed: int) -> None:
    life, params = site.life, bulk(seed)
    refused(site, lambda: life.enqueue(params=params))
    refused(site, lambda: life.client.enqueue_many([life.new(params=params, key="k"), life.new(params=params)]))
    failing, ending = life.enqueue(params=params), life.enqueue(params=params)
    # A claim keeps what was dispatched, a retry is a job with the same params, an end has a result.
    refused(site, lambda: life.claim(failing))
    claim = life.claim(failing)
    refused(site, lambda: life.end(claim, Failed(FailureKind.EXCEPTION, "broken")))
    assert life.status(failing) == "RUNNING"
    assert life.end(claim, Failed(FailureKind.EXCEPTION, "broken"))
    claim = life.claim(ending)
    refused(site, lambda: life.end(claim, Completed(bulk(seed + 1000))))
    assert life.end(claim, Completed(bulk(seed + 1000)))
    life.clock.advance(60)
    while claims := life.claim_next():
        assert life.end(claims[0], Completed())
    assert {row[0] for row in life.sql("select status from hw_job")} == {6, 7}
    assert [str(one) for one in check(life.database).findings] == []
