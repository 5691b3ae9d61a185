"""One process's view of a system under test: its app and tasks, a clock that steps, a worker driven by hand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headway import Fail, Skip
from headway.app import App
from headway.clock import SECOND
from headway.engine.client import limits
from headway.engine.execution.context import Context
from headway.engine.execution.running import Running
from headway.engine.maintenance.recovery import Recovery
from headway.engine.tasks.job_handle import Job
from headway.engine.tasks.task import Task
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import SYSTEM
from headway.model.jobs.outcome import Outcome
from headway.model.queue.policies import Concurrency
from headway.store.db import Database
from tests.system.support import work

Fact = dict[str, Any]
Say = Callable[[Fact], None]

BEGINNING = 1_800_000_000 * SECOND
DAY = 86_400 * SECOND
MINUTES = 60 * SECOND
PATIENCE = 55.0
DUE = """select min(at) from (select not_before as at from hw_job where status = 1
  union all select expires_at from hw_job where status <= 2 and fence = 0) as waiting"""


class StepClock:
    """Each look is a microsecond later than the one before, so that no two transactions have the same time."""

    def __init__(self, now: int) -> None:
        self.time = now

    def now(self) -> int:
        self.time += 1
        return self.time

    def monotonic(self) -> float:
        return time.monotonic()


class Hand(Worker):
    """A worker without a heartbeat process whose turns are taken by hand."""

    def __init__(self, world: World, **wishes: Any) -> None:
        wishes = {"slots": 4, "artifacts": world.folder / "artifacts", "lease": 60.0, **wishes}
        super().__init__(world.database, world.app.registry, WorkerConfig(**wishes))
        self.world = world
        self.news = threading.Condition()

    def register(self) -> None:
        self.database.transact("register", self._register)

    def work_ended(self, batch: list[tuple[Running, Outcome]]) -> None:
        super().work_ended(batch)
        with self.news:
            self.news.notify_all()

    def settle(self, leaving: int = 0) -> None:
        """Waits until all work but `leaving` has ended."""
        with self.news:
            ended = self.news.wait_for(lambda: len(self.pool.running) - len(self.pool.ended_work) <= leaving, PATIENCE)
        assert ended, f"{len(self.pool.running)} jobs still run"

    def turn(self, leaving: int = 0) -> None:
        """One turn, and the work it began to its end."""
        self.tick()
        self.settle(leaving)

    def run_dry(self, leaving: int = 0) -> None:
        """Turns until nothing is left to do, moving the clock to whatever waits for its time."""
        while True:
            before = (self.claimed, self.finished, self.world.time_moved)
            self.turn(leaving)
            if self.pool.ended_work:  # what an earlier turn had begun, and ended after this one looked
                continue
            if before == (self.claimed, self.finished, self.world.time_moved) and not self.world.wait_for_due():
                return


class World:
    """Everything one process of a case has. `say` reports a fact to whoever checks the promises afterwards."""

    def __init__(self, url: str, folder: Path, *, say: Say, phase: int = 0, stepping: bool = True) -> None:
        self.url = url
        self.folder = folder
        self.say = say
        self.clock = StepClock(BEGINNING + phase * DAY) if stepping else None
        self.time_moved = 0
        self.open_gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.app = App(url, clock=self.clock, artifacts=str(folder / "artifacts"))
        self.base_delay = 10.0 if stepping else 0.0
        self.tasks = declare(self)

    # --- parts ---

    @property
    def database(self) -> Database:
        return self.app.database

    def worker(self, **wishes: Any) -> Hand:
        worker = Hand(self, **wishes)
        worker.register()
        return worker

    def recovery(self) -> Recovery:
        return Recovery(self.database)

    def close(self) -> None:
        self.app.close()

    # --- time ---

    def reach(self, instant: int) -> bool:
        """Moves the clock to an instant; with the real one, waits until it has come."""
        if self.clock is not None:
            self.clock.time = max(self.clock.time, instant)
        else:
            time.sleep(max(0.0, (instant - self.database.clock.now()) / SECOND) + 0.0005)
        self.time_moved += 1
        return True

    def wait_for_due(self) -> bool:
        """Moves the clock to the next start or expiry, if any waits."""
        with self.database.read() as tx:
            found = tx.connection.execute(DUE).fetchall()  # type: ignore[attr-defined]
        return found[0][0] is not None and self.reach(found[0][0])

    def later(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self.database.clock.now() // SECOND + seconds, UTC)

    def advance(self, seconds: float) -> None:
        self.reach(self.database.clock.now() + round(seconds * SECOND))

    # --- acts, each told when it was acknowledged ---

    def make(self, task: str, *, expect: str | None = "COMPLETED", length: int | None = None, **params: Any) -> Job:
        job = self.tasks[task].enqueue(**params)
        self.say({"made": [job.id], "expect": expect, "length": length, "params": [params]})
        return job

    def make_using(self, task: str, wishes: dict[str, Any], *, expect: str | None = "COMPLETED", **params: Any) -> Job:
        job = self.tasks[task].using(**wishes).enqueue(**params)
        self.say({"made": [job.id], "expect": expect, "length": None, "params": [params]})
        return job

    def make_many(self, task: str, batch: str, numbers: list[int]) -> list[Job]:
        self.say({"batch": batch, "size": len(numbers)})
        many = [{"n": number, "batch": batch} for number in numbers]
        jobs = self.tasks[task].enqueue_many(many)
        self.say({"made": [job.id for job in jobs], "expect": "COMPLETED", "length": None, "params": many})
        return jobs

    def widen(self, capacity: int | None = None) -> None:
        """Another limit for the global lane."""
        limits.settle(self.database, Concurrency(limit=capacity), {}, actor=SYSTEM, adopt=True)

    def await_began(self, count: int = 1) -> None:
        """Until so many more pieces of slow work have begun."""
        for _ in range(count):
            assert self.began.acquire(timeout=PATIENCE), "the work did not begin"


def declare(world: World) -> dict[str, Task[..., Any]]:
    """The tasks of the scripts. What they do is reported, so that it can be compared with what was recorded."""
    app, say = world.app, world.say
    retry = {"max_attempts": 12, "base_delay": world.base_delay}

    def begin(ctx: Context) -> dict[str, int]:
        say({"began": ctx.job_id, "fence": ctx.fence, "saw": ctx.last_checkpoint})
        return {"fence": ctx.fence}

    async def note(ctx: Context, n: int = 0, batch: str = "") -> dict[str, int]:
        return begin(ctx)

    async def flaky(ctx: Context, fails: int) -> dict[str, int]:
        begun = begin(ctx)
        if ctx.attempt <= fails:
            raise RuntimeError(f"try {ctx.attempt}")
        return begun

    async def hopeless(ctx: Context) -> None:
        begin(ctx)
        raise RuntimeError("as always")

    async def skips(ctx: Context) -> None:
        begin(ctx)
        raise Skip("nothing to do")

    async def refuses(ctx: Context) -> None:
        begin(ctx)
        raise Fail("no retry helps")

    def steps(ctx: Context, upto: int) -> dict[str, int]:
        begun = begin(ctx)
        done = (ctx.last_checkpoint or {"step": 0})["step"]
        for step in range(done + 1, upto + 1):
            ctx.checkpoint({"step": step})
            say({"checkpoint": step, "job": ctx.job_id})
            ctx.spend(tokens=1)
            ctx.report(step, upto, "steps")
            ctx.log.info("step %d", step)
        return begun

    def spends(ctx: Context, tokens: int) -> dict[str, int]:
        begun = begin(ctx)
        ctx.spend(tokens=tokens)
        return begun

    def attaches(ctx: Context, name: str) -> dict[str, int]:
        begun = begin(ctx)
        file = world.folder / f"{name}.txt"
        file.write_text(name)
        ctx.attach(file)
        say({"attached": name, "job": ctx.job_id})
        return begun

    def slow(ctx: Context, n: int = 0) -> dict[str, int]:
        """Runs until it is stopped or the gate is opened, looking at every millisecond."""
        begun = begin(ctx)
        world.began.release()
        deadline = time.monotonic() + PATIENCE
        while not world.open_gate.wait(0.001) and time.monotonic() < deadline:
            ctx.check()
        return begun

    def late(ctx: Context) -> dict[str, int]:
        """Deaf to stops; when the gate opens it writes once more."""
        begun = begin(ctx)
        world.began.release()
        world.open_gate.wait(PATIENCE)
        ctx.checkpoint({"step": 1})
        say({"checkpoint": 1, "job": ctx.job_id})
        return begun

    def deaf(ctx: Context) -> dict[str, int]:
        """Hears nothing and writes nothing until the gate opens."""
        begun = begin(ctx)
        world.began.release()
        world.open_gate.wait(PATIENCE)
        return begun

    async def sleeper(ctx: Context) -> dict[str, int]:
        begun = begin(ctx)
        world.began.release()
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not world.open_gate.is_set():
                    await asyncio.sleep(0.001)
        return begun

    app.task("note", retry=retry)(note)
    app.task("flaky", retry=retry)(flaky)
    app.task("hopeless", retry={"max_attempts": 2, "base_delay": world.base_delay})(hopeless)
    app.task("skips", retry=retry)(skips)
    app.task("refuses", retry=retry)(refuses)
    app.task("sleeper", retry=retry)(sleeper)
    for function in (steps, spends, attaches, slow, late, deaf):
        app.task(function.__name__, isolation="thread", retry=retry)(function)
    app.task("plain", retry=retry)(work.plain.function)
    return app.tasks
