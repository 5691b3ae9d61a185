"""A stand-in that speaks Ollama's protocol over real HTTP: it streams, counts tokens, is busy, hangs and breaks off."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "llama3.2"
PROMPT_TOKENS = 7
PATIENCE = 30.0


@dataclass
class Ollama:
    """`words` is what it says, `behave` what it does with the next requests: busy, broken, error, hang."""

    words: tuple[str, ...] = ("Once ", "there ", "was ", "fog.")
    behave: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    # Cleared: it stops in the middle of each answer until it is set again.
    go_on: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    server: ThreadingHTTPServer | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tokens(self) -> int:
        """What one answer costs."""
        return PROMPT_TOKENS + len(self.words)

    def start(self) -> None:
        """At the same port as before."""
        stand_in = self
        self.go_on.set()

        class Handler(_Handler):
            ollama = stand_in

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.over.set()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
        self.server = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ollama: Ollama

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/api/tags":
            self._answer(200, {"models": [{"name": f"{MODEL}:latest", "model": f"{MODEL}:latest"}]})
        else:
            self._answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/api/generate":
            return self._answer(404, {"error": "not found"})
        with self.ollama.lock:
            behave = self.ollama.behave.pop(0) if self.ollama.behave else "well"
            self.ollama.asked.append(body)
            self.ollama.at_once += 1
            self.ollama.most_at_once = max(self.ollama.most_at_once, self.ollama.at_once)
        try:
            self._generate(body, behave)
        finally:
            with self.ollama.lock:
                self.ollama.at_once -= 1

    def _generate(self, body: dict[str, Any], behave: str) -> None:
        if behave == "hang":
            self.ollama.over.wait(PATIENCE)
        elif behave == "busy":
            self._answer(503, {"error": "server busy, please try again.  maximum pending requests exceeded"})
        elif body["model"] != MODEL:
            self._answer(404, {"error": f"model '{body['model']}' not found"})
        else:
            self._stream(body, behave)

    def _answer(self, status: int, facts: dict[str, Any]) -> None:
        data = json.dumps(facts).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: dict[str, Any], behave: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n, word in enumerate(self.ollama.words):
            if n == 2 and behave == "broken":
                self.close_connection = True
                return
            if n == 2 and behave == "error":
                self._line({"error": "an error was encountered while running the model: CUDA error"})
                break
            self._line({"model": body["model"], "response": word, "done": False})
            self.ollama.go_on.wait(PATIENCE)
        else:
            counts = {"prompt_eval_count": PROMPT_TOKENS, "eval_count": len(self.ollama.words)}
            times = {"total_duration": 4_935_886_791, "load_duration": 534_986_708, "eval_duration": 4_289_432_000}
            last = {"response": "", "done": True, "done_reason": "stop", "context": [1, 2, 3]}
            self._line({"model": body["model"], **last, **times, **counts})
        self.wfile.write(b"0\r\n\r\n")

    def _line(self, facts: dict[str, Any]) -> None:
        data = json.dumps({"created_at": "2026-01-18T02:30:00.000000Z", **facts}).encode() + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@contextmanager
def ollama() -> Iterator[Ollama]:
    made = Ollama()
    made.start()
    try:
        yield made
    finally:
        made.stop()
