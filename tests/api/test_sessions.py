"""Those who come with the cookie of a browser: who they are, for which tenant, and what their writes must carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from headway.model.access.cookies import CookieKey
from headway.model.access.permissions import fingerprint
from headway.store.access import sessions
from tests.api.test_event_streams import STORY, following
from tests.api.test_streams import ended
from tests.support.life import raw_connection
from tests.support.service import SECONDS, Site
from tests.support.waiting import until


def login(site: Site, plain: str) -> str:
    session = site.app.client.sessions.begin(plain)
    assert session is not None
    return session


def key_of(site: Site) -> CookieKey:
    return site.app.client.sessions.cookie_key()


def csrf_of(site: Site, session: str) -> str:
    return key_of(site).csrf_of(session)


def named(name: str, site: Site) -> str:
    """Servers on other ports of the host have cookies of their own."""
    return f"headway_{name}_{httpx.URL(site.url).port}"


@contextmanager
def browser(site: Site, session: str, *, tenant: str | None = None, csrf: str | None = None) -> Iterator[httpx.Client]:
    """With its cookies; what it shows with a write is its own CSRF token unless told otherwise."""
    cookies = {named("session", site): session}
    if tenant is not None:
        cookies[named("tenant", site)] = key_of(site).tenant_cookie(tenant)
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    headers["X-CSRF-Token"] = csrf_of(site, session) if csrf is None else csrf
    with httpx.Client(base_url=site.url, headers=headers, timeout=SECONDS, trust_env=False) as made:
        yield made


def code_of(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


def test_the_oldest_sessions_of_a_token_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    ada, bob = site.token("operator", name="ada"), site.token("operator", name="bob")
    other = login(site, bob)
    made = [login(site, ada) for _ in range(4)]
    assert [site.app.client.sessions.visitor(one) is not None for one in made] == [False, False, True, True]
    assert site.app.client.sessions.visitor(other) is not None


def test_a_session_opens_what_its_token_opens(site: Site) -> None:
    with browser(site, login(site, site.token("operator", name="robot"))) as ada:
        made = ada.post("/api/jobs", json=STORY)
        assert made.status_code == 201
        assert (made.json()["created_by"]["type"], made.json()["created_by"]["name"]) == ("token", "robot")
        assert ada.get("/api/jobs").json()["items"]
        assert code_of(ada.get("/api/tokens")) == (403, "not_allowed")


def test_a_session_ends_with_logout_and_revocation(site: Site) -> None:
    site.token(name="other")
    token, plain = site.app.client.tokens.create("ada", "admin", tenant="default")
    left, kept = login(site, plain), login(site, plain)
    with browser(site, left) as one, browser(site, kept) as other:
        assert [one.get("/api/jobs").status_code, other.get("/api/jobs").status_code] == [200, 200]
        site.app.client.sessions.end(left)
        assert code_of(one.get("/api/jobs")) == (401, "unauthorised")
        assert code_of(one.post("/api/jobs", json=STORY)) == (401, "unauthorised")
        assert other.get("/api/jobs").status_code == 200
        site.app.client.tokens.revoke(token.id)
        assert code_of(other.get("/api/jobs")) == (401, "unauthorised")


def test_a_write_with_a_cookie_needs_the_csrf_token_of_that_cookie(site: Site) -> None:
    plain = site.token()
    session, other = login(site, plain), login(site, plain)
    for wrong in ("", csrf_of(site, other), csrf_of(site, session)[:-1], csrf_of(site, session) + "=", session, "ü"):
        with browser(site, session) as ada:
            for method, path in (
                ("POST", "/api/jobs"),
                ("PATCH", "/api/jobs/1"),
                ("DELETE", "/api/tokens/1"),
                ("PUT", "/api/limits"),
                ("POST", "/ui"),
                ("POST", "/api/ui/"),
                ("POST", "//ui/"),
            ):
                refused = ada.request(method, path, json=STORY, headers={b"X-CSRF-Token": wrong.encode()})
                assert code_of(refused) == (403, "bad_csrf"), (wrong, method, path)
            assert ada.get("/api/jobs").status_code == 200
    with browser(site, session) as ada:
        assert ada.post("/api/jobs", json=STORY).status_code == 201
        del ada.headers["x-csrf-token"]
        assert code_of(ada.post("/api/jobs", json=STORY)) == (403, "bad_csrf")
        assert len(ada.get("/api/jobs").json()["items"]) == 1


def test_pages_look_at_the_field_of_their_forms_themselves(site: Site) -> None:
    """Whatever is there answers; the door lets it in."""
    with browser(site, login(site, site.token()), csrf="") as ada:
        answer = ada.post("/ui/nothing/here")
        assert "bad_csrf" not in answer.text


def test_a_token_in_a_header_counts_before_the_cookie_and_needs_no_csrf_token(site: Site) -> None:
    session = login(site, site.token("viewer", name="looker"))
    operator = site.token("operator", name="robot")
    with browser(site, session, csrf="") as both:
        for headers in ({"Authorization": f"Bearer {operator}"}, {"X-API-Key": operator}):
            made = both.post("/api/jobs", json=STORY, headers=headers)
            assert (made.status_code, made.json()["created_by"]["name"]) == (201, "robot")
        wrong = both.get("/api/jobs", headers={"X-API-Key": "hw_" + "a" * 43})
        assert code_of(wrong) == (401, "unauthorised")


def test_a_page_of_another_origin_may_not_write_with_a_session_either(site: Site) -> None:
    with browser(site, login(site, site.token())) as ada:
        assert code_of(ada.post("/api/jobs", json=STORY, headers={"Origin": "http://evil.example"})) == (
            403,
            "bad_origin",
        )


def test_a_token_is_no_session_and_a_session_no_token(site: Site) -> None:
    plain = site.token()
    session = login(site, plain)
    with browser(site, plain) as ada:
        assert ada.get("/api/jobs").status_code == 401
    assert site.as_(session).get("/api/jobs").status_code == 401


@pytest.mark.parametrize("cookie", ["hws_" + "a" * 43, "hws_", "hws_\u00fc"])
def test_an_unknown_session_is_like_no_cookie(site: Site, cookie: str) -> None:
    """Also while everything is open: then a program's write needs nothing."""
    headers = {b"Cookie": f"{named('session', site)}={cookie}".encode("latin-1")}
    assert site.http.post("/api/jobs", json=STORY, headers=headers).status_code == 201
    site.token()
    until(lambda: site.http.get("/api/jobs", headers=headers).status_code == 401)


