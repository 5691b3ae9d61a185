"""Scripts to be killed in, about webhooks: what is sent is told when the receiver has it, before anybody records it."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

from headway.api.schemas.webhooks import render
from headway.clock import SECOND
from headway.engine.maintenance.pruner import Pruner
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard, Request, SentRequest
from headway.model.webhooks.webhook import Endpoint, Outcome
from headway.store.webhooks import receivers
from tests.system.support import scripts
from tests.system.support.record import Record
from tests.system.support.scripts import hurt, script
from tests.system.support.world import Fact, World

scripts.STEPPING_ONLY |= {"hooks", "hook_failures", "hook_leases", "hook_prune"}
HOST = "http://hook.example"


def receive(world: World, request: Request, guard: Guard) -> SentRequest:
    """The receiver: what it answers is in the address."""
    digest = hashlib.sha256(request.body).hexdigest()
    world.say({"received": request.headers["webhook-id"], "digest": digest})
    match urlsplit(request.url).path:
        case "/ok":
            return SentRequest(Outcome(200, None))
        case "/gone":
            return SentRequest(Outcome(410, "it answered 410 Gone"))
        case _:
            return SentRequest(Outcome(500, "it answered 500"))


def turn(deliverer: Deliverer) -> None:
    deliverer.tick()
    assert deliverer.settle()
    deliverer._record()


def deliver_due(world: World, until: int | None = None) -> None:
    """A deliverer's turns until nothing is on its way, moving the clock to whatever waits; or until an instant."""
    with world.database.read() as tx:
        if not receivers.active(tx) and not receivers.waiting(tx):
            return
    deliverer = Deliverer(world.database, render=render, send=partial(receive, world), senders=2)
    while True:
        turn(deliverer)
        with world.database.read() as tx:
            waits = [(one.next_at, one.now) for one in receivers.waiting(tx)]
        if not waits:
            return
        at = min(next_at for next_at, _ in waits)
        if until is not None and at > until:
            return
        if at > waits[0][1]:
            world.reach(at)


scripts.AFTER_RESTART.append(deliver_due)


def subscribe(world: World, path: str, *events: str, **wishes: int) -> Endpoint:
    made = world.app.client.webhooks.create(f"{HOST}{path}", events, **wishes)  # type: ignore[arg-type]
    world.say({"webhook": made.id, "secret": hashlib.sha256(made.secret.encode()).hexdigest()})
    return made


@script
def hook_leases(world: World) -> None:
    """A deliverer leases a delivery and does not learn of it: the answer to the commit was lost."""
    subscribe(world, "/ok")
    world.make("note", n=1)
    worker = world.worker(slots=1)
    worker.run_dry()
    deliverer = Deliverer(world.database, render=render, send=partial(receive, world), senders=2)
    with world.database.read() as tx:
        due = receivers.waiting(tx)
    assert deliverer._lease(due)
    deliverer.unsure_until = time.monotonic() + 60
    deliverer._return_unknown()
    deliver_due(world)
    worker.close()


@script
def hooks(world: World) -> None:
    """Endpoints and jobs with addresses of their own; what people do to them while deliveries are on their way."""
    client = world.app.client
    one = subscribe(world, "/ok")
    other = subscribe(world, "/ok", "job.run.failed")
    world.make("note", n=1)
    world.make("refuses", expect="FAILED")
    world.make_using("note", {"webhook_url": f"{HOST}/ok"}, n=2)
    worker = world.worker(slots=1)
    worker.run_dry()
    deliver_due(world)
    client.webhooks.edit(other.id, events=["job.cancelled"], max_tries=2)
    stopped = world.make("note", n=3, expect=None)
    stopped.cancel()
    world.say({"cancelled": stopped.id})
    rotated = client.webhooks.rotate(one.id)
    world.say({"webhook": one.id, "secret": hashlib.sha256(rotated.secret.encode()).hexdigest()})
    client.webhooks.secret()
    client.webhooks.rotate_secret()
    tested = client.webhooks.test(one.id)
    deliver_due(world)
    again = client.webhooks.replay(tested.id)
    world.say({"replayed": tested.id, "again": again.id})
    deliver_due(world)
    world.make("note", n=4)
    worker.run_dry()
    client.webhooks.delete(other.id)
    world.say({"unsubscribed": other.id})
    worker.close()


