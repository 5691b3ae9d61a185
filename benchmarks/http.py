"""Requests a second over HTTP: making jobs and reading the queue while very many wait, beside a bare FastAPI endpoint.

Server and callers are processes of their own on this machine; callers keep their connections.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.flatness import enqueue, new
from benchmarks.frame import Contender, Line, Measurement, Store
from benchmarks.ours import Values
from benchmarks.tasks import app_at

CALLERS = 50
REQUESTS = 4_000
QUEUED = 100_000
PATIENCE = 60.0
STORES: tuple[tuple[str, Store], ...] = (("SQLite", "sqlite"), ("PostgreSQL", "postgres"))
MAKE = ("POST", "/api/jobs", json.dumps({"task": "noop", "params": {}}))
QUEUE = ("GET", "/api/queue?limit=50", "")


def serve(pipe: Connection, url: str) -> None:
    """Headway's own server, until the pipe closes."""
    from headway.runtime import server

    app = app_at(url)
    app.configure(None, {"port": 0})
    served = server(app)
    served.start()
    pipe.send(served.port)
    _await_end(pipe)
    served.stop()
    served.join()
    app.close()


def serve_bare(pipe: Connection, _: str) -> None:
    """An endpoint that does nothing, with the same body and the same server."""
    import socket
    import threading

    import uvicorn
    from fastapi import FastAPI

    bare = FastAPI()

    def make(body: dict[str, Any]) -> dict[str, Any]:
        return body

    bare.add_api_route("/api/jobs", make, methods=["POST"], status_code=201)
    held = socket.create_server(("127.0.0.1", 0), backlog=2048)
    held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(bare, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[held])), daemon=True)
    thread.start()
    pipe.send(held.getsockname()[1])
    _await_end(pipe)
    server.should_exit = True
    thread.join(10)


def _await_end(pipe: Connection) -> None:
    with suppress(EOFError):
        pipe.recv()


@contextmanager
def serving(what: Callable[[Connection, str], None], url: str) -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=what, args=(theirs, url))
    process.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            raise TimeoutError("the server did not start")
        yield int(ours.recv())
    finally:
        ours.close()
        process.join(20)
        if process.is_alive():
            process.kill()


# --- callers ------------------------------------------------------------------------------------------------------


async def _caller(port: int, request: bytes, todo: Iterator[int], spans: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in todo:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] not in (b"200", b"201"):
            raise RuntimeError(head.decode(errors="replace"))
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        spans.append(time.perf_counter() - began)
    writer.close()


async def _all(port: int, request: bytes, requests: int) -> tuple[float, list[float]]:
    spans: list[float] = []
    todo = iter(range(requests))
    began = time.perf_counter()
    await asyncio.gather(*(_caller(port, request, todo, spans) for _ in range(CALLERS)))
    return time.perf_counter() - began, spans


def load(port: int, wish: tuple[str, str, str], requests: int) -> Values:
    method, path, body = wish
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    asyncio.run(_all(port, request, min(requests, 200)))  # warm
    seconds, spans = asyncio.run(_all(port, request, requests))
    return {"rate": requests / seconds, "p99": 1_000 * sorted(spans)[int(0.99 * (len(spans) - 1))]}


def on_headway(url: str, *, wish: tuple[str, str, str], requests: int, queued: int) -> Values:
    app = app_at(url)
    enqueue(app.client, [new(app) for _ in range(queued)])
    app.close()
    with serving(serve, url) as port:
        return load(port, wish, requests)


def on_nothing(url: str, *, requests: int) -> Values:
    with serving(serve_bare, url) as port:
        return load(port, MAKE, requests)


def http() -> Measurement:
    sizes = {"requests": REQUESTS, "queued": QUEUED}
    quick = {"requests": 60, "queued": 60}
    bare = Contender("bare FastAPI", "raw", "sqlite", on_nothing, {"requests": REQUESTS}, {"requests": 60}, limit=120)
    contenders, lines = [bare], []
    for title, store in STORES:
        for name, wish in (("POST /api/jobs", MAKE), ("GET /api/queue", QUEUE)):
            label = f"{name}, {title}"
            contenders.append(Contender(label, "ours", store, on_headway, {"wish": wish, **sizes}, quick, limit=240))
            lines.append(Line(label, label, raw=(bare.label,)))
            lines.append(Line(f"{label}, p99", label, raw=(bare.label,), values=("p99",), unit=" ms"))
    title = f"HTTP with {CALLERS} callers and {QUEUED:,} jobs queued"
    return Measurement("http", title, tuple(contenders), tuple(lines))


ALL: tuple[Measurement, ...] = (http(),)
