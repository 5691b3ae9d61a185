"""PostgreSQL's disk is full in each phase of a job: it is said clearly, nothing is lost, and it goes on with space."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import pytest

from headway.api.schemas.webhooks import render
from headway.cli.database.backup import backup
from headway.engine.execution import process_tree
from headway.engine.maintenance.pruner import Pruner
from headway.engine.maintenance.recovery import Recovery
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.errors import CommitUnknown, Refused, Unreachable
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Completed, Failed, FailureKind
from headway.store import workers
from headway.store.db import open_database
from headway.store.migrations import migrate, versions
from headway.verify import check
from tests.support.life import TASK, Life
from tests.support.postgres import client_programs, fresh_database, postgres_server
from tests.support.receivers import receiver
from tests.support.schedules import Clockwork
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.templates import make_template

# Five refusals each.
ROUNDS = 40 if os.environ.get("HEADWAY_PROOF") else 4


class Site(NamedTuple):
    disk: SmallDisk
    life: Life


@pytest.fixture(scope="module")
def disk() -> Iterator[SmallDisk]:
    with small_disk() as disk:
        yield disk


@pytest.fixture(scope="module")
def server(disk: SmallDisk) -> Iterator[str]:
    with postgres_server(directory=disk.path) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def site(disk: SmallDisk, server: str) -> Iterator[Site]:
    with fresh_database(server) as url:
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


# --- what goes on by itself ----------------------------------------------------------------------------------------

NO_PROCESS = 2**22 - 1
DAY = 86_400.0


def test_a_renewal_is_stored_or_refused(site: Site) -> None:
    """It is so small that there may be room for it."""
    life = site.life
    with site.disk.full(), suppress(Unreachable):
        life.database.transact("renew", lambda tx: workers.beat(tx, life.worker_id, 60.0))
    assert life.database.transact("renew", lambda tx: workers.beat(tx, life.worker_id, 60.0))


def test_recovery_settles_lost_work_when_there_is_room(site: Site) -> None:
    """The retry has the params of the lost job, for which there is no room."""
    life = site.life
    who = workers.Identity(77, process_tree.host(), process_tree.boot_id(), NO_PROCESS, 1)
    life.database.transact(
        "register", lambda tx: workers.register(tx, who, life.actor(77), slots=1, tasks=[TASK], lease=60.0)
    )
    lost = life.enqueue(params=bulk(77))
    assert life.take(lost, worker_id=77)
    recovery = Recovery(life.database)
    recovery._give_up_the_dead()
    refused(site, recovery.tick)
    assert life.status(lost) == "RUNNING"
    recovery.tick()
    assert life.status(lost) == "FAILED"
    (retry,) = [number for (number,) in life.sql(f"select id from hw_job where retry_of = {lost}")]
    life.client.cancel(retry)
    assert [str(one) for one in check(life.database).findings] == []


def test_a_tick_fires_when_there_is_room(site: Site) -> None:
    life = site.life
    clockwork = Clockwork(life)
    source = bulk(78)[:30_000]
    steps = [{"task": "sync", "name": f"s{n}", "params": {"source": source}} for n in range(8)]
    schedule = clockwork.create(cron="* * * * *", steps=steps)
    life.clock.advance(60)
    refused(site, clockwork.scheduler.tick)
    assert clockwork.ticks(schedule.id) == []
    clockwork.round()
    assert clockwork.ticks(schedule.id) == [(1, 1, "FIRED")]
    clockwork.schedules.disable(schedule.id)
    clockwork.scheduler.waiter.close()
    life.client.groups.cancel(clockwork.executions()[-1][0])
    assert [str(one) for one in check(life.database).findings] == []


def test_a_delivery_is_sent_when_there_is_room(site: Site) -> None:
    """The body has the job's params, for which there is no room. It is sent once, when it is stored."""
    life = site.life
    with receiver() as ours:
        options = replace(Options.parse(life.new().options), webhook_url=ours.url).text()
        life.client.allow_private = True
        job = life.client.enqueue(life.new(params=bulk(79))._replace(options=options))[0]
        life.run(job, Completed("7"))
        deliverer = Deliverer(life.database, render=render, guard=Guard(allow_private=True, deadline=30.0))
        with site.disk.full(), pytest.raises(Unreachable, match="PostgreSQL's disk is full"):
            deliverer.tick()
        assert ours.received == []
        deliverer.tick()
        assert deliverer.settle(30.0)
        deliverer.tick()
        deliverer.waiter.close()
        assert len(ours.received) == 1
    assert life.sql(f"select status, tries, lost from hw_delivery where job_id = {job}") == [("DELIVERED", 1, 0)]
    assert [str(one) for one in check(life.database).findings] == []


def test_a_pruning_is_done_or_refused(site: Site) -> None:
    """It frees space, and may need none. What a full disk refuses goes with the next pass."""
    life = site.life
    ids = [life.enqueue(params=bulk(seed + 200)) for seed in range(3)]
    for job_id in ids:
        life.run(job_id, Completed(bulk(job_id + 300)))
    life.clock.advance(DAY + 1)
    pruner = Pruner(life.database, retention=DAY, artifacts=site.disk.path / "artifacts")
    with site.disk.full(), suppress(Unreachable):
        pruner.tick()
    assert life.sql("select active from hw_pruning") == [(0,)]
    assert [str(one) for one in check(life.database).findings] == []
    for _ in range(2):
        while pruner.tick() == 0.0:
            pass
    assert life.sql(f"select id from hw_job where id in {tuple(ids)}") == []
    assert [str(one) for one in check(life.database).findings] == []


# --- the schema and its copy ---------------------------------------------------------------------------------------


def test_a_migration_is_whole_or_not_there(site: Site, server: str) -> None:
    with fresh_database(server) as url:
        database = open_database(url)
        with database.read() as tx:  # the first session in a database writes a file of the server's
            tx.run("ping")
        with site.disk.full(), pytest.raises(Unreachable, match="PostgreSQL's disk is full: free some space"):
            migrate(database)
        with database.read() as tx:
            assert tx.connection.execute("select relname from pg_class where relname like 'hw_%'").fetchall() == []  # type: ignore[attr-defined]
        assert migrate(database) == versions()
        database.close()


def test_a_backup_is_whole_or_not_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{client_programs()}{os.pathsep}{os.environ['PATH']}")
    copy = site.disk.path / "copies" / "backup"
    copy.parent.mkdir()
    copy.parent.chmod(0o700)
    site.life.enqueue(params=bulk(400))
    with (
        site.disk.full(),
        pytest.raises(Refused, match=r"pg_dump failed \(.*No space left on device.*\), and nothing was changed"),
    ):
        backup(site.life.database, copy)
    assert list(copy.parent.iterdir()) == []
    backup(site.life.database, copy)
    assert [path.name for path in copy.parent.iterdir()] == ["backup"]
    copy.unlink()


# --- a job ---------------------------------------------------------------------------------------------------------


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
    ours = f"select status from hw_job where id in ({failing}, {ending}) or retry_of = {failing}"
    assert {row[0] for row in life.sql(ours)} == {6, 7}
    assert [str(one) for one in check(life.database).findings] == []
