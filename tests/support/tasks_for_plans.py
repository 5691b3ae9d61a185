"""Tasks that are steps of plans under test. At the top of a module, so that child processes find them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from headway import App, Context, Skip

app = App()
ONCE = {"max_attempts": 1, "base_delay": 0}


@app.task("give", retry=0)
async def give(value: Any = None) -> Any:
    return value


@app.task("add", retry=0)
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task("seen.async", retry=0)
async def seen_async(ctx: Context) -> dict[str, Any]:
    return dict(ctx.results)


@app.task("seen.thread", isolation="thread", retry=0)
def seen_thread(ctx: Context) -> dict[str, Any]:
    return dict(ctx.results)


@app.task("seen.child", retry=0)
def seen_child(ctx: Context) -> dict[str, Any]:
    return dict(ctx.results)


@app.task("fails", retry=0)
async def fails() -> None:
    raise ValueError("broken")


@app.task("flaky", retry=ONCE)
async def flaky(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("at first")
    return ctx.attempt


@app.task("needs", retry=0)
async def needs(file: str) -> str:
    """Fails until somebody has put the file there."""
    return Path(file).read_text()


@app.task("skips", retry=0)
async def skips() -> None:
    raise Skip("nothing new")


@app.task("waits", retry=0)
async def waits() -> None:
    await asyncio.Event().wait()


@app.task("waits.child", retry=0)
def waits_child(ctx: Context) -> None:
    ctx.checkpoint("ready")
    while True:
        time.sleep(60)
