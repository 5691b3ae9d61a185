"""How answers leave: at once."""

from __future__ import annotations

import socket
from contextlib import closing

from headway.api.server import _bind


def test_no_answer_waits_for_an_acknowledgement() -> None:
    """Head and body are written one after the other; with Nagle's algorithm the second would wait 40 ms."""
    with closing(_bind("127.0.0.1", 0)) as bound, closing(socket.create_connection(bound.getsockname())):
        connection, _ = bound.accept()
        with closing(connection):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
