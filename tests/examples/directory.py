"""A stand-in for a directory server over real HTTP: it keeps people, and refuses those that it is told to refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Directories:
    """`people` by directory and id; `refused` are the paths that it answers with 409."""

    url: str = ""
    people: dict[str, dict[str, Any]] = field(default_factory=lambda: {"ad": {}, "ldap": {}})
    refused: set[str] = field(default_factory=set)


@contextmanager
def directories() -> Iterator[Directories]:
    kept = Directories()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.reply(200, kept.people[self.path.split("/")[1]])

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path in kept.refused:
                return self.reply(409, {"error": "the entry is locked"})
            _, directory, _, number = self.path.split("/")
            kept.people[directory][number] = body
            self.reply(200, body)

        def reply(self, status: int, facts: dict[str, Any]) -> None:
            data = json.dumps(facts).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
