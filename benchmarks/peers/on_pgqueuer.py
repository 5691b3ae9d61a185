"""pgqueuer on asyncpg, its fastest driver, with uvloop where it is installed, as its own benchmark does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from benchmarks.processes import Gate, together

NEEDS = ("pgqueuer", "asyncpg")
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


async def queries(url: str) -> Any:
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    return Queries(AsyncpgDriver(await asyncpg.connect(url)))


async def install(url: str, jobs: int = 0) -> Any:
    """Its tables with its own autovacuum advice applied, and `jobs` jobs in them."""
    queue = await queries(url)
    await queue.install()
    await queue.optimize_autovacuum()
    for start in range(0, jobs, 1_000):
        await put(queue, min(1_000, jobs - start))
    return queue


async def put(queue: Any, count: int) -> None:
    await queue.enqueue(["noop"] * count, [b"1"] * count, [0] * count)


async def consume(url: str, batch: int, jobs: int | None) -> int:
    """Drain the queue; with `jobs`, stop at that many, else when the queue is empty."""
    from pgqueuer import PgQueuer
    from pgqueuer.types import QueueExecutionMode

    queue = PgQueuer((await queries(url)).driver)
    done = 0

    async def noop(job: Any) -> None:
        nonlocal done
        done += 1
        if done == jobs:
            queue.shutdown.set()

    queue.entrypoint("noop")(noop)
    # run() returns when what was done is logged, and the log is what is durable.
    await queue.run(batch_size=batch, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=0.05))
    return done


def drain(url: str, *, jobs: int, batch: int) -> float:
    async def main() -> float:
        await install(url, jobs)
        start = time.monotonic()
        done = await consume(url, batch, jobs)
        seconds = time.monotonic() - start
        await expect_empty(url, done, jobs)
        return jobs / seconds

    return run(main())


async def expect_empty(url: str, done: int, jobs: int) -> None:
    left = await (await queries(url)).queue_size()
    if done != jobs or left:
        raise RuntimeError(f"{done} of {jobs} jobs were run, left in the queue: {left}")


def drain_together(url: str, *, jobs: int, batch: int, processes: int) -> float:
    run(install(url, jobs))
    done, seconds = together(consume_behind, [(url, batch)] * processes)
    run(expect_empty(url, done, jobs))
    return jobs / seconds


def consume_behind(gate: Gate, url: str, batch: int) -> int:
    async def main() -> int:
        await queries(url)
        gate.wait()
        return await consume(url, batch, None)

    return run(main())


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    async def main() -> float:
        queue = await install(url)
        start = time.monotonic()
        for _ in range(jobs):
            await queue.enqueue("noop", b"1")
        return jobs / (time.monotonic() - start)

    return run(main())


def enqueue_bulk(url: str, *, jobs: int, batch: int) -> float:
    async def main() -> float:
        queue = await install(url)
        start = time.monotonic()
        for at in range(0, jobs, batch):
            await put(queue, min(batch, jobs - at))
        return jobs / (time.monotonic() - start)

    return run(main())
