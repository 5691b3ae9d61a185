"""Declares pages, and the request that a page receives and answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from headway import errors
from headway.api.http import cookies
from headway.api.http.auth import names_tenant
from headway.api.http.cookies import SESSION_COOKIE
from headway.api.http.denied_page import POLICY
from headway.api.http.problems import status_of
from headway.api.http.query import LARGEST
from headway.api.http.routing import RequestContext, RouteSpec
from headway.api.service import Service
from headway.dashboard import rendering
from headway.dashboard.flash import SECONDS, FlashMessage, FlashSigner
from headway.dashboard.time_format import DisplayPreferences, preferences_of
from headway.model.access.permissions import Role, Visitor
from headway.store.queue import lanes

UI = "/ui"
REFERENCE = "/docs"
FLASH_COOKIE = "headway_said"
CSRF = "csrf"
SCRIPT, LEADS = "x-headway-script", "X-Headway-To"
LIVE = "x-headway-live"
HEADERS = {"Content-Security-Policy": POLICY, "Vary": "Cookie"}


class Form:
    """The fields of a submitted form; a name may occur several times."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self.fields = fields

    def get(self, name: str, default: str = "") -> str:
        """Returns the last value of a field, stripped."""
        return next((value.strip() for key, value in reversed(self.fields) if key == name), default)

    def given(self, name: str) -> str | None:
        """Returns the last value of a field, or None if it is empty."""
        return self.get(name) or None

    def all(self, name: str) -> list[str]:
        return [value.strip() for key, value in self.fields if key == name]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.fields)


