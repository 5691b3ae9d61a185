"""Cookies on a host whose other ports are an attacker's: read, set, forged, sent again, under TLS."""

from __future__ import annotations

import httpx
import pytest

from headway.api.http.cookies import cookie_name
from headway.model.access.cookies import CookieKey
from tests.support import forms
from tests.support.other_port import forged_flash, guessed_csrf, named
from tests.support.service import Site, serving

PAUSED = "The queue is paused"


def sent(site: Site, **cookies: str) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{named(name, site.url)}={value}" for name, value in cookies.items())}


def kept(site: Site, name: str) -> str:
    value = site.http.cookies.get(named(name, site.url))
    assert value is not None
    return value


def test_a_set_or_read_cookie_tells_no_csrf_token(site: Site) -> None:
    forms.read(site.http, "/queue")
    read = kept(site, "session")
    site.http.cookies.clear()
    for cookie in ("open_evil", "open_evil.", f"{read}x", read):
        token = guessed_csrf(cookie)
        headers = sent(site, session=cookie)
        form = site.http.post("/ui/queue/pause", data={"csrf": f"{token}.default"}, headers=headers)
        assert form.status_code == 403, cookie
        api = site.http.post("/api/queue/pause", json={}, headers={**headers, "X-CSRF-Token": token})
        assert (api.status_code, api.json()["code"]) == (403, "bad_csrf"), cookie
        site.http.cookies.clear()
    assert PAUSED not in forms.read(site.http, "/queue")


def test_a_flash_form_cannot_be_forged(site: Site) -> None:
    forms.read(site.http, "/queue")
    read = kept(site, "session")
    site.http.cookies.clear()
    for cookie in ("open_evil", read):
        flash = forged_flash(cookie, "Your session is about to end", "/queue/pause")
        page = site.http.get("/ui/queue", headers=sent(site, session=cookie, said=flash))
        assert page.status_code == 200
        assert "about to end" not in page.text, cookie
        site.http.cookies.clear()


def test_a_flash_message_of_another_browser_is_not_shown(site: Site) -> None:
    site.app.client.pause_queue()
    given = {"csrf": forms.csrf(forms.read(site.http, "/queue")), "back": "/ui/queue"}
    assert site.http.post("/ui/queue/resume", data=given).status_code == 303
    flash, session = kept(site, "said"), kept(site, "session")
    site.http.cookies.clear()
    own = site.http.get("/ui/queue", headers=sent(site, session=session, said=flash)).text
    assert 'class="banner good"' in own
    site.http.cookies.clear()
    assert 'class="banner good"' not in site.http.get("/ui/queue", headers=sent(site, said=flash)).text


def test_a_cookie_that_is_set_beside_the_browsers_own_changes_nothing(site: Site) -> None:
    """A cookie for a longer path comes first; a server that takes the first or the last one is deceived."""
    token = forms.csrf(forms.read(site.http, "/queue"))
    own, name = kept(site, "session"), named("session", site.url)
    site.http.cookies.clear()
    for values in (("open_evil", own), (own, "open_evil"), ("hws_" + "e" * 43, own)):
        headers = {"Cookie": "; ".join(f"{name}={value}" for value in values)}
        page = site.http.get("/ui/queue", headers=headers)
        assert forms.csrf(page.text) == token
        assert named("session", site.url) not in page.headers.get("set-cookie", "")
        answer = site.http.post("/ui/queue/pause", data={"csrf": token, "back": "/ui/queue"}, headers=headers)
        assert answer.status_code == 303, values
        site.http.cookies.clear()


def test_a_tenant_is_chosen_by_a_form_and_by_no_other_server(site: Site) -> None:
    site.app.client.tenants.create("acme")
    forged = site.http.get("/ui/queue", headers=sent(site, tenant="acme"))
    assert "acting for <b>acme</b>" not in forged.text
    forms.fill(site.http, "/access", "/choose", name="tenant", value="acme")
    assert "acting for <b>acme</b>" in forms.read(site.http, "/queue")


