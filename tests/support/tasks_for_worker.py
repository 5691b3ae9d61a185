"""Tasks that a worker under test runs. At the top of a module, so that child processes find them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from headway import App, Context, Fail, Retry, Skip

app = App()


@app.task("add")
async def add(a: int, b: int) -> int:
    return a + b


@app.task("plain")
def plain(word: str) -> dict[str, Any]:
    return {"word": word, "pid": os.getpid()}


@app.task("threaded", isolation="thread")
def threaded() -> str:
    return threading.current_thread().name


@app.task("report")
def report(ctx: Context, file: str) -> int:
    for n in ctx.progress(range(3), "part"):
        ctx.log.info("part %d", n)
        ctx.spend(tokens=10)
    ctx.checkpoint({"part": 3})
    ctx.attach(file, "out.txt")
    return ctx.attempt


@app.task("report.async")
async def report_async(ctx: Context) -> int:
    for n in ctx.progress(range(3), "part"):
        ctx.log.info("part %d", n)
        ctx.spend(tokens=10)
    ctx.checkpoint({"part": 3})
    return ctx.attempt


@app.task("from_checkpoint", retry={"max_attempts": 1, "base_delay": 0})
def from_checkpoint(ctx: Context) -> object:
    if ctx.last_checkpoint is None:
        ctx.checkpoint({"at": 7})
        raise RuntimeError("once")
    return ctx.last_checkpoint


@app.task("wait.async")
async def wait_async() -> None:
    await asyncio.Event().wait()


@app.task("wait.child")
def wait_child(ctx: Context) -> None:
    ctx.checkpoint("ready")
    while True:
        time.sleep(60)


@app.task("wait.thread", isolation="thread")
def wait_thread(ctx: Context) -> None:
    ready = threading.Event()
    while True:
        ctx.check()
        ready.wait(0.01)


@app.task("deaf")
async def deaf(ctx: Context) -> None:
    """Refuses to be cancelled."""
    ctx.checkpoint("ready")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@app.task("raises.retry", retry={"max_attempts": 1})
async def raises_retry() -> None:
    raise Retry("not yet", after="1h")


@app.task("raises.fail")
async def raises_fail() -> None:
    raise Fail("no use")


@app.task("raises.skip")
async def raises_skip() -> None:
    raise Skip("nothing new")


@app.task("fails", retry=0)
async def fails() -> None:
    raise ValueError("broken")


@app.task("cancels_itself", retry=0)
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@app.task("segfault", retry=0)
def segfault() -> None:
    os.kill(os.getpid(), 11)


@app.task("dies_beside", retry=3)
def dies_beside() -> None:
    """Leaves a program running."""
    program = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import time; time.sleep(600)"], stdout=-1)
    assert program.stdout is not None
    program.stdout.readline()
    os.kill(os.getpid(), 9)


@app.task("append")
async def append(file: str, line: str) -> None:
    with Path(file).open("a") as out:
        out.write(line + "\n")
