"""Every page: its frame, who may see it, the choices of a reader, and what is answered when there is no such page."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support import forms
from tests.support.browser import Tabs, ready
from tests.support.service import Site


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


def test_what_a_form_says_survives_the_way_to_another_page(site: Site) -> None:
    """A script is told where to go, and what is said there is said there once."""
    site.app.client.templates.create("fog", "research.run", params={"topic": "fog"})
    page = forms.read(site.http, "/templates/1")
    given = {"csrf": forms.csrf(page), "back": "/ui/templates/1"}
    answer = site.http.post("/ui/templates/1/job", data=given, headers={"X-Headway-Script": "1"})
    assert (answer.status_code, answer.text) == (204, "")
    assert answer.headers["X-Headway-To"] == "/ui/jobs/1"
    assert 'role="status"' in forms.read(site.http, "/jobs/1").partition("<main")[0]
    assert 'class="banner good"' not in forms.read(site.http, "/jobs/1")
