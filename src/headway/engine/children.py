"""Which child processes run user code, stored so that recovery can end them when their worker has died."""

from __future__ import annotations

import logging

from headway.engine.slot import Child
from headway.errors import Unreachable
from headway.store import workers
from headway.store.db import Database

log = logging.getLogger("headway")


def adopt(database: Database, worker_id: int, slot: int, child: Child) -> None:
    """Before it runs any."""
    database.transact(
        "adopt",
        lambda tx: workers.adopt(
            tx, worker_id, slot=slot, tag=child.tag, pid=child.pid, process_start=child.start_time
        ),
    )


def disown(database: Database, child: Child) -> None:
    """It has ended."""
    try:
        database.transact("disown", lambda tx: tx.run("drop_process", tag=child.tag))
    except Unreachable as error:
        log.warning("could not forget an ended process: %s", error)  # recovery finds that it is gone
