"""The HTTP server as a part of a process: bound before anything starts, ended within its grace."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Iterator

import uvicorn

from headway.api.access import Door, is_loopback, reachable_from_here_only
from headway.api.service import Service, Terms
from headway.engine.tokens import any_token
from headway.errors import Refused

# How long answers under way may take once everything is to end; streams end at once.
GRACE = 5.0


class _Quiet(uvicorn.Server):
    """Signals are the supervisor's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves in a thread of its own."""

    def __init__(self, service: Service, app: Door, *, host: str, port: int) -> None:
        self.service = service
        self.host = host
        self.socket = _bind(host, port)
        self.port: int = self.socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(GRACE),
            ws="none",
        )
        self.server = _Quiet(config)
        self.thread = threading.Thread(target=self._run, name="headway-api", daemon=True)

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        asyncio.run(self.server.serve(sockets=[self.socket]))

    def stop(self) -> None:
        self.service.close()
        self.server.should_exit = True

    def join(self, seconds: float | None = None) -> None:
        if self.thread.ident is not None:
            self.thread.join(GRACE + 2.0 if seconds is None else max(seconds, GRACE + 2.0))


def refuse_open(service: Service) -> None:
    """Whoever can be reached from elsewhere must know who comes."""
    if not reachable_from_here_only(service.terms) and not any_token(service.database):
        raise Refused(
            f"{_reached(service.terms)} can be reached from other machines, and there is no token: make one with"
            " `headway tokens create NAME --role admin --system`, or bind 127.0.0.1 without `hosts`",
            code="no_token",
        )


def _reached(terms: Terms) -> str:
    return next((name for name in (terms.host, *terms.hosts) if not is_loopback(name)), terms.host)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} of {host} is in use: is another Headway running? Choose another with --port"
            raise Refused(f"{text}, or start without the role api", code="port_in_use") from None
        raise Refused(f"cannot listen on {host} port {port}: {error.strerror}", code="cannot_listen") from None
    # For connections too. asyncio sets it only on sockets that it made itself; without it the body of an answer waits
    # until the other side has acknowledged the head, which takes 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound
