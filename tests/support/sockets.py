"""Clients that speak HTTP badly: half-sent requests, answers that nobody reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

HALF_HEAD = b"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = (
    b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


def connect(url: str, sent: bytes = b"", *, peer: str = "127.0.0.1", buffer: int | None = None) -> socket.socket:
    """A connection from an address of this machine that has sent something."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    made = socket.socket()
    made.settimeout(20)
    if buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.bind((peer, 0))
    made.connect((parts.hostname, parts.port))
    made.sendall(sent)
    return made


@contextmanager
def connected(
    url: str, count: int, sent: bytes = b"", *, peer: str = "127.0.0.1", buffer: int | None = None
) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(url, sent, peer=peer, buffer=buffer)) for _ in range(count)]


def still_open(sockets: list[socket.socket]) -> int:
    """How many the server has not closed. What it sent to them is thrown away."""
    return sum(not _is_closed(one) for one in sockets)


def _is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def ask(url: str, path: str, *, peer: str = "127.0.0.1") -> bytes:
    """The whole answer to a GET over a connection of its own."""
    with connect(
        url, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(), peer=peer
    ) as one:
        parts = []
        while part := one.recv(65536):
            parts.append(part)
    return b"".join(parts)
