"""An application of somebody's own with Headway inside it, as the documentation shows it."""

from __future__ import annotations

import asyncio
import os

from fastapi import FastAPI

from headway import App

app = App(slots=2, concurrency={"limit": 2}, resources={"ollama": 3})


@app.task("story.generate")
async def generate(topic: str) -> dict[str, object]:
    return {"title": topic.title(), "pid": os.getpid()}


@app.task("story.slowly")
async def slowly() -> int:
    await asyncio.sleep(0.3)
    return os.getpid()


@app.schedule("30 2 * * mon-fri", timezone="Europe/Berlin")
@app.task("nightly")
async def nightly() -> None: ...


fastapi_app = FastAPI(lifespan=app.lifespan)
fastapi_app.mount("/headway", app.asgi(open_on_loopback=True))


@fastapi_app.post("/orders/{topic}")
def order(topic: str) -> dict[str, int]:
    return {"job_id": generate.enqueue(topic=topic).id}


@fastapi_app.post("/direct/{topic}")
def direct(topic: str) -> dict[str, object]:
    return dict(generate.call(topic=topic))
