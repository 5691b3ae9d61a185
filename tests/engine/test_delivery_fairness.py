"""Addresses that jobs bring: one that hangs or fails holds up nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from headway.api.schemas.webhooks import render
from headway.clock import micros
from headway.engine.client.client import Client
from headway.engine.webhooks import fairness
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard, Request, SentRequest
from headway.model.jobs.job import Options
from headway.model.webhooks import webhook as model
from headway.model.webhooks.webhook import Outcome
from headway.store.webhooks import deliveries, receivers
from headway.verify import check
from tests.support.life import Life
from tests.support.tenants import add_tenant
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life
        assert check(life.database, settle=0.0).findings == []


class World:
    """All hosts: `slow` ones hang until they are let go, `bad` ones answer 500."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began: list[str] = []
        self.bad: set[str] = set()

    def send(self, request: Request, _: Guard) -> SentRequest:
        host = urlsplit(request.url).hostname or ""
        self.began.append(host)
        if host.startswith("slow"):
            assert self.go.wait(PATIENCE)
        return SentRequest(Outcome(500, "it answered 500") if host in self.bad else Outcome(200, None))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.go.set()


def tell(life: Life, client: Client, host: str, count: int = 1) -> None:
    for _ in range(count):
        new = life.new()
        options = replace(Options.parse(new.options), webhook_url=f"https://{host}/x?{count}")
        client.cancel(client.enqueue(new._replace(options=options.text()))[0])


def worker_slots(life: Life, world: World, senders: int = 16) -> Deliverer:
    return Deliverer(life.database, render=render, send=world.send, senders=senders)


def turn(one: Deliverer) -> None:
    one.tick()
    assert one.settle(PATIENCE)
    one.tick()


def finish(life: Life, world: World, one: Deliverer) -> None:
    world.go.set()
    until(lambda: (one.tick(), not one.at_work and not pending(life))[1], "that all is sent")


def pending(life: Life) -> int:
    return int(life.sql("select count(*) from hw_delivery where status = 'PENDING'")[0][0])


def test_a_tenant_whose_receivers_hang_leaves_room_for_the_others(life: Life, world: World) -> None:
    other = add_tenant(life, "shop")
    tell(life, life.client, "slow.example", 12)
    tell(life, life.client, "quick.example", 3)
    tell(life, other, "quick.example", 3)
    deliverer = worker_slots(life, world)
    until(lambda: (deliverer.tick(), world.began.count("quick.example") == 6)[1], "the quick ones")
    assert world.began.count("slow.example") == fairness.PER_HOST
    finish(life, world, deliverer)


def test_a_tenant_with_many_hosts_that_hang_leaves_room_too(life: Life, world: World) -> None:
    other = add_tenant(life, "shop")
    for n in range(20):
        tell(life, life.client, f"slow{n}.example")
    tell(life, other, "quick.example", 3)
    deliverer = worker_slots(life, world)
    until(lambda: (deliverer.tick(), world.began.count("quick.example") == 3)[1], "the quick ones")
    assert len(world.began) == 3 + fairness.PER_TENANT
    finish(life, world, deliverer)


def test_tenants_have_turns(life: Life, world: World) -> None:
    """With one place for all of them."""
    others = [life.client, add_tenant(life, "b"), add_tenant(life, "c")]
    for n, client in enumerate(others):
        tell(life, client, f"{'xyz'[n]}.example", 3)
    deliverer = worker_slots(life, world, senders=1)
    until(lambda: (deliverer.tick(), not pending(life) and not deliverer.at_work)[1], "that all is sent")
    assert [set(world.began[n : n + 3]) for n in (0, 3, 6)] == [{"x.example", "y.example", "z.example"}] * 3


def test_a_host_that_fails_is_left_alone_and_its_tries_are_kept(life: Life, world: World) -> None:
    world.bad = {"bad.example"}
    tell(life, life.client, "bad.example", 20)
    deliverer = worker_slots(life, world)
    for _ in range(10):
        turn(deliverer)
    failed = len(world.began)
    assert model.OPENS_AFTER <= failed <= model.OPENS_AFTER + fairness.PER_HOST
    tell(life, life.client, "good.example")
    turn(deliverer)
    assert world.began[failed:] == ["good.example"]
    life.clock.advance(model.FIRST_PROBE + 1)
    for _ in range(3):
        turn(deliverer)
    assert world.began[failed + 1 :] == ["bad.example"]
    assert life.sql("select sum(tries) from hw_delivery where status = 'PENDING'") == [(failed + 1,)]
    world.bad.clear()
    life.clock.advance(model.LONGEST_PROBE)
    until(lambda: (deliverer.tick(), not pending(life) and not deliverer.at_work)[1], "that all is sent")
    assert life.sql("select count(*) from hw_delivery where status = 'DELIVERED'") == [(21,)]


def test_a_delivery_is_given_up_after_a_day_of_a_failing_host(life: Life, world: World) -> None:
    world.bad = {"bad.example"}
    tell(life, life.client, "bad.example", 20)
    deliverer = worker_slots(life, world)
    for _ in range(10):
        turn(deliverer)
    life.clock.advance(model.LONGEST_WAIT + 1)
    turn(deliverer)
    assert life.sql(f"select count(*) from hw_delivery where last_error = '{deliveries.UNREACHED}'") == [(20,)]


def test_a_look_at_addresses_is_bounded_and_the_next_goes_on(life: Life) -> None:
    other = add_tenant(life, "shop")
    for client in (life.client, other):
        for name in "abc":
            tell(life, client, f"{name}.example", 2)
    place, seen = receivers.START, []
    with life.database.read() as tx:
        while found := receivers.waiting_addresses(tx, place, limit=2):
            assert len(found) <= 2
            seen += [(one.tenant_id, one.host) for one in found]
            place = found[-1].receiver
    tenant_ids = sorted({tenant_id for tenant_id, _ in seen})
    assert seen == [(tenant_id, f"https://{name}.example") for tenant_id in tenant_ids for name in "abc"]
    assert len(tenant_ids) == 2


def test_how_long_a_host_is_left_alone() -> None:
    one, held = fairness.DeliverySlots(16), receivers.Receiver(0, 1, "https://bad.example")
    for n in range(model.OPENS_AFTER):
        assert one.room(held, n) == fairness.PER_HOST
        one.note(held, Outcome(None, "refused"), n)
    until_then = model.OPENS_AFTER - 1 + micros(model.FIRST_PROBE)
    assert (one.room(held, until_then - 1), one.room(held, until_then)) == (0, 1)
    one.note(held, Outcome(404, "not found"), until_then)
    assert (one.room(held, until_then), one.closed(held)) == (fairness.PER_HOST, False)


# --- what nobody thought of ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OverflowError("far"), IndexError("out"), UnicodeError("x"), TypeError("y")])
def test_an_error_of_our_own_is_a_failed_try(life: Life, error: Exception) -> None:
    def send(_: Request, __: Guard) -> SentRequest:
        raise error

    tell(life, life.client, "odd.example")
    turn(Deliverer(life.database, render=render, send=send))
    ((tries, lost, said, lease),) = life.sql("select tries, lost, last_error, lease_by from hw_delivery")
    assert (tries, lost, lease) == (1, 0, None)
    assert said == f"it could not be sent: {type(error).__name__}: {error}"
