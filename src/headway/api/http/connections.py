"""The open connections of the server: their number, their share per peer, their deadlines.

A connection waits for its client until a whole request has arrived, and again while its answer is not read. The server
may close such a connection at any time, and closes the one that waits longest when a place is needed: first those
without a request. A request that is being worked on is never given up for another one.
"""

from __future__ import annotations

import enum
import ipaddress
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.api.http import descriptors, problems
from headway.errors import Busy

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Places beyond the limit, for probes and for the answer that the server is full. A small server has fewer.
SPARE = 32
# Connections that the kernel holds until the server accepts them.
BACKLOG = 64
# Bytes per second that a client must take of an answer that it does not keep up with, on average over the time in which
# it may stall. A client that takes a little now and then would keep its place for ever.
LEAST = 8 * 1024
# Bytes of a stream that the kernel holds; a transport holds as many before it counts as stalled.
STREAM_BUFFER = 64 * 1024
RETRY_AFTER = 5
# Served also while every place is taken.
PROBES = frozenset(("/healthz", "/readyz"))
# Key of the connection in the scope of a request.
CONNECTION = "headway.connection"


class Activity(enum.Enum):
    """The activity of a connection."""

    IDLE = "between two requests"
    HEAD = "sends the head of a request"
    BODY = "sends the body of a request"
    SERVED = "its request is being answered"
    STALLED = "does not read its answer"
    CLOSING = "the rest of the answer is on its way"


# Seconds that an activity may last. uvicorn ends an idle connection itself, and an answer takes the time it needs. A
# client that stalls has this time for LEAST bytes a second.
DEADLINES: Mapping[Activity, float] = {
    Activity.HEAD: 10.0,
    Activity.BODY: 30.0,
    Activity.STALLED: 30.0,
    Activity.CLOSING: 10.0,
}
WAITING = frozenset((Activity.IDLE, Activity.HEAD, Activity.BODY))


