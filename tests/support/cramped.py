"""A worker whose system starts no more threads: it takes a job back that never began, and pauses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headway import App
from headway.engine.worker import start_pause
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker

WHY = "no thread could be started for it: can't start new thread"


@contextmanager
def paused_worker(url: str) -> Iterator[Worker]:
    """A worker of this process that has recorded its pause. Afterwards it can start threads again."""
    start = threading.Thread.start

    def cramped(thread: threading.Thread) -> None:
        if thread.name.startswith("headway-slot"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with App(url) as app:
        app.task("light", isolation="thread")(lambda: "done")
        worker = Worker(app.database, app.registry, WorkerConfig(slots=3, lease=3600.0))
        app.database.transact("register", worker._register)
        app.enqueue("light")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", cramped)
            patch.setattr(start_pause, "FIRST_PAUSE", 3600.0)
            patch.setattr(start_pause, "LONGEST_PAUSE", 3600.0)
            for _ in range(2):  # one claims, and one records the end
                worker.tick()
            yield worker
        worker.close()
