"""The lease of an incarnation: its identity, its heartbeat, its renewal and its loss.

Workers and holders of reservations both have one. The heartbeat's listener thread calls `hear`; the owner's loop and
recovery call `renew`. Any thread may call `abandon` and `say_stopped`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from headway.engine.execution import process_tree
from headway.engine.worker.heartbeat import TELL, Heartbeat
from headway.model.jobs.job import Actor
from headway.store import workers
from headway.store.db import Database, Tx, Waiter
from headway.wakeup import Wakeup


class LeaseTerms(Protocol):
    """The settings of a lease, the times in seconds. `secret` are the variables that secrets come from."""

    @property
    def lease(self) -> float: ...
    @property
    def heartbeat(self) -> float: ...
    @property
    def listen(self) -> str | None: ...
    @property
    def secret(self) -> Collection[str]: ...


class LeaseOwner(Protocol):
    """The worker or holder whose work needs the lease."""

    waiter: Waiter

    @property
    def at_work(self) -> Collection[int]:
        """The jobs or reservations whose work has not ended."""

    def stop_jobs(self, stops: list[tuple[int, int, str]]) -> None:
        """Stops jobs as users asked, given as job id, fence and kind."""

    def compare_claims(self, message: dict[str, Any]) -> None:
        """Compares the claims that the heartbeat found in the database."""

    def stop_work(self, why: str) -> None:
        """Stops all work, because its claims may be lost."""

    def late_lease(self, late: float, why: str) -> str:
        """Returns why work is stopped when the lease could not be renewed for so long."""

    def lost_lease(self) -> str:
        """Ends the owner after another process gave it up. Returns why its work is stopped."""


def new_identity() -> workers.Identity:
    pid = os.getpid()
    return workers.Identity(
        secrets.randbits(62) | 1, process_tree.host(), process_tree.boot_id(), pid, process_tree.start_time(pid) or 0
    )


class Lease:
    """One incarnation's lease, with the process that renews it."""

    def __init__(self, database: Database, terms: LeaseTerms, owner: LeaseOwner) -> None:
        self.database = database
        self.terms = terms
        self.owner = owner
        self.who = new_identity()
        self.actor = Actor("worker", workers.worker_name(self.who.id), f"{self.who.host}:{self.who.pid}")
        self.renewed = time.monotonic()
        # True from the order to stop all work until the next renewal, or until the work has stopped.
        self.abandoned = False
        self.heartbeat: Heartbeat | None = None
        # User code may hold the interpreter from its first moment, so none starts before the heartbeat has renewed.
        self.beating = Wakeup()
        self.beating.set()

    def register(self, store: Callable[[Tx], None]) -> None:
        """Stores the incarnation."""
        self.database.repeat("register", store)

    def start_heartbeat(self) -> None:
        self.beating.clear()
        message = {"worker_id": self.who.id, "pid": self.who.pid, "database": self.database.url}
        terms = {"listen": self.terms.listen, "lease": self.terms.lease, "heartbeat": self.terms.heartbeat}
        self.heartbeat = Heartbeat(message | terms, self.hear, idle=True, secret=self.terms.secret)

    def renew(self) -> None:
        """Renews the lease from this process, when the heartbeat may be late."""
        began = time.monotonic()
        if not self.database.transact("renew", lambda tx: workers.beat(tx, self.who.id, self.terms.lease)):
            self.hear({"gone": True})
            return
        self._mark_renewed(began)
        if self.heartbeat is not None:
            self.heartbeat.reassure(began)

    def renew_if_late(self) -> None:
        if time.monotonic() - self.renewed > self.terms.lease / 3:
            self.renew()

    def _mark_renewed(self, at: float) -> None:
        self.renewed = max(self.renewed, at)
        self.abandoned = self.abandoned and bool(self.owner.at_work)

    def hear(self, message: dict[str, Any]) -> None:
        """Handles a message of the heartbeat: renewed, claims found, cannot renew, or lease lost."""
        if "beat" in message:
            self._mark_renewed(message["beat"])
            self.owner.stop_jobs(message["stops"])
            if not self.beating.is_set():
                self.beating.set()
                self.owner.waiter.wake()
        if "held" in message:
            self.owner.compare_claims(message)
        if "late" in message and time.monotonic() - self.renewed > self.terms.lease * TELL:
            self.abandon(self.owner.late_lease(message["late"], message["why"]))
        if message.get("gone"):
            self.abandon(self.owner.lost_lease())

    def abandon(self, why: str) -> None:
        """Stops all work, because its claims may be lost."""
        self.abandoned = True
        self.owner.stop_work(why)
        self.say_stopped()
        self.owner.waiter.wake()

    def say_stopped(self) -> None:
        """Tells the heartbeat that abandoned work has stopped.

        Otherwise the heartbeat ends this process, because it has no lease.
        """
        if self.abandoned and not self.owner.at_work and self.heartbeat is not None:
            self.heartbeat.reassure()

    def stop_heartbeat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.close()

    def deregister(self, why: str) -> None:
        self.database.transact("retire", lambda tx: workers.retire(tx, self.who.id, why, actor=self.actor))
