"""litequeue, set to synchronous=FULL (its own default, NORMAL, can lose commits). A table of messages, no workers."""

from __future__ import annotations

import time
from typing import Any

NEEDS = ("litequeue",)


def fresh(url: str) -> Any:
    from litequeue import LiteQueue

    queue = LiteQueue(url)
    queue.conn.execute("pragma synchronous = full")
    return queue


def drain(url: str, *, jobs: int) -> float:
    """Pop and done, one message at a time: two commits each."""
    queue = fresh(url)
    with queue.transaction():
        for n in range(jobs):
            queue.put(str(n))
    start = time.monotonic()
    while (message := queue.pop()) is not None:
        queue.done(message.message_id)
    return jobs / (time.monotonic() - start)


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    queue = fresh(url)
    start = time.monotonic()
    for n in range(jobs):
        queue.put(str(n))
    return jobs / (time.monotonic() - start)
