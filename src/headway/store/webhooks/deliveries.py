"""Stores deliveries: leasing due ones, recording outcomes, giving up.

A trigger on events creates the rows. A sender holds a lease on its delivery, and each lease has a fence: an outcome
under an older fence changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.errors import WrongState
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.webhooks.webhook import (
    DELIVERED,
    LONGEST_WAIT,
    PENDING,
    Delivery,
    Endpoint,
    Outcome,
    Try,
    after_loss,
    after_try,
    answered,
    given_up,
)
from headway.store import events
from headway.store.db import Tx
from headway.store.webhooks import endpoints
from headway.store.webhooks.delivery_views import find, read
from headway.store.webhooks.receivers import Receiver
from headway.text.webhooks import not_again

LOST = "the sending process ended before it recorded the outcome: the message may have arrived"
UNREACHED = "the receiver could not be reached for 24 hours"
GIVEN_UP_AT_ONCE = 500
Random = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Leased:
    """A delivery leased to this process."""

    delivery: Delivery
    probe: bool = False
    host: str = ""
    ahead: bool = False

    @property
    def receiver(self) -> Receiver:
        one = self.delivery
        return Receiver(one.endpoint_id) if one.endpoint_id else Receiver(0, one.tenant_id, self.host)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The outcome of a try under a lease."""

    leased: Leased
    outcome: Outcome
    tried: Try


def lease(tx: Tx, who: str, endpoint_id: int, *, limit: int, seconds: float, actor: Actor) -> list[Leased]:
    """Leases the due deliveries of an endpoint; skips those leased elsewhere."""
    due = [Delivery(*row) for row in tx.run("due_deliveries", endpoint_id=endpoint_id, limit=limit)]
    return _take(tx, who, due, seconds, actor)


def lease_ahead(tx: Tx, who: str, endpoint_id: int, *, seconds: float, actor: Actor) -> list[Leased]:
    """Leases a test delivery, ahead of everything that waits at its endpoint."""
    found = [Delivery(*row) for row in tx.run("delivery_ahead", endpoint_id=endpoint_id)]
    return [Leased(one.delivery, ahead=True) for one in _take(tx, who, found, seconds, actor)]


def lease_own(tx: Tx, who: str, to: Receiver, *, limit: int, seconds: float, actor: Actor) -> list[Leased]:
    """Leases the due deliveries to a host from a job's own `webhook_url`."""
    found = tx.run("due_at_address", tenant_id=to.tenant_id, host=to.host, limit=limit)
    taken = _take(tx, who, [Delivery(*row) for row in found], seconds, actor)
    return [Leased(one.delivery, host=to.host) for one in taken]


def lease_probe(tx: Tx, who: str, endpoint_id: int, *, seconds: float, actor: Actor) -> list[Leased]:
    """Leases the oldest delivery of an open endpoint as its probe, if one is due.

    The endpoint's lock gives the probe to a single process.
    """
    endpoint = endpoints.lock_all(tx, [endpoint_id]).get(endpoint_id)
    now = endpoints.now(tx)
    if endpoint is None or endpoint.probe_at is None or endpoint.probe_at > now or not endpoint.usable:
        return []
    oldest = [Delivery(*row) for row in tx.run("oldest_delivery", endpoint_id=endpoint_id)]
    taken = _take(tx, who, oldest, seconds, actor)
    if taken:
        endpoints.set_probe(tx, endpoint, now + micros(seconds))
    return [Leased(one.delivery, probe=True) for one in taken]


def _take(tx: Tx, who: str, due: Sequence[Delivery], seconds: float, actor: Actor) -> list[Leased]:
    ids = json.dumps([one.id for one in due])
    left = [one.id for one in _left(tx, due, actor)]
    tx.run("lease_deliveries", ids=json.dumps(left), who=who, lease=micros(seconds))
    found = [Delivery(*row) for row in tx.run("deliveries_by_id", ids=ids)]
    return [
        Leased(one) for one in sorted(found, key=lambda one: one.id) if one.lease_by == who and one.status == PENDING
    ]


def _left(tx: Tx, due: Sequence[Delivery], actor: Actor) -> Sequence[Delivery]:
    """Returns the deliveries still pending, after recording those with dead senders."""
    lost = [one for one in due if one.lease_by is not None]
    if not lost:
        return due
    _lose(tx, lost, actor)
    return [one for one in read(tx, [one.id for one in due]) if one.status == PENDING]


