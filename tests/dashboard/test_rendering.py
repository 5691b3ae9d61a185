"""Every page: its frame, who may see it, the choices of a reader, and what is answered when there is no such page."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import expect

from headway.api.http.auth import BODY_LIMIT
from headway.clock import SECOND
from headway.dashboard.flash import MOST, FlashMessage, FlashSigner
from headway.dashboard.time_format import preferences_of
from headway.model.access.cookies import CookieKey
from tests.support import forms
from tests.support.browser import Tabs, ready
from tests.support.service import Site

pytestmark = pytest.mark.shown


def test_the_first_page_opens(tabs: Tabs) -> None:
    page = tabs.open("/")
    assert page.title() == "Now · Headway"
    page.get_by_role("button", name="dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    ready(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_the_address_alone_leads_to_the_first_page(site: Site) -> None:
    answer = site.http.get("/", follow_redirects=True)
    assert answer.status_code == 200
    assert str(answer.url) == f"{site.url}/ui/"
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_input_of_a_form_survives_the_way_to_another_page(site: Site) -> None:
    """A script is told where to go, and what is said there is said there once."""
    site.app.client.templates.create("fog", "research.run", params={"topic": "fog"})
    page = forms.read(site.http, "/templates/1")
    given = {"csrf": forms.csrf(page), "back": "/ui/templates/1"}
    answer = site.http.post("/ui/templates/1/job", data=given, headers={"X-Headway-Script": "1"})
    assert (answer.status_code, answer.text) == (204, "")
    assert answer.headers["X-Headway-To"] == "/ui/jobs/1"
    assert 'role="status"' in forms.read(site.http, "/jobs/1").partition("<main")[0]
    assert 'class="banner good"' not in forms.read(site.http, "/jobs/1")


SIGNER = FlashSigner(CookieKey(b"k" * 32), "open_abc", 5_000 * SECOND)

# --- what is said once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Job 5 was cancelled.", "x" * 9_000, "雨" * 9_000, "🌫" * 9_000, "a\ud800b"])
def test_what_is_said_fits_into_a_cookie_and_its_undo_stays(text: str) -> None:
    said = FlashMessage(text, "done", ("/queue/resume", {"name": "ü", "number": 5}))
    packed = SIGNER.pack(said)
    assert len(packed) <= MOST
    found = SIGNER.unpack(packed)
    assert found is not None
    assert found.text.removesuffix("…") == text.encode("utf-8", "replace").decode()[: len(found.text.removesuffix("…"))]
    assert (found.undo, len(found.text) >= min(len(text), 200)) == (("/queue/resume", {"name": "ü", "number": 5}), True)


def test_an_undo_that_is_too_long_is_left_out() -> None:
    found = SIGNER.unpack(SIGNER.pack(FlashMessage("done it", undo=("/queue/act", {"q": "雨" * 2_000}))))
    assert found == FlashMessage("done it")


def test_a_message_is_of_one_session_and_one_minute() -> None:
    packed = SIGNER.pack(FlashMessage("done it"))
    assert SIGNER.unpack(packed) == FlashMessage("done it")
    assert replace(SIGNER, now=SIGNER.now + 59 * SECOND).unpack(packed) == FlashMessage("done it")
    for other in (
        replace(SIGNER, session="open_abd"),
        replace(SIGNER, key=CookieKey(b"l" * 32)),
        replace(SIGNER, now=SIGNER.now + 61 * SECOND),
    ):
        assert other.unpack(packed) is None


ODD = (
    "",
    ".",
    "ü.ü",
    "[" * 3_000,
    "%00",
    '"\\377\\000"',
    SIGNER.pack(FlashMessage("forged", undo=("/queue/pause", {}))),
)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_cookies_count_as_nothing(site: Site, odd: str) -> None:
    port = httpx.URL(site.url).port
    names = [f"headway_{name}_{port}" for name in ("session", "said", "tenant")]
    names += ["headway_zone", "headway_time", "headway_theme"]
    for name in names:
        answer = site.http.get("/ui/queue", headers={b"Cookie": f"{name}={odd}".encode()})
        assert answer.status_code == 200, name
        assert "forged" not in answer.text
    site.http.cookies.clear()


def test_the_zone_of_a_browser_is_known_however_it_is_spelled() -> None:
    for spelled in (
        "America/Argentina/Buenos_Aires",
        "America%2FArgentina%2fBuenos%5FAires",
        "america/argentina/buenos_aires",
    ):
        assert preferences_of({"headway_zone": spelled}).zone == "America/Argentina/Buenos_Aires"
    assert preferences_of({"headway_zone": "../etc/passwd"}).zone == "UTC"


# --- for whom -------------------------------------------------------------------------------------------------------


def test_a_form_is_for_the_tenant_that_its_page_was_about(site: Site) -> None:
    """Another tab may have chosen another tenant meanwhile: the cookie is the whole browser's."""
    site.app.client.tenants.create("acme")
    shown = forms.csrf(forms.read(site.http, "/queue"))
    forms.fill(site.http, "/access", "/choose", name="tenant", value="acme")
    assert "acting for <b>acme</b>" in forms.read(site.http, "/queue")
    refused = forms.post(site.http, "/queue/pause", csrf=shown, back="/ui/queue", note="by mistake")
    assert "you act for acme now: nothing was changed" in refused.text
    assert "by mistake" not in refused.text
    assert "by mistake" in forms.fill(site.http, "/queue", "/queue/pause", note="by mistake").text
    assert forms.post(site.http, "/choose", csrf=shown, back="/ui/queue", name="tenant", value="").status_code == 200
    assert "by mistake" not in forms.read(site.http, "/queue")


# --- when it cannot be answered -------------------------------------------------------------------------------------


def is_page(answer: httpx.Response) -> bool:
    return answer.headers["content-type"].startswith("text/html") and '<p class="banner bad">' in answer.text


def test_what_the_door_refuses_is_a_page_for_people(site: Site) -> None:
    large = site.http.post("/ui/queue/pause", content=b"x" * (BODY_LIMIT + 1))
    assert (large.status_code, is_page(large)) == (413, True)
    assert "default-src 'self'" in large.headers["content-security-policy"]
    foreign = site.http.get("/ui/", headers={"Host": "<b>evil.example"})
    assert (foreign.status_code, is_page(foreign)) == (403, True)
    assert "<b>evil" not in foreign.text


def test_a_page_says_that_the_database_is_away(site: Site) -> None:
    """To those who are let in without it, and to those whose session is in it."""
    site.http.get("/ui/queue")
    session = site.app.client.sessions.begin(site.token())
    site.app.database.close()
    cookie = {"Cookie": f"headway_session_{httpx.URL(site.url).port}={session}"}
    for answer in (site.http.get("/ui/queue"), site.http.get("/ui/queue", headers=cookie)):
        assert (answer.status_code >= 500, is_page(answer)) == (True, True), answer.text
    assert site.http.get("/ui/static/headway.css", headers=cookie).status_code == 200
