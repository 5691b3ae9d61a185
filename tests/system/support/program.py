"""A program of its own with tasks that wait, hold on, and will not die: `program.py '{"lease": 3, …}'` works until it
is told to stop. Its database is in HEADWAY_DATABASE. Tasks say in files what they do, because they may not live to
tell it otherwise.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.app import App
from headway.engine.execution.context import Context
from headway.engine.maintenance.recovery import Recovery
from headway.engine.supervisor import Supervisor
from headway.engine.worker import claim_strategy, execution_pool, start_pause, worker
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker

app = App()
LOOK = 0.02
# Ignores what it can, and so does what it starts, in a session of its own.
STUBBORN = "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM INT HUP; sleep 600\" & echo $$ $! >> {file}; wait"


if os.environ.get("TEST_SAMPLES"):  # as a profiler does
    signal.signal(signal.SIGPROF, lambda *_: None)
    signal.setitimer(signal.ITIMER_PROF, 0.02, 0.02)


@contextmanager
def marked(file: str, word: str) -> Iterator[None]:
    """Says that work begins, in which process, and how it ends."""
    append(f"{file}.began", f"{word} {os.getpid()}")
    end = "ended"
    try:
        yield
    except BaseException as error:
        end = type(error).__name__
        raise
    finally:
        append(f"{file}.ended", f"{word} {end}")


def append(file: str, line: str) -> None:
    with open(file, "a") as out:
        out.write(line + "\n")


def may_go(file: str) -> bool:
    return os.path.exists(f"{file}.go")


@app.task("waits.async")
async def waits_async(ctx: Context, file: str) -> int:
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        while not may_go(file):
            await asyncio.sleep(LOOK)
    return ctx.fence


@app.task("waits.thread", isolation="thread")
def waits_thread(ctx: Context, file: str) -> int:
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        while not may_go(file):
            ctx.check()
            time.sleep(LOOK)
    return ctx.fence


@app.task("waits.process")
def waits_process(ctx: Context, file: str) -> int:
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        while not may_go(file):
            time.sleep(LOOK)
    return ctx.fence


@app.task("forks.thread", isolation="thread")
def forks_thread(ctx: Context, file: str, returns: bool) -> str:
    """Leaves a process behind, with every descriptor of the worker, or one that returns like the task itself."""
    pid = os.fork()
    if pid:
        append(f"{file}.pids", str(pid))
        return "parent"
    while not returns:
        signal.pause()
    return "copy"


@app.task("forks.async")
async def forks_async(ctx: Context, file: str) -> str:
    """The copy goes on as if it were the job."""
    pid = os.fork()
    if pid:
        append(f"{file}.pids", str(pid))
    for _ in range(5):
        await asyncio.sleep(LOOK)
    append(f"{file}.steps", str(os.getpid()))
    return "done"


@app.task("tells.async")
async def tells_async(ctx: Context, file: str) -> int:
    """Says in which process each of its steps is made."""
    count = 0
    while not may_go(file):
        count += 1
        append(f"{file}.steps", f"{count} {os.getpid()}")
        await asyncio.sleep(LOOK)
    return count


@app.task("acts.async")
async def acts_async(ctx: Context, file: str, reports: bool) -> int:
    """Does something outside again and again, with no fence, and perhaps reports it."""
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        count = 0
        while not may_go(file):
            count += 1
            append(f"{file}.steps", f"{ctx.job_id} {time.monotonic()}")
            if reports:
                ctx.log.info("step %d", count)
            await asyncio.sleep(LOOK)
    return ctx.fence


@app.task("writes", isolation="thread")
def writes(ctx: Context, file: str) -> int:
    """Reports again and again, and does something outside after every report that was accepted."""
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        count = 0
        while not may_go(file):
            count += 1
            ctx.checkpoint({"count": count})
            append(f"{file}.effects", f"{ctx.job_id}.{ctx.fence}")
            time.sleep(LOOK)
    return ctx.fence


@app.task("holds.async")
async def holds_async(ctx: Context, file: str, seconds: int) -> int:
    """A call into C that keeps the interpreter lock: no other thread of the worker runs meanwhile."""
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        ctypes.PyDLL(None).sleep(seconds)
    return ctx.fence


@app.task("blocks.async")
async def blocks_async(ctx: Context, file: str) -> int:
    """Blocks its event loop, and no other thread."""
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        while not may_go(file):
            time.sleep(LOOK)
    return ctx.fence


@app.task("holds.process")
def holds_process(ctx: Context, file: str, seconds: int) -> list[int]:
    """The same in a child, deaf to signals, with a child of its own; the second time it says who is still there."""
    mine, before = f"{file}.pids", []
    if os.path.exists(mine):
        before = [pid for pid in map(int, Path(mine).read_text().split()) if _alive(pid)]
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        append(mine, str(os.getpid()))
        subprocess.Popen(["sh", "-c", STUBBORN.format(file=mine)])
        while len(Path(mine).read_text().split()) < 3:
            time.sleep(LOOK)
        append(f"{file}.began", f"{ctx.job_id}.{ctx.fence} {os.getpid()}")
        ctypes.PyDLL(None).sleep(seconds)
    return before


@app.task("steps.async")
async def steps_async(ctx: Context, file: str, steps: int) -> int:
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        for step in _left(ctx, file, steps):
            await asyncio.sleep(LOOK)
            ctx.checkpoint({"step": step})
            append(f"{file}.stored", f"{ctx.job_id} {step}")
    return ctx.fence


def steps_plainly(ctx: Context, file: str, steps: int) -> int:
    with marked(file, f"{ctx.job_id}.{ctx.fence}"):
        for step in _left(ctx, file, steps):
            time.sleep(LOOK)
            ctx.checkpoint({"step": step})
            append(f"{file}.stored", f"{ctx.job_id} {step}")
    return ctx.fence


def _left(ctx: Context, file: str, steps: int) -> range:
    """The steps that no checkpoint says were done."""
    done: int = (ctx.last_checkpoint or {"step": 0})["step"]
    append(f"{file}.saw", f"{ctx.job_id} {done}")
    return range(done + 1, steps + 1)


app.task("steps.thread", isolation="thread")(steps_plainly)
app.task("steps.process")(steps_plainly)


@app.task("load.async")
async def load_async(ctx: Context, seconds: float = 0.0, fails: bool = False) -> int:
    """Nothing much; a part of them takes a while, a part fails."""
    if seconds:
        await asyncio.sleep(seconds)
    if fails and ctx.attempt == 1:
        raise ValueError("on purpose")
    return ctx.fence


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@app.task("stubborn.process")
def stubborn_process(ctx: Context, file: str) -> None:
    """Deaf to signals, with a tree of processes that are deaf, too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    append(f"{file}.pids", str(os.getpid()))
    subprocess.Popen(["sh", "-c", STUBBORN.format(file=f"{file}.pids")])
    append(f"{file}.began", f"{ctx.job_id}.{ctx.fence} {os.getpid()}")
    while True:
        time.sleep(LOOK)


class Telling(Supervisor):
    """Says when all parts are at work, and which signals it has seen: two that are sent at once may arrive as one."""

    def start(self) -> None:
        super().start()
        append("started", str(os.getpid()))

    def on_signal(self, *seen: object) -> None:
        super().on_signal(*seen)
        append("signals", str(self.signals))


def main(lease: float, heartbeat: float, grace: float, recovery: float, slots: int, **constants: float) -> int:
    """Works until a signal comes. Without slots it only watches over the others. `constants` of the worker are set."""
    for name, value in constants.items():
        (module,) = (m for m in (worker, execution_pool, start_pause, claim_strategy) if hasattr(m, name))
        setattr(module, name, value)
    logging.basicConfig(stream=sys.stderr, format="%(relativeCreated)d %(levelname)s %(message)s")
    wishes = WorkerConfig(slots=max(1, slots), lease=lease, heartbeat=heartbeat, grace=grace)
    supervisor = Telling(
        make_worker=(lambda: Worker(app.database, app.registry, wishes)) if slots else None,
        recovery=Recovery(app.database, interval=recovery),
        grace=grace,
    )
    supervisor.handle_signals()
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))
