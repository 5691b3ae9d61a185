"""Takes the pictures of the README: `python -m scripts.screenshots`, from the root of the repository.

In a temporary folder an hour of work is lived through by a clock that is moved on, then Headway is started on what that
left, with jobs that run while the pictures are taken.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Browser, ViewportSize

from headway import App, Context
from headway.api.server import Server
from headway.engine.client.limits import settle
from headway.errors import HeadwayError
from headway.model.jobs.states import State
from headway.runtime import supervisor
from headway.testing import FrozenClock, drain
from tests.support.browser import browser, ready

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZE: ViewportSize = {"width": 1280, "height": 900}
MOST_BYTES = 250_000
PATIENCE = 60.0
TOPICS = ("fog", "lighthouses", "the last ferry", "salt", "a clock that lies", "snow in May", "the tin whistle", "maps")
T = TypeVar("T")
SETTINGS: dict[str, Any] = {
    "slots": 6,
    "concurrency": {"limit": "none"},
    "resources": {"gpu": 2},
    "retry": {"max_attempts": 3, "base_delay": "2s"},
}


def make_app(folder: Path, clock: FrozenClock | None = None) -> App:
    """With a clock, work takes its time on that; without one it takes real time, and does not come to its end."""
    app = App(str(folder / "headway.db"), config=None, clock=clock, host="127.0.0.1", port=0, **SETTINGS)
    app.configure(None, {"artifacts": str(folder / "artifacts")})

    async def take(seconds: float) -> None:
        if clock is not None:
            clock.advance(seconds)
        else:
            await asyncio.sleep(min(seconds, 1.2))

    @app.task("story.generate", resources=["gpu"], budget={"tokens": 60_000})
    async def generate(ctx: Context, topic: str, chapters: int = 8, offline: bool = False) -> dict[str, object]:
        for n in ctx.progress(range(chapters), "chapter"):
            ctx.log.info("chapter %d of %d: %s", n + 1, chapters, topic)
            await take(9.0 + 3.0 * (n % 3))
            ctx.spend(tokens=1_900 + 350 * n)
            ctx.checkpoint({"chapter": n + 1})
            if offline and n == 2 and ctx.attempt == 1:
                ctx.log.error("the model server hung up")
                raise ConnectionError("the model server closed the connection in chapter 3")
            if clock is None and n == 4:
                await asyncio.sleep(3600)
        return {"title": topic.title(), "chapters": chapters}

    @app.task("research.run")
    async def research(ctx: Context, topic: str) -> str:
        await take(20.0 + 7.0 * len(topic))
        return f"notes on {topic}"

    @app.task("hr.step")
    async def step(ctx: Context, what: str) -> str:
        ctx.report(3, 10, "records")
        await take(45.0)
        if clock is None:
            await asyncio.sleep(3600)
        return what

    @app.task("desk.visit")
    async def visit(ctx: Context, machine: str) -> str:
        await take(30.0)
        if machine == "desk-2":
            raise RuntimeError("the installer asks for a password")
        return f"{machine} is done"

    return app


def schedule_of(app: App) -> None:
    plan = ("import",), ("sync",), ("export AD", "export LDAP"), ("check AD", "check LDAP")
    steps = [
        {"index": n, "name": name, "task": "hr.step", "params": {"what": name}}
        for n, names in enumerate(plan)
        for name in names
    ]
    client = app.client
    client.schedules.create(
        "HR sync",
        {"cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "steps": steps, "note": "HR to AD and LDAP"},
    )
    client.schedules.create("weekly research", {"cron": "0 6 * * mon", "steps": [steps[0]]})
    client.schedules.create("every half hour", {"interval": "30m", "steps": [{**steps[0], "name": "watch"}]})


def live_an_hour(folder: Path) -> None:
    now = int(datetime.now(UTC).timestamp())
    clock = FrozenClock((now - 3_900) * 1_000_000)
    with make_app(folder, clock) as app:
        settings = app.settings
        settle(app.database, settings.concurrency.value(None), settings.resources, actor=app.client.actor)
        schedule_of(app)
        n = 0
        while clock.now() < (now - 120) * 1_000_000:
            topic = TOPICS[n % len(TOPICS)]
            app.enqueue("research.run", {"topic": topic})
            app.enqueue("story.generate", {"topic": topic, "chapters": 2 + n % 4, "offline": n % 5 == 2})
            if n in (4, 13):
                app.client.schedules.run("HR sync")
            drain(app)
            clock.advance(20.0)
            n += 1
        app.enqueue("desk.visit", {"machine": "desk-2"}, target="desk-2")
        drain(app)


@contextmanager
def at_work(folder: Path) -> Iterator[tuple[App, str]]:
    with make_app(folder) as app:
        parts = supervisor(app, ["api", "scheduler", "worker"])
        parts.start()
        try:
            served = next(part for part in parts.loops if isinstance(part, Server))
            yield app, served.url
        finally:
            parts.grace = 0.0
            parts.stop()


def begin_work(app: App) -> int:
    """Two stories on the GPU, one of them for the second time, others behind them; a target that is held; a plan."""
    first = app.enqueue("story.generate", {"topic": "the lamp that went out", "offline": True}).id
    app.enqueue("story.generate", {"topic": "a harbour in winter"})
    retry = until(lambda: retry_of(app, first)) or 0
    until(lambda: app.client.get(retry).status is State.RUNNING)
    for n, topic in enumerate(TOPICS[:4]):
        app.enqueue("story.generate", {"topic": topic}, priority=10 if n == 3 else 0)
    app.enqueue("desk.visit", {"machine": "desk-2"}, target="desk-2")
    app.enqueue("research.run", {"topic": "tides"}, delay="25m")
    app.client.schedules.run("HR sync")
    return retry


def retry_of(app: App, job_id: int) -> int | None:
    found = [one for one in range(job_id + 1, job_id + 40) if _retries(app, one) == job_id]
    return found[0] if found else None


def _retries(app: App, job_id: int) -> int | None:
    with suppress(HeadwayError):
        return app.client.get(job_id).retry_of
    return None


def until(reached: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := reached()):
        if time.monotonic() > deadline:
            raise TimeoutError("the work did not come as far as the pictures want it")
        time.sleep(0.1)
    return found


def take(started: Browser, url: str, path: str, name: str) -> None:
    page = started.new_page(viewport=SIZE, color_scheme="light")
    page.goto(f"{url}/ui{path}")
    ready(page)
    page.wait_for_timeout(1_500)  # so that what moves has moved once
    file = PICTURES / name
    page.screenshot(path=file)
    page.close()
    size = os.path.getsize(file)
    if size > MOST_BYTES:
        raise SystemExit(f"{file} has {size} bytes, more than {MOST_BYTES}")
    print(f"{file.relative_to(PICTURES.parents[1])}: {size} bytes")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headway-pictures-") as name:
        folder = Path(name)
        live_an_hour(folder)
        with at_work(folder) as (app, url), browser() as started:
            job_id = begin_work(app)
            until(lambda: has_come_far(app, job_id))
            take(started, url, "/", "now.png")
            take(started, url, f"/jobs/{job_id}", "job.png")


def has_come_far(app: App, job_id: int) -> bool:
    from headway.store.jobs import views as job_views

    with app.database.read() as tx:
        report = job_views.view(tx, app.client.tenant_id, job_id).report
    return report is not None and (report.done or 0) >= 4


if __name__ == "__main__":
    main()
