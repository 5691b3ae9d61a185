"""The door: which Host and Origin are let in, how large a body may be, and who a request comes from."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from starlette.datastructures import Headers

from headway import errors
from headway.api import problems
from headway.api.service import Service, Terms
from headway.engine.tokens import any_token
from headway.model.access import Visitor

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_LIMIT = 256 * 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OPEN_SECONDS = 1.0
TENANT = "headway-tenant"
# Whoever asks whether we live has no token.
PUBLIC = frozenset(("/healthz", "/readyz"))
_GUARDS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]


def is_loopback(host: str) -> bool:
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The name in a Host header or an Origin, without its port."""
    host = header.rsplit("@", 1)[-1]
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else host
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host


class Door:
    """Around the whole application, before any of it looks at a request."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], service: Service) -> None:
        self.app = app
        self.service = service
        self.hosts = _allowed(service.terms.host, service.terms.hosts)
        self._lock = threading.Lock()
        self._open: tuple[float, bool] = (-OPEN_SECONDS, False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _guarded(send)
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            _check_query(scope)
            if scope["method"] not in SAFE:
                self._check_origin(headers, scope.get("scheme", "http"))
            receive = _limited(headers, receive)
            scope["headway.visitor"] = await self._visitor(scope, headers)
        except errors.HeadwayError as error:
            if _is_public(scope) and error.code not in ("bad_host", "bad_origin", "too_large"):
                scope["headway.visitor"] = None  # whether we live is no question of who asks
                await self.app(scope, receive, send)
                return
            await problems.of_error(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    # --- Host and Origin ---

    def _check_host(self, headers: Headers) -> None:
        """A page of another name that resolves to this address (DNS rebinding) is not let in."""
        given = headers.get("host", "")
        if self.hosts is not None and host_of(given).lower() not in self.hosts:
            text = f"this server does not answer for the host {given!r}: add it to `hosts` in the settings"
            raise errors.Refused(text, code="bad_host")

    def _check_origin(self, headers: Headers, scheme: str) -> None:
        """A browser says where a page comes from; programs say nothing."""
        origin = headers.get("origin")
        if origin is None and headers.get("sec-fetch-site") not in (None, "same-origin", "none"):
            origin = "null"
        if origin is not None and origin.lower() != f"{scheme}://{headers.get('host', '')}".lower():
            raise errors.Refused(f"pages of {origin!r} may not write here", code="bad_origin")

    # --- who ---

    async def _visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        plain = _token(headers)
        given = headers.get(TENANT)
        tenant = None if given is None else unquote(given)
        if plain is None and _is_public(scope):
            return None
        if plain is None and self._from_here(scope):
            recently = time.monotonic() - self._open[0] < OPEN_SECONDS
            if recently and self._open[1] and tenant is None:
                return self.service.anybody(self.service.system.tenant)
            return await to_thread.run_sync(self._unnamed, tenant)
        if plain is None:
            return None
        return await to_thread.run_sync(self._named, plain, tenant)

    def _from_here(self, scope: Scope) -> bool:
        """Bound to this machine, and called from it: an application that we are mounted in may be bound to more."""
        client = scope.get("client")
        return reachable_from_here_only(self.service.terms) and client is not None and is_loopback(client[0])

    def _unnamed(self, tenant: str | None) -> Visitor | None:
        """Without a token: everybody, as long as there is none and only this machine can come."""
        is_open = not any_token(self.service.database)
        with self._lock:
            self._open = (time.monotonic(), is_open)
        return self.service.anybody(tenant or self.service.system.tenant) if is_open else None

    def _named(self, plain: str, tenant: str | None) -> Visitor:
        visitor = self.service.system.tokens.visitor(plain, tenant)
        if visitor is None:
            raise errors.Refused("this token is unknown, revoked or expired", code="unauthorised")
        return visitor


def reachable_from_here_only(terms: Terms) -> bool:
    """Bound to loopback, and told no other name: with one, somebody stands in front of us and lets others in."""
    return is_loopback(terms.host) and all(is_loopback(name) for name in terms.hosts)


def _is_public(scope: Scope) -> bool:
    return scope["path"].removeprefix(scope.get("root_path", "")) in PUBLIC


def _check_query(scope: Scope) -> None:
    """No text of ours holds a NUL, and PostgreSQL takes none."""
    if b"%00" in scope.get("query_string", b""):
        raise errors.BadInput("the query holds a NUL character: leave it out", field="query")


def _token(headers: Headers) -> str | None:
    given = headers.get("authorization")
    if given is not None:
        scheme, _, plain = given.partition(" ")
        if scheme.lower() != "bearer" or not plain.strip():
            raise errors.Refused("Authorization must be `Bearer hw_…`", code="unauthorised")
        return plain.strip()
    return headers.get("x-api-key")


def _allowed(bound: str, more: tuple[str, ...]) -> frozenset[str] | None:
    """The names this server answers to. None: it is bound to all addresses and was told no names."""
    if is_loopback(bound):
        return frozenset({"localhost", "127.0.0.1", "::1", bound.strip("[]").lower(), *(name.lower() for name in more)})
    if bound in ("0.0.0.0", "::") and not more:
        return None  # whoever has a token may come by any name: a rebound page has none
    return frozenset({bound.strip("[]").lower(), *(name.lower() for name in more)})


TOO_LARGE = errors.BadInput(f"the body is larger than {BODY_LIMIT // 1024} KiB: send less", code="too_large")


def _limited(headers: Headers, receive: Receive) -> Receive:
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > BODY_LIMIT:
        raise TOO_LARGE
    seen = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_LIMIT:
            raise problems.BadBody(TOO_LARGE, 413)
        return message

    return counted


def _guarded(send: Send) -> Send:
    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(one for one in _GUARDS if one[0] not in present)]
        await send(message)

    return wrapped
