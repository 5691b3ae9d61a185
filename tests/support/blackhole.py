"""A line to PostgreSQL that goes silent after a message of the client: neither side hears of the other, nor of its end.

So a machine is gone: its power, its network, or a pause that does not end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import name_of

_NEVER = 1 << 60


class Blackhole:
    """Counts the client's messages on all its connections. From message `left` on nothing passes, either way."""

    def __init__(self, url: str) -> None:
        facts = conninfo_to_dict(url)
        self.host, self.server_port = str(facts.get("host") or "127.0.0.1"), facts.get("port") or 5432
        self.listener = socket.create_server(("127.0.0.1", 0))
        given = {"host": "127.0.0.1", "port": self.listener.getsockname()[1], "user": facts.get("user") or "postgres"}
        self.url = f"postgresql:///{quote(name_of(url))}?{urlencode(given, quote_via=quote)}"
        self.left = _NEVER
        self.passed: list[str] = []
        self.silent = threading.Event()
        self.ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, messages: int) -> None:
        """So many messages more pass."""
        self.passed.clear()
        self.left = messages
        if not messages:
            self.silent.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = self._connect()
                self.ends += [near, far]
                for target, ends in ((self._requests, (near, far)), (self._answers, (far, near))):
                    threading.Thread(target=target, args=ends, daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self.host.startswith("/"):
            return socket.create_connection((self.host, int(self.server_port)))
        far = socket.socket(socket.AF_UNIX)
        far.connect(str(Path(self.host) / f".s.PGSQL.{self.server_port}"))
        return far

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        """The first message of a connection has no letter before its length."""
        letter = 0
        with suppress(OSError, EOFError):
            while True:
                head = _read(near, letter + 4)
                body = _read(near, int.from_bytes(head[letter:], "big") - 4)
                if self.left <= 0:
                    self.silent.set()
                    return  # and both ends stay open
                self.left -= 1
                self.passed.append(chr(head[0]) if letter else "")
                far.sendall(head + body)
                if letter or body != b"\x04\xd2\x16\x2f":  # after a question for TLS the true one comes
                    letter = 1
                if self.left == 0:
                    self.silent.set()

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65_536):
                if not self.silent.is_set():
                    near.sendall(data)
        if not self.silent.is_set():  # a server that ends the session closes the connection, and a network says so
            _close(near)

    def cut(self) -> None:
        """The connections break at last, and new ones are put through."""
        ends, self.ends = self.ends, []
        self.left = _NEVER
        self.silent.clear()
        for end in ends:
            _close(end)

    def close(self) -> None:
        _close(self.listener)
        self.cut()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _read(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@contextmanager
def blackhole(url: str) -> Iterator[Blackhole]:
    made = Blackhole(url)
    try:
        yield made
    finally:
        made.close()