@script
def hook_failures(world: World) -> None:
    """A receiver that fails is opened and probed, one that is gone is disabled, and a sender dies in the middle."""
    subscribe(world, "/bad", "job.run.completed")
    subscribe(world, "/gone", "job.run.completed")
    last = subscribe(world, "/ok", "job.run.completed")
    for n in range(7):
        world.make("note", n=n)
    worker = world.worker(slots=1)
    worker.run_dry()
    worker.close()
    text = "update hw_delivery set lease_by = replace({}, ',{},', ',999999999,'), fence = 1 where endpoint_id = {}"
    dead = Deliverer(world.database, render=render, send=partial(receive, world))
    hurt(world, text.format(f"'{dead.who}'", os.getpid(), last.id))
    deliver_due(world, until=world.database.clock.now() + 200 * SECOND)
    world.advance(90_000)
    deliver_due(world)


@script
def hook_prune(world: World) -> None:
    """What webhooks were about is pruned: before it could be sent, and after."""
    subscribe(world, "/ok", "job.run.completed")
    worker = world.worker(slots=1)
    world.make("note", n=1, expect="pruned")
    worker.run_dry()
    deliver_due(world)
    world.make("note", n=2, expect="pruned")
    worker.run_dry()
    worker.close()
    for _ in range(2):
        world.advance(3600)
        pruner = Pruner(world.database, retention=60.0, artifacts=world.folder / "artifacts")
        while pruner.tick() == 0.0:
            pass
        deliver_due(world)
    world.say({"pruned": True})


def wrong(record: Record, facts: list[Fact]) -> Iterator[str]:
    """At least once, no more often than it was tried, and the same bytes under the same id."""
    received = Counter(fact["received"] for fact in facts if "received" in fact)
    bytes_of = {message: {f["digest"] for f in facts if f.get("received") == message} for message in received}
    for message, digests in bytes_of.items():
        if len(digests) > 1:
            yield f"{message} was received with {len(digests)} different bodies"
    known = {row["message_id"]: row for row in record.rows["hw_delivery"] if row["message_id"] is not None}
    for message in known:
        rows = [row for row in record.rows["hw_delivery"] if row["message_id"] == message]
        arrived = sum(row["status"] == "DELIVERED" for row in rows)
        sent = sum(row["tries"] + row["lost"] for row in rows)
        if not arrived <= received[message] <= sent:
            yield f"{message} was received {received[message]} times, delivered {arrived} times and sent {sent} times"
    yield from _endpoints(record, facts)


def _endpoints(record: Record, facts: list[Fact]) -> Iterator[str]:
    rows = {row["id"]: row for row in record.rows["hw_endpoint"]}
    good = {number for number, row in rows.items() if row["url"].endswith("/ok") and row["deleted_at"] is None}
    for row in record.rows["hw_delivery"]:
        if row["endpoint_id"] in good | {0} and row["status"] != "DELIVERED" and row["body"] is not None:
            yield f"delivery {row['id']} goes to a receiver that takes everything, and is {row['status']}"
    for fact in facts:
        match fact:
            case {"webhook": int(number), "secret": digest}:
                secrets = (rows[number]["secret"], rows[number]["old_secret"] or "") if number in rows else ()
                if digest not in {hashlib.sha256(one.encode()).hexdigest() for one in secrets}:
                    yield f"webhook {number} was acknowledged, and is not there or has another secret"
            case {"unsubscribed": int(number)}:
                if rows[number]["deleted_at"] is None:
                    yield f"webhook {number} was deleted and is still there"
            case {"replayed": int(number), "again": int(again)}:
                if not any(row["id"] == again and row["replay_of"] == number for row in record.rows["hw_delivery"]):
                    yield f"delivery {number} was sent again as {again}, which is not there"
