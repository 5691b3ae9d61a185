"""`headway verify` on webhooks: nothing in a true history, each broken promise in a damaged one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headway.api.schemas.webhooks import render
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard, Request, SentRequest
from headway.model.webhooks.webhook import Outcome
from tests.store.test_deliveries import hooked
from tests.support.life import BROKEN, Life
from tests.support.world import EVENTS, World, broken

FROZEN = ("hw_delivery_frozen",)
URL = "http://hook.example/"


class Office(World):
    """A world with webhooks: 1 is told of everything, 2 of failures; jobs 3 and 4 bring an address of their own."""

    def __init__(self, url: str) -> None:
        self.life = Life(url)
        self.db = self.life.database
        self.fails = 0
        hooks = self.life.client.webhooks
        hooks.create(URL)
        hooks.create(URL, ["job.run.failed", "job.exhausted"], max_tries=2)
        self.life.in_state("COMPLETED")
        self.life.in_state("FAILED")
        self.life.run(self.life.client.enqueue(hooked(self.life, "job.run.*", retry=0))[0], BROKEN)
        self.life.client.cancel(self.life.client.enqueue(hooked(self.life, "job.run.*"))[0])
        self.life.client.interrupt(self.life.enqueue(target="desk-1"))
        self.send()
        self.fails = 2
        self.life.in_state("COMPLETED")
        self.send()
        hooks.test(1)
        self.send()
        hooks.replay(1)
        self.send()

    def lose(self, which: str) -> None:
        """As if they had never been made."""
        ids = f"(select id from hw_delivery where {which})"
        self.tamper(
            f"delete from hw_try where delivery_id in {ids}",
            f"delete from hw_event where thing = 'delivery' and thing_id in {ids}",
            f"delete from hw_delivery where {which}",
            without=("hw_event_kept",),
        )

    def send(self) -> None:
        deliverer = Deliverer(self.db, render=render, send=self._answer)
        for _ in range(40):
            deliverer.tick()
            assert deliverer.settle(30)
            deliverer.tick()
            if not self.life.sql("select 1 from hw_delivery where status = 'PENDING'"):
                return
            self.life.clock.advance(2)
        raise AssertionError("it never ends")

    def _answer(self, request: Request, guard: Guard) -> SentRequest:
        if self.fails:
            self.fails -= 1
            return SentRequest(Outcome(500, "it answered 500"))
        return SentRequest(Outcome(200, None))


@pytest.fixture
def office(database_url: str) -> Iterator[Office]:
    made = Office(database_url)
    yield made
    made.db.close()


@dataclass(frozen=True)
class Damage:
    says: str
    work: Callable[[Office], None]
    invariant: str = "I-17"
    quiet: bool = False

    def __str__(self) -> str:
        return self.work.__name__


DAMAGES: list[Damage] = []


def damage(says: str, **how: Any) -> Callable[[Callable[[Office], None]], None]:
    return lambda work: DAMAGES.append(Damage(says, work, **how))


def test_a_true_history_has_no_findings(office: Office) -> None:
    report = office.check(quiet=False, settle=0.0)
    assert report.findings == []
    assert report.counted["deliveries"] == len(office.life.sql("select 1 from hw_delivery")) >= 12


@damage("no delivery of job.run.completed goes to webhook 1")
def delivery_forgotten(w: Office) -> None:
    w.lose("event = 'job.run.completed'")


@damage("no delivery of job.exhausted goes to webhook 2")
def made_in_another_transaction_that_never_came(w: Office) -> None:
    with w.db.transaction("tamper") as tx:
        put_back = w._drop(tx.connection, "hw_event_outbox")  # type: ignore[attr-defined]
    w.life.in_state("FAILED")
    w.tamper(put_back)


@damage("no delivery of job.run.failed goes to the job's own address")
def own_address_forgotten(w: Office) -> None:
    w.lose("endpoint_id = 0")


@damage("2 deliveries of job.cancelled go to webhook 1")
def two_for_one_event(w: Office) -> None:
    w.tamper("drop index hw_delivery_once")
    same = "tenant_id, endpoint_id, event_id, event, job_id, message_id, body, max_tries, created_at"
    copy = f"insert into hw_delivery ({same}, due_at) select {same}, 1 from hw_delivery"
    w.tamper(f"{copy} where event = 'job.cancelled'")


@damage("a delivery of job.cancelled goes to webhook 2, which has not subscribed to it")
def told_against_its_wish(w: Office) -> None:
    w.tamper("update hw_delivery set endpoint_id = 2 where event = 'job.cancelled'", without=FROZEN)


@damage("a delivery of job.run.skipped goes to webhook 1, but the event is not job.run.skipped")
def told_of_something_else(w: Office) -> None:
    w.tamper("update hw_delivery set event = 'job.run.skipped' where event = 'job.cancelled'", without=FROZEN)


@damage("which is not a webhook event")
def told_of_something_nobody_is_told_of(w: Office) -> None:
    w.tamper("update hw_delivery set event_id = 1 where event = 'job.cancelled'", without=FROZEN)


@damage("its event 999 does not exist")
def told_of_nothing(w: Office) -> None:
    w.tamper("update hw_delivery set event_id = 999 where event = 'job.cancelled'", without=FROZEN)


@damage("it was tried 3 times and lost 0 times; its log has [1, 2], 2 of them with an outcome")
def try_not_in_the_log(w: Office) -> None:
    w.tamper("delete from hw_try where number = 3")


@damage("it was tried 1 times and lost 11 times, of at most 4 and 10")
def lost_too_often(w: Office) -> None:
    w.tamper("update hw_delivery set lost = 11 where id = 1")


@damage("try 2 sent other bytes than the body of its delivery")
def body_rebuilt(w: Office) -> None:
    w.tamper("update hw_try set digest = 'abc' where number = 2")


@damage("sent other bytes than the body of its delivery")
def body_changed_afterwards(w: Office) -> None:
    w.tamper("update hw_delivery set body = '{}' where id = 2", without=FROZEN)


@damage("try 2 has id msg_other, its delivery has msg_")
def another_id(w: Office) -> None:
    w.tamper("update hw_try set message_id = 'msg_other' where number = 2")


@damage("it repeats delivery 1, with another id or body")
def replay_of_something_else(w: Office) -> None:
    number = "(select id from hw_delivery where replay_of = 1)"
    w.tamper(
        "update hw_delivery set message_id = 'msg_new' where replay_of = 1",
        f"update hw_try set message_id = 'msg_new' where delivery_id = {number}",
        without=FROZEN,
    )


@damage("it is DELIVERED; of its 1 tries these arrived: []")
def delivered_without_an_answer(w: Office) -> None:
    w.tamper("update hw_try set status_code = 500, error = 'it answered 500' where delivery_id = 1")


@damage("it is FAILED, and try 1 arrived")
def failed_although_it_arrived(w: Office) -> None:
    w.tamper("update hw_delivery set status = 'FAILED', delivered_at = null where id = 1")


@damage("it is PENDING after 2 of 2 tries")
def not_given_up(w: Office) -> None:
    w.tamper(
        "update hw_delivery set status = 'PENDING', delivered_at = null, finished_at = null, due_at = 1"
        " where tries = 3",
        "update hw_delivery set tries = 2, max_tries = 2 where tries = 3",
    )


@damage("it is PENDING, and everything is expected to have ended", quiet=True)
def left_on_its_way(w: Office) -> None:
    w.life.in_state("COMPLETED")


@damage("and its events are []")
def end_without_an_event(w: Office) -> None:
    w.tamper("delete from hw_event where thing = 'delivery' and thing_id = 2", without=("hw_event_kept",))


@damage("it has 1 events, its row has version 7")
def version_without_an_event(w: Office) -> None:
    w.tamper("update hw_delivery set version = 7 where id = 2")


@damage("it has 1 tries or events and no row")
def tries_of_nothing(w: Office) -> None:
    w.tamper("update hw_try set delivery_id = 999 where delivery_id = 2")


@damage("2 webhooks exist, and the triggers count 0")
def triggers_asleep(w: Office) -> None:
    w.tamper("update hw_outbox set endpoints = 0")


@damage("the trigger that makes deliveries is missing from the schema or disabled")
def outbox_gone(w: Office) -> None:
    w.tamper("drop trigger hw_event_outbox" + (" on hw_event" if w.db.dialect == "postgres" else ""))


@damage("its webhook to tenant 2", invariant="I-18")
def another_tenants_webhook(w: Office) -> None:
    w.tamper(
        "insert into hw_tenant (name, created_at) values ('other', 0)",
        "update hw_endpoint set tenant_id = 2 where id = 2",
    )


@pytest.mark.parametrize("one", DAMAGES, ids=str)
def test_damage_is_found(office: Office, one: Damage) -> None:
    one.work(office)
    report = office.check(quiet=one.quiet, settle=0.0)
    said = [finding.text for finding in report.findings if finding.invariant == one.invariant]
    assert any(one.says in text for text in said), said
    assert one.invariant in broken(report)


def test_changes_close_to_an_event_are_not_judged(office: Office) -> None:
    """On PostgreSQL a statement may have seen an endpoint as it was a moment before."""
    office.tamper(
        "update hw_event set data = replace(data, 'job.run.failed', 'job.run.skipped') where thing = 'webhook'",
        without=EVENTS,
    )
    assert "I-17" in broken(office.check(settle=0.0))
    assert "I-17" not in broken(office.check(settle=3600.0))
