"""Messages between a worker and its child process, over a socket."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

MESSAGE_LIMIT = 1024 * 1024
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

ChannelMessage = dict[str, Any]


class Garbled(Exception):
    """Raised when the bytes from a channel are not a message."""


class Channel:
    """JSON messages over a socket, one per line.

    Any thread may send; one thread at a time may receive.
    """

    def __init__(self, sock: socket.socket, *, limit: int | None = None) -> None:
        self._sock = sock
        self._limit = limit
        self._rest = b""
        self._sending = threading.Lock()
        # True if the peer closed its end before it received all our messages.
        self.unread = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: ChannelMessage) -> None:
        data = _encode(message).encode() + b"\n"
        with self._sending:
            self._sock.sendall(data)

    def receive(self) -> list[ChannelMessage] | None:
        """Waits for data; returns the completed messages, or None at the end."""
        try:
            data = self._sock.recv(65536)
        except ConnectionResetError:
            self.unread = True
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._limit is not None and len(self._rest) > self._limit:
            raise Garbled(f"a message is longer than {self._limit} bytes")
        return [_decode(line) for line in lines]

    def dont_wait(self) -> None:
        """Makes `receive` raise BlockingIOError instead of waiting."""
        self._sock.setblocking(False)

    def close(self) -> None:
        self._sock.close()


def _decode(line: bytes) -> ChannelMessage:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise Garbled(f"a message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise Garbled("a message is not an object")
    return message
