"""Receivers of webhooks on real sockets: each does as it is told, well or badly, and remembers what it got."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.waiting import until

PATIENCE = 55.0


@dataclass(frozen=True)
class Received:
    method: str
    target: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Behaviour = Callable[[socket.socket, "Receiver"], None]


def answer(status: int = 200, body: bytes = b"ok", **headers: str) -> Behaviour:
    def act(connection: socket.socket, _: Receiver) -> None:
        lines = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return act


def hang(connection: socket.socket, receiver: Receiver) -> None:
    """Says nothing until the test is over."""
    receiver.over.wait(PATIENCE)


def reset(connection: socket.socket, _: Receiver) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def drip(begin: bytes, piece: bytes, pause: float = 0.05) -> Behaviour:
    """One piece after the other, for as long as the other side listens."""

    def act(connection: socket.socket, receiver: Receiver) -> None:
        connection.sendall(begin)
        while not receiver.over.wait(pause):
            connection.sendall(piece)

    return act


def flood(size: int) -> Behaviour:
    """An answer of that many bytes. How many were taken is remembered."""

    def act(connection: socket.socket, receiver: Receiver) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        piece = b"x" * 65536
        with suppress(OSError):
            for _ in range(size // len(piece)):
                connection.sendall(piece)
                receiver.flooded += len(piece)

    return act


class Receiver:
    """A server on loopback. `behave` is what it does with each request; after a list is used up, its last."""

    def __init__(self, *behave: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.behave = list(behave) or [answer()]
        self.received: list[Received] = []
        self.connections = 0
        self.flooded = 0
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE)
            if self.tls is None:
                self._serve_one(connection)
            else:
                with self.tls.wrap_socket(connection, server_side=True) as secured:
                    self._serve_one(secured)

    def _serve_one(self, connection: socket.socket) -> None:
        got = _read(connection)
        if got is None:
            return
        with self.lock:
            self.received.append(got)
            behave = self.behave.pop(0) if len(self.behave) > 1 else self.behave[0]
        behave(connection, self)

    def await_received(self, count: int) -> list[Received]:
        until(lambda: len(self.received) >= count, f"{count} requests")
        return self.received

    def close(self) -> None:
        self.over.set()
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)  # closing alone does not wake who waits for the next connection
        self.listening.close()


def _read(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        more = connection.recv(65536)
        if not more:
            return None
        body += more
    method, target, _ = first.split(" ")
    return Received(method, target, headers, body)


@contextmanager
def receiver(*behave: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    made = Receiver(*behave, tls=tls)
    try:
        yield made
    finally:
        made.close()
