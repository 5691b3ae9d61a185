"""Receivers with pending deliveries, and the time of the next action for each."""

from __future__ import annotations

from typing import NamedTuple

from headway.clock import micros
from headway.model.webhooks.webhook import LONGEST_WAIT
from headway.store.db import Tx

ADDRESSES_AT_ONCE = 200


class Receiver(NamedTuple):
    """An endpoint; or, with endpoint_id 0, a host from a tenant's own jobs."""

    endpoint_id: int
    tenant_id: int = 0
    host: str = ""


class WaitingReceiver(NamedTuple):
    """A receiver with pending deliveries; endpoint_id 0 is a host from a job."""

    endpoint_id: int
    usable: bool
    probe_at: int | None
    due_at: int
    oldest_at: int
    now: int
    tenant_id: int = 0
    host: str = ""

    @property
    def receiver(self) -> Receiver:
        return Receiver(self.endpoint_id, self.tenant_id, self.host)

    @property
    def old(self) -> bool:
        return self.oldest_at < self.now - micros(LONGEST_WAIT)

    @property
    def open(self) -> bool:
        return self.probe_at is not None

    @property
    def ahead(self) -> bool:
        """Returns True if a test delivery waits, which is sent at once."""
        return self.due_at == 0

    @property
    def stale(self) -> bool:
        """Returns True if some of its deliveries are to be given up."""
        return not self.usable or (self.open and self.old)

    @property
    def next_at(self) -> int:
        """Returns the time of the next action for this receiver."""
        if self.stale or self.ahead:
            return self.now
        if self.probe_at is None:
            return self.due_at
        return min(self.probe_at, self.oldest_at + micros(LONGEST_WAIT))


START = Receiver(0)


def active(tx: Tx) -> bool:
    """Returns True if an endpoint or a job's own webhook exists."""
    ((receivers, jobs),) = tx.run("outbox")
    return bool(receivers or jobs)


def waiting(tx: Tx) -> list[WaitingReceiver]:
    """Returns the endpoints and the first hosts with pending deliveries."""
    return [*waiting_endpoints(tx), *waiting_addresses(tx, START)]


def waiting_endpoints(tx: Tx) -> list[WaitingReceiver]:
    return [WaitingReceiver(number, bool(usable), *rest) for number, usable, *rest in tx.run("pending_endpoints")]


def waiting_addresses(tx: Tx, after: Receiver, limit: int = ADDRESSES_AT_ONCE) -> list[WaitingReceiver]:
    """Returns hosts after a given one, by tenant and host.

    There may be as many hosts as jobs.
    """
    rows = tx.run("pending_addresses", tenant_id=after.tenant_id, host=after.host, limit=limit)
    return [WaitingReceiver(0, True, None, *row) for row in rows]
