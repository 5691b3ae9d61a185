"""The HTTP server: binds before other parts start, and ends within its grace."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Iterator
from functools import partial

import uvicorn

from headway.api.http import connections, descriptors
from headway.api.http.auth import AccessMiddleware, is_loopback, reachable_from_here_only
from headway.api.service import Service, ServiceConfig
from headway.engine.client.tokens import any_token
from headway.errors import Refused

# Time that open requests get to finish at shutdown; streams end at once.
GRACE = 5.0


# uvicorn ticks ten times a second; deadlines of connections are checked once.
TICKS = 10


class _Quiet(uvicorn.Server):
    """A uvicorn server that leaves signals to the supervisor, and closes late connections."""

    def __init__(self, config: uvicorn.Config, counted: connections.Connections) -> None:
        super().__init__(config)
        self.counted = counted

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self.counted.sweep()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves the API in a thread of its own."""

    def __init__(self, service: Service, app: AccessMiddleware, *, host: str, port: int) -> None:
        self.service = service
        self.host = host
        self.socket = _bind(host, port)
        self.port: int = self.socket.getsockname()[1]
        self.connections = connections.Connections(descriptors.most_connections())
        config = uvicorn.Config(
            app,
            http=partial(connections.Connection, self.connections),  # type: ignore[arg-type]
            backlog=connections.BACKLOG,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(GRACE),
            ws="none",
        )
        self.server = _Quiet(config, self.connections)
        self.thread = threading.Thread(target=self._run, name="headway-api", daemon=True)

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        asyncio.run(self.server.serve(sockets=[self.socket]))

    def drain(self) -> None:
        """Takes no more direct calls. Those that run, and other requests, continue."""
        self.service.drain()

    def busy(self) -> bool:
        """Returns True while direct calls are in progress."""
        return bool(self.service.under_way)

    def stop(self) -> None:
        self.service.close()
        self.server.should_exit = True

    def join(self, seconds: float | None = None) -> None:
        if self.thread.ident is not None:
            self.thread.join(GRACE + 2.0 if seconds is None else max(seconds, GRACE + 2.0))


def refuse_open(service: Service) -> None:
    """Refuses to serve without a token if other machines can reach the address."""
    if not reachable_from_here_only(service.terms) and not any_token(service.database):
        raise Refused(
            f"{_reached(service.terms)} can be reached from other machines, and there is no token",
            hint="create one with `headway tokens create NAME --role admin --system`, or bind 127.0.0.1 without"
            " `hosts`",
            code="no_token",
        )


def _reached(terms: ServiceConfig) -> str:
    """Returns the first host name that is not loopback."""
    return next((name for name in (terms.host, *terms.hosts) if not is_loopback(name)), terms.host)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host.strip("[]"), port), family=family, backlog=connections.BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} of {host} is in use: is another Headway running? Choose another with --port"
            raise Refused(f"{text}, or start without the role api", code="port_in_use") from None
        raise Refused(f"cannot listen on {host} port {port}: {error.strerror}", code="cannot_listen") from None
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets that it creates; without it the body of
    # an answer waits for the acknowledgement of its head, which takes 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connections.limit_unread(bound)
    return bound
