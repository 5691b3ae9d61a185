"""Thousands of deliveries to receivers that break every rule, on real connections: each is judged by what must hold
whatever they do. The clock stands still but for the steps it is given; senders die between sending and telling.

Each test prints its figure. `HEADWAY_PROOF=1` makes 25 times as many.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from headway.api.schemas.webhooks import render
from headway.clock import SECOND
from headway.engine.webhooks import deliverer as engine
from headway.engine.webhooks import fairness, http_client
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard, Request, SentRequest
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Completed
from headway.model.webhooks import webhook as model
from headway.model.webhooks.blocked_networks import forbidden
from headway.model.webhooks.webhook import Delivery, Try
from headway.store.webhooks.deliveries import UNREACHED
from headway.verify import check
from tests.support.figures import Figure
from tests.support.life import Life
from tests.support.receivers import Received, Receiver, hang
from tests.system.support.conducts import EARLY, FAST, GONE, SLOW, WELL, Conduct, Early, Scripted

pytestmark = pytest.mark.alone

SEEDS = 25 if os.environ.get("HEADWAY_PROOF") else 1
JOBS = 8
# Endpoints by what they are like: how many there are, and how often they take what comes.
WELL_NOW_AND_THEN, NEVER_WELL, LEAVING, PATIENCE_TRIED, LIED_ABOUT = 60, 24, 8, 20, 16
QUICK, PATIENT = 0.1, 30.0
STEPS = (1.0, 2.6, 5.2, 31.0, 61.0, 122.0, 601.0)
LIES: tuple[list[str], ...] = (
    *(["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], ["0.0.0.0"], ["100.64.0.1"]),
    *(["64:ff9b::7f00:1"], ["fe80::1%lo"], ["224.0.0.1"], ["192.0.2.1"], ["2002:7f00:1::"], ["evil"], [], ["fec0::1"]),
    *(["93.184.216.34", "127.0.0.1"], ["127.0.0.1", "93.184.216.34"], ["2606:2800::1", "::1"], ["93.184.216.34", "::"]),
)


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


@pytest.fixture(scope="module")
def unknown_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Of a server whose certificate nobody vouches for."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *kind, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


class Street:
    """All receivers of one run, what each does, and who is to be told where."""

    def __init__(self, life: Life, seed: int, stack: ExitStack, tls: ssl.SSLContext) -> None:
        self.life = life
        self.seed = seed
        self.stack = stack
        self.rng = Random(f"street {seed}")
        self.server = Scripted(self._choose)
        stack.callback(self.server.close)
        self.trap = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.trap.setblocking(False)
        stack.callback(self.trap.close)
        self.slow_ports: set[int] = set()
        self.settle(tls)

    def _open(self, one: Receiver) -> Receiver:
        self.stack.callback(one.close)
        return one

    def settle(self, tls: ssl.SSLContext) -> None:
        base = f"http://127.0.0.1:{self.server.port}"
        kinds = {"mixed": WELL_NOW_AND_THEN, "never": NEVER_WELL, "leaving": LEAVING, "slow": PATIENCE_TRIED}
        for kind, count in kinds.items():
            for n in range(count):
                self.tell(f"{base}/{kind}/{n}")
        for n in range(LIED_ABOUT):
            self.tell(f"http://lie-{n}.trap.example:{self.trap.getsockname()[1]}/")
        for _, act, reads in EARLY:
            one = self._open(Early(act, reads=reads))
            self.tell(f"http://127.0.0.1:{one.port}/early")
            self.tell(f"https://127.0.0.1:{one.port}/early")
        silent = self._open(Early(hang))
        self.slow_ports.add(silent.port)
        self.tell(f"http://127.0.0.1:{silent.port}/")
        self.tell(f"https://127.0.0.1:{silent.port}/")
        self.tell(f"https://127.0.0.1:{self._open(Receiver(tls=tls)).port}/unknown")
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        self.tell(f"http://127.0.0.1:{port}/closed")

    def tell(self, url: str) -> None:
        self.life.client.webhooks.create(url, ["job.run.completed"], max_tries=self.rng.choice((1, 2, 4, 4, 4, 6)))

    def _choose(self, target: str, moment: str) -> Conduct:
        """By the address, the job and the time: the same for whoever asks."""
        rng = Random(f"{self.seed} {target} {moment}")
        kind = target.split("/")[1]
        if kind == "slow":
            return rng.choice(SLOW if rng.random() < 0.5 else WELL)
        if kind == "leaving" and rng.random() < 0.2:
            return GONE
        return rng.choice(WELL if kind != "never" and rng.random() < 0.4 else FAST)

    def resolve(self, host: str, port: int) -> list[str]:
        found = self.rng.choice(LIES)
        if not found and self.rng.random() < 0.5:
            raise socket.gaierror(-2, "Name or service not known")
        return found

    def send(self, request: Request, guard: Guard) -> SentRequest:
        """The real thing. Nobody but those who try our patience is given less of it than a slow machine may need."""
        parts = urlsplit(request.url)
        if (parts.hostname or "").endswith(".trap.example"):
            return http_client.send(request, Guard(deadline=PATIENT, resolve=self.resolve))
        slow = parts.path.startswith("/slow/") or parts.port in self.slow_ports
        return http_client.send(request, Guard(allow_private=True, deadline=QUICK if slow else PATIENT))

    def work(self) -> int:
        """Jobs end, and all who want to know are told, until nothing is on its way. How many deliveries were in the
        hands of senders that died."""
        for n in range(JOBS):
            own = f"http://127.0.0.1:{self.server.port}/mixed/own-{n}"
            new = self.life.new()
            options = replace(Options.parse(new.options), webhook_url=own)
            job = self.life.client.enqueue(new._replace(options=options.text()))[0]
            self.life.run(job, Completed('{"ok":true}'))
        lost, deliverer = 0, self._deliverer()
        for _ in range(3_000):
            delay = deliverer.tick()
            assert deliverer.settle(120)
            if deliverer.at_work and self.rng.random() < 0.08:
                lost += len(deliverer.at_work)
                deliverer = self._deliverer()  # the other is never heard of again
                self.life.clock.advance(engine.LEASE + 1)
            elif not deliverer.at_work and delay:
                if not self.life.sql("select 1 from hw_delivery where status = 'PENDING' limit 1"):
                    return lost
                self.life.clock.advance(self.rng.choice(STEPS))
        raise AssertionError("it never ends")

    def _deliverer(self) -> Deliverer:
        return Deliverer(self.life.database, render=render, senders=48, send=self.send)


# A connection that was reset before TLS began: Python leaves what it made of it to the collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_receivers_do(life: Life, unknown_tls: ssl.SSLContext, seed: int, figure: Figure) -> None:
    with ExitStack() as stack:
        street = Street(life, seed, stack, unknown_tls)
        lost = street.work()
        with pytest.raises(BlockingIOError):
            street.trap.accept()  # nobody came
    found = [(one, life.client.webhooks.tries(one.id)) for one in deliveries(life)]
    disabled = {number for (number,) in life.sql("select id from hw_endpoint where enabled = 0")}
    assert 0 < len(disabled) <= LEAVING
    judge_ends(found, disabled)
    judge_bytes(street.server.received, found)
    judge_log(street.server, life, found)
    judge_breakers(life, found)
    assert check(life.database, quiet=True, settle=0.0).findings == []
    assert street.server.flooded < (8 << 20) * (1 + len(street.server.received))
    assert sum(one.lost for one, _ in found) == lost > 0
    ends = Counter(one.status for one, _ in found)
    tries = sum(len(tries) for _, tries in found)
    met = len({conduct.name for conduct in street.server.fates.values()})
    figures = f"{len(found)} deliveries in {tries} tries, {lost} of them lost with their sender"
    figure(f"{life.database.dialect}, seed {seed}: {figures}; {met} kinds of answers; {dict(ends)}")
    assert len(found) >= 1_100


def deliveries(life: Life) -> list[Delivery]:
    ids = [number for (number,) in life.sql("select id from hw_delivery order by id")]
    return [life.client.webhooks.delivery(number) for number in ids]


Found = list[tuple[Delivery, list[Try]]]


def told(tries: list[Try]) -> list[Try]:
    """Those whose sender lived to tell."""
    return [one for one in tries if one.digest]


def judge_ends(found: Found, disabled: set[int]) -> None:
    """At least once, or given up after as many tries as were allowed, and not before."""
    for one, tries in found:
        assert one.tries == len(told(tries)) <= one.max_tries, one
        assert one.lost == len(tries) - one.tries <= model.MOST_LOST, one
        last = told(tries)[-1] if told(tries) else None
        if one.status == "DELIVERED":
            assert last is not None, one
            assert (last.error, (last.status_code or 0) // 100) == (None, 2), one
            continue
        assert one.status == "FAILED", one
        assert all(tried.error for tried in told(tries)), one
        gone = one.endpoint_id in disabled or (last is not None and last.status_code == 410)
        unreached = (
            one.last_error == UNREACHED and (one.finished_at or 0) - one.created_at >= model.LONGEST_WAIT * SECOND
        )
        assert one.tries == one.max_tries or gone or unreached or one.lost == model.MOST_LOST, one


def judge_bytes(received: list[Received], found: Found) -> None:
    """The same id and the same bytes on every try, and no more requests than were made."""
    by_message = {one.message_id: one for one, _ in found}
    for message, count in Counter(got.headers["webhook-id"] for got in received).items():
        assert count <= by_message[message].tries + by_message[message].lost
    for got in received:
        one = by_message[got.headers["webhook-id"]]
        assert got.body.decode() == one.body
        assert (got.headers["x-job-event"], got.headers["x-job-id"]) == (one.event, str(one.job_id))
        assert json.loads(got.body)["data"]["job_id"] == one.job_id


def judge_log(one_server: Scripted, life: Life, found: Found) -> None:
    """What a row says happened is what the receiver did in that very try."""
    fates, server = one_server.fates, f"http://127.0.0.1:{one_server.port}/"
    urls = {one.id: one.url for one in life.client.webhooks.list()}
    for one, tries in found:
        url = one.url or urls[one.endpoint_id]
        for tried in told(tries):
            assert tried.message_id == one.message_id
            assert tried.digest == hashlib.sha256((one.body or "").encode()).hexdigest()
            assert json.loads(tried.request)["url"] == url
            fate = fates.get((tried.message_id, str(tried.at // SECOND)))
            if "/slow/" in url and tried.error == "no complete answer within 100ms":
                continue  # it may have been heard or not
            if ".trap.example" in url:
                judge_refused(tried)
            elif fate is not None:
                assert tried.status_code == fate.status, (fate.name, tried)
                assert tried.address == "127.0.0.1"
                assert (tried.error is None) == (200 <= (fate.status or 0) < 300), (fate.name, tried)
            else:
                assert not url.startswith(server), (url, tried)
                assert tried.status_code in (None, 413), tried
                assert tried.error, tried


def judge_refused(tried: Try) -> None:
    refusals = ("where nothing is delivered", "cannot be resolved", "has no address")
    assert tried.status_code is None, tried
    assert any(words in (tried.error or "") for words in refusals), tried
    assert tried.address is None or forbidden(tried.address) is not None


def judge_breakers(life: Life, found: Found) -> None:
    """One opens after five failures in a row and not much later; while it is open there are probes, ever rarer."""
    by_endpoint: dict[int, list[Try]] = {}
    for one, tries in found:
        by_endpoint.setdefault(one.endpoint_id, []).extend(told(tries))
    events: dict[int, list[tuple[int, str]]] = {}
    for number, at, kind in life.sql("select thing_id, at, kind from hw_event where thing = 'webhook' order by id"):
        events.setdefault(number, []).append((at, kind))
    opened = 0
    for number in by_endpoint.keys() - {0}:
        tries = sorted(by_endpoint[number], key=lambda one: one.at)
        changes = [*events[number], (1 << 62, "end")]
        for (since, kind), (until, _) in pairwise(changes):
            during = [one for one in tries if since <= one.at <= until]
            match kind:
                case "webhook.opened":
                    opened += 1
                    before = in_a_row([one for one in tries if one.at < since], at_most=True)
                    now = sum(1 for one in tries if one.at == since and one.error)
                    assert before + now >= model.OPENS_AFTER
                    judge_probes([one.at for one in during if since < one.at < until], since)
                case "webhook.disabled":
                    assert [one for one in during if one.at > since] == []
                case _:
                    assert in_a_row(during) < model.OPENS_AFTER + fairness.PER_RECEIVER
    assert opened > 20


def in_a_row(tries: Iterable[Try], *, at_most: bool = False) -> int:
    """Failures up to the end, at least or at most: of those at one instant nobody knows which came first."""
    row = 0
    for _, group in groupby(tries, key=lambda one: one.at):
        errors = [one.error for one in group]
        if all(errors):
            row += len(errors)
        else:
            row = sum(map(bool, errors)) if at_most else 0
    return row


def judge_probes(probes: list[int], since: int) -> None:
    wait = model.FIRST_PROBE
    for before, probe in pairwise([since, *probes]):
        assert probe - before >= round(wait * SECOND), (before, probe)
        wait = min(2 * wait, model.LONGEST_PROBE)
