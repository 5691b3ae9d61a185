"""The API reference: rendered from files of this server, and its requests arrive."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.support.browser import Tabs, ready
from tests.support.service import Site
from tests.support.waiting import until


def test_the_reference_is_rendered_without_foreign_files_and_sends_requests(tabs: Tabs, desk: Site) -> None:
    page = tabs.context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", tabs._heard)
    page.goto(f"{desk.url}/docs", wait_until="load")
    ready(page)
    operation = page.locator('[id$="-jobs_create"]')
    operation.locator("button.opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.locator("textarea").fill('{"task": "story.generate", "params": {"topic": "fog"}}')
    operation.get_by_role("button", name="Execute").click()
    answer = operation.locator(".live-responses-table .response-col_status")
    answer.filter(has_text="201").first.wait_for()
    assert desk.http.get("/api/jobs").json()["items"][0]["params"] == {"topic": "fog"}
    assert {urlsplit(url).netloc for url in asked if not url.startswith("data:")} == {urlsplit(desk.url).netloc}


def test_the_footer_of_every_page_leads_to_the_reference(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/queue")
    page.get_by_role("contentinfo").get_by_role("link", name="API").click()
    page.locator(".swagger-ui .opblock").first.wait_for()
    assert urlsplit(page.url).path == "/docs"


def test_without_a_token_the_reference_leads_to_the_login(desk: Site) -> None:
    created = desk.http.post("/api/tokens", json={"name": "ada", "role": "admin", "tenant": None})
    assert created.status_code == 201
    # The server remembers for a second that no token existed.
    until(lambda: desk.http.get("/docs", follow_redirects=False).status_code == 303, "the redirect to the login")
    answer = desk.http.get("/docs", follow_redirects=False)
    assert answer.headers["location"] == "/ui/login?next=%2Fdocs"
