"""Arms the trigger that creates deliveries, and disarms it when unused.

On PostgreSQL both need a table lock that every writer of events would queue behind. So the lock is requested briefly,
in transactions of their own that hold no other lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headway.errors import Busy, HeadwayError
from headway.store.db import Database, LockTaken, Tx
from headway.store.statements import sql_text

T = TypeVar("T")
PATIENCE = 10.0
# Pause between two tries, so that transactions queued behind the first can proceed.
PAUSE = 0.3
ROUNDS = 5


class Disarmed(HeadwayError):
    """The trigger was disarmed while an endpoint was created: arm it and repeat."""

    code = "conflict"


def armed(database: Database, work: Callable[[], T]) -> T:
    """Arms the trigger and runs `work`, whose transaction calls `lock`."""
    for _ in range(ROUNDS):
        arm(database)
        try:
            return work()
        except Disarmed:
            database.pause_after_conflict()
    raise Busy("other webhooks are being created and deleted", hint="try again", retry_after=1.0)


def arm(database: Database) -> None:
    """Arms the trigger: from now on events create deliveries.

    Without endpoints it has no effect.
    """
    deadline = time.monotonic() + PATIENCE
    while not _is_armed(database):
        try:
            return database.repeat("arm_outbox", _arm)
        except LockTaken:
            if time.monotonic() >= deadline:
                raise Busy(
                    "an open transaction has written an event (it enqueues with connection=, and may be your own): the"
                    " first webhook can be created when it has ended; try again then",
                    retry_after=PAUSE,
                ) from None
            time.sleep(PAUSE)  # holds no lock meanwhile


def _arm(tx: Tx) -> None:
    tx.database.execute_script(tx, sql_text("triggers", f"arm.{tx.database.dialect}.sql"))


def disarm(database: Database) -> bool:
    """Disarms an unused trigger, so that events cost no more without webhooks.

    Returns False if the trigger is needed or not armed, or if the lock is taken; the caller tries again later.
    """
    with database.read() as tx:
        if _wanted(tx) or not _in_force(tx):
            return False
    try:
        return database.transact("disarm_outbox", _disarm)
    except LockTaken:
        return False


def _disarm(tx: Tx) -> bool:
    ((receivers, jobs),) = tx.run("lock_outbox")
    if receivers or jobs:
        return False
    tx.database.execute_script(tx, sql_text("triggers", f"disarm.{tx.database.dialect}.sql"))
    return True


def lock(tx: Tx) -> None:
    """Keeps the trigger armed until this transaction ends, or raises Disarmed."""
    tx.run("lock_outbox")
    if not _in_force(tx):  # a later statement than the lock, so its snapshot is newer
        raise Disarmed("the outbox was disarmed meanwhile")


def _is_armed(database: Database) -> bool:
    with database.read() as tx:
        return _in_force(tx)


def _in_force(tx: Tx) -> bool:
    return bool(tx.run("outbox_armed"))


def _wanted(tx: Tx) -> bool:
    ((receivers, jobs),) = tx.run("outbox")
    return bool(receivers or jobs)


def expect_job_hooks(database: Database) -> None:
    """Arms the trigger before the first job with a `webhook_url` of its own."""
    with database.read() as tx:
        if tx.run("outbox")[0][1]:
            return

    def work(tx: Tx) -> None:
        lock(tx)
        tx.run("note_job_hooks")

    armed(database, lambda: database.repeat("note_job_hooks", work))