def test_all_servers_of_an_installation_share_the_key_and_it_outlives_them(site: Site, database_url: str) -> None:
    token = forms.csrf(forms.read(site.http, "/queue"))
    session = kept(site, "session")
    for _ in range(2):  # beside the first one, and after the second one has ended
        with serving(database_url) as second:
            data = {"csrf": token, "back": "/ui/queue"}
            answer = second.http.post("/ui/queue/pause", data=data, headers=sent(second, session=session))
            assert answer.status_code == 303, answer.text


def test_two_installations_have_two_keys(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = str(tmp_path_factory.mktemp("other") / "headway.db")
    with serving(sqlite_url) as first, serving(other) as second:
        first_key, second_key = (each.app.client.sessions.cookie_key() for each in (first, second))
        assert first_key == first.app.client.sessions.cookie_key()
        assert first_key != second_key
        assert len(first_key.secret) == 32
        assert "secret" not in repr(first_key)


# --- TLS ----------------------------------------------------------------------------------------------------------

TLS = {"X-Forwarded-Proto": "https"}


def test_under_tls_cookies_are_bound_to_the_host(site: Site) -> None:
    """Then no page without TLS, and none of another name in the domain, can set them."""
    plain = site.token()
    http = httpx.Client(base_url=site.url, headers=TLS, trust_env=False)
    site.visitors.append(http)
    asked = http.get("/ui/login")
    host, port = httpx.URL(site.url).host, httpx.URL(site.url).port
    cookie = asked.headers["set-cookie"]
    name = named("session", site.url, tls=True)
    value = cookie.removeprefix(f"{name}=").partition(";")[0]
    assert cookie.startswith(f"{name}=open_")
    headers = {"Cookie": f"{name}={value}", "Origin": f"https://{host}:{port}"}
    entered = http.post("/ui/login", data={"csrf": forms.csrf(asked.text), "token": plain}, headers=headers)
    assert entered.status_code == 303, entered.text
    session = entered.headers["set-cookie"]
    for made in (cookie, session):
        attributes = {part.strip().lower() for part in made.split(";")[1:]}
        assert {"secure", "httponly", "path=/", "samesite=lax"} <= attributes
        assert not any(part.startswith("domain") for part in attributes)
    value = session.removeprefix(f"{name}=").partition(";")[0]
    assert http.get("/api/jobs", headers={"Cookie": f"{name}={value}"}).status_code == 200
    assert http.get("/api/jobs", headers={"Cookie": f"{named('session', site.url)}={value}"}).status_code == 401
    left = http.post(
        "/ui/logout",
        data={"csrf": forms.csrf(http.get("/ui/queue", headers={"Cookie": f"{name}={value}"}).text)},
        headers={"Cookie": f"{name}={value}"},
    )
    assert left.headers["set-cookie"].startswith(f'{name}=""')
    assert "Secure" in left.headers["set-cookie"], "a browser drops such a cookie only if told so securely"


def test_the_names_of_cookies() -> None:
    def name(host: str, scheme: str, root: str = "") -> str:
        return cookie_name("x", {"scheme": scheme, "headers": [(b"host", host.encode())], "headway.root": root})

    assert name("shop:8642", "http") == "x_8642"
    assert name("shop", "http", "/hw") == "x_80"
    assert name("shop", "https") == "__Host-x_443"
    assert name("shop:1", "https", "/a") != name("shop:1", "https", "/b"), "both are valid for all paths"


def test_a_signature_holds_for_one_purpose_and_one_text() -> None:
    key = CookieKey(b"k" * 32)
    assert key.signature("a", "b", "c") != key.signature("a", "bc")
    assert key.signature("a", "b") != key.signature("b", "a")
    assert not key.is_open_cookie(f"open_x.{key.signature('tenant', 'x')}")
    assert key.is_open_cookie(key.open_cookie("x"))
    for odd in ("", "open_", "open_.", "x", key.open_cookie("x") + "=", key.open_cookie("x")[:-1], "open_ü.\udcff"):
        assert not key.is_open_cookie(odd)
        assert key.chosen_tenant(odd) is None
    assert key.chosen_tenant(key.tenant_cookie("zü.rich")) == "zü.rich"
