"""procrastinate on its psycopg connector, async tasks, finished jobs kept as it does by default."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

NEEDS = ("procrastinate",)


def measure(url: str, part: Callable[[Any, Any], Awaitable[float]], connections: int = 10) -> float:
    """Install the schema, then time `part(app, task)` with an open pool."""
    from procrastinate import App, PsycopgConnector

    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = App(connector=PsycopgConnector(conninfo=url, min_size=connections, max_size=connections))

    async def noop(n: int) -> int:
        return n

    task = app.task(name="noop")(noop)

    async def main() -> float:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            return await part(app, task)

    return asyncio.run(main())


def drain(url: str, *, jobs: int, concurrency: int) -> float:
    async def part(app: Any, task: Any) -> float:
        await task.batch_defer_async(*({"n": n} for n in range(jobs)))
        start = time.monotonic()
        await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
        seconds = time.monotonic() - start
        done = await app.job_manager.list_jobs_async(status="succeeded")
        if len(list(done)) != jobs:
            raise RuntimeError("not every job succeeded")
        return jobs / seconds

    return measure(url, part)


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    async def part(app: Any, task: Any) -> float:
        start = time.monotonic()
        for n in range(jobs):
            await task.defer_async(n=n)
        return jobs / (time.monotonic() - start)

    return measure(url, part)


def enqueue_bulk(url: str, *, jobs: int, batch: int) -> float:
    async def part(app: Any, task: Any) -> float:
        start = time.monotonic()
        for at in range(0, jobs, batch):
            await task.batch_defer_async(*({"n": n} for n in range(at, min(at + batch, jobs))))
        return jobs / (time.monotonic() - start)

    return measure(url, part)
