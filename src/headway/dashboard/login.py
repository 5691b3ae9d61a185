"""Coming in with a token, leaving, the help page, and the choices of a reader: theme, times, tenant."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from headway.api.access import SESSION_COOKIE, TENANT_COOKIE
from headway.clock import SECOND
from headway.dashboard.pages import Page, Pages
from headway.dashboard.times import MODES, THEME, THEMES, TIME
from headway.errors import BadInput
from headway.store.sessions import LASTS

pages = Pages("login")
YEAR = 365 * 86_400


@pages.get("/login", None)
def show(page: Page) -> Response:
    return page.render("login.html", wanted=_inside(page, page.asked.get("next")), refused=None)


@pages.post("/login", None)
def enter(page: Page) -> Response:
    """The token is changed into a session; it is not kept in the browser."""
    wanted = _inside(page, page.form.get("next"))
    plain = page.service.system.sessions.begin(page.form.get("token"))
    if plain is None:
        text = "This token is unknown, revoked or expired."
        return page.render("login.html", status=401, wanted=wanted, refused=text)
    page.service.system.sessions.end(page.session)  # that of whoever was here before
    response = RedirectResponse(wanted, 303)
    page.set_own_cookie(response, SESSION_COOKIE, plain, seconds=LASTS // SECOND)
    return response


@pages.post("/logout", None)
def leave(page: Page) -> Response:
    page.service.system.sessions.end(page.session)
    response = RedirectResponse(page.address("/login"), 303)
    page.drop_cookie(response, SESSION_COOKIE)
    return response


@pages.get("/help", None)
def helped(page: Page) -> Response:
    return page.render("help.html")


@pages.post("/choose", None)
def choose(page: Page) -> Response:
    """Kept in the browser."""
    name, value = page.form.get("name"), page.form.get("value")
    choices = {"theme": (THEME, THEMES), "time": (TIME, MODES)}
    response = RedirectResponse(_inside(page, page.form.get("back")), 303)
    if name == "tenant":
        page.set_own_cookie(response, TENANT_COOKIE, quote(value, safe=""), seconds=YEAR)
        return response
    cookie, allowed = choices.get(name, ("", ()))
    if value not in allowed:
        raise BadInput(f"{name}: must be {', '.join(allowed) or 'theme, time or tenant'}", field=name)
    page.set_cookie(response, cookie, value, seconds=YEAR)
    return response


def _inside(page: Page, wanted: str) -> str:
    """Only to a page of ours."""
    return wanted if page.is_inside(wanted) else page.address("/")
