"""Whether the trigger that makes deliveries is in force: armed before there is anybody to be told, disarmed afterwards.

On PostgreSQL that takes a lock which all who write events would queue behind. So it is waited for only a moment at a
time, in transactions of its own that hold nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headway.errors import Busy, HeadwayError
from headway.store.db import Database, LockTaken, Tx, sql_text

T = TypeVar("T")
PATIENCE = 10.0
# Between two tries, so that those who queued behind the first get through.
PAUSE = 0.3
ROUNDS = 5


class Disarmed(HeadwayError):
    """The last receiver went while one was being made: arm again, and begin anew."""

    code = "conflict"


def armed(database: Database, work: Callable[[], T]) -> T:
    """Does `work`, whose transaction asks `lock` whether the trigger is in force, once it is."""
    for _ in range(ROUNDS):
        arm(database)
        try:
            return work()
        except Disarmed:
            database.pause_after_conflict()
    raise Busy("other webhooks are made and deleted all the time: try again", retry_after=1.0)


def arm(database: Database) -> None:
    """From now on events make deliveries. Harmless while nobody is to be told."""
    deadline = time.monotonic() + PATIENCE
    while not _is_armed(database):
        try:
            return database.transact("arm_outbox", _arm)
        except LockTaken:
            if time.monotonic() >= deadline:
                raise Busy(
                    "somebody keeps a transaction open that wrote an event (one that enqueues with connection=, perhaps"
                    " your own): the first webhook can be made when it has ended; try again",
                    retry_after=PAUSE,
                ) from None
            time.sleep(PAUSE)  # holding nothing: whoever has the lock is not told to hurry


def _arm(tx: Tx) -> None:
    tx.database.execute_script(tx, sql_text("triggers", f"arm.{tx.database.dialect}.sql"))


def disarm(database: Database) -> bool:
    """Nobody pays for webhooks who has none. Left for later if the lock cannot be had at once; whether it is done."""
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
    """Until this transaction ends the trigger stays in force."""
    tx.run("lock_outbox")
    if not _in_force(tx):  # a statement after the lock: it sees what was done under it
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
    """From now on jobs may bring an address of their own. Before the first of them is made."""
    with database.read() as tx:
        if tx.run("outbox")[0][1]:
            return

    def work(tx: Tx) -> None:
        lock(tx)
        tx.run("note_job_hooks")

    armed(database, lambda: database.transact("note_job_hooks", work))
