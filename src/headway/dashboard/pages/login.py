"""Login, logout, the help page, and the preferences of a reader."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from headway.api.http.cookies import SESSION_COOKIE, TENANT_COOKIE
from headway.clock import SECOND
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.time_format import MODES, THEME, THEMES, TIME
from headway.errors import BadInput
from headway.store.access.sessions import LASTS

pages = Pages("login")
YEAR = 365 * 86_400


@pages.get("/login", None)
def show(page: PageRequest) -> Response:
    return page.render("login.html", wanted=_inside(page, page.asked.get("next")), refused=None)


@pages.post("/login", None)
def enter(page: PageRequest) -> Response:
    """Exchanges the token for a session; the browser does not keep the token."""
    wanted = _inside(page, page.form.get("next"))
    plain = page.service.system.sessions.begin(page.form.get("token"))
    if plain is None:
        text = "This token is unknown, revoked or expired."
        return page.render("login.html", status=401, wanted=wanted, refused=text)
    page.service.system.sessions.end(page.session)  # the session of an earlier login
    response = RedirectResponse(wanted, 303)
    page.set_own_cookie(response, SESSION_COOKIE, plain, seconds=LASTS // SECOND)
    return response


@pages.post("/logout", None)
def leave(page: PageRequest) -> Response:
    page.service.system.sessions.end(page.session)
    response = RedirectResponse(page.address("/login"), 303)
    page.drop_cookie(response, SESSION_COOKIE)
    return response


@pages.get("/help", None)
def helped(page: PageRequest) -> Response:
    return page.render("help.html")


@pages.post("/choose", None)
def choose(page: PageRequest) -> Response:
    """Stores a preference in a cookie."""
    name, value = page.form.get("name"), page.form.get("value")
    choices = {"theme": (THEME, THEMES), "time": (TIME, MODES)}
    response = RedirectResponse(_inside(page, page.form.get("back")), 303)
    if name == "tenant":
        page.set_own_cookie(response, TENANT_COOKIE, page.service.cookie_key.tenant_cookie(value), seconds=YEAR)
        return response
    cookie, allowed = choices.get(name, ("", ()))
    if value not in allowed:
        raise BadInput(f"{name}: must be {', '.join(allowed) or 'theme, time or tenant'}", field=name)
    page.set_cookie(response, cookie, value, seconds=YEAR)
    return response


def _inside(page: PageRequest, wanted: str) -> str:
    """Returns the address if it is a page of ours, else the first page."""
    return wanted if page.is_inside(wanted) else page.address("/")
