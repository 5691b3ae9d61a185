"""A module that starts a thread when it is imported: the thread belongs to the process, not to a job."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from tests.support.tasks_for_child import task

fifos: SimpleQueue[str] = SimpleQueue()


def _chatter() -> None:
    while True:
        with open(fifos.get()) as file:
            file.read()
        print("far too late", flush=True)


threading.Thread(target=_chatter, daemon=True).start()


@task
def print_when_told(fifo: str) -> None:
    fifos.put(fifo)


@task
def nothing() -> None:
    pass
