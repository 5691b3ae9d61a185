"""The receivers that something is on its way to, and when there is something to do for each of them."""

from __future__ import annotations

from typing import NamedTuple

from headway.clock import micros
from headway.model.webhooks import LONGEST_WAIT
from headway.store.db import Tx

ADDRESSES_AT_ONCE = 200


class Receiver(NamedTuple):
    """An endpoint; or, with 0 for it, a host that a tenant's jobs brought themselves."""

    endpoint_id: int
    tenant_id: int = 0
    host: str = ""


class Waiting(NamedTuple):
    """A receiver that something is on its way to. `endpoint_id` 0: a host that a tenant's jobs brought."""

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
        """A test waits there, which goes at once."""
        return self.due_at == 0

    @property
    def stale(self) -> bool:
        """Something of it is to be given up."""
        return not self.usable or (self.open and self.old)

    @property
    def next_at(self) -> int:
        """When there is something to do for it."""
        if self.stale or self.ahead:
            return self.now
        if self.probe_at is None:
            return self.due_at
        return min(self.probe_at, self.oldest_at + micros(LONGEST_WAIT))


START = Receiver(0)


def active(tx: Tx) -> bool:
    """Whether anybody is to be told of anything."""
    ((receivers, jobs),) = tx.run("outbox")
    return bool(receivers or jobs)


def waiting(tx: Tx) -> list[Waiting]:
    """All that is on its way somewhere, as far as one look reaches."""
    return [*waiting_endpoints(tx), *waiting_addresses(tx, START)]


def waiting_endpoints(tx: Tx) -> list[Waiting]:
    return [Waiting(number, bool(usable), *rest) for number, usable, *rest in tx.run("pending_endpoints")]


def waiting_addresses(tx: Tx, after: Receiver, limit: int = ADDRESSES_AT_ONCE) -> list[Waiting]:
    """By tenant and host, those after one of them: there may be as many as jobs."""
    rows = tx.run("pending_addresses", tenant_id=after.tenant_id, host=after.host, limit=limit)
    return [Waiting(0, True, None, *row) for row in rows]