class PageRequest(RequestContext):
    """A request for a page, or a submitted form."""

    def __init__(self, request: Request, service: Service, declared: RouteSpec) -> None:
        super().__init__(request, service, declared)
        self.form = Form(())
        self.asked = Form(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        self.now = service.database.clock.now()

    # --- addresses ---

    @property
    def root(self) -> str:
        """The root path of the API, where another application may have mounted it."""
        return str(self.request.scope.get("root_path", "")).removesuffix(UI)

    def address(self, path: str) -> str:
        """Returns the address of a page."""
        return f"{self.root}{UI}{path}"

    def here(self, **changes: object) -> str:
        """Returns this page's address with other query parameters; None removes one."""
        kept = [(name, value) for name, value in self.asked.fields if name not in changes and name != "cursor"]
        kept += [(name, str(value)) for name, value in changes.items() if value is not None]
        query = f"?{urlencode(kept)}" if kept else ""
        return self.address(f"{self._path}{query}")

    @property
    def _path(self) -> str:
        return str(self.request.url.path).removeprefix(self.root).removeprefix(UI)

    # --- the visitor ---

    @cached_property
    def session_cookie(self) -> str | None:
        """The session cookie of the browser, or its cookie without a session; None if this server made none of them."""
        identified: str | None = self.request.scope.get("headway.session")
        sent = cookies.cookie_values(SESSION_COOKIE, self.request.scope)
        return self.service.cookie_key.usable(sent if identified is None else [identified])

    @cached_property
    def session(self) -> str:
        """The cookie that the CSRF token belongs to; a new one if the browser has none."""
        return self.session_cookie or self.service.cookie_key.open_cookie(secrets.token_urlsafe(24))

    @property
    def tenant(self) -> str:
        """The tenant that this visitor acts for; empty on a public page."""
        visitor: Visitor | None = self.visitor
        return "" if visitor is None else visitor.tenant

    @property
    def acts_for(self) -> str | None:
        """The tenant that a system visitor chose; None otherwise."""
        visitor: Visitor | None = self.visitor
        if visitor is None or not visitor.system:
            return None
        named = names_tenant(self.request.scope) or visitor.tenant != self.service.system.tenant
        return visitor.tenant if named else None

    @property
    def csrf(self) -> str:
        """The CSRF token of forms; it is bound to the tenant that the page shows."""
        return self.service.cookie_key.form_token(self.session, self.tenant)

    @property
    def api_csrf(self) -> str:
        """The CSRF token of requests that a script sends to the API."""
        return self.service.cookie_key.csrf_of(self.session)

    @cached_property
    def once(self) -> str:
        """The value of the hidden field `once`, the idempotency key of a form."""
        return secrets.token_urlsafe(16)

    def may(self, role: str = "operator") -> bool:
        visitor: Visitor | None = self.visitor  # None on a public page
        return visitor is not None and visitor.role.may(Role(role))

    def opens(self, path: str) -> bool:
        """Returns True if this visitor may see a page.

        The navigation leaves out the others.
        """
        gate: RouteSpec | None = self.request.app.state.gates.get(path)
        visitor: Visitor | None = self.visitor
        if gate is None or gate.role is None or visitor is None:
            return True
        return visitor.role.may(gate.role) and (visitor.system or not gate.system)

    def check_csrf(self) -> None:
        """Checks the form's CSRF token.

        Logging out and choosing a tenant are not bound to a tenant.
        """
        tenant = None if self.declared.role is None else self.tenant
        self.service.cookie_key.check_form(self.form.get(CSRF), self.session_cookie, tenant)

    # --- rendering ---

    @cached_property
    def preferences(self) -> DisplayPreferences:
        return preferences_of(self.request.cookies)

    @property
    def live(self) -> bool:
        """True for a refresh by script, which must not consume the flash message."""
        return LIVE in self.request.headers

    @property
    def flash(self) -> FlashSigner:
        return FlashSigner(self.service.cookie_key, self.session, self.now)

    @cached_property
    def message(self) -> FlashMessage | None:
        packed = [] if self.live else cookies.cookie_values(FLASH_COOKIE, self.request.scope)
        return next((message for text in packed if (message := self.flash.unpack(text)) is not None), None)

    def render(self, template: str, *, status: int = 200, **facts: Any) -> Response:
        response = HTMLResponse(rendering.render(template, page=self, **facts), status, HEADERS)
        if self.session_cookie is None:
            self.set_own_cookie(response, SESSION_COOKIE, self.session)
        if cookies.cookie_values(FLASH_COOKIE, self.request.scope) and not self.live:
            self.drop_cookie(response, FLASH_COOKIE)
        return response

    def problem(self, status: int, code: str, text: str, *, known: bool = False) -> Response:
        """Renders an error page; `known` means that the page exists.

        A server error is rendered without the database, which may be the cause.
        """
        if status >= 500:
            self.strip = NOTHING_KNOWN
        return self.render("problem.html", status=status, known=known, code=code, text=text)

    def set_own_cookie(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        """Sets a cookie whose name contains the port.

        Other servers on this host thus ignore it.
        """
        cookies.set_cookie(response, name, value, self.request.scope, seconds=seconds)

    def drop_cookie(self, response: Response, name: str) -> None:
        cookies.drop_cookie(response, name, self.request.scope)

    def set_cookie(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        """Sets a display preference, which all servers of the host share."""
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self.root or "/",
            httponly=True,
            samesite="lax",
            secure=cookies.is_secure(self.request.scope),
        )

    def done(
        self, text: str, *, to: str | None = None, undo: tuple[str, Mapping[str, object]] | None = None
    ) -> Response:
        """Redirects to the form's page or to `to`, with a flash message."""
        return self.back(FlashMessage(text, undo=undo), to)

    def back(self, message: FlashMessage, to: str | None = None) -> Response:
        wanted = to or self.form.get("back")
        response = self._lead(wanted if self.is_inside(wanted) else self.address("/"))
        self.set_own_cookie(response, FLASH_COOKIE, self.flash.pack(message), seconds=SECONDS)
        return response

    def _lead(self, to: str) -> Response:
        """Redirects; a script is told to navigate if the page is another one.

        A script replaces the form's page with the answer. If it followed a redirect to another page, it would consume
        the flash message there.
        """
        elsewhere = to.partition("?")[0] != self.form.get("back").partition("?")[0]
        if SCRIPT in self.request.headers and elsewhere:
            return Response(status_code=204, headers={LEADS: to})
        return RedirectResponse(to, 303)

    def is_inside(self, wanted: str) -> bool:
        """Returns True if the address is a page of ours.

        A forged form may name any address.
        """
        if wanted == f"{self.root}{REFERENCE}":
            return True
        if not wanted.startswith(f"{self.root}{UI}/") or "\\" in wanted or any(ord(char) <= 31 for char in wanted):
            return False
        path = wanted.partition("?")[0].partition("#")[0]
        return not {".", ".."} & set(unquote(path).split("/"))  # browsers resolve %2e%2e too

    # --- the head of every page ---

    @cached_property
    def strip(self) -> dict[str, Any]:
        """The pause that the head of each page shows."""
        with self.look() as tx:
            pause, everybody = lanes.pauses(tx, self.tenant_id)
        return {"pause": everybody or pause, "everybody": everybody is not None}


NOTHING_KNOWN = {"pause": None, "everybody": False}
PageFunction = Callable[..., Response]
Declare = Callable[[PageFunction], PageFunction]


class Pages:
    """The pages and forms of one section."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared: list[RouteSpec] = []

    def get(self, path: str, role: Role | None = Role.VIEWER, *, system: bool = False) -> Declare:
        return self._add("GET", path, role, system)

    def post(self, path: str, role: Role | None = Role.OPERATOR, *, system: bool = False) -> Declare:
        """Declares a form; it must carry the CSRF token of the session."""
        return self._add("POST", path, role, system)

    def _add(self, method: str, path: str, role: Role | None, system: bool) -> Declare:
        def declare(endpoint: PageFunction) -> PageFunction:
            self.declared.append(RouteSpec(method, path, role, endpoint, system=system))
            return endpoint

        return declare

    def routes(self) -> list[Route]:
        return [Route(spec.path, _run(spec), methods=[spec.method]) for spec in self.declared]


def _run(declared: RouteSpec) -> Callable[[Request], Any]:
    async def run(request: Request) -> Response:
        page = PageRequest(request, request.app.state.service, declared)
        body = await request.body() if declared.method == "POST" else b""
        return await run_in_threadpool(_answer, page, body)

    return run


def _answer(page: PageRequest, body: bytes) -> Response:
    declared = page.declared
    if declared.role is not None and page.request.scope.get("headway.visitor") is None:
        return _to_login(page)
    try:
        if declared.method == "POST":
            page.form = _filled(body)
            page.check_csrf()
        page.admit()
        answer: Response = declared.endpoint(page, **_parts(page.request))
        return answer
    except errors.HeadwayError as error:
        return _refused(page, error)


def _filled(body: bytes) -> Form:
    try:
        return Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2_000, errors="strict"))
    except ValueError:
        raise errors.BadInput("the form cannot be read", hint="send it again from its page") from None


def _parts(request: Request) -> dict[str, Any]:
    for value in request.path_params.values():
        if isinstance(value, int) and value > LARGEST:
            raise HTTPException(404)
    return dict(request.path_params)


def _to_login(page: PageRequest) -> Response:
    """Redirects to the login; a form is not submitted again after it."""
    wanted = str(page.request.url.path)
    query = page.request.url.query
    to = f"{wanted}?{query}" if query else wanted
    next_ = f"?{urlencode({'next': to})}" if page.declared.method == "GET" else ""
    return RedirectResponse(page.address(f"/login{next_}"), 303)


def _refused(page: PageRequest, error: errors.HeadwayError) -> Response:
    """Shows an error as a flash message on the form's page, or as an error page."""
    if page.declared.method == "POST" and page.form.get("back"):
        return page.back(FlashMessage(str(error), error.code))
    return page.problem(status_of(error), error.code, str(error), known=True)
