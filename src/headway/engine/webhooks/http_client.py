"""Sends one HTTP request to a webhook receiver, safe against SSRF and delays.

The name is resolved once, every address is checked, the connection goes to a checked address, redirects are not
followed, and one deadline covers everything.
"""

from __future__ import annotations

import email.utils
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpcore

from headway.engine.execution.output import clean
from headway.engine.webhooks.url_policy import not_there
from headway.model.values.times import duration_text
from headway.model.webhooks.blocked_networks import forbidden
from headway.model.webhooks.webhook import Outcome

DEADLINE = 15.0
# The status decides the outcome; the body is read only for the log, for at most this long.
BODY_SECONDS = 2.0
READ_LIMIT = 64 * 1024
KEPT_BODY = 2000
_KEPT_HEADERS = ("content-type", "content-length", "location", "retry-after", "server", "x-request-id")
_CHUNK = 16 * 1024

# Resolves host and port to addresses, as `socket.getaddrinfo` does.
Resolve = Callable[[str, int], list[str]]


@dataclass(frozen=True, slots=True)
class Guard:
    """The addresses that may be reached, and the deadline."""

    allow_private: bool = False
    deadline: float = DEADLINE
    resolve: Resolve | None = None


@dataclass(frozen=True, slots=True)
class Request:
    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SentRequest:
    """The outcome of a request, its address, and the beginning of the answer as JSON."""

    outcome: Outcome
    address: str | None = None
    response: str | None = None


class _Refused(Exception):
    """Nothing was sent; the message says why."""


class _Late(Exception):
    """The deadline has passed."""


def send(request: Request, guard: Guard) -> SentRequest:
    """Makes one attempt. It returns within the deadline, however slow the receiver is."""
    tls = _tls() if request.url.startswith("https") else None
    network = _Network(guard)
    try:
        with httpcore.ConnectionPool(ssl_context=tls, max_connections=1, network_backend=network) as pool:
            answer = _exchange(pool, request, network)
    except _Refused as error:
        return SentRequest(Outcome(None, str(error)), network.address)
    except _Late:
        return SentRequest(Outcome(None, f"no complete answer within {duration_text(guard.deadline)}"), network.address)
    except (OSError, httpcore.ProtocolError, httpcore.NetworkError, httpcore.TimeoutException) as error:
        return SentRequest(Outcome(None, _words(error, network.address)), network.address)
    return SentRequest(_outcome(answer), network.address, answer.excerpt())


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    import httpx  # costs a tenth of a second; only senders need it

    return httpx.create_ssl_context()


def _words(error: Exception, address: str | None) -> str:
    match error:
        case ssl.SSLError():
            return f"no TLS with the receiver: {getattr(error, 'verify_message', '') or error.reason or error}"
        case ConnectionRefusedError():
            return f"{address} refused the connection"
        case ConnectionError() | BrokenPipeError():
            return "the receiver closed the connection without a complete answer"
        case httpcore.RemoteProtocolError() if "disconnected" in str(error):
            return "the receiver closed the connection without a complete answer"
        case httpcore.RemoteProtocolError():
            return f"the answer is not a complete HTTP response: {clean(str(error))[:200]}"
        case OSError():
            return f"cannot connect: {error.strerror or error}"
    return clean(str(error))[:200] or type(error).__name__


# --- the answer ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WebhookResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool

    def excerpt(self) -> str:
        """Returns the part of the answer that is kept in the log, as JSON."""
        kept = {name: clean(self.headers[name])[:300] for name in _KEPT_HEADERS if name in self.headers}
        text = clean(self.body.decode("utf-8", "replace"))
        cut = not self.whole or len(text) > KEPT_BODY
        return json.dumps({"headers": kept, "body": text[:KEPT_BODY], **({"truncated": True} if cut else {})})


