"""I-17: each event has one delivery for each receiver that subscribed to it.

The tries of a delivery are bounded and send the same bytes under the same id, and it ends DELIVERED or FAILED. The
names of events and the filters are implemented here a second time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from headway.verify.history import History
from headway.verify.report import Finding

PER_PAGE = 500
MOST_LOST = 10
SENT_KINDS = {"job.completed", "job.resolved", "job.failed", "job.skipped", "job.cancelled", "job.paused", "job.error"}
SENT_KINDS |= {"job.exhausted", "group.finished", "execution.finished", "execution.held"}
SENT_KINDS |= {"schedule.tick.skipped", "schedule.tick.missed"}
NAMES = {
    "job.completed": "job.run.completed",
    "job.resolved": "job.run.completed",
    "job.failed": "job.run.failed",
    "job.skipped": "job.run.skipped",
}
LIVE = {"webhook.created", "webhook.edited", "webhook.rotated", "webhook.tested", "webhook.opened", "webhook.closed"}


class Row(NamedTuple):
    id: int
    tenant_id: int
    endpoint_id: int
    event_id: int
    event: str
    status: str
    tries: int
    lost: int
    max_tries: int
    message_id: str | None
    body: str | None
    version: int
    lease_by: str | None
    replay_of: int | None
    found_event: int | None
    event_tenant: int | None
    kind: str | None
    endpoint_tenant: int | None
    job_tenant: int | None
    original: int | None
    original_message: str | None
    same_body: int


class Tried(NamedTuple):
    delivery_id: int
    number: int
    status_code: int | None
    error: str | None
    message_id: str
    digest: str

    @property
    def finished(self) -> bool:
        """True if the outcome is recorded; False if the sender died before."""
        return bool(self.digest)


class News(NamedTuple):
    """An event that a receiver may have subscribed to."""

    id: int
    tenant_id: int
    kind: str
    at: int
    data: str | None
    target_id: int | None
    options: str | None


def check(history: History) -> Iterator[Finding]:
    ((live, counted, jobs, any_at_all),) = history.tx.run("verify_hooked")
    if live != counted:
        yield Finding("I-17", "outbox", f"{live} webhooks exist, and the triggers count {counted}")
    if (live or jobs) and ("hw_event_outbox",) not in history.own("verify_guards"):
        yield Finding("I-17", "outbox", "the trigger that makes deliveries is missing from the schema or disabled")
    if not (any_at_all or jobs or live):
        return
    yield from _each(history)
    yield from _complete(history)
    for number, count in history.tx.run("verify_loose_tries"):
        yield Finding("I-17", f"delivery {number}", f"it has {count} tries or events and no row")


# --- each delivery by itself --------------------------------------------------------------------------------------


def _each(history: History) -> Iterator[Finding]:
    after = 0
    while rows := [Row._make(row) for row in history.tx.run("verify_deliveries", after=after, limit=PER_PAGE)]:
        span = {"after": after, "upto": rows[-1].id}
        tries = map(Tried._make, history.tx.run("verify_tries", **span))
        tried = {number: list(group) for number, group in groupby(tries, key=lambda tried: tried.delivery_id)}
        events = history.tx.run("verify_delivery_events", **span)
        recorded = {number: list(group) for number, group in groupby(events, key=lambda event: event[0])}
        for row in rows:
            history.counted["deliveries"] += 1
            for text in _wrong(history, row, tried.get(row.id, []), recorded.get(row.id, [])):
                yield Finding("I-17", f"delivery {row.id}", text)
            for text in _strangers(row):
                yield Finding("I-18", f"delivery {row.id}", f"it belongs to tenant {row.tenant_id}, {text}")
        after = rows[-1].id


def _wrong(history: History, row: Row, tries: Sequence[Tried], events: Sequence[Any]) -> Iterator[str]:
    finished = [one for one in tries if one.finished]
    if row.found_event is None and not any(history.pruned.values()):
        yield f"its event {row.event_id} does not exist"
    if row.kind is not None and row.kind not in (SENT_KINDS if row.event != "webhook.test" else {"webhook.tested"}):
        yield f"its event {row.event_id} is {row.kind}, which is not a webhook event"
    if row.tries > row.max_tries or row.lost > MOST_LOST:
        yield f"it was tried {row.tries} times and lost {row.lost} times, of at most {row.max_tries} and {MOST_LOST}"
    if [one.number for one in tries] != list(range(1, row.tries + row.lost + 1)) or len(finished) != row.tries:
        numbers = [one.number for one in tries]
        counted = f"it was tried {row.tries} times and lost {row.lost} times"
        yield f"{counted}; its log has {numbers}, {len(finished)} of them with an outcome"
    yield from _bytes(row, finished)
    yield from _end(history, row, finished)
    yield from _wrong_outcomes(row, events)


def _bytes(row: Row, finished: Sequence[Tried]) -> Iterator[str]:
    """Yields tries, or a replay, with another id or other bytes."""
    digest = hashlib.sha256(row.body.encode()).hexdigest() if row.body is not None else None
    for one in finished:
        if one.message_id != row.message_id:
            yield f"try {one.number} has id {one.message_id}, its delivery has {row.message_id}"
        if one.digest != digest:
            yield f"try {one.number} sent other bytes than the body of its delivery"
    rendered = row.message_id is not None and row.original_message is not None
    if row.original is not None and rendered and (row.message_id != row.original_message or not row.same_body):
        yield f"it repeats delivery {row.replay_of}, with another id or body"


def _end(history: History, row: Row, finished: Sequence[Tried]) -> Iterator[str]:
    arrived = [one.number for one in finished if one.error is None and 200 <= (one.status_code or 0) < 300]
    if row.status == "DELIVERED" and (not finished or arrived != [finished[-1].number]):
        yield f"it is DELIVERED; of its {len(finished)} tries these arrived: {arrived}"
    if row.status != "DELIVERED" and arrived:
        yield f"it is {row.status}, and try {arrived[0]} arrived"
    if row.status == "PENDING" and row.tries >= row.max_tries:
        yield f"it is PENDING after {row.tries} of {row.max_tries} tries"
    if row.status == "PENDING" and history.quiet:
        yield "it is PENDING, and everything is expected to have ended"


def _wrong_outcomes(row: Row, events: Sequence[Any]) -> Iterator[str]:
    """Yields a wrong event: the first is the end, all others are replays."""
    kinds = [kind for _, _, kind in events]
    ended = {"PENDING": [], "DELIVERED": ["delivery.delivered"], "FAILED": ["delivery.failed"]}[row.status]
    if kinds[:1] != ended or set(kinds[1:]) - {"delivery.replayed"}:
        yield f"it is {row.status}, and its events are {kinds}"
    if row.version != len(events):
        yield f"it has {len(events)} events, its row has version {row.version}"


def _strangers(row: Row) -> Iterator[str]:
    owners = {"event": row.event_tenant, "webhook": row.endpoint_tenant, "job": row.job_tenant}
    for what, tenant_id in owners.items():
        if tenant_id is not None and tenant_id != row.tenant_id:
            yield f"its {what} to tenant {tenant_id}"


# --- the deliveries of each event ---------------------------------------------------------------------------------


class SubscriptionState(NamedTuple):
    """The filters of an endpoint from one of its events on; None if it is off."""

    event_id: int
    at: int
    wanted: tuple[str, ...] | None


class Receiver(NamedTuple):
    id: int
    tenant_id: int
    states: list[SubscriptionState]

    def wanted(self, news: News, name: str) -> bool:
        before = [state for state in self.states if state.event_id < news.id]
        return bool(before) and before[-1].wanted is not None and _wants(before[-1].wanted, name)

    def unsure(self, news: News, settle: int) -> bool:
        """Returns True close to a change of the endpoint.

        Transactions then need not have seen the change in the order of the events' ids.
        """
        return settle > 0 and any(abs(state.at - news.at) <= settle for state in self.states)


def _complete(history: History) -> Iterator[Finding]:
    receivers = _receivers(history)
    after = 0
    while rows := [News._make(row) for row in history.tx.run("verify_news", after=after, limit=PER_PAGE)]:
        upto = rows[-1].id
        delivered: dict[int, Counter[tuple[int, str]]] = {}
        for event_id, endpoint_id, name, count in history.tx.run("verify_told", after=after, upto=upto):
            delivered.setdefault(event_id, Counter())[endpoint_id, name] += count
        for news in rows:
            for text in _compared(history, news, receivers, delivered.pop(news.id, Counter())):
                yield Finding("I-17", f"event {news.id}", f"({news.kind}) {text}")
        after = upto


def _receivers(history: History) -> list[Receiver]:
    receivers: dict[int, Receiver] = {}
    for number, event_id, at, kind, data, tenant_id in history.tx.run("verify_webhook_events"):
        facts = json.loads(data or "{}")
        live = kind in LIVE and facts.get("enabled", False)
        state = SubscriptionState(event_id, at, tuple(facts.get("events", ())) if live else None)
        receivers.setdefault(number, Receiver(number, tenant_id, [])).states.append(state)
    return list(receivers.values())


def _compared(
    history: History, news: News, receivers: Sequence[Receiver], delivered: Counter[tuple[int, str]]
) -> Iterator[str]:
    names = _names(news)
    for (endpoint_id, name), count in delivered.items():
        if count > 1:
            yield f"{count} deliveries of {name} go to {_whom(endpoint_id)}"
        if name not in names:
            yield f"a delivery of {name} goes to {_whom(endpoint_id)}, but the event is not {name}"
    for receiver in receivers:
        if receiver.unsure(news, history.settle):
            continue
        for name in names:
            wanted = receiver.tenant_id == news.tenant_id and receiver.wanted(news, name)
            yield from _one(receiver.id, name, wanted=wanted, delivered=bool(delivered[receiver.id, name]))
    options = json.loads(news.options) if news.options is not None and '"webhook_url"' in news.options else {}
    for name in names:
        wanted = "webhook_url" in options and _wants(options.get("webhook_events", ()), name)
        yield from _one(0, name, wanted=wanted, delivered=bool(delivered[0, name]))


def _one(endpoint_id: int, name: str, *, wanted: bool, delivered: bool) -> Iterator[str]:
    if wanted and not delivered:
        yield f"no delivery of {name} goes to {_whom(endpoint_id)}"
    if delivered and not wanted:
        yield f"a delivery of {name} goes to {_whom(endpoint_id)}, which has not subscribed to it"


def _whom(endpoint_id: int) -> str:
    return f"webhook {endpoint_id}" if endpoint_id else "the job's own address"


def _names(news: News) -> list[str]:
    """Returns the public names of this event."""
    names = [NAMES.get(news.kind, news.kind)]
    if news.kind == "job.failed" and json.loads(news.data or "{}").get("exhausted"):
        names.append("job.exhausted")
    if news.kind in ("job.paused", "job.error") and news.target_id is not None:
        names.append("target.held")
    return names


def _wants(filters: Sequence[str], name: str) -> bool:
    return not filters or any(name == one or (one[-1:] == "*" and name.startswith(one[:-1])) for one in filters)