def test_the_cookies_of_another_port_are_those_of_another_server(site: Site) -> None:
    """Browsers send them along: two servers of one host do not log each other out."""
    session = login(site, site.token())
    for name in ("headway_session", "headway_session_80", f"{named('session', site)}0"):
        assert site.http.get("/api/jobs", headers={"Cookie": f"{name}={session}"}).status_code == 401
        both = {"Cookie": f"{name}=hws_another; {named('session', site)}={session}"}
        assert site.http.get("/api/jobs", headers=both).status_code == 200


def test_openly_a_program_writes_as_it_did_and_a_browser_shows_what_belongs_to_its_cookie(site: Site) -> None:
    assert site.http.post("/api/jobs", json=STORY).status_code == 201
    with browser(site, key_of(site).open_cookie("abc")) as anybody:
        assert anybody.post("/api/jobs", json=STORY).status_code == 201
        anybody.headers["x-csrf-token"] = csrf_of(site, key_of(site).open_cookie("abd"))
        assert code_of(anybody.post("/api/jobs", json=STORY)) == (403, "bad_csrf")
        site.token()
        until(lambda: code_of(anybody.post("/api/jobs", json=STORY)) == (401, "unauthorised"))


# --- the tenant ---------------------------------------------------------------------------------------------------


def tenants_of_jobs(http: httpx.Client, **headers: str) -> int:
    answer = http.get("/api/jobs", headers=headers)
    assert answer.status_code == 200, answer.text
    return len(answer.json()["items"])


def furnish(site: Site) -> str:
    """One job in `default`, two in `zürich`; the text of a session of the system."""
    site.app.client.tenants.create("zürich")
    root = site.as_(site.token("admin", tenant=None, name="root"))
    for tenant in ("default", "z%C3%BCrich", "z%C3%BCrich"):
        assert root.post("/api/jobs", json=STORY, headers={"Headway-Tenant": tenant}).status_code == 201
    return login(site, site.token("admin", tenant=None, name="browser"))


def test_a_browser_of_the_system_acts_for_the_tenant_of_its_cookie(site: Site) -> None:
    session = furnish(site)
    with browser(site, session) as root:
        assert tenants_of_jobs(root) == 1
    with browser(site, session, tenant="zürich") as root:
        assert tenants_of_jobs(root) == 2
        assert tenants_of_jobs(root, **{"Headway-Tenant": "default"}) == 1, "who says it in a header means it"
        assert root.get("/api/jobs", headers={"Headway-Tenant": "nobody"}).status_code == 404
    program = site.as_(
        site.token("admin", tenant=None, name="program"),
        Cookie=f"{named('tenant', site)}={key_of(site).tenant_cookie('zürich')}",
    )
    assert tenants_of_jobs(program) == 1, "a cookie is for browsers"


