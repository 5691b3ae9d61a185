"""Whose turn it is among the receivers of webhooks, how many are being sent to each, and who is left alone for a while.

Endpoints have a breaker in the database. The addresses that jobs bring are anybody's, and as many as there are jobs:
what a process has met of them it remembers by tenant and host, so that one which hangs holds up nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from headway.clock import micros
from headway.model.webhooks import OPENS_AFTER, Outcome, wait_for_probe
from headway.store.receivers import Receiver, Waiting

K = TypeVar("K")
V = TypeVar("V")
# Of one receiver, so that one which hangs leaves room for the others.
PER_RECEIVER = 4
# Tests, for which somebody waits: beside all others, one at a time to each receiver.
TESTS = 4
PER_HOST = 2
PER_TENANT = 4
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """Failures in a row, and until when nothing is sent there."""

    failures: int
    until: int


class Turns:
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
        """How many more may be sent to it, beside those at work and those just taken."""
        busy = [*(one for number, one in self.at_work.items() if number not in self.tests), *taken]
        free, there = self.senders - len(busy), busy.count(receiver)
        if receiver.endpoint_id:
            return min(free, PER_RECEIVER - there)
        own = [one for one in busy if not one.endpoint_id]
        of_tenant = Counter(one.tenant_id for one in own)[receiver.tenant_id]
        return min(free, self.own - len(own), PER_TENANT - of_tenant, self._allowed(receiver, now) - there)

    def room_ahead(self, receiver: Receiver, taken: Collection[Receiver] = ()) -> bool:
        """Whether a test may be sent to it."""
        busy = [*(self.at_work[number] for number in self.tests), *taken]
        return len(busy) < TESTS and receiver not in busy

    def _allowed(self, receiver: Receiver, now: int) -> int:
        trouble = self.troubles.get(receiver)
        if trouble is None or trouble.failures < OPENS_AFTER:
            return PER_HOST
        return 0 if trouble.until > now else 1  # one that finds out

    def closed(self, receiver: Receiver) -> bool:
        """Whether it has failed so often that it is only looked at now and then."""
        trouble = self.troubles.get(receiver)
        return trouble is not None and trouble.failures >= OPENS_AFTER

    def order(self, due: Sequence[Waiting]) -> list[Waiting]:
        """Probes lock their endpoints, which comes before any delivery. Then jobs' own addresses, which have room of
        their own: tenants in turn, and the hosts of each in turn. Then endpoints."""
        probes = [one for one in due if one.open]
        others = [one for one in due if one.receiver.endpoint_id and not one.open]
        lines: dict[int, list[Waiting]] = {}
        own = [one for one in due if not one.receiver.endpoint_id]
        for one in sorted(own, key=lambda one: self.host_turns.get(one.receiver, 0)):
            lines.setdefault(one.tenant_id, []).append(one)
        in_turn = [lines[tenant] for tenant in sorted(lines, key=lambda tenant: self.tenant_turns.get(tenant, 0))]
        return [*probes, *(one for row in zip_longest(*in_turn) for one in row if one is not None), *others]

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
        """What came of a try at a job's own address. A host that refuses one thing may well take another."""
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
    """The newest last; the oldest is forgotten."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
