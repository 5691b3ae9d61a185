"""A line between a program and a server that can be cut in the middle of a request or of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Line:
    """Passes bytes on in both directions. `lose` answers: the server hears so many requests, and nobody hears it."""

    def __init__(self, port: int) -> None:
        self.to = ("127.0.0.1", port)
        self.lose = 0
        self.streams = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.to)
                self.ends += [near, far]
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if answers and self.lose:
                    self.lose -= 1
                    break
                self.streams += answers and b"text/event-stream" in data
                sink.sendall(data)
        for end in (source, sink):
            _close(end)

    def cut(self) -> None:
        """Everything that is under way breaks; who calls again is put through."""
        ends, self.ends = self.ends, []
        for end in ends:
            _close(end)

    def close(self) -> None:
        _close(self.listener)
        self.cut()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def tapped(url: str) -> Iterator[Line]:
    line = Line(int(url.rpartition(":")[2]))
    try:
        yield line
    finally:
        line.close()
