"""Webhooks under fire: real processes that are killed -9 while they send, and receivers of every bad kind at once.

Each test prints its figure. `HEADWAY_PROOF=1` makes about ten times as many deliveries and kills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.clock import SECOND
from headway.model.webhooks.webhook import MAX_TRIES, Delivery
from headway.store.db import open_database
from headway.verify import check
from tests.support.figures import Figure
from tests.support.life import Life
from tests.support.receivers import Behaviour, Receiver, answer, drip, flood, hang, receiver, reset
from tests.system.support import sender

pytestmark = pytest.mark.alone

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
JOBS = 250 if PROOF else 25
KILLS = 100 if PROOF else 10
POINTS = ("deliver.sent", "deliver.before_send", "record_deliveries", "store_bodies", "lease_deliveries")
DEADLINE = "0.5"
KINDS: dict[str, list[Behaviour]] = {
    "takes it": [answer()],
    "takes it later": [answer(500), reset, answer(503), answer()],
    "hangs": [hang],
    "resets": [reset],
    "redirects": [answer(307, Location="http://127.0.0.1:1/")],
    "gone": [answer(410)],
    "asks for time": [answer(429, Retry_After="1"), answer(429, Retry_After="1"), answer()],
    "answers a gigabyte": [flood(1 << 30)],
    "a byte at a time": [drip(b"HTTP/1.1 200 OK\r\nX: ", b"x")],
}


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url, database=open_database(database_url)) as life:
        yield life


def start(life: Life, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(sender.__file__)), json.dumps({"inside.example": "169.254.169.254"}), DEADLINE],
        env=os.environ | {"HEADWAY_DATABASE": life.url, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stderr=subprocess.DEVNULL,
    )


def all_deliveries(life: Life) -> list[Delivery]:
    ids = [number for (number,) in life.sql("select id from hw_delivery order by id")]
    return [life.client.webhooks.delivery(number) for number in ids]


def test_killed_between_send_and_record(life: Life, figure: Figure) -> None:
    """At least once, under the same id and with the same bytes, and no try is used up by a death."""
    rng = Random(11)
    with receiver() as one:
        life.client.webhooks.create(one.url, ["job.run.completed"])
        deaths = 0
        for n in range(KILLS):
            for _ in range(2):
                life.in_state("COMPLETED")
            process = start(life, HEADWAY_TEST_FAULT=f"{rng.randint(1, 2)}:{POINTS[n % len(POINTS)]}")
            deaths += process.wait(60) == -9
        assert start(life).wait(60) == 0
    ended = all_deliveries(life)
    assert [(one.status, one.tries) for one in ended] == [("DELIVERED", 1)] * 2 * KILLS
    check_received(life, {1: one}, ended)
    twice = sum(count - 1 for count in Counter(r.headers["webhook-id"] for r in one.received).values())
    assert twice > 0
    figure(f"{life.database.dialect}: {deaths} kills, {len(ended)} deliveries, {twice} of them received once more")
    assert deaths == KILLS


def test_every_bad_receiver_at_once(life: Life, figure: Figure) -> None:
    rng = Random(7)
    with ExitStack() as stack:
        ones: dict[int, Receiver] = {}
        kinds: dict[int, str] = {}
        for kind, behave in KINDS.items():
            for _ in range(2 if kind == "takes it" else 1):
                one = stack.enter_context(receiver(*behave))
                made = life.client.webhooks.create(one.url, ["job.run.*"], description=kind)
                ones[made.id], kinds[made.id] = one, kind
        inside = life.client.webhooks.create("http://inside.example/", ["job.run.*"])
        for _ in range(JOBS):
            life.in_state("COMPLETED")
        kills = 0
        for _ in range(4):
            process = start(life, HEADWAY_TEST_FAULT=f"{rng.randint(5, 60)}:deliver.sent")
            kills += process.wait(60) == -9
        _let_time_pass(life)
        ended = all_deliveries(life)
        check_received(life, ones, ended)
    for number, kind in kinds.items():
        found = Counter(one.status for one in ended if one.endpoint_id == number)
        if kind in ("takes it", "answers a gigabyte"):
            assert found == {"DELIVERED": JOBS}, (kind, found)
        elif kind not in ("takes it later", "asks for time"):
            assert found == {"FAILED": JOBS}, (kind, found)
    assert len(ones[_number(kinds, "gone")].received) <= 4 + 4 * (kills + 1)
    assert all(one.flooded < (8 << 20) * (1 + len(one.received)) for one in ones.values())
    never = [one for one in ended if one.endpoint_id == inside.id]
    assert {one.status for one in never} == {"FAILED"}
    sent = f"{sum(len(one.received) for one in ones.values())} requests, {kills} kills"
    figure(f"{life.database.dialect}: {len(ended)} deliveries to {len(ones) + 1} receivers, {sent}")


def _number(kinds: dict[int, str], wanted: str) -> int:
    return next(number for number, kind in kinds.items() if kind == wanted)


def _let_time_pass(life: Life) -> None:
    """The deliverer works until nothing is on its way. What waits for an open endpoint is made a day old."""
    process = start(life)
    while process.poll() is None:
        opened = life.sql("select count(*) from hw_endpoint where opened_at is not null")[0][0]
        if opened:
            life.sql_write(
                f"update hw_delivery set created_at = created_at - {86_400 * SECOND} where status = 'PENDING'"
                f" and created_at > {life.database.clock.now() - 86_400 * SECOND}"
                " and endpoint_id in (select id from hw_endpoint where opened_at is not null)"
            )
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == 0


def check_received(life: Life, ones: dict[int, Receiver], ended: list[Delivery]) -> None:
    """What receivers saw against what was recorded, and what `verify` says."""
    by_message = {one.message_id: one for one in ended if one.message_id is not None}
    got: dict[str, list[Any]] = {}
    for one in ones.values():
        for request in one.received:
            got.setdefault(request.headers["webhook-id"], []).append(request)
    for message, requests in got.items():
        assert len({request.body for request in requests}) == 1
        delivery = by_message[message]
        assert requests[0].body.decode() == delivery.body
        assert len(requests) <= delivery.tries + delivery.lost
    for delivery in ended:
        assert delivery.tries <= MAX_TRIES
        if delivery.status == "DELIVERED":
            assert delivery.message_id in got, "it is DELIVERED, and nobody received it"
    assert check(life.database, quiet=False).findings == []
    assert {one.status for one in ended} <= {"DELIVERED", "FAILED"}
