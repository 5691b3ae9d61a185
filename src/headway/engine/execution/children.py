"""Stores which child processes run user code.

Recovery kills them if their worker dies.
"""

from __future__ import annotations

import logging

from headway.engine.execution.child_process import Child
from headway.errors import Unreachable
from headway.store import workers
from headway.store.db import Database

log = logging.getLogger("headway")


def adopt(database: Database, worker_id: int, slot: int, child: Child) -> None:
    """Stores a child process. Call it before user code runs in it."""
    database.transact(
        "adopt",
        lambda tx: workers.adopt(
            tx, worker_id, slot=slot, tag=child.tag, pid=child.pid, process_start=child.start_time
        ),
    )


def disown(database: Database, child: Child) -> None:
    """Deletes the record of a child process that has ended."""
    try:
        database.transact("disown", lambda tx: tx.run("drop_process", tag=child.tag))
    except Unreachable as error:
        log.warning("could not delete the record of an ended process: %s; recovery will", error)
