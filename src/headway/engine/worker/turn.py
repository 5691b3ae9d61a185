"""One turn of a worker: the transaction that stores reports, ends claims and takes new ones.

Its commit is in `_claim`, in one round trip with the statements of the claim. A turn that claims nothing is committed
by `Database.transact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.engine.worker import report_buffer
from headway.engine.worker.claim_strategy import ClaimStrategy
from headway.engine.worker.finish import Ended, lock_groups, send_ends
from headway.engine.worker.lease import Lease
from headway.engine.worker.report_buffer import BufferedReports
from headway.model.jobs.job import Claim
from headway.store import workers
from headway.store.db import Tx
from headway.store.queue import claims
from headway.store.queue.claim_snapshot import View
from headway.store.round_trip import Pending


@dataclass(slots=True)
class Turn:
    """The steps of one transaction.

    `slots` may be filled; `missed` are jobs to leave out. `state` and `note` are stored if they changed. `lost` are
    the claims that another process has ended, after `write`.
    """

    lease: Lease
    strategy: ClaimStrategy
    slots: Sequence[int]
    missed: set[int]
    ended: Sequence[Ended] = ()
    reports: list[BufferedReports] = field(default_factory=list)
    state: str | None = None
    note: tuple[str | None] | None = None
    lost: list[Claim] = field(default_factory=list)

    def write(self, tx: Tx) -> list[Claim]:
        """Runs the turn; returns the new claims."""
        who, actor = self.lease.who, self.lease.actor
        self.lost.clear()
        tx.prepend("pin_plans")
        locked = lock_groups(tx, self.ended)  # before any job
        if self.reports:
            self.lost += report_buffer.store(tx, who.id, self.reports)
        stale = send_ends(tx, who.id, actor, self.ended, locked) if self.ended else Pending.done([])
        if self.state is not None:
            workers.set_state(tx, who.id, self.state, actor)
        if self.note is not None:
            workers.set_note(tx, who.id, self.note[0], actor)
        view, elsewhere = claims.lock_and_look(tx, self.strategy.lanes, actor, self.strategy.likely(self.slots))
        self.lost += [end.claim for end in stale.result()]
        return self._claim(tx, view, elsewhere)

    def claim_if_free(self, tx: Tx) -> list[Claim] | None:
        """Only claims, and returns None if another worker has the claim lock."""
        found = claims.look_if_free(tx, self.strategy.lanes, self.lease.actor, self.strategy.likely(self.slots))
        return None if found is None else self._claim(tx, *found)

    def _claim(self, tx: Tx, view: View, elsewhere: bool) -> list[Claim]:
        """Claims the jobs that fit into the slots, and commits.

        The claim lock is held; `view` was read under it.
        """
        self.strategy.remember(view)
        view.barred |= self.missed
        plan = claims.claim(
            tx,
            view,
            self.strategy.lanes,
            worker_id=self.lease.who.id,
            actor=self.lease.actor,
            knows=self.strategy.knows,
            serves=self.strategy.serves_tenant,
            slots=self.slots,
            freed=bool(self.ended),
        )
        fresh: list[Claim] = []
        if plan is not None:
            fresh = plan.claims(tx.run_all(*plan.statements, commit=True))
            self.strategy.missed = plan.missed(fresh)
        self.strategy.learn(view, locked_elsewhere=elsewhere or bool(self.missed))
        return fresh
