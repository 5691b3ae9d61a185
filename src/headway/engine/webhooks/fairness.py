"""Shares the senders among webhook receivers, and pauses failing hosts.

An endpoint has a circuit breaker in the database. A webhook_url of a job may name any host, and every job may have one;
their failures are kept in memory by tenant and host, so that a hanging host does not delay the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from headway.clock import micros
from headway.model.webhooks.webhook import OPENS_AFTER, Outcome, wait_for_probe
from headway.store.webhooks.receivers import Receiver, WaitingReceiver

K = TypeVar("K")
V = TypeVar("V")
# Deliveries in flight per endpoint, so that a hanging one leaves senders for the others.
PER_RECEIVER = 4
# Test deliveries in flight, beside all others, one per receiver, because their caller waits for the answer.
TESTS = 4
PER_HOST = 2
PER_TENANT = 4
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """Consecutive failures of a host, and the time until which nothing is sent to it."""

    failures: int
    until: int


class DeliverySlots:
    def __init__(self, senders: int) -> None:
        self.senders = senders
        self.own = max(1, senders // 2)
        self.at_work: dict[int, Receiver] = {}
        self.tests: set[int] = set()
        self.troubles: dict[Receiver, Trouble] = {}
        self.turn = 0
        self.host_turns: dict[Receiver, int] = {}
        self.tenant_turns: dict[int, int] = {}

    def room(self, receiver: Receiver, now: int, taken: Iterable[Receiver] = ()) -> int:
        """Returns how many more deliveries the receiver may get.

        Deliveries at work and `taken` count.
        """
        busy = [*(other for number, other in self.at_work.items() if number not in self.tests), *taken]
        free, there = self.senders - len(busy), busy.count(receiver)
        if receiver.endpoint_id:
            return min(free, PER_RECEIVER - there)
        own = [other for other in busy if not other.endpoint_id]
        of_tenant = Counter(other.tenant_id for other in own)[receiver.tenant_id]
        return min(free, self.own - len(own), PER_TENANT - of_tenant, self._allowed(receiver, now) - there)

    def room_ahead(self, receiver: Receiver, taken: Collection[Receiver] = ()) -> bool:
        """True if a test may be sent to the receiver."""
        busy = [*(self.at_work[number] for number in self.tests), *taken]
        return len(busy) < TESTS and receiver not in busy

    def _allowed(self, receiver: Receiver, now: int) -> int:
        trouble = self.troubles.get(receiver)
        if trouble is None or trouble.failures < OPENS_AFTER:
            return PER_HOST
        return 0 if trouble.until > now else 1  # one probe

    def closed(self, receiver: Receiver) -> bool:
        """True if the receiver has failed so often that it is only probed."""
        trouble = self.troubles.get(receiver)
        return trouble is not None and trouble.failures >= OPENS_AFTER

    def order(self, due: Sequence[WaitingReceiver]) -> list[WaitingReceiver]:
        """Orders due receivers: probes, then URLs of jobs, then endpoints.

        A probe locks its endpoint, which comes before any delivery in the lock order. URLs of jobs have senders of
        their own; tenants take turns, and so do the hosts of a tenant.
        """
        probes = [waiting for waiting in due if waiting.open]
        others = [waiting for waiting in due if waiting.receiver.endpoint_id and not waiting.open]
        lines: dict[int, list[WaitingReceiver]] = {}
        own = [waiting for waiting in due if not waiting.receiver.endpoint_id]
        for waiting in sorted(own, key=lambda waiting: self.host_turns.get(waiting.receiver, 0)):
            lines.setdefault(waiting.tenant_id, []).append(waiting)
        in_turn = [lines[tenant] for tenant in sorted(lines, key=lambda tenant: self.tenant_turns.get(tenant, 0))]
        return [*probes, *(waiting for row in zip_longest(*in_turn) for waiting in row if waiting is not None), *others]

    def begin(self, delivery_id: int, receiver: Receiver, *, ahead: bool = False) -> None:
        self.at_work[delivery_id] = receiver
        if ahead:
            self.tests.add(delivery_id)
        if not receiver.endpoint_id:
            self.turn += 1
            _remember(self.host_turns, receiver, self.turn)
            _remember(self.tenant_turns, receiver.tenant_id, self.turn)

    def end(self, delivery_id: int) -> None:
        self.at_work.pop(delivery_id, None)
        self.tests.discard(delivery_id)

    def note(self, receiver: Receiver, outcome: Outcome, now: int) -> None:
        """Records the result of an attempt at a webhook_url of a job.

        A status below 500 other than 429 counts as success here: the host is alive and may accept other requests.
        """
        if receiver.endpoint_id:
            return
        before = self.troubles.get(receiver, Trouble(0, 0))
        if outcome.status_code is not None and outcome.status_code < 500 and outcome.status_code != 429:
            self.troubles.pop(receiver, None)
        elif before.until <= now:
            failures = before.failures + 1
            wait = wait_for_probe(failures) if failures >= OPENS_AFTER else 0.0
            _remember(self.troubles, receiver, Trouble(failures, now + micros(wait)))


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    """Sets an entry as the newest, and drops the oldest beyond REMEMBERED."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
