"""Webhooks on their way: every receiver there is, at least once, bounded tries, the same id and bytes each time."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from headway.api.schemas.jobs import job_json
from headway.api.schemas.webhooks import render
from headway.clock import micros
from headway.engine.webhooks import deliverer as engine
from headway.engine.webhooks import fairness
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard, Request, SentRequest
from headway.errors import NotFound, WrongState
from headway.model.jobs.job import Options
from headway.model.webhooks import webhook as model
from headway.model.webhooks.webhook import Delivery, Outcome
from headway.store.db import open_database
from headway.store.jobs.views import view
from headway.store.webhooks.deliveries import LOST
from headway.text.webhooks import standing
from headway.verify import check
from tests.support.deadlines import join
from tests.support.life import BROKEN, Life
from tests.support.receivers import Receiver, answer, drip, flood, hang, receiver, reset
from tests.support.waiting import until

OPEN = Guard(allow_private=True, deadline=30.0)


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life
        findings = check(life.database, settle=0.0).findings
        assert findings == []


@pytest.fixture
def now(database_url: str) -> Iterator[Life]:
    """With a clock that runs: receivers check the time of what they get."""
    with Life(database_url, database=open_database(database_url)) as life:
        yield life


class Hand(Deliverer):
    """A deliverer whose turns are taken by hand."""

    def __init__(self, life: Life, guard: Guard = OPEN, **wishes: Any) -> None:
        super().__init__(life.database, render=render, guard=guard, **wishes)
        self.life = life

    def turn(self) -> float:
        """Takes what is due, sends it and records what came of it."""
        self.tick()
        assert self.settle(30)
        return self.tick()

    def run_dry(self) -> None:
        """Until nothing is left to do, moving the clock to whatever waits."""
        for _ in range(200):
            self.turn()
            assert self.settle(30)
            self._record()
            waits = [due for (due,) in self.life.sql("select due_at from hw_delivery where status = 'PENDING'")]
            if not waits:
                return
            self.life.clock.advance(max(1, min(waits) - self.life.clock.now()) / 1e6)
        raise AssertionError("it never ends")


def found(life: Life) -> list[Delivery]:
    ids = [number for (number,) in life.sql("select id from hw_delivery order by id")]
    return [life.client.webhooks.delivery(number) for number in ids]


def statuses(life: Life) -> list[tuple[str, str, int]]:
    return [(one.event, one.status, one.tries) for one in found(life)]


def kinds(life: Life, thing: str) -> list[str]:
    return [kind for (kind,) in life.sql(f"select kind from hw_event where thing = '{thing}' order by id")]


# --- what arrives -------------------------------------------------------------------------------------------------


def test_a_delivery_is_what_the_api_shows_signed(now: Life) -> None:
    with receiver() as one:
        endpoint = now.client.webhooks.create(one.url, ["job.run.completed"])
        job = now.in_state("COMPLETED", params='{"topic":"fög"}')
        deliverer = Hand(now)
        deliverer.turn()
        (got,) = one.received
    Webhook(endpoint.secret).verify(got.body, got.headers)
    body = json.loads(got.body)
    with now.database.read() as tx:
        assert body["data"] == job_json(view(tx, 1, job))
    assert (body["type"], body["data"]["run"]["result"]) == ("job.run.completed", {"ok": True})
    assert (got.headers["x-job-id"], got.headers["x-job-event"]) == (str(job), "job.run.completed")
    assert got.headers["user-agent"].startswith("headway/")
    (delivery,) = found(now)
    assert (delivery.status, delivery.tries, delivery.last_status_code) == ("DELIVERED", 1, 200)
    assert delivery.message_id == got.headers["webhook-id"]
    (tried,) = now.client.webhooks.tries(delivery.id)
    assert tried.digest == hashlib.sha256(got.body).hexdigest()
    assert "signature" not in tried.request
    assert json.loads(tried.response or "")["body"] == "ok"
    assert kinds(now, "delivery") == ["delivery.delivered"]


def test_every_event_arrives_under_its_name(life: Life) -> None:
    with receiver() as one:
        life.client.webhooks.create(one.url)
        for state in ("COMPLETED", "FAILED", "SKIPPED", "expired", "CANCELLED", "PAUSED", "ERROR"):
            life.in_state(state)
        life.in_state("PAUSED", target="desk-1")
        Hand(life).run_dry()
        got = sorted((json.loads(r.body)["type"], r.headers["x-job-event"]) for r in one.received)
    names = ["job.cancelled", "job.error", "job.exhausted", "job.paused", "job.paused", "job.run.completed"]
    names += ["job.run.failed", "job.run.skipped", "job.run.skipped", "target.held"]
    assert got == [(name, name) for name in names]
    held = next(json.loads(r.body)["data"] for r in one.received if r.headers["x-job-event"] == "target.held")
    assert (held["name"], held["state"]) == ("desk-1", "held")


def test_the_job_brings_an_address_of_its_own(now: Life) -> None:
    with receiver() as one, receiver() as other:
        options = {"webhook_url": one.url, "webhook_events": ("job.run.*", "job.exhausted")}
        now.client.webhooks.create(other.url, ["job.cancelled"])
        job = now.client.enqueue(with_hook(now, **options))[0]
        now.run(job, BROKEN)
        Hand(now).turn()
        (got,) = one.received
        assert other.received == []
    assert (got.headers["x-job-event"], got.headers["x-job-id"]) == ("job.run.failed", str(job))
    secret = now.client.webhooks.secret()
    Webhook(secret).verify(got.body, got.headers)
    assert now.client.webhooks.secret() == secret
    assert found(now)[0].endpoint_id == 0
    # Its retry tells the same address.
    ((retry,),) = now.sql(f"select id from hw_job where retry_of = {job}")
    assert json.loads(now.job(retry).options)["webhook_url"] == one.url


def with_hook(life: Life, **wishes: Any) -> Any:
    new = life.new()
    return new._replace(options=replace(Options.parse(new.options), **wishes).text())


def test_rotation_signs_with_both_secrets_for_a_day(life: Life) -> None:
    with receiver() as one:
        hooks = life.client.webhooks
        old = hooks.create(one.url)
        new = hooks.rotate(old.id)
        life.in_state("COMPLETED")
        Hand(life).turn()
        life.clock.advance(86_401)
        life.in_state("COMPLETED")
        Hand(life).turn()
        first, second = one.received
    assert old.secret != new.secret
    assert [signed_by(first, secret) for secret in (old.secret, new.secret)] == [True, True]
    assert [signed_by(second, secret) for secret in (old.secret, new.secret)] == [False, True]
    assert kinds(life, "webhook") == ["webhook.created", "webhook.rotated"]


def signed_by(got: Any, secret: str) -> bool:
    """As a receiver would look, at the time of the message."""
    at = datetime.fromtimestamp(int(got.headers["webhook-timestamp"]), UTC)
    expected = Webhook(secret).sign(got.headers["webhook-id"], at, got.body.decode())
    return expected in got.headers["webhook-signature"].split(" ")


def test_a_wrong_secret_is_seen(now: Life) -> None:
    with receiver() as one:
        now.client.webhooks.create(one.url)
        now.in_state("COMPLETED")
        Hand(now).turn()
        (got,) = one.received
    with pytest.raises(WebhookVerificationError):
        Webhook(model.make_secret(b"x" * 32)).verify(got.body, got.headers)


def test_no_secret_is_stored_where_people_look(life: Life) -> None:
    with receiver() as one:
        hooks = life.client.webhooks
        made = [hooks.create(one.url, secret=model.make_secret(b"canary-canary-canary-canary")), hooks.create(one.url)]
        made.append(hooks.rotate(made[1].id))
        hooks.secret()
        hooks.rotate_secret()
        life.in_state("COMPLETED")
        Hand(life).turn()
    everything = repr([life.sql(f"select * from {table}") for table in ("hw_event", "hw_delivery", "hw_try")])
    everything += repr(made) + repr(hooks.list())
    for (secret,) in life.sql("select secret from hw_endpoint union all select secret from hw_signer"):
        assert secret not in everything
        assert secret.removeprefix("whsec_") not in everything


# --- receivers that behave badly ----------------------------------------------------------------------------------

BAD = {
    "hang": (hang, None, "no complete answer"),
    "reset": (reset, None, "closed the connection"),
    "redirect": (answer(302, Location="http://127.0.0.1:1/"), 302, "redirects are not followed"),
    "500": (answer(500, b"broken"), 500, "it answered 500"),
    "404": (answer(404), 404, "it answered 404"),
    "a byte at a time": (drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"), None, "no complete answer"),
    "no HTTP": (drip(b"hello\r\n\r\n", b""), None, "not a complete HTTP response"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_receiver_gets_four_tries_of_the_same(life: Life, name: str) -> None:
    behave, status, words = BAD[name]
    with receiver(behave) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        slow = name in ("hang", "a byte at a time")
        Hand(life, Guard(allow_private=True, deadline=2.0 if slow else 30.0)).run_dry()
        got = one.await_received(4)
    (delivery,) = found(life)
    assert (delivery.status, delivery.tries, delivery.last_status_code) == ("FAILED", 4, status)
    assert words in (delivery.last_error or "")
    assert len(got) == 4
    assert len({(r.headers["webhook-id"], r.body) for r in got}) == 1
    tries = life.client.webhooks.tries(delivery.id)
    assert [one.number for one in tries] == [1, 2, 3, 4]
    waits = [round((b.at - a.at) / 1e6, 2) for a, b in itertools.pairwise(tries)]
    assert [low <= wait <= 1.3 * low for low, wait in zip((1, 2, 4), waits, strict=True)] == [True] * 3, waits
    assert kinds(life, "delivery") == ["delivery.failed"]


def test_a_gigabyte_is_not_read(life: Life) -> None:
    with receiver(flood(1 << 30)) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        Hand(life).turn()
        assert one.flooded < 32 << 20
    assert statuses(life) == [("job.run.completed", "DELIVERED", 1)]


def test_a_later_try_succeeds(life: Life) -> None:
    with receiver(answer(500), reset, answer(204, b"")) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        Hand(life).run_dry()
        assert len({(r.headers["webhook-id"], r.body) for r in one.received}) == 1
    assert statuses(life) == [("job.run.completed", "DELIVERED", 3)]
    assert life.client.webhooks.list()[0].failures == 0


def test_the_body_is_what_it_was_at_the_first_try(life: Life) -> None:
    """What it is about may change meanwhile: the message does not."""
    with receiver(answer(500), answer(200)) as one:
        life.client.webhooks.create(one.url, ["job.paused"])
        job = life.in_state("PAUSED")
        deliverer = Hand(life)
        deliverer.turn()
        life.client.resume(job)
        deliverer.run_dry()
        first, second = one.received
    assert first.body == second.body
    assert json.loads(first.body)["data"]["status"] == "PAUSED"


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_respected_within_bounds(life: Life, status: int) -> None:
    with receiver(answer(status, Retry_After="120"), answer(status, Retry_After="999999"), answer(200)) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        Hand(life).run_dry()
        assert len(one.received) == 3
    (delivery,) = found(life)
    first, second, third = life.client.webhooks.tries(delivery.id)
    assert (second.at - first.at, third.at - second.at) == (micros(120), micros(model.LONGEST_RETRY_AFTER))


def test_410_ends_the_endpoint(life: Life) -> None:
    with receiver(answer(410)) as one:
        hooks = life.client.webhooks
        endpoint = hooks.create(one.url, ["job.run.*"])
        for _ in range(7):
            life.in_state("COMPLETED")
        deliverer = Hand(life)
        deliverer.run_dry()
        life.in_state("COMPLETED")
        deliverer.run_dry()
        assert len(one.received) <= fairness.PER_RECEIVER
    ended = found(life)
    assert {one.status for one in ended} == {"FAILED"}
    assert len(ended) == 7  # nothing is made for a receiver that is gone
    assert {one.last_error for one in ended} == {"it answered 410 Gone", "the webhook is disabled"}
    after = hooks.get(endpoint.id)
    assert (after.enabled, after.reason) == (0, "it answered 410 Gone")
    assert kinds(life, "webhook") == ["webhook.created", "webhook.disabled"]
    with pytest.raises(WrongState, match="webhook 1 is disabled"):
        hooks.test(endpoint.id)
    assert hooks.edit(endpoint.id, enabled=True).reason is None


def test_an_inside_address_is_not_reached_whatever_dns_says(life: Life) -> None:
    with receiver() as one:
        life.client.webhooks.create(f"http://hook.example:{one.port}/")
        life.in_state("COMPLETED")
        answers = iter([["8.8.8.8", "127.0.0.1"], ["127.0.0.1"], ["::ffff:127.0.0.1"], ["10.0.0.1"]])
        Hand(life, Guard(resolve=lambda *_: next(answers))).run_dry()
        assert one.connections == 0
    (delivery,) = found(life)
    assert (delivery.status, delivery.tries) == ("FAILED", 4)
    assert "10.0.0.1, a private address, where nothing is delivered" in (delivery.last_error or "")


def test_one_that_hangs_leaves_room_for_the_others(life: Life) -> None:
    with receiver(hang) as bad, receiver() as good:
        life.client.webhooks.create(bad.url, ["job.run.completed"])
        life.client.webhooks.create(good.url, ["job.run.completed"])
        for _ in range(10):
            life.in_state("COMPLETED")
        deliverer = Hand(life, Guard(allow_private=True, deadline=20.0), senders=6)
        until(lambda: (deliverer.tick(), len(good.received) == 10)[1], "the good ones")
        assert len(bad.received) == fairness.PER_RECEIVER
        bad.close()
        assert deliverer.settle(30)
        deliverer.tick()
        life.clock.advance(90_000)
        bad.behave = [answer()]
        deliverer.settle(30)
        deliverer._record()


# --- the breaker --------------------------------------------------------------------------------------------------


def test_a_failing_endpoint_is_opened_and_probed_with_its_oldest(life: Life) -> None:
    with receiver(answer(500)) as one:
        hooks = life.client.webhooks
        endpoint = hooks.create(one.url, ["job.run.completed"])
        for _ in range(20):
            life.in_state("COMPLETED")
        deliverer = Hand(life)
        for _ in range(10):
            deliverer.turn()
        opened = hooks.get(endpoint.id)
        assert opened.opened_at is not None
        assert opened.probe_at == opened.opened_at + micros(model.FIRST_PROBE)
        sent = len(one.received)
        assert sent <= model.OPENS_AFTER + fairness.PER_RECEIVER  # those that were on their way when it opened
        used = [one.tries for one in found(life)]
        assert used[10:] == [0] * 10
        # A day of nothing but probes: each with the oldest that is left.
        life.clock.advance(29)
        deliverer.turn()
        assert len(one.received) == sent
        life.clock.advance(2)
        oldest = next(one for one in found(life) if one.status == "PENDING")
        deliverer.turn()
        assert len(one.received) == sent + 1
        assert one.received[-1].headers["x-job-id"] == str(oldest.job_id)
        again = hooks.get(endpoint.id)
        assert again.probe_at == life.clock.now() + micros(2 * model.FIRST_PROBE)
        # It is back: all that waited goes out.
        one.behave = [answer()]
        life.clock.advance(61)
        deliverer.run_dry()
    assert {one.status for one in found(life)} == {"DELIVERED"}
    assert hooks.get(endpoint.id).opened_at is None
    assert kinds(life, "webhook") == ["webhook.created", "webhook.opened", "webhook.closed"]


def test_a_delivery_is_given_up_after_a_day_at_an_open_endpoint(life: Life) -> None:
    with receiver(answer(500)) as one:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        for _ in range(12):
            life.in_state("COMPLETED")
        deliverer = Hand(life)
        for _ in range(10):
            deliverer.turn()
        life.clock.advance(model.LONGEST_WAIT - 100)
        life.in_state("COMPLETED")
        life.clock.advance(101)
        sent = len(one.received)
        deliverer.turn()
        deliverer.turn()
        assert len(one.received) <= sent + 1
    ended = found(life)
    assert {one.status for one in ended[:12]} == {"FAILED"}
    assert "could not be reached for 24 hours" in (ended[11].last_error or "")
    assert ended[11].tries == 0
    assert ended[12].status == "PENDING"


def test_one_process_probes(life: Life) -> None:
    with receiver(answer(500)) as one:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        for _ in range(12):
            life.in_state("COMPLETED")
        first, second = Hand(life), Hand(life)
        for _ in range(10):
            first.turn()
        one.behave = [hang]
        sent = len(one.received)
        life.clock.advance(31)
        first.tick()
        second.tick()
        one.await_received(sent + 1)
        second.tick()
        assert len(one.received) == sent + 1
        one.close()
        assert first.settle(30)
        first.tick()


# --- crashes ------------------------------------------------------------------------------------------------------


def test_deliveries_of_a_dead_process_are_sent_again(life: Life) -> None:
    """It died after it had sent and before it had told: the same id and bytes go out again, and no try is used up."""
    with receiver() as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        dies = Hand(life)
        dies.tick()
        assert dies.settle(30)  # sent, not recorded
        life.sql_write(f"update hw_delivery set lease_by = replace(lease_by, ',{os.getpid()},', ',999999999,')")
        Hand(life).turn()
        first, second = one.received
        dies._record()  # a late report of the one that is gone
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    (delivery,) = found(life)
    assert (delivery.status, delivery.tries, delivery.lost) == ("DELIVERED", 1, 1)
    assert [one.error for one in life.client.webhooks.tries(delivery.id)] == [
        "the sending process ended before it recorded the outcome: the message may have arrived",
        None,
    ]
    assert kinds(life, "delivery") == ["delivery.delivered"]


def test_a_lease_that_ends_is_taken_over_and_the_late_report_refused(life: Life) -> None:
    with receiver(hang) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        frozen, other = Hand(life), Hand(life)
        frozen.tick()
        one.await_received(1)
        other.tick()
        assert other.at_work == {}
        life.clock.advance(engine.LEASE + 1)
        one.behave = [answer()]
        other.turn()
        assert [one.status for one in found(life)] == ["DELIVERED"]
        one.close()
        assert frozen.settle(30)
        before = life.sql("select * from hw_delivery")
        frozen._record()
        assert life.sql("select * from hw_delivery") == before
    assert frozen.at_work == {}


def test_a_late_report_does_not_speak_for_who_sends_now(life: Life) -> None:
    with receiver(answer(500)) as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        late, other = Hand(life), Hand(life)
        late.tick()
        assert late.settle(30)
        life.clock.advance(engine.LEASE + 1)
        one.behave = [hang]
        other.tick()
        one.await_received(2)
        late._record()
        (delivery,) = found(life)
        assert (delivery.tries, delivery.lost, delivery.lease_by) == (0, 1, other.who)
        one.close()
        assert other.settle(30)
        other._record()
    assert found(life)[0].tries == 1


def test_410_ends_a_jobs_own_address_too(life: Life) -> None:
    with receiver(answer(410)) as one:
        job = life.client.enqueue(with_hook(life, webhook_url=one.url))[0]
        life.run(job, BROKEN)
        Hand(life).run_dry()
        assert len(one.received) == 1
    assert statuses(life) == [("job.run.failed", "FAILED", 1)]


def test_senders_that_die_again_and_again_end_it(life: Life) -> None:
    """A receiver that kills whoever talks to it is not tried for ever."""
    with receiver() as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        for _ in range(model.MOST_LOST):
            dies = Hand(life)
            dies.tick()
            assert dies.settle(30)
            life.clock.advance(engine.LEASE + 1)
        Hand(life).turn()
        assert len(one.received) == model.MOST_LOST
    (delivery,) = found(life)
    assert (delivery.status, delivery.tries, delivery.lost) == ("FAILED", 0, model.MOST_LOST)
    assert "died 10 times" in (delivery.last_error or "")


def test_two_deliverers_send_each_once(life: Life) -> None:
    with receiver() as one:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        for _ in range(40):
            life.in_state("COMPLETED")
        both = [Hand(life), Hand(life)]

        def work(deliverer: Hand) -> None:
            until(lambda: (deliverer.tick(), not life.sql("select 1 from hw_delivery where status = 'PENDING'"))[1])

        threads = [threading.Thread(target=work, args=(deliverer,)) for deliverer in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            join(thread)
        assert len(one.received) == 40
        assert len({r.headers["webhook-id"] for r in one.received}) == 40


def test_a_delivery_pruned_meanwhile_is_given_up(life: Life) -> None:
    with receiver() as one:
        life.client.webhooks.create(one.url)
        job = life.in_state("COMPLETED")
        life.sql_write("update hw_pruning set active = 1")
        life.sql_write(f"delete from hw_event where thing_id = {job} and thing = 'job'")
        life.sql_write(f"delete from hw_run where job_id = {job}")
        life.sql_write(f"delete from hw_job where id = {job}")
        life.sql_write("insert into hw_tally (tenant_id, name, count) values (1, 'jobs', 1)")
        life.sql_write("update hw_pruning set active = 0")
        Hand(life).turn()
        assert one.received == []
    assert [(one.status, one.last_error) for one in found(life)] == [("FAILED", engine.GONE)]


# --- the loop -----------------------------------------------------------------------------------------------------


def test_it_sleeps_long_while_nobody_is_to_be_told(life: Life) -> None:
    deliverer = Hand(life)
    assert deliverer.tick() == engine.LONGEST
    life.in_state("COMPLETED")
    assert deliverer.tick() == engine.LONGEST
    life.client.webhooks.create("https://hook.example/")
    assert deliverer.tick() == engine.POLL
    life.client.webhooks.delete(1)
    assert deliverer.tick() == engine.LONGEST
    assert life.database.watchers == []


def test_it_wakes_at_once_when_a_delivery_is_made(now: Life) -> None:
    with receiver() as one:
        now.client.webhooks.create(one.url)
        deliverer = Hand(now)
        deliverer.start()
        took = []
        for n in range(5):
            until(lambda: not deliverer.at_work and deliverer.active)
            began = time.monotonic()
            now.in_state("COMPLETED")
            one.await_received(n + 1)
            took.append(time.monotonic() - began)
        deliverer.stop()
        deliverer.join(30)
    assert sorted(took)[2] < 0.5, took
    until(lambda: {one.status for one in found(now)} == {"DELIVERED"})


def test_deliveries_under_way_at_the_stop_are_recorded(now: Life) -> None:
    gate = threading.Event()

    def slow(request: Request, guard: Guard) -> SentRequest:
        gate.wait(30)
        return SentRequest(Outcome(200, None))

    now.client.webhooks.create("https://hook.example/")
    now.in_state("COMPLETED")
    deliverer = Hand(now, send=slow)
    deliverer.start()
    until(lambda: deliverer.at_work)
    deliverer.stop()
    gate.set()
    deliverer.join(30)
    assert [one.status for one in found(now)] == ["DELIVERED"]


# --- verbs --------------------------------------------------------------------------------------------------------


def test_a_test_delivery(life: Life) -> None:
    with receiver() as one:
        endpoint = life.client.webhooks.create(one.url, ["job.cancelled"], description="a bell")
        made = life.client.webhooks.test(endpoint.id)
        Hand(life).turn()
        (got,) = one.received
    assert (made.event, made.status) == ("webhook.test", "PENDING")
    body = json.loads(got.body)
    assert (body["type"], body["data"]["webhook_id"], body["data"]["description"]) == ("webhook.test", 1, "a bell")
    assert "secret" not in body["data"]
    assert "x-job-id" not in got.headers
    assert kinds(life, "webhook") == ["webhook.created", "webhook.tested"]


def test_a_test_is_ahead_of_what_waits(life: Life) -> None:
    """What waits keeps its order."""
    with receiver() as one:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        jobs = [life.in_state("COMPLETED") for _ in range(12)]
        life.clock.advance(60)
        made = life.client.webhooks.test(1)
        assert made.next_try_at == made.created_at
        deliverer = Hand(life)
        deliverer.tick()
        assert deliverer.settle(30)
        first = [got.headers["x-job-event"] for got in one.received]
        assert sorted(first) == ["job.run.completed"] * fairness.PER_RECEIVER + ["webhook.test"]
        assert {got.headers.get("x-job-id") for got in one.received} == {None, *map(str, jobs[: fairness.PER_RECEIVER])}
        deliverer.run_dry()
    assert {one.status for one in found(life)} == {"DELIVERED"}


def test_a_test_finds_room_beside_others_that_hang(life: Life) -> None:
    with receiver(*[hang] * fairness.PER_RECEIVER, answer()) as one, receiver(hang) as other:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        life.client.webhooks.create(other.url, ["job.run.completed"])
        for _ in range(fairness.PER_RECEIVER):
            life.in_state("COMPLETED")
        deliverer = Hand(life, Guard(allow_private=True, deadline=30.0), senders=2 * fairness.PER_RECEIVER)
        deliverer.tick()
        one.await_received(fairness.PER_RECEIVER)
        made = life.client.webhooks.test(1)
        until(lambda: (deliverer.tick(), life.client.webhooks.delivery(made.id).status == "DELIVERED")[1], "the test")
        assert len(deliverer.at_work) == 2 * fairness.PER_RECEIVER
        one.close()
        other.close()
        assert deliverer.settle(60)
        deliverer._record()


def test_a_test_of_an_open_endpoint_goes_at_once_and_is_no_probe(life: Life) -> None:
    with receiver(answer(500)) as one:
        hooks = life.client.webhooks
        hooks.create(one.url, ["job.run.completed"])
        for _ in range(12):
            life.in_state("COMPLETED")
        deliverer = Hand(life)
        for _ in range(10):
            deliverer.turn()
        opened, sent = hooks.get(1), len(one.received)
        assert opened.opened_at is not None
        failing = hooks.test(1)
        deliverer.turn()
        assert [got.headers["x-job-event"] for got in one.received[sent:]] == ["webhook.test"]
        after = hooks.get(1)
        assert (after.failures, after.probe_at) == (opened.failures, opened.probe_at), "a person's test counts for none"
        assert hooks.delivery(failing.id).tries == 1
        one.behave = [answer()]
        hooks.test(1)
        deliverer.turn()
        assert hooks.get(1).opened_at is None
        deliverer.run_dry()
    assert {one.status for one in found(life)} == {"DELIVERED"}


def test_tries_of_a_dead_sender_are_in_the_log_of_a_delivery_given_up(life: Life) -> None:
    """It may have arrived, although its webhook was disabled since."""
    with receiver() as one:
        life.client.webhooks.create(one.url)
        life.in_state("COMPLETED")
        dies = Hand(life)
        dies.tick()
        assert dies.settle(30)
        life.client.webhooks.edit(1, enabled=False)
        life.clock.advance(engine.LEASE + 1)
        Hand(life).turn()
        assert len(one.received) == 1
    (delivery,) = found(life)
    assert (delivery.status, delivery.tries, delivery.lost) == ("FAILED", 0, 1)
    assert [one.error for one in life.client.webhooks.tries(delivery.id)] == [LOST]


def test_a_failing_receiver_says_why(life: Life) -> None:
    """Also where a name leads to an address that nothing is delivered to."""
    with receiver() as one:
        hooks = life.client.webhooks
        hooks.create(f"http://hook.example:{one.port}/")
        life.in_state("COMPLETED")
        Hand(life, Guard(resolve=lambda *_: ["10.0.0.1"])).turn()
        said = hooks.get(1).reason or ""
        assert "hook.example is 10.0.0.1, a private address" in said
        assert "set `webhooks.allow_private` to allow it" in said
        assert said in standing(hooks.get(1), life.clock.now()).text
        life.clock.advance(2)
        Hand(life, Guard(allow_private=True, resolve=lambda *_: ["127.0.0.1"])).turn()
        assert hooks.get(1).reason is None


def test_a_replay_is_the_same_message_again(life: Life) -> None:
    with receiver(answer(500)) as one:
        hooks = life.client.webhooks
        hooks.create(one.url)
        life.in_state("COMPLETED")
        with pytest.raises(WrongState, match="still on its way"):
            hooks.replay(1)
        Hand(life).run_dry()
        one.behave = [answer()]
        again = hooks.replay(1)
        Hand(life).run_dry()
        assert len({(r.headers["webhook-id"], r.body) for r in one.received}) == 1
    assert (again.id, again.replay_of) == (2, 1)
    assert statuses(life) == [("job.run.completed", "FAILED", 4), ("job.run.completed", "DELIVERED", 1)]
    assert kinds(life, "delivery") == ["delivery.failed", "delivery.replayed", "delivery.delivered"]
    hooks.delete(1)
    with pytest.raises(WrongState, match="webhook 1 is deleted"):
        hooks.replay(1)


def test_a_deleted_endpoint_gets_nothing_more(life: Life) -> None:
    with receiver() as one:
        life.client.webhooks.create(one.url)
        for _ in range(3):
            life.in_state("COMPLETED")
        life.client.webhooks.delete(1)
        Hand(life).run_dry()
        assert one.received == []
    assert {(one.status, one.last_error) for one in found(life)} == {("FAILED", "the webhook was deleted")}
    with pytest.raises(NotFound):
        life.client.webhooks.get(1)


def test_another_address_holds_for_what_is_on_its_way(life: Life) -> None:
    with receiver(answer(500)) as old, receiver() as new:
        life.client.webhooks.create(old.url)
        life.in_state("COMPLETED")
        deliverer = Hand(life)
        deliverer.turn()
        life.client.webhooks.edit(1, url=new.url)
        deliverer.run_dry()
        assert old.received[0].body == new.received[0].body
    assert isinstance(old, Receiver)
