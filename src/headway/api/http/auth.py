"""Access middleware: checks Host, Origin and body size; identifies the caller.

A caller is identified by a token in a header or by a session cookie; without any token, loopback callers are admitted.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.responses import Response

from headway import __version__, errors
from headway.api.http import denied_page, problems
from headway.api.http.cookies import ROOT, SESSION_COOKIE, TENANT_COOKIE, Scope, cookie_values
from headway.api.http.shares import IDENTIFY
from headway.api.legacy import announcement
from headway.api.service import Service, ServiceConfig
from headway.engine.client.tokens import any_token
from headway.model.access.permissions import SESSION_PREFIX, Visitor

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

BODY_LIMIT = 256 * 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OPEN_SECONDS = 1.0
TENANT = "headway-tenant"
CSRF = "x-csrf-token"
# Forms of the dashboard carry their CSRF token in a field, which the dashboard checks.
DASHBOARD = "/ui/"
# Public, so that error pages keep their style while the database cannot be reached.
STATIC = "/ui/static/"
# Liveness and readiness probes send no token.
PUBLIC = frozenset(("/healthz", "/readyz"))
_GUARDS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (b"headway-version", __version__.encode()),
]


@lru_cache(maxsize=256)
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


class AccessMiddleware:
    """Wraps the whole application; refuses a request before any endpoint sees it."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], service: Service) -> None:
        self.app = app
        self.service = service
        self.hosts = _allowed(service.terms.host, service.terms.hosts)
        self.threads = CapacityLimiter(IDENTIFY)
        self._lock = threading.Lock()
        self._open: tuple[float, bool] = (-OPEN_SECONDS, False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[ROOT] = scope.get("root_path", "")
        answer = _SentResponse(send, [*_GUARDS, *announcement.headers_for(_path(scope), scope[ROOT])])
        try:
            await self._receive(scope, receive, answer.send)
        except Exception:
            # Starlette raises an exception again after on_mistake has logged and answered it. Raised further, it would
            # make the server close a healthy connection.
            if not (answer.complete and problems.is_logged(scope)):
                raise

    async def _receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            _check_query(scope)
            if scope["method"] not in SAFE:
                self._check_origin(headers, scope.get("scheme", "http"))
            receive = _limited(headers, receive)
            await self._identify(scope, headers)
        except errors.HeadwayError as error:
            if _is_public(scope) and error.code not in ("bad_host", "bad_origin", "too_large"):
                _set_visitor(scope, None)  # probes are answered whatever the credentials
                await self.app(scope, receive, send)
                return
            await _refusal(scope, error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    # --- Host and Origin ---

    def _check_host(self, headers: Headers) -> None:
        """Refuses foreign Host headers, which protects against DNS rebinding."""
        given = headers.get("host", "")
        if self.hosts is not None and host_of(given).lower() not in self.hosts:
            text = f"this server does not answer for the host {given!r}: add it to `hosts` in the settings"
            raise errors.Refused(text, code="bad_host")

    def _check_origin(self, headers: Headers, scheme: str) -> None:
        """Refuses writes from pages of another origin; programs send no Origin header."""
        origin = headers.get("origin")
        if origin is None and headers.get("sec-fetch-site") not in (None, "same-origin", "none"):
            origin = "null"
        if origin is not None and origin.lower() != f"{scheme}://{headers.get('host', '')}".lower():
            raise errors.Refused(
                f"pages of {origin!r} may not write here", hint="use a page of this server", code="bad_origin"
            )

    # --- the caller ---

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """Reads in threads of its own, so that requests which occupy all others keep no caller from being known."""
        return await to_thread.run_sync(work, *given, limiter=self.threads)

    async def _identify(self, scope: Scope, headers: Headers) -> None:
        """Stores the visitor in the scope.

        A token in a header wins over a cookie, and needs no CSRF token.
        """
        plain, tenant_request = _token(headers), _RequestedTenant.of(headers.get(TENANT))
        if plain is not None:
            _set_visitor(scope, await self._run(self._named, plain, tenant_request), tenant_request=tenant_request)
        elif _is_public(scope):
            _set_visitor(scope, None)
        else:
            if not self.service.has_cookie_key:  # pages need it too, after the database is known to answer
                await self._run(lambda: self.service.cookie_key)
            tenant_request = tenant_request or self._chosen(scope)
            visitor, cookie = await self._browsing(scope, cookie_values(SESSION_COOKIE, scope), tenant_request)
            _set_visitor(scope, visitor, cookie, tenant_request)
            if visitor is not None and cookie is not None:
                self._check_csrf(scope, headers, cookie)

    def _chosen(self, scope: Scope) -> _RequestedTenant | None:
        """Returns the tenant that the browser chose; a cookie that this server did not sign counts as none."""
        named = map(self.service.cookie_key.chosen_tenant, cookie_values(TENANT_COOKIE, scope))
        return next((_RequestedTenant(tenant, firm=False) for tenant in named if tenant), None)

    async def _browsing(
        self, scope: Scope, cookies: Sequence[str], tenant_request: _RequestedTenant | None
    ) -> tuple[Visitor | None, str | None]:
        """Identifies a caller without a token; returns the visitor and the cookie.

        An expired session counts as no session. Other cookies that this server did not sign are returned as they are:
        no CSRF token belongs to them, so they write nothing.
        """
        for cookie in cookies:
            if cookie.startswith(SESSION_PREFIX):
                visitor = await self._run(self._in_session, cookie, tenant_request)
                if visitor is not None:
                    return visitor, cookie
        others = [cookie for cookie in cookies if not cookie.startswith(SESSION_PREFIX)]
        signed = self.service.cookie_key.usable(others)
        return await self._openly(scope, tenant_request), signed or next(iter(others), None)

    def _check_csrf(self, scope: Scope, headers: Headers, cookie: str) -> None:
        """Refuses a write with a session cookie but without its CSRF token.

        Browsers send cookies with requests of foreign pages too, but such a page cannot read the CSRF token.
        """
        if scope["method"] in SAFE or _path(scope).startswith(DASHBOARD):
            return
        key = self.service.cookie_key
        if key.usable([cookie]) is None or not key.is_csrf_of(headers.get(CSRF, ""), cookie):
            text = "a write with a session cookie needs its X-CSRF-Token: load the page again"
            raise errors.Refused(f"{text}; a program sends a token in `Authorization` instead", code="bad_csrf")

    async def _openly(self, scope: Scope, tenant_request: _RequestedTenant | None) -> Visitor | None:
        if not is_from_here(self.service.terms, scope):
            return None
        peer = str(scope["client"][0])
        recently = time.monotonic() - self._open[0] < OPEN_SECONDS
        if recently and self._open[1] and tenant_request is None:
            return self.service.anybody(self.service.system.tenant, peer)
        return await self._run(self._unnamed, peer, tenant_request)

    def _unnamed(self, peer: str, tenant_request: _RequestedTenant | None) -> Visitor | None:
        """Returns the visitor for a request without a token, or None if a token exists."""
        is_open = not any_token(self.service.database)
        with self._lock:
            self._open = (time.monotonic(), is_open)
        if not is_open:
            return None
        return _for(tenant_request, lambda tenant: self.service.anybody(tenant or self.service.system.tenant, peer))

    def _in_session(self, cookie: str, tenant_request: _RequestedTenant | None) -> Visitor | None:
        return _for(tenant_request, lambda tenant: self.service.system.sessions.visitor(cookie, tenant))

    def _named(self, plain: str, tenant_request: _RequestedTenant | None) -> Visitor:
        visitor = _for(tenant_request, lambda tenant: self.service.system.tokens.visitor(plain, tenant))
        if visitor is None:
            raise errors.Refused("this token is unknown, revoked or expired", code="unauthorised")
        return visitor


def reachable_from_here_only(terms: ServiceConfig) -> bool:
    """Returns True if the server is bound to loopback and `hosts` names nothing else.

    Another name in `hosts` means that a reverse proxy forwards requests of other machines.
    """
    return is_loopback(terms.host) and all(is_loopback(name) for name in terms.hosts)


def is_from_here(terms: ServiceConfig, scope: Scope) -> bool:
    """Returns True if a program on this machine sent the request, and such requests need no token.

    The connection is checked too, because an application that mounts this one may be bound to more addresses. A header
    of a proxy says that the request came from elsewhere: the connection is then the proxy's. So does HTTP/1.0, the
    version in which nginx forwards requests by default, without any such header.
    """
    client = scope.get("client")
    if not terms.open_on_loopback or not reachable_from_here_only(terms) or client is None:
        return False
    forwarded = scope.get("http_version") == "1.0" or any(_is_of_proxy(name) for name, _ in scope["headers"])
    return is_loopback(client[0]) and not forwarded


def _is_of_proxy(header: bytes) -> bool:
    return header in _OF_PROXIES or header.startswith(b"x-forwarded-")


_OF_PROXIES = frozenset((b"forwarded", b"x-real-ip", b"via"))


@dataclass(frozen=True, slots=True)
class _RequestedTenant:
    """The tenant that a system caller acts for.

    A header is binding; a cookie may be out of date.
    """

    tenant: str
    firm: bool

    @staticmethod
    def of(header: str | None) -> _RequestedTenant | None:
        return None if header is None else _RequestedTenant(unquote(header), firm=True)

    def heeded(self, visitor: Visitor) -> bool:
        return self.firm or visitor.tenant == self.tenant


def _for(tenant_request: _RequestedTenant | None, find: Callable[[str | None], T]) -> T:
    if tenant_request is None:
        return find(None)
    try:
        if "\0" in tenant_request.tenant:  # PostgreSQL takes no such text
            raise errors.NotFound(f"there is no tenant {tenant_request.tenant!r}")
        return find(tenant_request.tenant)
    except errors.NotFound:
        if tenant_request.firm:
            raise
        return find(None)


def _set_visitor(
    scope: Scope, visitor: Visitor | None, cookie: str | None = None, tenant_request: _RequestedTenant | None = None
) -> None:
    """Stores the visitor, the session cookie, and whether the request names a tenant."""
    scope["headway.visitor"] = visitor
    scope["headway.session"] = cookie
    scope["headway.names_tenant"] = (
        tenant_request is not None and visitor is not None and tenant_request.heeded(visitor)
    )


def names_tenant(scope: Scope) -> bool:
    """Returns True if the request names a tenant.

    A system caller otherwise acts on all of them.
    """
    return bool(scope.get("headway.names_tenant"))


def _path(scope: Scope) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


def _refusal(scope: Scope, error: errors.HeadwayError) -> Response:
    """Answers with an HTML page below `/ui/`, with problem+json elsewhere."""
    if _path(scope).startswith(DASHBOARD):
        return denied_page.page(error, str(scope.get("root_path", "")))
    return problems.of_error(error)


def _is_public(scope: Scope) -> bool:
    path = _path(scope)
    return path in PUBLIC or path.startswith(STATIC)


def _check_query(scope: Scope) -> None:
    """Refuses NUL characters, which PostgreSQL does not accept in text."""
    if b"%00" in scope.get("query_string", b""):
        raise errors.BadInput("the query contains a NUL character", hint="leave it out", field="query")


def _token(headers: Headers) -> str | None:
    given = headers.get("authorization")
    if given is not None:
        scheme, _, plain = given.partition(" ")
        if scheme.lower() != "bearer" or not plain.strip():
            raise errors.Refused("Authorization must be `Bearer hw_…`", code="unauthorised")
        return plain.strip()
    return headers.get("x-api-key")


def _allowed(bound: str, more: tuple[str, ...]) -> frozenset[str] | None:
    """Returns the accepted Host names; None accepts any.

    That is the case if the server is bound to all addresses and `hosts` is empty.
    """
    if is_loopback(bound):
        return frozenset({"localhost", "127.0.0.1", "::1", bound.strip("[]").lower(), *(name.lower() for name in more)})
    if bound in ("0.0.0.0", "::") and not more:
        return None  # DNS rebinding gains nothing here, because a foreign page has no token
    return frozenset({bound.strip("[]").lower(), *(name.lower() for name in more)})


TOO_LARGE = errors.BadInput(f"the body is larger than {BODY_LIMIT // 1024} KiB", hint="send less", code="too_large")


def _limited(headers: Headers, receive: Receive) -> Receive:
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 12 or int(length) > BODY_LIMIT):
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


class _SentResponse:
    """Adds headers that an answer lacks, and notes whether all of it was sent."""

    def __init__(self, send: Send, usual: Sequence[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._usual = usual
        self.complete = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(one for one in self._usual if one[0] not in present)]
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
