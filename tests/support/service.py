"""A Headway that serves HTTP on a free port of this machine, and somebody who speaks to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from headway import App, Fail
from headway.api.server import Server
from headway.engine.worker.worker import Worker
from headway.runtime import server, worker
from headway.testing import drain
from tests.support.waiting import at_once

SECONDS = 55.0


def shop(database: str, **settings: Any) -> App:
    """An app with the tasks the tests speak of."""
    usual = {"resources": {"ollama": 1}, "webhooks": {"allow_private": True}}
    app = App(database, host="127.0.0.1", port=0, **{**usual, **settings})

    @app.task("story.generate", direct="/story/generate")
    async def generate(topic: str, words: int = 800) -> dict[str, object]:
        return {"title": topic.title(), "words": words}

    @app.task("research.run")
    async def research(topic: str) -> str:
        return f"about {topic}"

    @app.task("fails")
    async def fails(why: str = "broken") -> None:
        raise Fail(why)

    return app


class Site:
    """An app, its server, and a client of it."""

    def __init__(self, app: App, served: Server, http: httpx.Client) -> None:
        self.app = app
        self.server = served
        self.url = served.url
        self.http = http
        self.visitors: list[httpx.Client] = []

    def token(self, role: str = "admin", *, tenant: str | None = "default", name: str = "ada") -> str:
        """From the first one on, everybody has to show one."""
        return self.app.client.tokens.create(name, role, tenant=tenant)[1]

    def as_(self, token: str, **headers: str) -> httpx.Client:
        made = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}", **headers}, timeout=SECONDS, trust_env=False
        )
        self.visitors.append(made)
        return made

    def drain(self) -> None:
        """Runs what can be run, in this process. In another thread: beside a browser this one has a loop of its own."""
        at_once([lambda: drain(self.app)])[0].result()

    def worker(self) -> Worker:
        return worker(self.app, [])


@contextmanager
def serving(database: str, **settings: Any) -> Iterator[Site]:
    with shop(database, **settings) as app, running(app) as site:
        yield site


@contextmanager
def running(app: App) -> Iterator[Site]:
    served = server(app)
    served.start()
    try:
        with httpx.Client(base_url=served.url, timeout=SECONDS, trust_env=False) as http:
            site = Site(app, served, http)
            yield site
            for visitor in site.visitors:
                visitor.close()
    finally:
        served.stop()
        served.join(60)
