"""Coming in with a token, in a real browser: who is let in, where to, for how long."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from headway.api.http.cookies import SESSION_COOKIE
from tests.support import browser as browsers
from tests.support.browser import Tabs, ready
from tests.support.forms import csrf, read
from tests.support.forms import log_in as log_in_openly
from tests.support.service import Site

pytestmark = pytest.mark.shown


def session_cookie(site: Site) -> str:
    return f"{SESSION_COOKIE}_{httpx.URL(site.url).port}"


@pytest.fixture
def token(desk: Site) -> str:
    return desk.token("operator", name="ada")


@pytest.fixture
def stranger(browser: Browser, desk: Site, token: str) -> Iterator[Tabs]:
    """Somebody with a browser where a token is needed. That one is asked for is no complaint."""
    with browsers.tabs(browser, desk.url) as made:
        yield made
        made.complaints = [one for one in made.complaints if "401" not in one]


def enter(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def log_in(tabs: Tabs, token: str, path: str = "/") -> Page:
    page = tabs.open(path)
    enter(page, token)
    page.wait_for_url(f"**/ui{path}")
    ready(page)
    return page


def test_a_wrong_token_is_refused_and_the_right_one_leads_to_the_wanted_page(
    stranger: Tabs, desk: Site, token: str
) -> None:
    page = stranger.open("/workers?x=1")
    assert "/ui/login?next=" in page.url
    expect(page.get_by_role("navigation", name="Pages")).to_have_count(0)
    enter(page, "hw_" + "x" * 43)
    expect(page.get_by_role("alert")).to_have_text("This token is unknown, revoked or expired.")
    ready(page)
    enter(page, token)
    page.wait_for_url("**/ui/workers?x=1")
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    expect(page.get_by_role("button", name="Log out ada")).to_be_visible()
    cookie = next(one for one in stranger.context.cookies() if one["name"] == session_cookie(desk))
    assert cookie["httpOnly"] is True
    assert cookie["sameSite"] == "Lax"
    assert cookie["path"] == "/"
    assert cookie["expires"] > 0
    assert token not in cookie["value"]
    assert page.evaluate("document.cookie").find(cookie["value"]) == -1
    assert token not in page.content()


def test_the_page_that_is_wanted_is_one_of_ours(stranger: Tabs, token: str) -> None:
    page = stranger.open("/login?next=//evil.example/ui/")
    enter(page, token)
    page.wait_for_url(f"{stranger.url}/ui/")


ELSEWHERE = (
    *(
        "https://evil.example/ui/",
        "//evil.example/ui/",
        "/ui/\\evil.example",
        "javascript:alert(1)",
        "/uix",
        "/api/jobs",
        "/ui/../api/jobs",
        "/ui/x/%2e%2E/../api/jobs",
        "/ui/.",
    ),
)


def test_no_address_but_ours_is_gone_to(desk: Site, token: str) -> None:
    for elsewhere in ELSEWHERE:
        asked = desk.http.get("/ui/login", params={"next": elsewhere})
        fields = {"csrf": csrf(asked.text), "token": token, "next": elsewhere}
        assert desk.http.post("/ui/login", data=fields).headers["location"] == "/ui/"
        assert 'name="next" value="/ui/"' in asked.text


def test_logging_out_ends_the_session_itself(stranger: Tabs, desk: Site, token: str) -> None:
    page = log_in(stranger, token)
    kept = next(one["value"] for one in stranger.context.cookies() if one["name"] == session_cookie(desk))
    page.get_by_role("button", name="Log out ada").click()
    page.wait_for_url("**/ui/login")
    assert session_cookie(desk) not in {one["name"] for one in stranger.context.cookies() if one["value"] == kept}
    desk.http.cookies.set(session_cookie(desk), kept)
    assert desk.http.get("/ui/").headers["location"].startswith("/ui/login")
    desk.http.cookies.clear()


def test_a_token_that_is_revoked_shuts_the_page_that_is_looked_at(stranger: Tabs, desk: Site, token: str) -> None:
    desk.token("admin", name="another")  # so that revoking this one does not open everything
    page = log_in(stranger, token, "/workers")
    expect(page.locator("#alive")).to_be_visible()
    desk.app.client.tokens.revoke(1, everywhere=True)
    page.wait_for_url("**/ui/login?next=**")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert "next=%2Fui%2Fworkers" in page.url


def test_a_login_needs_the_token_of_its_own_form(desk: Site, token: str) -> None:
    """Otherwise a page of somebody else's could log a browser in as them."""
    answer = desk.http.post("/ui/login", data={"token": token})
    assert answer.status_code == 403
    form = csrf(read(desk.http, "/login"))
    desk.http.cookies.clear()
    assert desk.http.post("/ui/login", data={"token": token, "csrf": form}).status_code == 403
    assert not (desk.http.cookies.get(session_cookie(desk)) or "").startswith("hws_")


def test_a_new_login_ends_the_session_before(desk: Site, token: str) -> None:
    log_in_openly(desk.http, token)
    before = desk.http.cookies[session_cookie(desk)]
    log_in_openly(desk.http, desk.token("viewer", name="vic"))
    assert "Log out vic" in read(desk.http, "/")
    desk.http.cookies.clear()
    desk.http.cookies.set(session_cookie(desk), before)
    assert desk.http.get("/ui/").headers["location"].startswith("/ui/login")
    desk.http.cookies.clear()


def test_roles_in_the_browser(stranger: Tabs, desk: Site) -> None:
    """A viewer finds nothing to press but what concerns their own view."""
    viewer = desk.token("viewer", name="vic")
    page = log_in(stranger, viewer, "/access")
    buttons = page.locator("main button, main summary.button")
    expect(buttons).to_have_count(0)
    expect(page.get_by_role("link", name="Settings")).to_have_count(0)
    expect(page.get_by_text("viewer: you may read everything.")).to_be_visible()
