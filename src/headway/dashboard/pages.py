"""How a page is declared, what it is given, and how it answers: with a page, or by leading back to one."""

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
from headway.api.access import SESSION_COOKIE, cookie_name, names_tenant
from headway.api.asking import LARGEST
from headway.api.problems import status_of
from headway.api.routes import Declared, Visit
from headway.api.service import Service
from headway.api.turned_away import POLICY
from headway.dashboard import frame
from headway.dashboard.said import Said, pack, unpack
from headway.dashboard.times import Taste, taste_of
from headway.model.access import Role, Visitor, check_form, csrf_of, form_token
from headway.store import lanes

UI = "/ui"
SAID = "headway_said"
CSRF = "csrf"
SCRIPT, LEADS = "x-headway-script", "X-Headway-To"
LIVE = "x-headway-live"
HEADERS = {"Content-Security-Policy": POLICY, "Vary": "Cookie"}


class Form:
    """What was filled in. Fields may come several times."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self.fields = fields

    def get(self, name: str, default: str = "") -> str:
        """The last one of that name, without blanks around it."""
        return next((value.strip() for key, value in reversed(self.fields) if key == name), default)

    def given(self, name: str) -> str | None:
        """None if it was left empty."""
        return self.get(name) or None

    def all(self, name: str) -> list[str]:
        return [value.strip() for key, value in self.fields if key == name]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.fields)


class Page(Visit):
    """One request for a page, or one filled-in form."""

    def __init__(self, request: Request, service: Service, declared: Declared) -> None:
        super().__init__(request, service, declared)
        self.form = Form(())
        self.asked = Form(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        self.now = service.database.clock.now()

    # --- where ---

    @property
    def root(self) -> str:
        """Of the API, also when it is mounted in another application."""
        return str(self.request.scope.get("root_path", "")).removesuffix(UI)

    def address(self, path: str) -> str:
        """Of a page."""
        return f"{self.root}{UI}{path}"

    def here(self, **changes: object) -> str:
        """This page with other query parameters; None takes one away."""
        kept = [(name, value) for name, value in self.asked.fields if name not in changes and name != "cursor"]
        kept += [(name, str(value)) for name, value in changes.items() if value is not None]
        query = f"?{urlencode(kept)}" if kept else ""
        return self.address(f"{self._path}{query}")

    @property
    def _path(self) -> str:
        return str(self.request.url.path).removeprefix(self.root).removeprefix(UI)

    # --- who ---

    def cookie(self, name: str) -> str | None:
        """One that servers on other ports of this host have too."""
        return self.request.cookies.get(cookie_name(name, self.request.scope)) or None

    @cached_property
    def session(self) -> str:
        """What the CSRF token is made of: the session, or a random text for those who come openly."""
        return self.cookie(SESSION_COOKIE) or f"open_{secrets.token_urlsafe(24)}"

    @property
    def tenant(self) -> str:
        """For whom this visitor acts; nobody, on a page for everybody."""
        visitor: Visitor | None = self.visitor
        return "" if visitor is None else visitor.tenant

    @property
    def acts_for(self) -> str | None:
        """The tenant, where somebody of the system acts for another one than usual, or has named one."""
        visitor: Visitor | None = self.visitor
        if visitor is None or not visitor.system:
            return None
        named = names_tenant(self.request.scope) or visitor.tenant != self.service.system.tenant
        return visitor.tenant if named else None

    @property
    def csrf(self) -> str:
        """For forms. What they do is meant for the tenant that the page was about."""
        return form_token(self.session, self.tenant)

    @property
    def api_csrf(self) -> str:
        """For `X-CSRF-Token`, when a script of the page uses the API."""
        return csrf_of(self.session)

    @cached_property
    def once(self) -> str:
        """For forms that make something: the value of their hidden field `once`."""
        return secrets.token_urlsafe(16)

    def may(self, role: str = "operator") -> bool:
        visitor: Visitor | None = self.visitor  # there is none on a page for everybody
        return visitor is not None and visitor.role.may(Role(role))

    def opens(self, path: str) -> bool:
        """Whether this visitor may look at a page: navigation leads nowhere else."""
        gate: Declared | None = self.request.app.state.gates.get(path)
        visitor: Visitor | None = self.visitor
        if gate is None or gate.role is None or visitor is None:
            return True
        return visitor.role.may(gate.role) and (visitor.system or not gate.system)

    def check_csrf(self) -> None:
        """Logging out and choosing a tenant are about no tenant's things."""
        tenant = None if self.declared.role is None else self.tenant
        check_form(self.form.get(CSRF), self.cookie(SESSION_COOKIE), tenant)

    # --- how it is shown ---

    @cached_property
    def taste(self) -> Taste:
        return taste_of(self.request.cookies)

    @property
    def live(self) -> bool:
        """Only brought up to date: what is said once is left for the page that the form leads to."""
        return LIVE in self.request.headers

    @cached_property
    def said(self) -> Said | None:
        packed = None if self.live else self.cookie(SAID)
        return None if packed is None else unpack(packed, self.session)

    def render(self, template: str, *, status: int = 200, **facts: Any) -> Response:
        response = HTMLResponse(frame.render(template, page=self, **facts), status, HEADERS)
        if self.cookie(SESSION_COOKIE) is None:
            self.set_own_cookie(response, SESSION_COOKIE, self.session)
        if self.cookie(SAID) is not None and not self.live:
            self.drop_cookie(response, SAID)
        return response

    def problem(self, status: int, code: str, text: str, *, known: bool = False) -> Response:
        """`known`: there is such a page. What is said of a server in need is said without its database."""
        if status >= 500:
            self.strip = NOTHING_KNOWN
        return self.render("problem.html", status=status, known=known, code=code, text=text)

    def set_own_cookie(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        """One that servers on other ports of this host must not see as theirs."""
        self.set_cookie(response, cookie_name(name, self.request.scope), value, seconds=seconds)

    def drop_cookie(self, response: Response, name: str) -> None:
        response.delete_cookie(cookie_name(name, self.request.scope), path=self.root or "/")

    def set_cookie(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self.root or "/",
            httponly=True,
            samesite="lax",
            secure=self.request.url.scheme == "https",
        )

    def done(
        self, text: str, *, to: str | None = None, undo: tuple[str, Mapping[str, object]] | None = None
    ) -> Response:
        """Back to the page that the form was on, or to another; there it says what was done."""
        return self.back(Said(text, undo=undo), to)

    def back(self, said: Said, to: str | None = None) -> Response:
        wanted = to or self.form.get("back")
        response = self._lead(wanted if self.is_inside(wanted) else self.address("/"))
        self.set_own_cookie(response, SAID, pack(said, self.session), seconds=60)
        return response

    def _lead(self, to: str) -> Response:
        """A script that sent a form shows what comes back in its place; to another page the browser itself must go, or
        the script would fetch what is said there once."""
        elsewhere = to.partition("?")[0] != self.form.get("back").partition("?")[0]
        if SCRIPT in self.request.headers and elsewhere:
            return Response(status_code=204, headers={LEADS: to})
        return RedirectResponse(to, 303)

    def is_inside(self, wanted: str) -> bool:
        """A page of ours: a form may come with an address of somebody else's."""
        if not wanted.startswith(f"{self.root}{UI}/") or "\\" in wanted or any(ord(one) <= 31 for one in wanted):
            return False
        path = wanted.partition("?")[0].partition("#")[0]
        return not {".", ".."} & set(unquote(path).split("/"))  # browsers follow %2e%2e too

    # --- what every page shows ---

    @cached_property
    def strip(self) -> dict[str, Any]:
        """How things stand, for the head of each page."""
        with self.look() as tx:
            pause, everybody = lanes.pauses(tx, self.tenant_id)
        return {"pause": everybody or pause, "everybody": everybody is not None}


NOTHING_KNOWN = {"pause": None, "everybody": False}
Endpoint = Callable[..., Response]
Declare = Callable[[Endpoint], Endpoint]


class Pages:
    """The pages and forms of one noun."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared: list[Declared] = []

    def get(self, path: str, role: Role | None = Role.VIEWER, *, system: bool = False) -> Declare:
        return self._add("GET", path, role, system)

    def post(self, path: str, role: Role | None = Role.OPERATOR, *, system: bool = False) -> Declare:
        """A form. It must carry the CSRF token of the session."""
        return self._add("POST", path, role, system)

    def _add(self, method: str, path: str, role: Role | None, system: bool) -> Declare:
        def declare(endpoint: Endpoint) -> Endpoint:
            self.declared.append(Declared(method, path, role, endpoint, system=system))
            return endpoint

        return declare

    def routes(self) -> list[Route]:
        return [Route(one.path, _run(one), methods=[one.method]) for one in self.declared]


def _run(declared: Declared) -> Callable[[Request], Any]:
    async def run(request: Request) -> Response:
        page = Page(request, request.app.state.service, declared)
        body = await request.body() if declared.method == "POST" else b""
        return await run_in_threadpool(_answer, page, body)

    return run


def _answer(page: Page, body: bytes) -> Response:
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
        raise errors.BadInput("the form cannot be read: send it again from its page") from None


def _parts(request: Request) -> dict[str, Any]:
    for value in request.path_params.values():
        if isinstance(value, int) and value > LARGEST:
            raise HTTPException(404)
    return dict(request.path_params)


def _to_login(page: Page) -> Response:
    """A form is not sent again after the login: whoever filled it in looks first."""
    wanted = str(page.request.url.path)
    query = page.request.url.query
    to = f"{wanted}?{query}" if query else wanted
    next_ = f"?{urlencode({'next': to})}" if page.declared.method == "GET" else ""
    return RedirectResponse(page.address(f"/login{next_}"), 303)


def _refused(page: Page, error: errors.HeadwayError) -> Response:
    """Said on the page the form was on; a page that cannot be shown says why."""
    if page.declared.method == "POST" and page.form.get("back"):
        return page.back(Said(str(error), error.code))
    return page.problem(status_of(error), error.code, str(error), known=True)
