"""A Headway in the middle of its day: something of every kind, in every state, on every page. Whatever a user can name
or write says what `texts` say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway import App, Context, Fail
from headway.model.jobs.states import State
from headway.runtime import settle, supervisor
from tests.support.service import Site, running
from tests.support.waiting import until

SETTINGS: dict[str, Any] = {
    "slots": 120,
    "concurrency": {"limit": "none"},
    "resources": {"gpu": 1},
    "retry": {"base_delay": "1h"},
    "webhooks": {"allow_private": True},
}


def lively_app(database: str, folder: Path) -> tuple[App, threading.Event]:
    """The app, and what lets its long jobs end."""
    app = App(database, host="127.0.0.1", port=0, artifacts=str(folder / "artifacts"), **SETTINGS)
    gate = threading.Event()

    @app.task("shop.long", resources=["gpu"])
    async def long(ctx: Context, text: str) -> None:
        ctx.log.info("begun: %s", text)
        ctx.report(3, 8, text[:60])
        while not gate.is_set():
            await asyncio.sleep(0.02)
            ctx.check()

    @app.task("shop.waits")
    async def waits(ctx: Context) -> None:
        ctx.report(1, 2)
        while not gate.is_set():
            await asyncio.sleep(0.1)

    @app.task("shop.fine", budget={"tokens": 100})
    async def fine(ctx: Context, text: str) -> dict[str, object]:
        ctx.log.warning("%s", text)
        ctx.report(1, None, text[:60])
        ctx.spend(tokens=40)
        ctx.checkpoint({"text": text})
        made = folder / "made.txt"
        made.write_text(text)
        ctx.attach(made, name=text.replace("/", "_").replace("\\", "_")[:100])
        return {"text": text, text[:50]: [text]}

    @app.task("shop.fails")
    async def fails(text: str) -> None:
        raise Fail(text)

    @app.task("shop.flaky", retry={"max_attempts": 3})
    async def flaky(text: str) -> None:
        raise RuntimeError(text)

    @app.task("shop.breaks")
    async def breaks(text: str) -> None:
        raise RuntimeError(text)

    return app, gate


@contextmanager
def lively(database: str, folder: Path, texts: Sequence[str] = ("fog",)) -> Iterator[Site]:
    """Served, with everything in it; a worker is at work."""
    with at_work(database, folder) as site:
        for n, text in enumerate(texts):
            _fill(site, n, text)
        site.app.client.pause_queue(note=texts[0])
        yield site


@contextmanager
def at_work(database: str, folder: Path) -> Iterator[Site]:
    """Served, with a worker, and nothing to do."""
    app, gate = lively_app(database, folder)
    with app, running(app) as site:
        for _ in settle(app, ["worker"]):
            pass
        parts = supervisor(app, ["scheduler", "worker"])
        parts.start()
        try:
            yield site
        finally:
            gate.set()
            parts.stop()


def _fill(site: Site, n: int, text: str) -> None:
    app, client, name = site.app, site.app.client, f"{text} {n}"
    ended = [
        app.enqueue("shop.fine", {"text": text}, key=f"key {name}").id,
        app.enqueue("shop.fails", {"text": text}).id,
        app.enqueue("shop.flaky", {"text": text}).id,
    ]
    held = app.enqueue("shop.breaks", {"text": text}, target=name).id
    _until_states(site, {**dict.fromkeys(ended), held: State.ERROR})
    app.enqueue("shop.fine", {"text": text}, target=name)  # waits behind the one that holds it
    app.enqueue("shop.fine", {"text": text}, target=f"other {name}", hold=True)
    client.pause_target(f"other {name}", note=text)
    client.templates.create(name, "shop.fine", params={"text": text})
    _plans(site, name, text)
    endpoint = client.webhooks.create("http://127.0.0.1:9/hook", ["job.run.completed"], description=text)
    client.webhooks.test(endpoint.id)
    client.tenants.create(name)
    app.enqueue("shop.long", {"text": text}, key=f"long {name}")
    app.enqueue("shop.fine", {"text": text}, delay="1h")
    app.enqueue("shop.fine", {"text": text}, hold=True)


def _plans(site: Site, name: str, text: str) -> None:
    app, client = site.app, site.app.client
    group = (
        app.plan(name)
        .then(app.step("shop.fine", {"text": text}, name=name))
        .then(app.step("shop.fails", {"text": text}, name=f"bad {name}"), app.step("shop.fine", {"text": text}))
        .start()
    )
    steps = [
        {"task": "shop.fine", "name": name, "params": {"text": text}},
        {"task": "shop.long", "name": f"long {name}", "params": {"text": text}},
    ]
    schedule = client.schedules.create(name, {"cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "steps": steps})
    client.schedules.run(schedule.id)
    client.schedules.create(f"off {name}", {"interval": "1h", "steps": steps})
    client.schedules.disable(f"off {name}", reason=text)
    until(lambda: client.groups.get(group.id).status not in ("PENDING", "RUNNING"))


def _until_states(site: Site, wanted: dict[int, State | None]) -> None:
    """None: it has ended."""

    def reached() -> bool:
        found = {job_id: site.app.client.get(job_id).status for job_id in wanted}
        return all(found[i].terminal if state is None else found[i] is state for i, state in wanted.items())

    until(reached)
