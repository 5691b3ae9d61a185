"""Finds and reports transactions that hold locks, and ends stalled ones."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from headway.store.db import Database, LockTaken, Tx

log = logging.getLogger("headway")
# Longer than a transaction of Headway's may be idle, shorter than the lock timeout.
STALLED_SECONDS = 8.0
# Pause between two checks: a client that is alive sends another message in this time.
BETWEEN_LOOKS = 0.25


class LockHolder(NamedTuple):
    """A transaction that holds the claim lock or has written, as the server sees it.

    `claims`: it holds the claim lock. `stalled`: the server has waited for its client for long. `ours`: it is Headway's
    own. `mark`: identifies the last message of its client.
    """

    pid: int
    name: str
    client: str
    state: str
    seconds: float
    claims: bool
    stalled: bool
    ours: bool
    mark: int

    def __str__(self) -> str:
        lock = ", has the claim lock" if self.claims else ""
        return f"pid {self.pid} ({self.name} at {self.client}){lock}, {self.state} for {self.seconds:.0f} s"


def holders(tx: Tx) -> list[LockHolder]:
    """Returns open transactions that hold the claim lock or have written."""
    return [LockHolder._make(row) for row in tx.run("lock_holders_postgres", stalled=STALLED_SECONDS)]


def judge(database: Database, error: LockTaken) -> None:
    """Ends Headway's own stalled transactions. Without one, raises with the holders.

    A transaction that itself waited for a lock looks stalled at the moment it gets the lock. So a transaction counts as
    stalled only if two checks find it without a message in between.
    """
    with database.read() as tx:
        found = holders(tx)
    ended = _end(database, [holder for holder in found if holder.stalled and holder.ours])
    for holder in ended:
        log.warning("ended a stalled transaction that held locks: %s", holder)
    if not ended:
        raise LockTaken(f"{error}; {_held_by(found)}") from error


def _end(database: Database, stalled: list[LockHolder]) -> list[LockHolder]:
    if not stalled:
        return []
    time.sleep(BETWEEN_LOOKS)
    with database.read() as tx:
        return [holder for holder in stalled if tx.run("end_holder_postgres", pid=holder.pid, mark=holder.mark)]


def _held_by(left: list[LockHolder]) -> str:
    if not left:
        return "the holder has ended meanwhile: try again"
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return f"held by {left[0]}{more}: wait for it, or end it with `select pg_terminate_backend({left[0].pid})`"
