"""Webhooks: endpoints, deliveries, tries, public event names, and the state after each try. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from headway.errors import BadInput
from headway.model.values.json import check_note
from headway.model.values.refuse import refuse
from headway.model.values.suggestions import closest

JOB_EVENTS = (
    "job.run.completed",
    "job.run.failed",
    "job.run.skipped",
    "job.exhausted",
    "job.cancelled",
    "job.paused",
    "job.error",
    "target.held",
)
EVENTS = (
    *JOB_EVENTS,
    "group.finished",
    "execution.finished",
    "execution.held",
    "schedule.tick.skipped",
    "schedule.tick.missed",
)
TEST = "webhook.test"
PENDING, DELIVERED, FAILED = "PENDING", "DELIVERED", "FAILED"
# 1 try and 3 retries.
MAX_TRIES = 4
MOST_TRIES = 20
# After this many processes died while they sent one delivery, it is given up.
MOST_LOST = 10
SECOND = 1_000_000
FIRST_DELAY = 1.0
JITTER = 0.25
# A longer Retry-After of a receiver is cut to this.
LONGEST_RETRY_AFTER = 3600.0
# The circuit breaker opens an endpoint after this many failed tries in a row, over all its deliveries.
OPENS_AFTER = 5
FIRST_PROBE = 30.0
LONGEST_PROBE = 600.0
# A delivery that waits for an open endpoint is given up after this.
LONGEST_WAIT = 86_400.0
KEEPS_OLD_SECRET = 86_400.0
URL_LIMIT = 2000
_SECRET_BYTES = range(24, 65)
_UNSENDABLE = re.compile("[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A webhook subscriber as it is stored. `events` is JSON: names or prefixes with `*`; empty means all."""

    id: int
    tenant_id: int
    url: str
    events: str
    description: str | None
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    old_until: int | None
    max_tries: int
    enabled: int
    reason: str | None
    failures: int
    opened_at: int | None
    probe_at: int | None
    created_at: int
    created_by: str
    deleted_at: int | None
    version: int

    @property
    def usable(self) -> bool:
        return bool(self.enabled) and self.deleted_at is None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one receiver. `endpoint_id` 0 means the job's own `url`."""

    id: int
    tenant_id: int
    endpoint_id: int
    event_id: int
    event: str
    job_id: int | None
    url: str | None
    message_id: str | None
    body: str | None = field(repr=False)
    status: str
    tries: int
    lost: int
    max_tries: int
    due_at: int | None
    lease_by: str | None
    fence: int
    last_status_code: int | None
    last_error: str | None
    replay_of: int | None
    created_at: int
    delivered_at: int | None
    finished_at: int | None
    version: int

    @property
    def next_try_at(self) -> int | None:
        """Returns when the next try is due; None if the delivery has ended or is being sent.

        A delivery ahead of the others has `due_at` 0, and counts as due since its creation.
        """
        return None if self.due_at is None or self.lease_by is not None else max(self.due_at, self.created_at)


@dataclass(frozen=True, slots=True)
class Try:
    """The record of one try: the request, and the beginning of the response."""

    number: int
    at: int
    took: int
    status_code: int | None
    error: str | None
    address: str | None
    message_id: str
    digest: str
    request: str
    response: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one try. `error` is None exactly if the receiver accepted the delivery."""

    status_code: int | None
    error: str | None
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        return self.error is None

    @property
    def gone(self) -> bool:
        """Returns True if the receiver answered 410 Gone."""
        return self.status_code == 410


# --- checks of input ----------------------------------------------------------------------------------------------


def check_url(text: object, *, field: str = "url") -> str:
    if not isinstance(text, str) or not text:
        refuse(field, "must be an address such as https://example.org/hook")
    if len(text) > URL_LIMIT:
        refuse(field, f"is longer than {URL_LIMIT} characters")
    if _UNSENDABLE.search(text) or "\\" in text or not _sendable(text):
        refuse(field, "must be an address such as https://example.org/hook")
    if "@" in urlsplit(text).netloc:
        refuse(field, "contains a user or a password: remove it; the signature identifies the sender")
    if "#" in text:
        refuse(field, "has a part after #, which is never sent: remove it")
    return text


def _sendable(url: str) -> bool:
    """Returns True for an HTTP URL whose host can be encoded for DNS and whose rest is ASCII."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return known and (parts.path + parts.query).isascii()


