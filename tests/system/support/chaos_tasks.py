"""Tasks of the chaos run. Each writes when it began, that it goes on, and when it ended into one file, the ledger:
what really ran at which moment is seen there from outside, whatever the database says.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headway import App, Context

app = App()
LEDGER = os.environ.get("CHAOS_LEDGER", os.devnull)
STEP = 0.02
# For ever, as far as the run is concerned: only a stop ends such a loop.
BLOCK_SECONDS = 25.0
BLOCK_TIMEOUT = 1.0
AGAIN = {"max_attempts": 1000, "base_delay": 0.05, "max_delay": 0.5}


def write(ctx: Context, mark: str, lane: str, word: str) -> None:
    """One line in one write: processes that write at once do not mix."""
    line = f"{time.monotonic_ns()} {mark} {ctx.job_id} {ctx.fence} {lane} {word} {os.getpid()}\n"
    file = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@contextmanager
def told(ctx: Context, lane: str, word: str) -> Iterator[None]:
    write(ctx, "begins", lane, word)
    try:
        yield
    finally:
        write(ctx, "ends", lane, word)


async def walk_async(ctx: Context, word: str, lane: str = "-", steps: int = 0) -> str:
    with told(ctx, lane, word):
        for _ in range(steps):
            await asyncio.sleep(STEP)
            write(ctx, "goes", lane, word)
    return word


def walk(ctx: Context, word: str, lane: str = "-", steps: int = 0) -> str:
    with told(ctx, lane, word):
        for _ in range(steps):
            ctx.check()
            time.sleep(STEP)
            write(ctx, "goes", lane, word)
    return word


app.task("walk.async", retry=AGAIN)(walk_async)
app.task("walk.thread", isolation="thread", retry=AGAIN)(walk)
app.task("walk.process", retry=AGAIN)(walk)


@app.task("stumble", retry=AGAIN)
async def stumble(ctx: Context, word: str) -> str:
    """Fails at its first try."""
    with told(ctx, "-", word):
        if ctx.attempt == 1:
            raise ValueError("on purpose")
    return word


@app.task("block", timeout=BLOCK_TIMEOUT, retry=0)
async def block(ctx: Context, word: str, seconds: float) -> str:
    """Blocks the event loop of its worker far beyond its timeout."""
    with told(ctx, "-", word):
        time.sleep(seconds)
    return word
