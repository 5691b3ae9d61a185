"""Scripts to be killed in, about who may come in and what was answered before: tokens, sessions, idempotency keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from json import loads

from headway.engine.client import bulk
from headway.engine.client.idempotency import Replayed, complete
from headway.engine.maintenance.pruner import Pruner
from headway.engine.tasks.task import make_job
from headway.errors import WrongState
from headway.model.access.permissions import fingerprint
from headway.model.jobs.filter import JobFilter
from tests.system.support.record import Record
from tests.system.support.scripts import STEPPING_ONLY, script
from tests.system.support.world import Fact, World

ROUTE = "POST /api/jobs"
KEYS = ("key a", "key b", "key a", "key c")
STEPPING_ONLY.add("answers")  # a day has to pass


def ask(world: World, key: str) -> int:
    """A request for one job, as often as it is repeated. The job says which request it is of."""
    try:
        keyed = world.app.client.keyed(ROUTE, key, "digest")
        job_id, _ = keyed.enqueue(make_job(keyed, "note", {"batch": key}, {}))
        complete(keyed, 201, {}, str(job_id))
    except Replayed as replayed:
        return int(replayed.body)
    return job_id


def ask_for_many(world: World) -> None:
    """A request of several transactions; repeated after a death in the middle, it is refused and changes nothing."""
    try:
        keyed = world.app.client.keyed("POST /api/jobs/bulk", "many", "digest", several=True)
        bulk.act(keyed, JobFilter(key="nobody has it"), "cancel", expected=0)
        complete(keyed, 200, {}, "{}")
    except Replayed:
        pass
    except WrongState as error:
        if error.code != "in_progress":
            raise


@script
def answers(world: World) -> None:
    """Requests with idempotency keys, some of them repeated, and a login; a day later all that is forgotten."""
    _, plain = world.app.client.tokens.create("ada", "viewer", tenant=None)
    world.app.client.sessions.begin(plain)
    ask_for_many(world)
    for key in KEYS:
        job_id = ask(world, key)
        world.say({"made": [job_id], "expect": "COMPLETED", "length": None, "params": [{"batch": key}]})
    worker = world.worker(slots=1)
    worker.run_dry()
    worker.close()
    world.advance(86_401)
    Pruner(world.database, retention=None, artifacts=world.folder).tick()


@script
def let_in(world: World) -> None:
    """Tokens are made and revoked; somebody logs in with one, and out again."""
    told = world.app.client.webhooks.create("https://example.com/hook")
    world.app.client.webhooks.delete(told.id)  # the last one: events make deliveries no more
    tokens = world.app.client.tokens
    made, plain = tokens.create("ci", "viewer", tenant="default", expires="1d")
    world.say({"token": made.id, "opens": True})
    tokens.create("ada", "admin", tenant=None)
    sessions = world.app.client.sessions
    if sessions.cookie_key() != sessions.cookie_key():
        world.say({"broken": "the key that signs cookies changed"})
    left, kept = sessions.begin(plain) or "", sessions.begin(plain) or ""
    if sessions.visitor(left) is None or sessions.visitor(kept) is None:
        world.say({"broken": "a session that has begun opens nothing"})
    sessions.end(left)
    world.say({"left": fingerprint(left)})
    tokens.revoke(made.id)
    world.say({"token": made.id, "opens": False})
    if tokens.find(plain) is not None:
        world.say({"broken": "a revoked token opens something"})
    if sessions.visitor(kept) is not None:
        world.say({"broken": "the session of a revoked token opens something"})


@script
def apart(world: World) -> None:
    """Tenants are made, limited, switched off and on; the jobs of one take turns with those of another."""
    client = world.app.client
    for name in ("shop", "idle"):
        client.tenants.create(name)
        world.say({"tenant": name})
    client.tenants.edit("shop", {"max_running": 1, "max_queued": 5})
    client.tenants.deactivate("idle")
    client.tenants.activate("idle")
    shop = client.sibling(client.actor, "shop")
    for n in range(3):
        job_id, _ = shop.enqueue(make_job(shop, "note", {"n": n}, {}))
        world.say({"made": [job_id], "expect": "COMPLETED", "length": None, "params": [{"n": n}]})
        world.make("note", n=n)
    worker = world.worker(slots=2)
    worker.run_dry()
    worker.close()


def wrong(record: Record, facts: list[Fact]) -> Iterator[str]:
    """Each key made one job, in its transaction; what was said about a token holds."""
    made = Counter(loads(row["params"]).get("batch") for row in record.jobs.values() if row["retry_of"] is None)
    kept = [row for row in record.rows["hw_answer"] if row["route"] == ROUTE]
    for row in kept:
        (numbers,) = loads(row["made"])
        if made[row["key"]] != 1 or any(number not in record.jobs for number in numbers):
            yield f"key {row['key']} made {made[row['key']]} jobs and names {numbers}"
    there = {row["key"] for row in kept}  # all, or none when they were pruned
    if there and (lost := made.keys() & set(KEYS) - there):
        yield f"jobs of the requests {sorted(lost)} exist, and their keys do not"
    revoked = {row["id"] for row in record.rows["hw_token"] if row["revoked_at"] is not None}
    events = Counter((event.thing_id, event.kind) for event in record.events if event.thing == "token")
    for row in record.rows["hw_token"]:
        told = events[row["id"], "token.created"], events[row["id"], "token.revoked"]
        if told != (1, int(row["id"] in revoked)):
            yield f"token {row['id']} has the events {told}"
    tenants = {row["name"] for row in record.rows["hw_tenant"]}
    yield from (f"tenant {fact['tenant']} is gone" for fact in facts if fact.get("tenant", "default") not in tenants)
    for fact in facts:
        if fact.get("opens") is False and fact["token"] not in revoked:
            yield f"token {fact['token']} was revoked and opens"
    sessions = {row["hash"] for row in record.rows["hw_session"]}
    yield from (f"session {fact['left']} was ended and is there" for fact in facts if fact.get("left") in sessions)
