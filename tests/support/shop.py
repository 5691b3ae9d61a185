"""An app as a user would write it, for the tests of the command line."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from headway import App, Context, Fail, Skip

app = App()


@app.task("shop.greet")
def greet(ctx: Context, name: str, times: int = 1) -> dict[str, Any]:
    for n in ctx.progress(range(times), "greeting"):
        ctx.log.info("hello %s, %s", name, n)
    return {"greeted": name, "times": times}


@app.task("shop.fail", retry={"max_attempts": 1, "base_delay": 0.05})
def fail(ctx: Context, error: str = "no luck") -> None:
    ctx.log.warning("about to fail")
    raise RuntimeError(error)


@app.task("shop.give_up")
def give_up() -> None:
    raise Fail("no retry will help")


@app.task("shop.skip")
def skip() -> None:
    raise Skip("nothing to do today")


@app.task("shop.wait")
async def wait(ctx: Context, seconds: float = 600.0, stops_with: str = "") -> str:
    """With `stops_with`, a request to stop takes effect when that file is there."""
    ctx.log.info("waiting")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        while stops_with and not os.path.exists(stops_with):
            await asyncio.sleep(0.02)
        raise
    return "waited"


@app.task("shop.until")
async def wait_until(ctx: Context, path: str) -> str:
    """Until a file is there."""
    ctx.log.info("waiting")
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return "waited"


@app.task("shop.held", retry=0, on_shutdown="pause")
async def held(seconds: float = 600.0) -> None:
    await asyncio.sleep(seconds)


@app.task("shop.pid")
def pid(ctx: Context) -> int:
    time.sleep(0)
    return os.getpid()
