"""The door: which Host and Origin are let in, how large a body may be, and who a request comes from: by a token in a
header, by the cookie of a session, or openly."""

from __future__ import annotations

import ipaddress
import re
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response

from headway import errors
from headway.api import problems, turned_away
from headway.api.service import Service, Terms
from headway.engine.tokens import any_token
from headway.model.access import SESSION_PREFIX, Visitor, is_csrf_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

BODY_LIMIT = 256 * 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OPEN_SECONDS = 1.0
TENANT = "headway-tenant"
SESSION_COOKIE, TENANT_COOKIE = "headway_session", "headway_tenant"
CSRF = "x-csrf-token"
# Its forms carry their CSRF token in a field, and it looks at it itself.
DASHBOARD = "/ui/"
# The same for everybody: a page of a server whose database is away still looks like one.
STATIC = "/ui/static/"
# Whoever asks whether we live has no token.
PUBLIC = frozenset(("/healthz", "/readyz"))
_GUARDS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
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


_PORT = re.compile(r":([0-9]{1,5})$")


def cookie_name(name: str, scope: Scope) -> str:
    """Browsers keep cookies by host, whatever the port: two servers of one host would log each other out."""
    found = _PORT.search(Headers(scope=scope).get("host", ""))
    usual = "443" if scope.get("scheme") == "https" else "80"
    return f"{name}_{found.group(1) if found else usual}"


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
        answer = _Answer(send)
        try:
            await self._receive(scope, receive, answer.send)
        except Exception:
            # Starlette raises once more what was answered as a mistake and is in the log. Raised further, the server
            # would close a connection that is in order.
            if not (answer.complete and problems.told(scope)):
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
                _let_in(scope, None)  # whether we live is no question of who asks
                await self.app(scope, receive, send)
                return
            await _refusal(scope, error)(scope, receive, send)
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

    async def _identify(self, scope: Scope, headers: Headers) -> None:
        """A token in a header counts before any cookie: programs say who they are, and need no CSRF token."""
        plain, wish = _token(headers), _Wish.of(headers.get(TENANT))
        if plain is not None:
            _let_in(scope, await to_thread.run_sync(self._named, plain, wish), wish=wish)
        elif _is_public(scope):
            _let_in(scope, None)
        else:
            cookies = HTTPConnection(scope).cookies
            wish = wish or _Wish.of(cookies.get(cookie_name(TENANT_COOKIE, scope)), firm=False)
            session = cookies.get(cookie_name(SESSION_COOKIE, scope)) or None
            visitor, cookie = await self._browsing(scope, session, wish)
            _let_in(scope, visitor, cookie, wish)
            if visitor is not None and cookie is not None:
                _check_csrf(scope, headers, cookie)

    async def _browsing(
        self, scope: Scope, cookie: str | None, wish: _Wish | None
    ) -> tuple[Visitor | None, str | None]:
        """Who comes without a token, and with which cookie. A session that has ended is like none."""
        if cookie is not None and cookie.startswith(SESSION_PREFIX):
            visitor = await to_thread.run_sync(self._in_session, cookie, wish)
            if visitor is not None:
                return visitor, cookie
            cookie = None
        return await self._openly(scope, wish), cookie

    async def _openly(self, scope: Scope, wish: _Wish | None) -> Visitor | None:
        if not self._from_here(scope):
            return None
        recently = time.monotonic() - self._open[0] < OPEN_SECONDS
        if recently and self._open[1] and wish is None:
            return self.service.anybody(self.service.system.tenant)
        return await to_thread.run_sync(self._unnamed, wish)

    def _from_here(self, scope: Scope) -> bool:
        """Bound to this machine, and called from it: an application that we are mounted in may be bound to more."""
        client = scope.get("client")
        return reachable_from_here_only(self.service.terms) and client is not None and is_loopback(client[0])

    def _unnamed(self, wish: _Wish | None) -> Visitor | None:
        """Without a token: everybody, as long as there is none and only this machine can come."""
        is_open = not any_token(self.service.database)
        with self._lock:
            self._open = (time.monotonic(), is_open)
        if not is_open:
            return None
        return _for(wish, lambda tenant: self.service.anybody(tenant or self.service.system.tenant))

    def _in_session(self, cookie: str, wish: _Wish | None) -> Visitor | None:
        return _for(wish, lambda tenant: self.service.system.sessions.visitor(cookie, tenant))

    def _named(self, plain: str, wish: _Wish | None) -> Visitor:
        visitor = _for(wish, lambda tenant: self.service.system.tokens.visitor(plain, tenant))
        if visitor is None:
            raise errors.Refused("this token is unknown, revoked or expired", code="unauthorised")
        return visitor


def reachable_from_here_only(terms: Terms) -> bool:
    """Bound to loopback, and told no other name: with one, somebody stands in front of us and lets others in."""
    return is_loopback(terms.host) and all(is_loopback(name) for name in terms.hosts)


@dataclass(frozen=True, slots=True)
class _Wish:
    """For which tenant somebody of the system acts. A header is meant as it is; a cookie may be out of date."""

    tenant: str
    firm: bool

    @staticmethod
    def of(given: str | None, *, firm: bool = True) -> _Wish | None:
        return None if given is None or (not given and not firm) else _Wish(unquote(given), firm)

    def heeded(self, visitor: Visitor) -> bool:
        return self.firm or visitor.tenant == self.tenant


def _for(wish: _Wish | None, find: Callable[[str | None], T]) -> T:
    if wish is None:
        return find(None)
    try:
        if "\0" in wish.tenant:  # PostgreSQL takes no such text
            raise errors.NotFound(f"there is no tenant {wish.tenant!r}")
        return find(wish.tenant)
    except errors.NotFound:
        if wish.firm:
            raise
        return find(None)


def _let_in(scope: Scope, visitor: Visitor | None, cookie: str | None = None, wish: _Wish | None = None) -> None:
    """For whoever answers: who comes, with which cookie, and whether they said for which tenant."""
    scope["headway.visitor"] = visitor
    scope["headway.session"] = cookie
    scope["headway.names_tenant"] = wish is not None and visitor is not None and wish.heeded(visitor)


def names_tenant(scope: Scope) -> bool:
    """Whether somebody of the system asks about one tenant, and not about all."""
    return bool(scope.get("headway.names_tenant"))


def _check_csrf(scope: Scope, headers: Headers, cookie: str) -> None:
    """A browser sends its cookies also for a page that is not ours; that page cannot read what belongs to them."""
    if scope["method"] in SAFE or _path(scope).startswith(DASHBOARD):
        return
    if not is_csrf_of(headers.get(CSRF, ""), cookie):
        text = "a write that comes with the cookie of a browser needs its X-CSRF-Token: load the page again"
        raise errors.Refused(f"{text}; a program shows a token in `Authorization` instead", code="bad_csrf")


def _path(scope: Scope) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


def _refusal(scope: Scope, error: errors.HeadwayError) -> Response:
    """A page for people, a problem for programs."""
    if _path(scope).startswith(DASHBOARD):
        return turned_away.page(error, str(scope.get("root_path", "")))
    return problems.of_error(error)


def _is_public(scope: Scope) -> bool:
    path = _path(scope)
    return path in PUBLIC or path.startswith(STATIC)


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


class _Answer:
    """What leaves: with the headers that guard it, and whether all of it has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.complete = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(one for one in _GUARDS if one[0] not in present)]
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