def _lose(tx: Tx, lost: Sequence[Delivery], actor: Actor) -> None:
    """Records that the senders died, so that the deliveries are sent again."""
    now = endpoints.now(tx)
    rows = [(one, Try(_number(one), now, 0, None, LOST, None, one.message_id or "", "", "{}", None)) for one in lost]
    _add_tries(tx, rows)
    _save(tx, [(one, after_loss(one, now)) for one in lost], actor)


def _number(delivery: Delivery) -> int:
    return delivery.tries + delivery.lost + 1


def free(tx: Tx, ids: Collection[int], owners: Collection[str], actor: Actor) -> int:
    """Ends the leases of processes that are gone and returns how many."""
    found = [Delivery(*row) for row in tx.run("lock_deliveries", ids=json.dumps(sorted(ids)))]
    lost = [one for one in found if one.lease_by in owners]
    if lost:
        _lose(tx, lost, actor)
        tx.wake()
    return len(lost)


def leases(tx: Tx) -> list[tuple[int, str]]:
    return [(number, who) for number, who in tx.run("leased_deliveries")]


def give_back(tx: Tx, ids: Collection[int], who: str) -> None:
    """Ends leases of this owner under which nothing was sent. The deliveries are due at once."""
    tx.run("return_deliveries", ids=json.dumps(sorted(ids)), who=who)


def store_bodies(tx: Tx, bodies: Sequence[tuple[Delivery, str, str]]) -> dict[int, Delivery]:
    """Stores the message ids and bodies that every try sends.

    Returns the deliveries. If another process stored a body first, that one stays.
    """
    rows = [(one.id, one.fence, message_id, body) for one, message_id, body in bodies]
    tx.run("store_bodies", rows=json.dumps(rows))
    return {one.id: one for one in read(tx, [one.id for one, _, _ in bodies])}


def record(tx: Tx, reports: Sequence[DeliveryReport], actor: Actor, random: Random) -> int:
    """Records the outcomes of tries and returns how many were recorded.

    An outcome whose lease was lost changes nothing.
    """
    receivers = endpoints.lock_all(tx, {one.leased.delivery.endpoint_id for one in reports} - {0})
    now = endpoints.now(tx)
    by_id = {one.leased.delivery.id: one for one in reports}
    locked = [Delivery(*row) for row in tx.run("lock_deliveries", ids=json.dumps(sorted(by_id)))]
    landed = [one for one in locked if one.lease_by is not None and one.fence == by_id[one.id].leased.delivery.fence]
    tries: list[tuple[Delivery, Try]] = []
    changed: list[tuple[Delivery, Delivery]] = []
    for one in landed:
        report = by_id[one.id]
        usable = _judge(tx, receivers, one.endpoint_id, report, actor, now)
        tries.append((one, _numbered(report.tried, _number(one))))
        changed.append((one, after_try(one, report.outcome, usable=usable, now=now, random=random)))
    _add_tries(tx, tries)
    _save(tx, changed, actor)
    return len(landed)


def _judge(tx: Tx, receivers: dict[int, Endpoint], number: int, report: DeliveryReport, actor: Actor, now: int) -> bool:
    """Updates the endpoint's circuit breaker. Returns False if it is disabled now."""
    before = receivers.get(number)
    if before is None:
        return True  # a job's own address
    after = answered(before, report.outcome, probe=report.leased.probe, now=now)
    if after != before:
        receivers[number] = _changed(tx, before, after, report.outcome, actor)
    return receivers[number].usable


def _changed(tx: Tx, before: Endpoint, after: Endpoint, outcome: Outcome, actor: Actor) -> Endpoint:
    if before.usable and not after.usable:
        return endpoints.save(tx, after, "disabled", actor, reason=after.reason)
    if (before.opened_at is None) == (after.opened_at is None):
        return endpoints.store(tx, after)
    kind = "opened" if after.opened_at is not None else "closed"
    return endpoints.save(tx, after, kind, actor, reason=outcome.error)


def _numbered(one: Try, number: int) -> Try:
    return Try(number, one.at, one.took, *_rest(one))


def _rest(one: Try) -> tuple[int | None, str | None, str | None, str, str, str, str | None]:
    return one.status_code, one.error, one.address, one.message_id, one.digest, one.request, one.response


def _add_tries(tx: Tx, tries: Iterable[tuple[Delivery, Try]]) -> None:
    rows = [(one.id, tried.number, one.tenant_id, tried.at, tried.took, *_rest(tried)) for one, tried in tries]
    if rows:
        tx.run("add_tries", rows=json.dumps(rows))


