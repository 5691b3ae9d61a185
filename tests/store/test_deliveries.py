"""The outbox: which events make which deliveries, for whom, in the same transaction; and what the schema forbids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.engine.client.client import Client
from headway.engine.maintenance.pruner import Pruner
from headway.errors import BadInput, NotFound, WrongState
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs.job import NewJob, Options
from headway.model.jobs.outcome import Completed
from headway.model.webhooks import webhook as model
from headway.store.db import Tx
from headway.store.webhooks import deliveries
from tests.support.life import ADA, BROKEN, FINAL, Life
from tests.support.pair import Pair

URL = "https://hook.example/x"


def made(life: Life) -> list[tuple[int, str]]:
    return [(number, name) for number, name in life.sql("select endpoint_id, event from hw_delivery order by id")]


def names(life: Life) -> list[str]:
    return [name for _, name in made(life)]


def hooked(life: Life, *events: str, url: str = URL, **fields: Any) -> NewJob:
    new = life.new(**fields)
    options = replace(Options.parse(new.options), webhook_url=url, webhook_events=events)
    return new._replace(options=options.text())


MAPPING = {
    "COMPLETED": ["job.run.completed"],
    "FAILED": ["job.run.failed", "job.exhausted"],
    "retried": ["job.run.failed"],
    "SKIPPED": ["job.run.skipped"],
    "expired": ["job.run.skipped"],
    "CANCELLED": ["job.cancelled"],
    "stopped": ["job.cancelled"],
    "PAUSED": ["job.paused"],
    "ERROR": ["job.error"],
    "released": ["job.error", "job.run.failed", "job.exhausted"],
    "QUEUED": [],
    "WAITING": [],
    "SCHEDULED": [],
    "RUNNING": [],
    "cancelling": [],
}


@pytest.mark.parametrize("state", MAPPING)
def test_what_happens_to_a_job_and_what_it_is_called(life: Life, state: str) -> None:
    life.client.webhooks.create(URL)
    life.in_state(state)
    assert sorted(names(life)) == sorted(MAPPING[state])


@pytest.mark.parametrize("state", MAPPING)
def test_the_same_for_a_job_that_brings_its_own_address(life: Life, state: str) -> None:
    life.new = lambda **fields: (new := Life.new(life, **fields))._replace(  # type: ignore[method-assign]
        options=replace(Options.parse(new.options), webhook_url=URL).text()
    )
    job = life.in_state(state)
    assert sorted(names(life)) == sorted(MAPPING[state])
    assert {tuple(row) for row in life.sql("select endpoint_id, job_id, url, max_tries from hw_delivery")} <= {
        (0, job, URL, 4)
    }


def test_a_held_target_is_told_of(life: Life) -> None:
    life.client.webhooks.create(URL, ["target.held"])
    life.in_state("PAUSED", target="desk-1")
    life.in_state("PAUSED")
    life.run(life.enqueue(target="desk-2", retry=0), FINAL)
    assert names(life) == ["target.held", "target.held"]


def test_a_resolved_job_has_completed(life: Life) -> None:
    life.client.webhooks.create(URL, ["job.run.*"])
    life.client.resolve(life.in_state("PAUSED"), {"by": "hand"})
    assert names(life) == ["job.run.completed"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], ["job.run.failed", "job.exhausted"]),
        (["*"], ["job.run.failed", "job.exhausted"]),
        (["job.*"], ["job.run.failed", "job.exhausted"]),
        (["job.run.*"], ["job.run.failed"]),
        (["job.run.failed"], ["job.run.failed"]),
        (["job.exhausted", "group.finished"], ["job.exhausted"]),
        (["job.run.completed"], []),
        (["target.*"], []),
        (["job.run.failed", "job.*"], ["job.run.failed", "job.exhausted"]),
    ],
)
def test_filters(life: Life, wanted: list[str], expected: list[str]) -> None:
    life.client.webhooks.create(URL, wanted)
    life.in_state("FAILED")
    assert sorted(names(life)) == sorted(expected)
    assert [model.matches(wanted, name) for name in expected] == [True] * len(expected)


def test_one_for_each_endpoint_and_one_for_the_jobs_own(life: Life) -> None:
    for _ in range(3):
        life.client.webhooks.create(URL, ["job.run.*"])
    life.client.webhooks.edit(2, enabled=False)
    life.client.webhooks.delete(3)
    life.run(life.client.enqueue(hooked(life, "job.run.failed"))[0], BROKEN)
    assert sorted(made(life)) == [(0, "job.run.failed"), (1, "job.run.failed")]


def test_a_retry_keeps_its_jobs_address(life: Life) -> None:
    job = life.client.enqueue(hooked(life))[0]
    life.run(job, BROKEN)
    life.clock.advance(60)
    life.database.transact("promote", lambda tx: tx.run("promote", actor=ADA.text()))
    ((retry,),) = life.sql(f"select id from hw_job where retry_of = {job}")
    life.run(retry, Completed("null"))
    assert life.sql("select job_id, event from hw_delivery order by id") == [
        (job, "job.run.failed"),
        (retry, "job.run.completed"),
    ]


def test_what_only_looks_like_an_address_is_none(life: Life) -> None:
    """A meter or a resource may be called that."""
    new = life.new(budget=(("webhook_url", 5.0),))
    assert '"webhook_url"' in new.options
    life.run(life.client.enqueue(new)[0], Completed("null"))
    assert made(life) == []


def test_tenants_are_told_of_their_own_things(life: Life) -> None:
    life.sql_write("insert into hw_tenant (name, created_at) values ('other', 0)")
    other = Client(life.database, life.client.registry, actor=ADA, tenant="other")
    other.webhooks.create(URL)
    life.client.webhooks.create(URL)
    life.in_state("COMPLETED")
    assert life.sql("select tenant_id, endpoint_id from hw_delivery") == [(1, 2)]
    hooks = other.webhooks
    for name in ("get", "delete", "rotate", "test", "edit"):
        with pytest.raises(NotFound):
            getattr(hooks, name)(2)
    for name in ("delivery", "tries", "replay"):
        with pytest.raises(NotFound):
            getattr(hooks, name)(1)
    with pytest.raises(NotFound):
        hooks.deliveries(webhook=2)
    with pytest.raises(NotFound):
        hooks.deliveries(job=1)
    assert [one.id for one in hooks.list()] == [1]


def test_a_transaction_that_is_undone_leaves_no_delivery(life: Life) -> None:
    life.client.webhooks.create(URL)
    claim = life.claim(life.enqueue())

    class Undone(Exception):
        pass

    def work(tx: Tx) -> None:
        from headway.engine.worker.finish import Ended, finish

        finish(tx, life.worker_id, life.actor(), [Ended(claim, Completed("null"))])
        assert tx.run("pending_endpoints")
        raise Undone

    with pytest.raises(Undone):
        life.database.transact("finish", work)
    assert made(life) == []


def test_the_triggers_sleep_until_there_is_somebody(life: Life) -> None:
    def flags() -> Any:
        return life.sql("select endpoints, jobs from hw_outbox")[0]

    assert flags() == (0, 0)
    life.enqueue()
    life.client.webhooks.create(URL)
    life.client.webhooks.create(URL)
    assert flags() == (2, 0)
    life.client.webhooks.delete(1)
    life.client.webhooks.delete(2)
    assert flags() == (0, 0)
    life.client.enqueue(hooked(life))
    assert flags() == (0, 1)
    assert armed(life)


def armed(life: Life) -> bool:
    """Whether the trigger is in force: every row would pay for one that has nothing to do."""
    if life.database.dialect == "postgres":
        return bool(life.sql("select 1 from pg_trigger where tgname = 'hw_event_outbox' and tgenabled = 'O'"))
    return bool(life.sql("select 1 from sqlite_schema where name = 'hw_event_outbox'"))


def test_the_trigger_is_there_while_somebody_is_to_be_told(life: Life) -> None:
    hooks = life.client.webhooks
    assert not armed(life)
    hooks.create(URL)
    hooks.create(URL)
    hooks.delete(1)
    assert armed(life)
    hooks.delete(2)
    assert not armed(life)
    life.in_state("COMPLETED")
    hooks.create(URL)
    life.in_state("COMPLETED")
    assert made(life) == [(3, "job.run.completed")]


def test_a_member_of_a_group_may_bring_an_address(life: Life) -> None:
    one = NewMember(hooked(life, "job.run.completed"), 0, "a")
    group = life.client.groups.create(NewGroup("plan", "sequential", "stop", (one,)))
    ((job,),) = life.sql(f"select id from hw_job where group_id = {group}")
    life.run(job, Completed("null"))
    assert made(life) == [(0, "job.run.completed")]


def test_another_process_sees_the_trigger_at_once(life: Life) -> None:
    """It has prepared its statements before."""
    with Life(life.url, clock=life.clock) as other:
        other.in_state("COMPLETED")
        life.client.webhooks.create(URL, ["job.run.completed"])
        other.in_state("COMPLETED")
        life.client.webhooks.delete(1)
        other.in_state("COMPLETED")
    assert made(life) == [(1, "job.run.completed")]


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair


def test_the_flag_counts_when_one_is_made_while_another_is_deleted(pair: Pair) -> None:
    hooks = pair.client.webhooks
    hooks.create(URL)
    with pair.open_at("create_webhook:commit", lambda: hooks.create(URL)) as making:
        deleting = pair.waiting(lambda: hooks.delete(1))
    assert (making.result(30).id, deleting.result(30).id) == (2, 1)
    assert pair.sql("select endpoints from hw_outbox") == [(1,)]


def test_the_first_webhook_waits_for_who_writes_events(pair: Pair) -> None:
    """And whoever comes after it is told of: the trigger is in force for all at once."""
    claims = [pair.claim(pair.enqueue()) for _ in range(2)]
    with pair.open_at("finish:commit", lambda: pair.end(claims[0], Completed("null"))):
        making = pair.waiting(lambda: pair.client.webhooks.create(URL, ["job.run.completed"]))
        ending = pair.pool.submit(lambda: pair.end(claims[1], Completed("null")))
    making.result(30)
    assert ending.result(30)
    assert pair.sql("select job_id from hw_delivery") in ([], [(claims[1].job_id,)])
    pair.in_state("COMPLETED")
    assert pair.sql("select max(job_id) from hw_delivery") == [(claims[1].job_id + 1,)]


def test_jobs_that_bring_an_address_do_not_wait_for_each_other(pair: Pair) -> None:
    """But for the very first of all."""
    pair.client.enqueue(hooked(pair))
    with pair.open_at("commit", lambda: pair.client.enqueue(hooked(pair, key="a"))):
        pair.client.enqueue(hooked(pair, key="b"))
    assert pair.sql("select count(*) from hw_job") == [(3,)]


# --- what the schema forbids --------------------------------------------------------------------------------------


def one_delivery(life: Life) -> None:
    life.client.webhooks.create(URL, ["job.run.completed"])
    life.in_state("COMPLETED")


def test_a_body_never_changes(life: Life) -> None:
    one_delivery(life)
    life.sql_write("update hw_delivery set body = 'a', message_id = 'm'")
    for change in (
        "body = 'b'",
        "message_id = 'n'",
        "event_id = 1",
        "event = 'job.cancelled'",
        "body = null, message_id = null",
    ):
        with pytest.raises(Exception, match="its body never changes"):
            life.sql_write(f"update hw_delivery set {change}")
    life.sql_write("update hw_delivery set tries = 1")


def test_one_delivery_for_each_event_and_receiver(life: Life) -> None:
    one_delivery(life)
    copy = "insert into hw_delivery (tenant_id, endpoint_id, event_id, event, max_tries, due_at, created_at, replay_of)"
    with pytest.raises(Exception, match=r"(?i)unique"):
        life.sql_write(f"{copy} select tenant_id, endpoint_id, event_id, event, 4, 1, 1, null from hw_delivery")
    life.sql_write(f"{copy} select tenant_id, endpoint_id, event_id, event, 4, 1, 1, id from hw_delivery")


def test_no_more_tries_than_allowed(life: Life) -> None:
    one_delivery(life)
    with pytest.raises(Exception, match=r"(?i)constraint"):
        life.sql_write("update hw_delivery set tries = 5")


# --- leases -------------------------------------------------------------------------------------------------------


def test_a_lease_is_for_one(pair: Pair) -> None:
    """Two that look at the same moment: one takes it, the other passes it by without waiting."""
    one_delivery(pair)

    def take(who: str) -> list[int]:
        def work(tx: Tx) -> list[int]:
            found = deliveries.lease(tx, who, 1, limit=5, seconds=60.0, actor=ADA)
            return [one.delivery.fence for one in found]

        return pair.database.transact("lease", work)

    with pair.open_at("commit", lambda: take("a")) as first:
        assert take("b") == []
    assert first.result(30) == [1]
    assert take("b") == []


def test_pages_of_an_endpoint_and_of_a_job(life: Life) -> None:
    hooks = life.client.webhooks
    hooks.create(URL)
    jobs = [life.in_state("FAILED") for _ in range(3)]
    first = hooks.deliveries(webhook=1, limit=4)
    rest = hooks.deliveries(webhook=1, limit=4, cursor=first.next)
    assert [one.id for one in first.items + rest.items] == [6, 5, 4, 3, 2, 1]
    assert rest.next is None
    assert [one.id for one in hooks.deliveries(job=jobs[1]).items] == [4, 3]
    assert hooks.deliveries(webhook=1, status="FAILED").items == []
    for wrong in ({"webhook": 1, "job": 1}, {}, {"webhook": 1, "status": "SENT"}, {"webhook": 1, "limit": 0}):
        with pytest.raises(BadInput):
            hooks.deliveries(**wrong)


# --- pruning ------------------------------------------------------------------------------------------------------


def test_deliveries_go_after_what_they_are_about(life: Life, tmp_path: Path) -> None:
    hooks = life.client.webhooks
    hooks.create(URL, ["job.run.completed"])
    hooks.test(1)
    life.in_state("COMPLETED")
    life.in_state("COMPLETED")
    life.sql_write(
        "update hw_delivery set status = 'FAILED', due_at = null, finished_at = created_at, version = 1 where id <= 2"
    )
    life.sql_write(
        "insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)"
        " select 1, 'delivery', id, 1, 'delivery.failed', finished_at, '{}' from hw_delivery where id <= 2"
    )
    life.clock.advance(7200)
    fresh = life.in_state("COMPLETED")
    pruner = Pruner(life.database, retention=3600.0, artifacts=tmp_path)
    while pruner.tick() == 0.0:
        pass
    # The test and the first are gone; the one that is still on its way, and what is about the new job, stay.
    assert [number for (number,) in life.sql("select id from hw_delivery order by id")] == [3, 4]
    assert life.sql("select count from hw_tally where name = 'deliveries'") == [(2,)]
    assert life.sql("select count(*) from hw_event where thing = 'delivery'") == [(0,)]
    assert life.sql("select id from hw_job") == [(fresh,)]


# --- verbs --------------------------------------------------------------------------------------------------------

SECRET = model.make_secret(b"k" * 32)


def test_making_and_changing(life: Life) -> None:
    hooks = life.client.webhooks
    made = hooks.create(URL, ["job.*"], description="the bell", secret=SECRET, max_tries=2)
    assert (made.secret, made.max_tries, json.loads(made.events)) == (SECRET, 2, ["job.*"])
    changed = hooks.edit(1, url="http://other.example/", events=[], max_tries=9, description=None, if_version=1)
    assert (changed.url, changed.events, changed.version, changed.secret) == ("http://other.example/", "[]", 2, SECRET)
    assert hooks.edit(1, max_tries=9).version == 2  # nothing changed, nothing is said
    with pytest.raises(WrongState, match="has changed since it was read") as caught:
        hooks.edit(1, max_tries=3, if_version=1)
    assert caught.value.code == "version_mismatch"
    facts = [json.loads(data) for (data,) in life.sql("select data from hw_event where thing = 'webhook' order by id")]
    assert facts[0] == {"url": URL, "events": ["job.*"], "description": "the bell", "max_tries": 2, "enabled": True}


REFUSED: list[Any] = [
    "",
    "hook.example",
    "ftp://hook.example/",
    "https://",
    "https:///x",
    "file:///etc/passwd",
    "https://a b/",
    5,
]
REFUSED += [None, "https://user:pw@hook.example/", "https://user@hook.example/", "https://hook.example/#part"]
REFUSED += ["https://hook.example:0/", "https://hook.example:99999/", "https://hook.example/\n", "https://a..b/"]
REFUSED += ["https://hook.example\\@evil/", "https://hook.example/" + "x" * 2000, "https://hook.example/ö"]
REFUSED += ["HTTPS://[::1", "javascript:alert(1)", "https://hook.example/\ud800", "gopher://hook.example/"]
REFUSED += ["unix:/run/docker.sock"]


@pytest.mark.parametrize("url", REFUSED)
def test_addresses_that_are_refused(url: Any) -> None:
    with pytest.raises(BadInput) as caught:
        model.check_url(url)
    assert caught.value.field == "url"


@pytest.mark.parametrize("url", ["http://a/", "https://müller.example/x?y=z", "https://[2606:4700::1]:8443/a%20b"])
def test_addresses_that_are_taken(url: str) -> None:
    assert model.check_url(url) == url


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"events": "job.*"}, "events"),
        ({"events": ["job.finished"]}, r"events\[0\]"),
        ({"events": ["job.*", "jo*b"]}, r"events\[1\]"),
        ({"events": [5]}, r"events\[0\]"),
        ({"events": [""]}, r"events\[0\]"),
        ({"max_tries": 0}, "max_tries"),
        ({"max_tries": 21}, "max_tries"),
        ({"max_tries": True}, "max_tries"),
        ({"max_tries": "4"}, "max_tries"),
        ({"description": 5}, "description"),
        ({"description": "\x00"}, "description"),
        ({"secret": "hush"}, "secret"),
        ({"secret": "whsec_" + "YQ=="}, "secret"),
        ({"secret": "whsec_!!!!"}, "secret"),
        ({"secret": ""}, "secret"),
        ({"secret": "whsec_é"}, "secret"),
    ],
)
def test_wishes_that_are_refused(life: Life, wish: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput, match=field) as caught:
        life.client.webhooks.create(URL, **wish)
    assert "hush" not in str(caught.value)
    assert life.sql("select count(*) from hw_endpoint") == [(0,)]


def test_edits_that_are_refused(life: Life) -> None:
    life.client.webhooks.create(URL)
    for wish in ({"secret": SECRET}, {"enabled": 1}, {"colour": "red"}, {"url": "x"}):
        with pytest.raises(BadInput):
            life.client.webhooks.edit(1, **wish)
