"""Idempotency keys: a request that is repeated makes nothing again, whenever the first one died."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headway import fault_points
from headway.engine.client import client as client_module
from headway.engine.client.client import Client
from headway.engine.client.idempotency import FIND, Replayed, complete, pack
from headway.engine.maintenance.pruner import Pruner
from headway.errors import BadInput, WrongState
from headway.model.groups.group import NewGroup, NewMember
from headway.store.db import Row
from tests.support.gates import Gate
from tests.support.life import BROKEN, Life
from tests.support.pair import Pair
from tests.support.schedules import teach
from tests.support.waiting import PATIENCE

HEADERS = {"location": "/api/things/1"}
# Verbs without a key of their caller's have one of their own on PostgreSQL.
OF_REQUESTS = "where route = 'POST /api/things'"


def keyed(life: Life, key: str = "k1", *, route: str = "POST /api/things", digest: str = "d1") -> Client:
    return life.client.keyed(route, key, digest)


def group(life: Life) -> NewGroup:
    return NewGroup("pair", "parallel", "stop", tuple(NewMember(life.new(task="sync"), 0, name) for name in "ab"))


def failed_job(life: Life) -> int:
    return life.run(life.enqueue(retry=0), BROKEN).id


def failed_group(life: Life) -> int:
    number = life.client.groups.create(group(life))
    for (job_id,) in life.sql(f"select id from hw_job where group_id = {number} order by id"):
        life.client.cancel(job_id)
    return number


def schedule(life: Life) -> int:
    made = life.client.schedules.create("s", {"cron": "*/5 * * * *", "steps": [{"task": "sync"}]})
    life.clock.advance("1h")
    return made.id


def webhook(life: Life) -> int:
    return life.client.webhooks.create("https://example.com/hook").id


def nothing(_: Life) -> int:
    return 0


def backfill(life: Life, client: Client, number: int) -> list[int]:
    found = client.schedules.get(number)
    now = life.clock.now()
    return client.schedules.backfill(number, found.created_at, now)


# How each thing is prepared, and made. What is made is told by its number.
MAKING: dict[str, tuple[Callable[[Life], int], Callable[[Life, Client, int], Any]]] = {
    "job": (nothing, lambda life, client, _: client.enqueue(life.new())),
    "job with a key of its own": (nothing, lambda life, client, _: client.enqueue(life.new(key="u"))),
    "job on a target": (nothing, lambda life, client, _: client.enqueue(life.new(target="desk"))),
    "jobs": (nothing, lambda life, client, _: client.enqueue_many([life.new(), life.new(priority=5)])),
    "jobs alike": (nothing, lambda life, client, _: client.enqueue_alike(life.new(), ["{}", '{"n":2}'])),
    "group": (nothing, lambda life, client, _: client.groups.create(group(life))),
    "group again": (failed_group, lambda _, client, number: client.groups.retry(number)),
    "template": (nothing, lambda _, client, __: client.templates.create("t", "sync")),
    "schedule": (
        nothing,
        lambda _, client, __: client.schedules.create("s", {"cron": "@daily", "steps": [{"task": "sync"}]}),
    ),
    "manual run": (schedule, lambda _, client, number: client.schedules.run(number)),
    "backfill": (schedule, backfill),
    "retry": (failed_job, lambda _, client, number: client.retry(number)),
    "reservation": (nothing, lambda life, client, _: client.reserve(target="desk")),
    "tenant": (nothing, lambda _, client, __: client.tenants.create("acme", max_queued=5)),
    "webhook": (nothing, lambda _, client, __: client.webhooks.create("https://example.com/hook")),
    "webhook's test": (webhook, lambda _, client, number: client.webhooks.test(number)),
    "token": (nothing, lambda _, client, __: client.tokens.create("ci", "viewer", tenant="default")[0]),
}


def furnish(life: Life) -> None:
    """Tasks and a target, and jobs of them, so that whatever is made from here on is made in one transaction."""
    teach(life)
    for wishes in ({"target": "desk"}, {}, {"task": "sync"}):
        life.enqueue(**wishes)


@pytest.fixture
def person(life: Life) -> Life:
    furnish(life)
    return life


@pytest.fixture(params=MAKING)
def making(request: pytest.FixtureRequest, person: Life) -> Callable[[Client], Any]:
    prepare, make = MAKING[request.param]
    number = prepare(person)
    return lambda client: make(person, client, number)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    fault_points.arm(None)


def stored(life: Life) -> dict[str, list[Row]]:
    """All that a request can make."""
    tables = ("job", "group", "template", "schedule", "reservation", "token", "tenant", "endpoint", "delivery", "event")
    return {table: sorted(life.sql(f"select id from hw_{table}")) for table in tables}


def test_a_request_that_is_repeated_gets_the_first_answer(person: Life, making: Callable[[Client], Any]) -> None:
    client = keyed(person)
    making(client)
    assert not client.replayed
    complete(client, 201, HEADERS, '{"a":"ä"}')
    before = stored(person)
    person.clock.advance("23h59m")
    if person.sql(f"select status from hw_answer {OF_REQUESTS}") == [(None,)]:
        return  # its answer shows a secret: see below
    with pytest.raises(Replayed) as caught:
        keyed(person)
    answer = caught.value
    assert (answer.status, answer.headers, answer.body) == (201, HEADERS, '{"a":"ä"}')
    assert stored(person) == before


def test_a_job_made_without_an_answer_is_found_again(person: Life, making: Callable[[Client], Any]) -> None:
    first = making(keyed(person))
    before = stored(person)
    client = keyed(person)
    assert json.dumps(making(client), default=str) == json.dumps(first, default=str)
    assert client.replayed
    assert stored(person) == before
    complete(client, 201, HEADERS, "late")
    complete(client, 500, {}, "the first answer stays")
    assert person.sql(f"select body from hw_answer {OF_REQUESTS}") in ([("late",)], [(None,)])


class _Died(BaseException):
    """Stands for the end of the process."""


def die_at(ending: str) -> Callable[[str], None]:
    def action(name: str) -> None:
        # The one is another thread's, the other is made ready before anything is.
        if name.endswith(ending) and not name.startswith(("notify", "arm_outbox.")):
            fault_points.arm(None)
            raise _Died(name)

    return action


def test_a_death_before_the_commit_leaves_neither_thing_nor_key(person: Life, making: Callable[[Client], Any]) -> None:
    before, client = stored(person), keyed(person)
    fault_points.arm(die_at(".before_commit"))
    with pytest.raises(BaseException, match=r"before_commit|interrupted"):
        making(client)
    assert (stored(person), person.sql(f"select * from hw_answer {OF_REQUESTS}")) == (before, [])
    client = keyed(person)
    making(client)
    assert not client.replayed
    assert stored(person) != before


def test_a_death_between_the_commit_and_the_answer_makes_nothing_twice(
    person: Life, making: Callable[[Client], Any]
) -> None:
    before, client = stored(person), keyed(person)
    fault_points.arm(die_at(".committed"))
    with pytest.raises(BaseException, match=r"committed|interrupted"):
        making(client)
    after = stored(person)
    assert after != before
    client = keyed(person)
    making(client)
    assert client.replayed
    assert stored(person) == after


def test_a_key_is_for_one_request(person: Life) -> None:
    templates = keyed(person).templates
    templates.create("t", "sync")
    for _ in range(2):  # before and after it was answered
        with pytest.raises(BadInput, match="'k1' was used here for another request") as caught:
            keyed(person, digest="d2")
        assert (caught.value.code, caught.value.field) == ("key_reused", "Idempotency-Key")
        complete(templates.client, 201, {}, "")
    keyed(person, "k2").templates.create("t2", "sync")
    keyed(person, route="POST /api/others", digest="d2").templates.create("t3", "sync")
    other = person.client.sibling(person.client.actor, "default")
    other._tenant_id = 99
    other.keyed("POST /api/things", "k1", "d2")
    assert len(person.sql("select * from hw_template")) == 3


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 201])
def test_an_impossible_key_is_refused(person: Life, key: str) -> None:
    with pytest.raises(BadInput) as caught:
        keyed(person, key)
    assert caught.value.field == "Idempotency-Key"


def test_a_failure_leaves_no_key(person: Life) -> None:
    person.client.templates.create("t", "sync")
    with pytest.raises(BadInput, match="already"):
        keyed(person).templates.create("t", "sync")
    assert person.sql(f"select * from hw_answer {OF_REQUESTS}") == []
    keyed(person).templates.create("u", "sync")


def test_a_repeated_request_is_not_judged_by_what_has_changed_since(person: Life) -> None:
    """Its template is archived meanwhile: the answer is the same."""
    person.client.templates.create("t", "sync")
    client = keyed(person)
    client.enqueue(client.templates.job("t"))
    complete(client, 201, {}, "made")
    person.client.templates.archive("t")
    with pytest.raises(Replayed, match="answered before"):
        keyed(person)


def test_only_the_first_transaction_has_the_key(person: Life) -> None:
    client = keyed(person)
    job_id, _ = client.enqueue(person.new())
    assert client.cancel(job_id).status.name == "CANCELLED"
    assert not client.replayed
    with pytest.raises(WrongState):
        client.cancel(job_id)
    assert person.sql("select made from hw_answer") == [(json.dumps([[job_id]]),)]


def test_a_tokens_text_is_not_kept_with_its_answer(person: Life) -> None:
    client = keyed(person)
    token, plain = client.tokens.create("ci", "viewer", tenant=None)
    complete(client, 201, {}, json.dumps({"token": plain}))
    assert plain not in str(person.sql("select * from hw_answer"))
    again = keyed(person)
    assert again.tokens.create("ci", "viewer", tenant=None) == (token, "")
    assert again.replayed
    assert person.client.tokens.find(plain) == token


def test_a_key_is_free_again_after_a_day(person: Life) -> None:
    client = keyed(person)
    client.templates.create("t", "sync")
    complete(client, 201, HEADERS, "first")
    person.clock.advance("1d")
    with pytest.raises(Replayed):
        keyed(person)
    person.clock.advance("1s")
    later = keyed(person, digest="d2")
    later.templates.create("u", "sync")
    assert not later.replayed
    assert person.sql("select digest, status, headers, body from hw_answer") == [("d2", None, None, None)]


@pytest.mark.parametrize("retention", [None, 1e9])
def test_old_answers_are_pruned_whatever_the_retention(person: Life, tmp_path: Path, retention: float | None) -> None:
    pruner = Pruner(person.database, retention=retention, artifacts=tmp_path)
    for n in range(3):
        keyed(person, f"k{n}").enqueue(person.new())
        person.clock.advance("10h")
    assert pruner.tick() == 0.0
    assert sorted(person.sql("select key from hw_answer")) == [("k1",), ("k2",)]
    assert pruner.tick() > 0
    assert len(person.sql("select * from hw_job")) == 6


def test_whatever_is_made_with_a_key_can_be_found_again() -> None:
    """A verb that returns something else must say how: it is refused in its first test, not after a crash."""
    assert all(hasattr(kind, "__dataclass_fields__") for kind in FIND)
    with pytest.raises(TypeError, match="made a set"):
        pack({1})


def test_every_verb_begins_its_transaction_where_the_key_is_taken() -> None:
    """A transaction that goes past it would run again when its request is repeated."""
    folder = Path(client_module.__file__).parent
    # They take the database, or stand before any request: nothing of them is made with a key.
    past = {path.name for path in folder.glob("*.py") if re.search(r"database\.(transact|repeat)\(", path.read_text())}
    assert past == {"client.py", "idempotency.py", "limits.py", "sessions.py"}


# --- two at once --------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        furnish(pair)
        yield pair


def outcome(future: Future[Any]) -> str:
    error = future.exception(PATIENCE)
    return "made" if error is None else type(error).__name__


@pytest.mark.parametrize("name", MAKING)
def test_two_requests_with_one_key_at_once_make_one_thing(pair: Pair, name: str) -> None:
    """The second one has looked and found nothing when the first commits."""
    prepare, make = MAKING[name]
    number = prepare(pair)
    before = stored(pair)
    clients = [keyed(pair), keyed(pair)]
    with pair.open_at("save_made", lambda: make(pair, clients[0], number)) as first:
        second = pair.waiting(lambda: make(pair, clients[1], number))
    assert (outcome(first), outcome(second)) == ("made", "made")
    assert json.dumps(first.result(), default=str) == json.dumps(second.result(), default=str)
    assert [client.replayed for client in clients] == [False, True]
    after = stored(pair)
    assert after != before
    assert len(pair.sql(f"select * from hw_answer {OF_REQUESTS}")) == 1
    assert pair.gated.conflicts == 0


def test_a_waiter_for_a_failed_request_makes_the_thing_itself(pair: Pair) -> None:
    clients, gate = [keyed(pair), keyed(pair)], Gate()

    def wait_and_fail() -> None:
        gate()
        raise WrongState("as it happens", status="x")

    pair.gated.before("add_template", wait_and_fail)
    first = pair.pool.submit(lambda: clients[0].templates.create("t", "sync"))
    assert gate.reached.wait(PATIENCE)
    second = pair.waiting(lambda: clients[1].templates.create("t", "sync"))
    gate.open.set()
    assert (outcome(first), outcome(second)) == ("WrongState", "made")
    assert not clients[1].replayed
    assert len(pair.sql("select * from hw_template")) == 1


def test_a_waiter_for_a_request_with_another_body_is_refused(pair: Pair) -> None:
    clients = [keyed(pair), keyed(pair, digest="d2")]
    with pair.open_at("save_made", lambda: clients[0].templates.create("t", "sync")) as first:
        second = pair.waiting(lambda: clients[1].templates.create("u", "sync"))
    assert (outcome(first), outcome(second)) == ("made", "BadInput")
    assert [name for (name,) in pair.sql("select name from hw_template")] == ["t"]


# --- a process that is really killed ------------------------------------------------------------------------------

REQUEST = """
import sys
from headway import fault_points
from headway.engine.client import client as client_module
from headway.engine.client.idempotency import Replayed, complete
from headway.engine.client.client import Client
from headway.engine.tasks.registry import Registry
from headway.model.jobs.job import Actor
from headway.store.db import open_database
fault_points.arm_from_environment()
client = Client(open_database(sys.argv[1]), Registry(), actor=Actor("token", "1", "ci"))
try:
    keyed = client.keyed("POST /api/tokens", "k1", "d1")
    made = keyed.reserve(target="desk")
    complete(keyed, 201, {}, str(made.id))
    print("made" if not keyed.replayed else "found", made.id)
except Replayed as replayed:
    print("replayed", replayed.body)
"""


@pytest.mark.parametrize(
    ("fault", "repeated"),
    [
        ("1:reserve.before_commit", "made"),
        ("1:reserve.committed", "found"),
        ("1:complete_answer.begun", "found"),
        ("1:complete_answer.committed", "replayed"),
    ],
)
def test_a_killed_process_leaves_what_a_repeated_request_can_use(person: Life, fault: str, repeated: str) -> None:
    command = [sys.executable, "-c", REQUEST, person.url]
    killed = subprocess.run(command, env={**os.environ, "HEADWAY_TEST_FAULT": fault}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    ((number,),) = person.sql("select id from hw_reservation")
    assert again.stdout.split() == [repeated, str(number)]