def _exchange(pool: httpcore.ConnectionPool, request: Request, network: _Network) -> _WebhookResponse:
    parts = urlsplit(request.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").encode("idna")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    url = httpcore.URL(scheme=parts.scheme.encode(), host=host, port=port, target=target.encode("ascii"))
    first, last = {"Host": _host(host.decode(), parts.scheme, port)}, {"Content-Length": str(len(request.body))}
    headers = [(name.encode(), value.encode()) for name, value in {**first, **request.headers, **last}.items()]
    with pool.stream("POST", url, headers=headers, content=request.body) as response:
        named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        network.ends = min(network.ends, time.monotonic() + BODY_SECONDS)
        body, whole = _read(response.iter_stream())
        return _WebhookResponse(response.status, named, body, whole)


def _host(name: str, scheme: str, port: int) -> str:
    shown = f"[{name}]" if ":" in name else name
    return shown if port == (443 if scheme == "https" else 80) else f"{shown}:{port}"


def _read(pieces: Iterable[bytes]) -> tuple[bytes, bool]:
    """Returns the beginning of the body, and True if it is all.

    A body that breaks off still counts as an answer.
    """
    found = b""
    try:
        for piece in pieces:
            found += piece
            if len(found) >= READ_LIMIT:
                return found[:READ_LIMIT], False
    except (_Late, OSError, httpcore.ProtocolError):
        return found, False
    return found, True


def _outcome(answer: _WebhookResponse) -> Outcome:
    if 200 <= answer.status < 300:
        return Outcome(answer.status, None)
    names = {status.value: f" {status.phrase}" for status in HTTPStatus}
    summary = f"it answered {answer.status}{names.get(answer.status, '')}"
    if 300 <= answer.status < 400:
        return Outcome(answer.status, f"{summary}: redirects are not followed, so configure the final URL")
    after = _retry_after(answer.headers.get("retry-after")) if answer.status in (429, 503) else None
    return Outcome(answer.status, summary, after)


def _retry_after(text: str | None) -> float | None:
    """Parses Retry-After, a number of seconds or a date, into seconds from now."""
    if text is None:
        return None
    if text.strip().isdecimal() and len(text.strip()) < 10:
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return None  # the parser raises all of these
    return max(0.0, date - time.time())


# --- the way there ------------------------------------------------------------------------------------------------


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Network(httpcore.NetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.ends = time.monotonic() + guard.deadline
        self.address: str | None = None

    def left(self) -> float:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise _Late
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connects to the first address that answers.

        All addresses are checked before any is tried: a name with one forbidden address may be an attack.
        """
        addresses = self._resolved(host, port)
        for address in addresses:
            if why := forbidden(address, allow_private=self.guard.allow_private):
                self.address = address
                raise _Refused(not_there(host, address, why))
        for n, address in enumerate(addresses):
            self.address = address
            try:
                return _Stream(self, self._connect(address, port, others=len(addresses) - n))
            except OSError:
                if n == len(addresses) - 1:
                    self.left()
                    raise
        raise _Refused(f"{host} has no address")

    def _connect(self, address: str, port: int, *, others: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.left() / others)  # a silent address leaves time for the others
            sock.connect((address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def _resolved(self, host: str, port: int) -> list[str]:
        """Resolves in a thread of its own, because the system's resolver has no deadline."""
        answer: list[list[str] | OSError] = []

        def ask() -> None:
            try:
                answer.append((self.guard.resolve or resolve)(host, port))
            except OSError as error:
                answer.append(error)

        asking = threading.Thread(target=ask, name="headway-resolve", daemon=True)
        asking.start()
        asking.join(self.left())
        if not answer:
            raise _Late
        if isinstance(answer[0], OSError):
            raise _Refused(f"{host} cannot be resolved: {answer[0].strerror or answer[0]}")
        return answer[0]

    def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.NetworkStream:
        raise _Refused("webhooks cannot be sent to a Unix socket")

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class _Stream(httpcore.NetworkStream):
    """A connection whose every wait ends at the deadline of the whole request."""

    def __init__(self, network: _Network, sock: socket.socket) -> None:
        self.network = network
        self.sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self.sock.settimeout(self.network.left())
            return self.sock.recv(min(max_bytes, _CHUNK))
        except TimeoutError:
            raise _Late from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self.sock.settimeout(self.network.left())
            self.sock.sendall(buffer)
        except TimeoutError:
            raise _Late from None
        except OSError as error:
            raise httpcore.WriteError(error) from error  # the receiver may have answered before reading everything

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            self.sock.settimeout(self.network.left())
            self.sock = ssl_context.wrap_socket(self.sock, server_hostname=server_hostname)
        except TimeoutError:
            self.close()
            raise _Late from None
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self.sock.close()

    def get_extra_info(self, info: str) -> Any:
        return self.sock if info == "socket" else None