def limit_unread(listening: socket.socket) -> None:
    """Makes the kernel end accepted connections whose client takes nothing for as long as it may stall.

    The client of a quiet stream stalls before any buffer of the server is full. Only Linux has the option.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = round(DEADLINES[Activity.STALLED] * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class Line:
    """Connections that give way to a new one, the longest wait first: all, and those of each peer."""

    def __init__(self) -> None:
        self.all: dict[Connection, None] = {}
        self.of: defaultdict[str, dict[Connection, None]] = defaultdict(dict)

    def add(self, connection: Connection) -> None:
        self.all[connection] = None
        self.of[connection.peer][connection] = None

    def remove(self, connection: Connection) -> None:
        if connection in self.all:
            del self.all[connection]
            del self.of[connection.peer][connection]
            if not self.of[connection.peer]:
                del self.of[connection.peer]

    def first(self, peer: str | None) -> Connection | None:
        return next(iter(self.all if peer is None else self.of.get(peer, ())), None)


class Connections:
    """All connections of a server. Used in its event loop only."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.each = max(1, most // descriptors.PEERS)
        self.open: set[Connection] = set()
        # Connections in places beyond the limit.
        self.spare: set[Connection] = set()
        self.peers: defaultdict[str, set[Connection]] = defaultdict(set)
        # Those that wait for a request, those whose client does not read, and those of both kinds in spare places.
        self.waiting = Line()
        self.stalled = Line()
        self.spare_line = Line()

    def enter(self, connection: Connection) -> bool:
        """Gives a new connection a place. Returns False if not even a spare one is left."""
        peer = connection.peer
        if len(self.peers[peer]) >= self.each:
            room = self._close_oldest(peer, self.waiting, self.stalled)
        else:
            room = len(self.open) < self.most or self._close_oldest(None, self.waiting, self.stalled)
        if room:
            self.open.add(connection)
            self.peers[peer].add(connection)
            return True
        spare = max(1, min(SPARE, self.most // descriptors.DESCRIPTORS_PER_CONNECTION))
        if len(self.spare) >= spare and not self._close_oldest(None, self.spare_line):
            return False
        self.spare.add(connection)
        return True

    def _close_oldest(self, peer: str | None, *lines: Line) -> bool:
        for line in lines:
            if (oldest := line.first(peer)) is not None:
                self.leave(oldest)
                oldest.transport.abort()
                return True
        return False

    def leave(self, connection: Connection) -> None:
        """Frees the place of a connection; may be called more than once."""
        self.served(connection)
        self.spare.discard(connection)
        self.open.discard(connection)
        if peers := self.peers.get(connection.peer):
            peers.discard(connection)
        if not self.peers.get(connection.peer):
            self.peers.pop(connection.peer, None)

    def waits(self, connection: Connection, *, stalled: bool = False) -> None:
        """Notes that a connection waits for its client from now on: for a request, or for the reading of an answer."""
        self.served(connection)
        if connection in self.open:
            (self.stalled if stalled else self.waiting).add(connection)
        elif connection in self.spare:
            self.spare_line.add(connection)

    def served(self, connection: Connection) -> None:
        """Notes that a connection does not wait for its client."""
        for line in (self.waiting, self.stalled, self.spare_line):
            line.remove(connection)

    def sweep(self) -> None:
        """Closes the connections that are past their deadline."""
        now = time.monotonic()
        for connection in [*self.open, *self.spare]:
            connection.sweep(now)


class Measured:
    """A transport that counts the bytes written to it; all else is the transport's own."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self.transport.write(data)

    @property
    def taken(self) -> int:
        """Bytes that the kernel has taken."""
        return self.written - int(self.transport.get_write_buffer_size())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Connection(H11Protocol):
    """One connection of HTTP/1.1; `connections` counts it."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: Any = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.counted = connections
        self.inner = self.app
        self.app = self._serve
        self.peer = ""
        self.activity = Activity.HEAD
        self.since = time.monotonic()
        # The time, and the bytes that were taken, when the client last kept up with its answer; None while it does.
        self.behind: tuple[float, int] | None = None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONNECTION] = self
        if self in self.counted.spare and scope.get("path") not in PROBES:
            await _full()(scope, receive, send)
        else:
            await self.inner(scope, receive, send)

    # --- what asyncio and uvicorn call ---

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Measured(transport))  # type: ignore[arg-type]
        self.peer = _peer(self.client)
        if self.counted.enter(self):
            self.counted.waits(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.counted.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note(received=True)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note()

    # --- deadlines ---

    @property
    def _request(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, which its type does not say

    def _note(self, *, received: bool = False) -> None:
        """Notes a change of the activity."""
        activity = self._activity(received)
        if activity is self.activity:
            return
        self.activity, self.since = activity, time.monotonic()
        if activity in WAITING or activity is Activity.STALLED:
            self.counted.waits(self, stalled=activity is Activity.STALLED)
        else:
            self.counted.served(self)

    def _activity(self, received: bool) -> Activity:
        if self.transport.is_closing():
            return Activity.CLOSING
        if self.flow.write_paused:
            return Activity.STALLED
        cycle = self._request
        if cycle is None or cycle.response_complete:
            begun = received or self.activity is Activity.HEAD
            return Activity.HEAD if begun else Activity.IDLE
        return Activity.BODY if cycle.more_body else Activity.SERVED

    def sweep(self, now: float) -> None:
        """Closes the connection if its client is late."""
        self._note()
        if self._too_slow(now):
            self.transport.abort()
            return
        limit = None if self.activity is Activity.STALLED else DEADLINES.get(self.activity)
        if limit is None or now - self.since < limit:
            return
        if self.activity is Activity.BODY and self.flow.read_paused:
            return  # the server is late and not the client
        cycle = self._request
        if self.activity in WAITING and (cycle is None or not cycle.response_started):
            self.transport.write(TIMED_OUT)
            self.transport.close()
            self._note()
        else:
            self.transport.abort()

    def _too_slow(self, now: float) -> bool:
        """Returns True if the client took less of its answers than it must, since it last kept up with them."""
        transport: Measured = self.transport  # type: ignore[assignment]
        if transport.taken == transport.written:
            self.behind = None
        elif self.behind is None:
            self.behind = (now, transport.taken) if self.flow.write_paused else None
        elif now - self.behind[0] >= (limit := DEADLINES[Activity.STALLED]):
            if transport.taken - self.behind[1] < limit * LEAST:
                return True
            self.behind = (now, transport.taken)
        return False

    def buffer_little(self) -> None:
        """Limits what the kernel holds of an answer without end, whose client may not read it."""
        peer: socket.socket = self.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)

    def abort(self) -> None:
        """Closes the connection at once and drops what the client did not read."""
        self.transport.abort()


TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def _peer(client: tuple[str, int] | None) -> str:
    """Returns the address of a client; of an IPv6 address the network, because one client may use all of it."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return client[0]
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _full() -> Response:
    error = Busy("this server has as many connections as it may have: try again later", retry_after=RETRY_AFTER)
    response = problems.of_error(error)
    response.headers["connection"] = "close"
    return response