def _save(tx: Tx, changed: Sequence[tuple[Delivery, Delivery]], actor: Actor) -> None:
    """Stores changed deliveries, with an event for each that has ended."""
    rows: list[tuple[object, ...]] = []
    ends: list[NewEvent] = []
    for before, after in changed:
        ended = after.status != PENDING
        version = before.version + ended
        times = (after.delivered_at, after.finished_at)
        answer = (after.last_status_code, after.last_error)
        rows.append((after.id, after.status, after.tries, after.lost, after.due_at, *answer, *times, version))
        if ended:
            ends.append(_event(after, "delivered" if after.status == DELIVERED else "failed", version, actor))
    if rows:
        tx.run("save_deliveries", rows=json.dumps(rows))
    events.record(tx, *ends)


def _event(one: Delivery, kind: str, version: int, actor: Actor, **facts: object) -> NewEvent:
    recorded = {
        "webhook": one.endpoint_id or None,
        "event": one.event,
        "job": one.job_id,
        "tries": one.tries,
        "status_code": one.last_status_code,
        "error": one.last_error if kind == "failed" else None,
        **facts,
    }
    data = json.dumps({name: fact for name, fact in recorded.items() if fact is not None}, separators=(",", ":"))
    return NewEvent(f"delivery.{kind}", actor, tenant_id=one.tenant_id, thing_id=one.id, version=version, data=data)


def give_up(tx: Tx, endpoint_id: int, actor: Actor) -> int:
    """Gives up a batch of deliveries and returns how many.

    Their endpoint is disabled or deleted, or has been open for too long.
    """
    endpoint = endpoints.lock_all(tx, [endpoint_id]).get(endpoint_id)
    if endpoint is None:
        return 0
    now = endpoints.now(tx)
    if not endpoint.usable:
        before, why = (
            now + 1,
            "the webhook was deleted" if endpoint.deleted_at is not None else "the webhook is disabled",
        )
    elif endpoint.opened_at is not None:
        before, why = now - micros(LONGEST_WAIT), UNREACHED
    else:
        return 0
    found = tx.run("stale_deliveries", endpoint_id=endpoint_id, before=before, limit=GIVEN_UP_AT_ONCE)
    stale = [Delivery(*row) for row in found]
    _save(tx, [(one, given_up(one, why, now)) for one in _left(tx, stale, actor)], actor)
    return len(stale)


def give_up_own(tx: Tx, to: Receiver, actor: Actor) -> int:
    """Gives up deliveries that waited too long for a job's own host."""
    now = endpoints.now(tx)
    found = tx.run("due_at_address", tenant_id=to.tenant_id, host=to.host, limit=GIVEN_UP_AT_ONCE)
    old = [one for one in (Delivery(*row) for row in found) if one.created_at < now - micros(LONGEST_WAIT)]
    _save(tx, [(one, given_up(one, UNREACHED, now)) for one in _left(tx, old, actor)], actor)
    return len(old)


def fail(tx: Tx, leased: Sequence[Leased], why: str, actor: Actor) -> None:
    """Gives up leased deliveries that cannot be sent."""
    fences = {one.delivery.id: one.delivery.fence for one in leased}
    now = endpoints.now(tx)
    locked = [Delivery(*row) for row in tx.run("lock_deliveries", ids=json.dumps(sorted(fences)))]
    ours = [one for one in locked if one.fence == fences[one.id] and one.lease_by is not None]
    _save(tx, [(one, given_up(one, why, now)) for one in ours], actor)


# --- sending once more --------------------------------------------------------------------------------------------


def add_test(tx: Tx, endpoint: Endpoint, event: str) -> Delivery:
    """Creates a test delivery, after the endpoint's event that announces it."""
    ((number,),) = tx.run("add_test", endpoint_id=endpoint.id, event=event)
    tx.wake()
    return read(tx, [number])[0]


def replay(tx: Tx, tenant_id: int, number: int, actor: Actor) -> Delivery:
    """Sends the same message again as a new delivery."""
    one, endpoint = find(tx, tenant_id, number), None
    if one.endpoint_id:
        endpoint = endpoints.lock_all(tx, [one.endpoint_id])[one.endpoint_id]
    one = Delivery(*tx.run("lock_deliveries", ids=json.dumps([number]))[0])
    if refusal := not_again(one, endpoint):
        word, text = refusal
        raise WrongState(text, status=word)
    max_tries = one.max_tries if endpoint is None else endpoint.max_tries
    ((again,),) = tx.run("replay_delivery", id=number, max_tries=max_tries)
    version = one.version + 1
    tx.run("set_delivery_version", id=number, version=version)
    events.record(tx, _event(one, "replayed", version, actor, by=again))
    tx.wake()
    return read(tx, [again])[0]