@pytest.mark.parametrize("tenant", ["nobody", "", "\0", "\ufffd", "a\0b"])
def test_a_cookie_that_names_no_tenant_is_passed_over(site: Site, tenant: str) -> None:
    with browser(site, key_of(site).open_cookie("abc"), tenant=tenant) as anybody:
        assert anybody.post("/api/jobs", json=STORY).status_code == 201
    session = login(site, site.token("admin", tenant=None))
    with browser(site, session, tenant=tenant) as root:
        assert tenants_of_jobs(root) == 1


def test_a_header_that_names_no_tenant_is_not_found(site: Site) -> None:
    for name in ("nobody", "%00", "a%00b"):
        assert site.http.get("/api/jobs", headers={"Headway-Tenant": name}).status_code == 404, name
    root = site.as_(site.token("admin", tenant=None))
    assert root.get("/api/jobs", headers={"Headway-Tenant": "%00"}).status_code == 404


def test_a_tenants_own_session_stays_in_its_tenant(site: Site) -> None:
    furnish(site)
    with browser(site, login(site, site.token("viewer", name="v")), tenant="zürich") as visitor:
        assert tenants_of_jobs(visitor) == 1


def test_openly_the_cookie_names_the_tenant_too(site: Site) -> None:
    site.app.client.tenants.create("acme")
    site.http.post("/api/jobs", json=STORY, headers={"Headway-Tenant": "acme"})
    assert tenants_of_jobs(site.http) == 0
    assert tenants_of_jobs(site.http, Cookie=f"{named('tenant', site)}={key_of(site).tenant_cookie('acme')}") == 1


def test_a_list_for_all_is_of_one_tenant_when_the_cookie_names_it(site: Site) -> None:
    session = furnish(site)
    site.token(tenant="zürich", name="theirs")
    with browser(site, session) as root, browser(site, session, tenant="zürich") as theirs:
        assert len(root.get("/api/tokens").json()["items"]) == 3
        assert [one["name"] for one in theirs.get("/api/tokens").json()["items"]] == ["theirs"]


# --- streams ------------------------------------------------------------------------------------------------------


def test_a_browsers_stream_is_of_the_tenant_of_its_cookie(site: Site) -> None:
    session = furnish(site)
    with (
        browser(site, session, tenant="zürich") as theirs,
        browser(site, session) as root,
        following(theirs, kind="job.created") as reader,
    ):
        root.post("/api/jobs", json={**STORY, "priority": 3})
        made = theirs.post("/api/jobs", json={**STORY, "priority": 4}).json()["job_id"]
        number, kind, data = reader.next()
        assert (kind, data["thing_id"]) == ("job.created", made), number


def log_out(site: Site, session: str, _: int) -> None:
    site.app.client.sessions.end(session)


def expire(site: Site, session: str, _: int) -> None:
    with raw_connection(site.app.database.url) as raw:
        raw.execute(f"update hw_session set expires_at = 1 where hash = '{fingerprint(session)}'")


def revoke(site: Site, _: str, token_id: int) -> None:
    site.app.client.tokens.revoke(token_id)


@pytest.mark.parametrize("end", [log_out, expire, revoke], ids=lambda end: end.__name__)
@pytest.mark.parametrize("path", ["/api/events?kind=schedule.*", "/api/jobs/{job}/live"])
def test_a_stream_ends_with_its_session_or_its_token(
    site: Site, end: Callable[[Site, str, int], None], path: str
) -> None:
    site.token(name="other")
    token, plain = site.app.client.tokens.create("ada", "operator", tenant="default")
    session, kept = login(site, plain), login(site, plain)
    with browser(site, session) as ada, browser(site, kept) as elsewhere, following(elsewhere, kind="job.*") as reader:
        job = ada.post("/api/jobs", json={**STORY, "hold": True}).json()["job_id"]
        assert reader.next()[1] == "job.created"
        with ada.stream("GET", path.format(job=job)) as answer:
            seen = ended(answer, lambda: end(site, session, token.id))
        assert seen[-3:-1] == ["event: end", 'data: {"reason":"session ended"}']
        if end is not revoke:  # what another session of the same token follows goes on
            elsewhere.post("/api/jobs", json=STORY)
            assert reader.next()[1] == "job.created"
