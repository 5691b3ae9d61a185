"""Who may see which page and send which form: every page that is declared, for everybody who may come. And what is only
looked at changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from headway.api.http.routing import RouteSpec
from headway.dashboard.app import PAGES
from headway.model.access.permissions import Role
from headway.store import events
from tests.support.forms import csrf, log_in, read
from tests.support.service import Site

pytestmark = pytest.mark.shown

DECLARED = [one for pages in PAGES for one in pages.declared]
LOOKS = [one for one in DECLARED if one.method == "GET"]
FORMS = [one for one in DECLARED if one.method == "POST"]
_NUMBER, _WORD = re.compile(r"\{[a-z_]+:int\}"), re.compile(r"\{[a-z_]+(:[a-z]+)?\}")
# They show what their query names, and nothing without one.
ASKED = ("/targets/show", "/deliveries", "/schedules/preview")
# Who comes: the role of their token, and whose it is (None: the system's).
WHO = {
    "viewer": (Role.VIEWER, "default"),
    "operator": (Role.OPERATOR, "default"),
    "admin": (Role.ADMIN, None),
    "tenant admin": (Role.ADMIN, "acme"),
}


def address(one: RouteSpec, number: int = 1) -> str:
    return _WORD.sub("cancel", _NUMBER.sub(str(number), one.path))


def name_of(one: RouteSpec) -> str:
    return f"{one.method} {one.path}"


@dataclass(frozen=True)
class Person:
    """Somebody who has logged in, with the CSRF token of their session."""

    role: Role
    system: bool
    http: httpx.Client
    csrf: str

    def may(self, one: RouteSpec) -> bool:
        return one.role is None or (self.role.may(one.role) and (self.system or not one.system))


@pytest.fixture
def people(site: Site) -> Iterator[dict[str, Person]]:
    site.app.client.tenants.create("acme")
    found: dict[str, Person] = {}
    for name, (role, tenant) in WHO.items():
        plain = site.token(role.value, tenant=tenant, name=name)
        found[name] = _person(site, role, tenant is None, plain)
    yield found
    for person in found.values():
        person.http.close()


def _person(site: Site, role: Role, system: bool, plain: str) -> Person:
    http = httpx.Client(base_url=site.url, trust_env=False, timeout=30.0)
    log_in(http, plain)
    return Person(role, system, http, csrf(read(http, "/access")))


def is_refused(answer: httpx.Response) -> bool:
    """By the role or the tenant. Whatever else may be wrong with an empty form is no question of who sends it."""
    words = "this needs the role" in answer.text or "this is for tokens of the system" in answer.text
    return answer.status_code == 403 and words


def test_there_are_pages_to_try() -> None:
    assert len(LOOKS) >= 20
    assert len(FORMS) >= 20


def test_no_page_leads_to_the_login(site: Site) -> None:
    site.token("admin")
    for one in DECLARED:
        if one.role is None:
            continue
        if one.method == "GET":
            answer = site.http.get(f"/ui{address(one)}?q=1")
            assert answer.status_code == 303, name_of(one)
            assert answer.headers["location"].startswith("/ui/login?next=%2Fui%2F"), name_of(one)
        else:
            answer = site.http.post(f"/ui{address(one)}", data={})
            assert (answer.status_code, answer.headers.get("location")) == (303, "/ui/login"), name_of(one)


def test_a_page_and_a_form_are_for_their_role(site: Site, people: dict[str, Person]) -> None:
    for who, person in people.items():
        for one in DECLARED:
            if one.role is None:
                continue
            if one.method == "GET":
                answer = person.http.get(f"/ui{address(one)}")
            else:
                answer = person.http.post(f"/ui{address(one, 999)}", data={"csrf": person.csrf})
            assert is_refused(answer) is not person.may(one), (who, name_of(one), answer.status_code)
            assert answer.status_code < 500, (who, name_of(one))


def test_no_form_is_taken_without_its_csrf_token(site: Site, people: dict[str, Person]) -> None:
    before = newest(site)
    for who, person in people.items():
        for given in ({}, {"csrf": ""}, {"csrf": "x" * 43}):
            for one in FORMS:
                answer = person.http.post(f"/ui{address(one)}", data=given)
                assert answer.status_code == 403, (who, name_of(one))
                assert "this form has expired or comes from another site" in answer.text, (who, name_of(one))
        assert person.http.get("/ui/access").status_code == 200  # nor was anybody logged out
    assert newest(site) == before


def test_a_form_is_of_its_session_and_of_our_own_pages(site: Site, people: dict[str, Person]) -> None:
    before, person = newest(site), people["admin"]
    for one in FORMS:
        answer = person.http.post(f"/ui{address(one)}", data={"csrf": people["operator"].csrf})
        assert answer.status_code == 403, name_of(one)
        headers = {"Origin": "http://evil.example"}
        answer = person.http.post(f"/ui{address(one)}", data={"csrf": person.csrf}, headers=headers)
        assert (answer.status_code, "may not write here" in answer.text) == (403, True), name_of(one)
    assert newest(site) == before


def newest(site: Site) -> int:
    with site.app.database.read() as tx:
        return events.newest(tx)


def furnish(site: Site) -> None:
    """One of each thing that a page shows."""
    app, client = site.app, site.app.client
    app.enqueue("story.generate", {"topic": "fog"}, target="desk-1")
    app.enqueue("fails", {})
    site.drain()
    app.enqueue("story.generate", {"topic": "mist"})
    client.templates.create("a story", "story.generate", params={"topic": "fog"})
    steps = [{"task": "story.generate", "name": "one", "params": {"topic": "fog"}}]
    schedule = client.schedules.create("nightly", {"cron": "30 2 * * *", "steps": steps})
    client.schedules.run(schedule.id)
    app.group([app.step("story.generate", {"topic": "rain"})]).start()
    endpoint = client.webhooks.create("http://127.0.0.1:9/", ["job.run.completed"])
    client.webhooks.test(endpoint.id)


def test_looking_changes_nothing(site: Site, people: dict[str, Person]) -> None:
    furnish(site)
    before, http = newest(site), people["admin"].http
    for one in FORMS:  # what a form does is not done by getting its address
        assert http.get(f"/ui{address(one)}").status_code < 500, name_of(one)
    for one in LOOKS:
        # Numbers are shared: an execution is a group of its own kind.
        answers = [http.get(f"/ui{address(one, number)}") for number in (range(1, 4) if "{" in one.path else (1,))]
        assert one.path in ASKED or 200 in {answer.status_code for answer in answers}, name_of(one)
        assert all(answer.status_code < 500 for answer in answers), name_of(one)
    assert newest(site) == before
