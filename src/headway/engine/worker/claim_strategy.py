"""When and how a worker claims next.

Only the worker's thread uses it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from headway.store.db import Tx
from headway.store.queue import claim_snapshot, claims
from headway.store.queue.lanes import BucketCache
from headway.store.queue.select import Knows, Serves

LOCKED_SECONDS = 0.1


class ClaimStrategy:
    """The knowledge of earlier claims that shapes the next one."""

    def __init__(self, lanes: BucketCache, serves: frozenset[str]) -> None:
        self.lanes = lanes
        # The tasks whose jobs the worker claims.
        self.serves = serves
        # The tenants whose jobs it claims, known once it is registered. None stands for all.
        self.tenants: frozenset[int] | None = None
        # When the next job is due, on the monotonic clock.
        self.due: float | None = None
        # Picked jobs that another transaction had locked. The next claim runs at once and leaves them out.
        self.missed: set[int] = set()
        # The bucket of the last claim, if only one bucket had jobs ready.
        self.last_kind: int | None = None
        # A wake-up has arrived since the last poll; the last claim right after a wake-up got a job.
        self.woken = False
        self.keen = True

    @property
    def knows(self) -> Knows:
        return self.serves.__contains__

    @property
    def serves_tenant(self) -> Serves:
        """Returns the test of a bucket's tenant; None if the worker serves all tenants."""
        tenants = self.tenants
        return None if tenants is None else lambda bucket: bucket.tenant_id in tenants

    def take_missed(self) -> set[int]:
        missed, self.missed = self.missed, set()
        return missed

    def remember(self, view: claim_snapshot.View) -> None:
        """Stores when the next job is due."""
        self.due = None if view.due is None else time.monotonic() + max(0, view.due - view.now) / 1e6

    def finds_work(self, tx: Tx, room: int) -> bool:
        """Returns True if there is something to claim for `room` slots, and remembers when the next job is due."""
        view = claim_snapshot.glance(tx)
        self.remember(view)
        if view.due_now or room == 0:
            return view.due_now
        return claims.has_claimable_work(tx, view, self.lanes, self.knows, room, self.serves_tenant)

    def likely(self, slots: Sequence[int]) -> claim_snapshot.Likely | None:
        """Returns the jobs that the next claim will read if nothing has changed."""
        return claim_snapshot.Likely(self.last_kind, len(slots)) if self.last_kind and slots else None

    def learn(self, view: claim_snapshot.View, *, locked_elsewhere: bool) -> None:
        """Remembers the outcome of a claim.

        If another transaction has locked a job that is due, the next try comes after a delay.
        """
        if view.ready:
            self.last_kind = next(iter(view.ready)) if len(view.ready) == 1 else None
        if locked_elsewhere:
            self.due = min(self.due or math.inf, time.monotonic() + LOCKED_SECONDS)

    def due_in(self) -> float:
        """Returns the seconds until the next job is due."""
        return math.inf if self.due is None else max(0.0, self.due - time.monotonic()) + 0.0005