def check_events(names: object, *, known: Collection[str] = EVENTS, field: str = "events") -> tuple[str, ...]:
    """Returns valid names of events, or prefixes that end in `*`. An empty list means every event."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        refuse(field, "must be a list of names such as job.run.failed or job.*")
    for n, name in enumerate(names):
        if not isinstance(name, str) or not any(matches((name,), event) for event in known):
            near = closest(name, known) if isinstance(name, str) else None
            hint = f"did you mean {near}?" if near else f"use {', '.join(known)}, or a prefix like job.*"
            raise BadInput(f"{field}[{n}]: no event is called {str(name)[:60]!r}", hint=hint, field=f"{field}[{n}]")
    return tuple(dict.fromkeys(names))


def matches(wanted: Sequence[str], name: str) -> bool:
    """Returns True if one of the wanted names or prefixes matches; an empty list matches every event."""
    if not wanted:
        return True
    return any(name == want or (want.endswith("*") and name.startswith(want[:-1])) for want in wanted)


def check_tries(count: object, *, field: str = "max_tries") -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TRIES:
        refuse(field, f"must be a whole number from 1 to {MOST_TRIES}")
    return count


def check_description(text: object) -> str | None:
    if text is not None and not isinstance(text, str):
        refuse("description", "must be text")
    return check_note(text, field="description")


def make_secret(random: bytes) -> str:
    return "whsec_" + base64.b64encode(random).decode()


def check_secret(text: object) -> str:
    """Returns a valid Standard Webhooks secret; a refusal does not repeat it."""
    given = text.removeprefix("whsec_") if isinstance(text, str) and text.startswith("whsec_") else None
    try:
        known = len(base64.b64decode(given, validate=True)) in _SECRET_BYTES if given is not None else False
    except (binascii.Error, ValueError):
        known = False
    if not known or not isinstance(text, str):
        refuse("secret", "must be whsec_ and 24 to 64 bytes in base64; without it Headway creates one")
    return text


# --- after a try --------------------------------------------------------------------------------------------------


def after_try(delivery: Delivery, outcome: Outcome, *, usable: bool, now: int, random: Callable[[], float]) -> Delivery:
    """Returns the delivery after one more try. `usable` False means that its endpoint was disabled or deleted."""
    tried = replace(
        delivery,
        tries=delivery.tries + 1,
        lease_by=None,
        last_status_code=outcome.status_code,
        last_error=outcome.error,
    )
    if outcome.delivered:
        return _ended(tried, DELIVERED, now)
    if outcome.gone or not usable or tried.tries >= tried.max_tries:
        return _ended(tried, FAILED, now)
    return replace(tried, due_at=now + round(_delay(tried.tries, outcome, random) * SECOND))


def _delay(tries: int, outcome: Outcome, random: Callable[[], float]) -> float:
    delay = float(FIRST_DELAY * 2 ** (tries - 1) * (1 + JITTER * random()))
    return max(delay, min(outcome.retry_after or 0.0, LONGEST_RETRY_AFTER))


def _ended(delivery: Delivery, status: str, now: int) -> Delivery:
    delivered_at = now if status == DELIVERED else None
    return replace(delivery, status=status, due_at=None, lease_by=None, finished_at=now, delivered_at=delivered_at)


def given_up(delivery: Delivery, why: str, now: int) -> Delivery:
    """Returns the delivery as FAILED, without another try."""
    return _ended(replace(delivery, last_error=why), FAILED, now)


def after_loss(delivery: Delivery, now: int) -> Delivery:
    """Returns the delivery after its sender died without recording the outcome.

    It may have arrived, so it is sent again. That uses up no try, but is limited to `MOST_LOST`.
    """
    lost = replace(delivery, lost=delivery.lost + 1, lease_by=None, due_at=now)
    if lost.lost < MOST_LOST:
        return lost
    return given_up(lost, f"the sending process died {MOST_LOST} times before it could record the outcome", now)


def wait_for_probe(failures: int) -> float:
    """Returns the seconds until an endpoint with this many failures in a row is probed."""
    return min(LONGEST_PROBE, FIRST_PROBE * 2.0 ** min(failures - OPENS_AFTER, 16))


def answered(endpoint: Endpoint, outcome: Outcome, *, probe: bool, now: int) -> Endpoint:
    """Returns the endpoint after a try: the circuit breaker. While it is open, only a probe counts."""
    if outcome.delivered:
        reason = endpoint.reason if not endpoint.enabled else None
        return replace(endpoint, reason=reason, failures=0, opened_at=None, probe_at=None)
    if outcome.gone:
        closed = replace(endpoint, failures=0, opened_at=None, probe_at=None)
        return replace(closed, enabled=0, reason="it answered 410 Gone") if endpoint.usable else closed
    if endpoint.opened_at is not None and not probe:
        return endpoint
    failures = endpoint.failures + 1
    if endpoint.enabled:
        endpoint = replace(endpoint, reason=outcome.error)
    if failures < OPENS_AFTER:
        return replace(endpoint, failures=failures)
    opened_at = endpoint.opened_at if endpoint.opened_at is not None else now
    return replace(
        endpoint, failures=failures, opened_at=opened_at, probe_at=now + round(wait_for_probe(failures) * SECOND)
    )
