"""Workers, access, settings, health: what they show, to whom, and what can be done there."""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Route, expect

from headway.api.http.sse import CHECK
from headway.api.server import Server
from headway.cli.command import Invocation
from headway.engine.loop import Loop
from headway.engine.monitoring.readiness import Health
from headway.engine.worker.worker import Worker
from headway.model.access.authority import KINDS
from headway.runtime import supervisor
from tests.support.browser import Tabs, ready
from tests.support.forms import fill, log_in, post, read
from tests.support.service import Site, running, serving, shop
from tests.support.waiting import until

pytestmark = pytest.mark.shown

_TOKEN = re.compile(r"hw_[\w-]{43}")


def text_of(page: str) -> str:
    """What a reader sees of it, about."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def enqueue_for(site: Site, tenant: str, task: str, params: dict[str, str]) -> int:
    body = {"task": task, "params": params}
    with httpx.Client(base_url=site.url, trust_env=False, headers={"Headway-Tenant": tenant}) as program:
        return int(program.post("/api/jobs", json=body).json()["job_id"])


# --- workers ------------------------------------------------------------------------------------------------------


def test_no_worker_yet(site: Site) -> None:
    assert "headway work --app MODULE:APP" in text_of(read(site.http, "/workers"))


def test_a_worker_at_work_and_one_that_left(site: Site) -> None:
    gone = site.worker()
    gone.register()
    gone.stop()
    gone.close()
    alive = site.worker()
    alive.register()
    try:
        shown = text_of(read(site.http, "/workers"))
        assert f"process {alive.who.pid}" in shown
        assert "0 of 4" in shown
        assert "story.generate" in shown
        assert "live" in shown
        assert shown.index("Alive") < shown.index("Left within the last hour")
        assert shown.count("gone It left") == 1
    finally:
        alive.close()


@contextmanager
def at_work(site: Site) -> Iterator[Worker]:
    """A worker that runs; its jobs of the task `waits` do not end before it does."""
    gate = threading.Event()

    @site.app.task("waits")
    async def waits() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.02)

    worker = site.worker()
    worker.register()
    worker.start()
    try:
        yield worker
    finally:
        gate.set()
        until(lambda: not worker.busy())
        worker.stop()
        worker.join(60)
        worker.close()


def test_jobs_of_others_run_without_their_names(site: Site) -> None:
    site.app.client.tenants.create("acme")
    with at_work(site):
        job_id = enqueue_for(site, "acme", "waits", {})
        system = site.as_(site.token("viewer", tenant=None))
        until(lambda: f"#{job_id} waits of another tenant" in text_of(read(system, "/workers")))
        assert f"/jobs/{job_id}" not in read(system, "/workers"), "it would lead nowhere"
        system.headers["Headway-Tenant"] = "acme"
        assert f'href="/ui/jobs/{job_id}"' in read(system, "/workers")
        mine = text_of(read(site.as_(site.token("admin")), "/workers"))
        assert "1 of 4" in mine
        assert f"#{job_id}" not in mine
        assert "a job of another tenant" in mine


# --- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_made_shown_once_and_revoked(site: Site) -> None:
    http = site.as_(site.token("admin", tenant=None))
    answer = fill(http, "/access", "/access/tokens", name="ci", role="operator", owner="tenant", tenant="default")
    assert answer.status_code == 201
    (plain,) = set(_TOKEN.findall(answer.text))
    assert not [value for value in http.cookies.values() if plain in value]
    assert "hw_" not in str(answer.url)
    assert site.as_(plain).get("/api/jobs").status_code == 200
    page = read(http, "/access")
    assert plain not in page
    listed = text_of(page)
    assert f"2 ci operator default {plain[:6]}" in listed
    answer = fill(http, "/access", "/access/tokens/2/revoke")
    assert "Token 2 of ci was revoked" in text_of(answer.text)
    assert site.as_(plain).get("/api/jobs").status_code == 401


def test_a_form_that_is_refused_keeps_what_was_filled_in(site: Site) -> None:
    for field, wishes in (
        ("role", {"name": "ci <i>", "role": "king"}),
        ("expires", {"name": "ci <i>", "role": "viewer", "expires": "soon"}),
    ):
        answer = fill(site.http, "/access", "/access/tokens", **wishes)
        assert answer.status_code == 422
        assert 'value="ci &lt;i&gt;"' in answer.text
        assert f'id="wrong-{field}"' in answer.text
        assert f'aria-describedby="wrong-{field}"' in answer.text
        assert site.http.get("/ui/access/tokens").status_code == 200  # where the form stands now can be asked for again
    assert not site.app.client.tokens.list(everywhere=True)


def test_an_admin_of_a_tenant_makes_tokens_for_that_tenant_alone(site: Site) -> None:
    site.app.client.tenants.create("acme")
    http = site.as_(site.token("admin", tenant="acme", name="boss"))
    site.token("viewer", name="of the other tenant")
    page = text_of(read(http, "/access"))
    assert "boss" in page
    assert "of the other tenant" not in page
    assert "New tenant" not in page
    answer = fill(http, "/access", "/access/tokens", name="spy", role="admin", owner="system")
    assert answer.status_code == 403 or "only a token of the system" in answer.text
    answer = fill(http, "/access", "/access/tokens", name="spy", role="admin", owner="tenant", tenant="default")
    assert answer.status_code == 422
    assert fill(http, "/access", "/access/tokens", name="ours", role="viewer").status_code == 201
    owners = {(one.name, one.tenant) for one in site.app.client.tokens.list(everywhere=True)}
    assert ("ours", "acme") in owners
    assert "spy" not in {name for name, _ in owners}


def test_another_tenants_token_cannot_be_revoked(site: Site) -> None:
    site.app.client.tenants.create("acme")
    http = site.as_(site.token("admin", tenant="acme"))
    site.token("viewer")
    fill(http, "/access", "/access/tokens/2/revoke")
    assert site.app.client.tokens.get(2, everywhere=True).revoked_at is None


def test_viewers_and_operators_see_who_they_are_and_no_forms(site: Site) -> None:
    for role in ("viewer", "operator"):
        http = site.as_(site.token(role, name=f"the {role}"))
        page = read(http, "/access")
        assert f"the {role}" in text_of(page)
        assert "New token" not in page
        assert "New tenant" not in page
        assert '/ui/settings"' not in page  # navigation leads nowhere that is closed


# --- tenants ------------------------------------------------------------------------------------------------------


def test_a_tenant_is_made_limited_switched_off_and_on(site: Site) -> None:
    answer = fill(
        site.http, "/access", "/access/tenants", name="acme", max_queued="10", max_running="", max_schedules=""
    )
    assert "Tenant acme was made" in text_of(answer.text)
    client = site.app.client
    assert client.tenants.get("acme").allowance.facts() == {
        "max_queued": 10,
        "max_running": None,
        "max_schedules": None,
    }
    enqueue_for(site, "acme", "story.generate", {"topic": "fog"})
    assert "acme active 1 of 10 0 0" in text_of(read(site.http, "/access"))
    version = str(client.tenants.get("acme").version)
    limits = {"max_queued": "5", "max_running": "2", "max_schedules": ""}
    fill(site.http, "/access", "/access/tenants/edit", name="acme", version=version, **limits)
    assert "acme active 1 of 5 0 of 2 0" in text_of(read(site.http, "/access"))
    stale = fill(
        site.http, "/access", "/access/tenants/edit", name="acme", version=version, **{**limits, "max_queued": "7"}
    )
    assert stale.status_code == 422
    assert "has changed since it was read" in stale.text
    assert 'value="7"' in stale.text
    # Pressed once more, the same button is refused once more: to overwrite is another one's.
    assert f'name="version" value="{version}"' in stale.text
    now = str(client.tenants.get("acme").version)
    assert f'<button class="bad" name="version" value="{now}">' in stale.text
    over: dict[str, str | list[str]] = {"name": "acme", "version": [version, now], **limits, "max_queued": "7"}
    assert "The limits of tenant acme were changed." in fill(site.http, "/access", "/access/tenants/edit", **over).text
    assert client.tenants.get("acme").allowance.max_queued == 7
    for odd in ("²", "9" * 5_000):
        answer = fill(site.http, "/access", "/access/tenants/edit", **{**over, "version": odd})
        assert (answer.status_code, "version must be a whole number" in answer.text) == (422, True)
    answer = fill(site.http, "/access", "/access/tenants/deactivate", name="acme")
    assert "acme inactive" in text_of(answer.text)
    assert not client.tenants.get("acme").active
    undone = post(site.http, "/access/tenants/activate", csrf=_csrf(answer.text), back="/ui/access", name="acme")
    assert "Tenant acme is active" in text_of(undone.text)


def test_a_tenant_is_opened_for_admin_kinds_with_the_consequence(site: Site) -> None:
    """The second tenant asks what the first keeps; later ones do not."""
    client, limits = site.app.client, {"max_queued": "", "max_running": "", "max_schedules": ""}
    first = {"name": "default", "version": str(client.tenants.get("default").version), **limits, "max_queued": "500"}
    fill(site.http, "/access", "/access/tenants/edit", **first, asks_allow="1", allow=[*KINDS])
    assert client.tenants.get("default").allow is None, "a limit is no decision about the kinds"
    page = read(site.http, "/access")
    assert "Until now the admins of default could give command, powershell, sql, policy." in text_of(page)
    assert "can read the jobs and secrets of every tenant" in text_of(page)
    asked: dict[str, str | list[str]] = {**limits, "asks_allow": "1", "asks_default_allow": "1"}
    refused = fill(site.http, "/access", "/access/tenants", name="", default_allow=["sql"], allow=["command"], **asked)
    assert refused.status_code == 422
    for field, kind in (("allow", "command"), ("default_allow", "sql")):
        assert f'name="{field}" value="{kind}" checked' in refused.text, "a form that comes back keeps its marks"
    fill(site.http, "/access", "/access/tenants", name="acme", allow=["command", "sql"], **asked)
    assert (client.tenants.get("acme").kinds, client.tenants.get("default").kinds) == (("command", "sql"), ())
    assert "Until now" not in text_of(read(site.http, "/access"))
    edit = {"name": "acme", "version": str(client.tenants.get("acme").version), **limits}
    fill(site.http, "/access", "/access/tenants/edit", **edit)
    assert client.tenants.get("acme").kinds == ("command", "sql"), "a form without the boxes leaves them"
    said = fill(site.http, "/access", "/access/tenants/edit", **edit, asks_allow="1", allow=["policy"])
    assert "may give policy and run code as the user of the worker" in text_of(said.text)
    assert client.tenants.get("acme").kinds == ("policy",)
    edit["version"] = str(client.tenants.get("acme").version)
    fill(site.http, "/access", "/access/tenants/edit", **edit, asks_allow="1")
    assert client.tenants.get("acme").kinds == ()
    fill(site.http, "/access", "/access/tenants", name="press", asks_allow="1", **limits)
    assert client.tenants.get("press").kinds == ()


def _csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("most", ["-1", "many", "99999999999", "1.5"])
def test_a_limit_is_a_whole_number(site: Site, most: str) -> None:
    answer = fill(
        site.http, "/access", "/access/tenants", name="acme", max_queued="3", max_running=most, max_schedules=""
    )
    assert answer.status_code == 422
    assert 'id="wrong-max_running"' in answer.text
    assert f'value="{most}"' in answer.text
    assert "acme" not in {one.name for one in site.app.client.tenants.list()}


def test_acting_for_another_tenant(site: Site) -> None:
    site.app.client.tenants.create("acme & sons")
    http = site.http
    log_in(http, site.token("admin", tenant=None, name="root"))
    site.token("viewer", tenant="acme & sons", name="theirs")
    fill(http, "/access", "/choose", name="tenant", value="acme & sons")
    page = text_of(read(http, "/access"))
    assert "acting for acme & sons" in page
    assert "theirs" in page
    assert "root admin the system" not in page  # this page is about one tenant now
    fill(http, "/access", "/choose", name="tenant", value="")
    page = text_of(read(http, "/access"))
    assert "acting for" not in page
    assert "root admin the system" in page


def test_no_visitor_of_a_tenant_acts_for_another(site: Site) -> None:
    site.app.client.tenants.create("acme")
    http = site.http
    log_in(http, site.token("admin"))
    fill(http, "/access", "/choose", name="tenant", value="acme")
    page = text_of(read(http, "/access"))
    assert "acting for" not in page
    assert "Tenant default" in page


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_with_their_sources_and_without_secrets(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SLOTS", "7")
    monkeypatch.setenv("CANARY", "canary-in-the-environment")
    connections = {"shop": "postgresql://me:canary-in-the-address@db/shop"}
    with serving(sqlite_url, connections=connections, secrets={"KEY": "env:CANARY"}) as site:
        page = text_of(read(site.http, "/settings"))
        assert "slots 7 HEADWAY_SLOTS How many jobs one worker runs at once" in page
        assert "heartbeat 2s default" in page
        assert "connections.shop postgresql://me:***@db/shop" in page
        assert "secrets.KEY env:CANARY" in page
        assert "canary" not in page.replace("env:CANARY", "").lower()


def test_the_app_of_the_command_line_is_among_the_settings(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chores.py").write_text("from headway import App\n\nmine = App(host='127.0.0.1', port=0)\n")
    made = Invocation(flags={"database": sqlite_url}).app("chores.py:mine")
    with made, running(made) as site:
        assert "app chores.py:mine --app " in text_of(read(site.http, "/settings"))


# --- health -------------------------------------------------------------------------------------------------------


def test_health_says_what_is_wrong(site: Site) -> None:
    page = text_of(read(site.http, "/health"))
    assert "no worker is alive" in page
    assert "ready" in page
    assert {"sqlite": "SQLite", "postgres": "PostgreSQL"}[site.app.database.dialect] in page
    bad = Health()
    bad.refuse("part_stuck", "scheduler has not done its round for 900 s")
    site.server.service.health = lambda: bad
    page = text_of(read(site.http, "/health"))
    assert "not ready" in page
    assert "scheduler has not done its round for 900 s part_stuck" in page


def test_health_of_a_whole_process(database_url: str) -> None:
    with shop(database_url) as app:
        made = supervisor(app, ("api", "scheduler", "worker"))
        made.start()
        try:
            served = made.loops[-1]
            assert isinstance(served, Server)
            with httpx.Client(base_url=served.url, trust_env=False) as http:
                until(lambda: "scheduler fine" in text_of(read(http, "/health")))
                page = text_of(read(http, "/health"))
                for part in ("recovery", "deliverer", "pruner"):
                    assert f"{part} fine" in page
                assert "1 workers live" in page
                assert http.get("/metrics").status_code == 200
        finally:
            made.stop()
        parts = [part for part in (made.recovery, *made.loops) if isinstance(part, Loop)]
        assert len(parts) == 4
        for one in parts:  # the database may be closed now
            assert one.thread is not None
            assert not one.thread.is_alive()


def test_the_inside_is_not_for_tenants(site: Site) -> None:
    page = text_of(read(site.as_(site.token("admin")), "/health"))
    assert "no worker is alive" in page
    for inside in ("/metrics", "Storage", "Its loops", "Wall between tenants"):
        assert inside not in page
    assert "Storage" in text_of(read(site.as_(site.token("viewer", tenant=None)), "/health"))


# --- in the browser -----------------------------------------------------------------------------------------------


def test_the_first_token_is_not_lost_by_the_lock_it_closes(tabs: Tabs, desk: Site) -> None:
    """Made openly, it shuts out the very browser that shows it: the page must stay as it is."""
    page = tabs.open("/access")
    page.get_by_label("Name of its user").fill("ada")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Make the token").click()
    expect(page.get_by_role("heading", name="Token 1 was made")).to_be_visible()
    ready(page)
    assert [url for url in asked if url.endswith("/api/events")] == []  # it does not follow, or it would be led away
    plain = page.locator("#token-text").inner_text()
    until(lambda: desk.http.get("/api/jobs").status_code == 401)
    page.get_by_role("link", name="Log in with it").click()
    page.wait_for_url("**/ui/login?next=/ui/access")
    page.get_by_label("Token").fill(plain)
    page.get_by_role("button", name="Log in").click()
    ready(page)
    expect(page.get_by_role("heading", name="Access", exact=True)).to_be_visible()
    row = page.locator("#token-1")
    expect(row).to_contain_text("ada")
    expect(row).to_contain_text("the system")
    row.get_by_text("Revoke", exact=True).click()
    row.get_by_role("button", name="Revoke token 1").click()
    # It was the last one: everything is open again.
    expect(page.locator("#said")).to_contain_text("every caller on this machine now has full access")


def test_a_token_on_its_way_is_not_cut_off_by_the_page_that_asked_for_it(tabs: Tabs) -> None:
    """Its stream is ended while the answer is still coming: it is shut out by now, and must not go to see why."""
    page = tabs.open("/access")
    page.get_by_label("Name of its user").fill("ada")

    def slowly(route: Route) -> None:
        answer = route.fetch()
        page.wait_for_timeout(4000 * CHECK)  # time to do the wrong thing: streams are looked at twice in half of it
        route.fulfill(response=answer)

    page.route("**/ui/access/tokens", slowly)
    page.get_by_role("button", name="Make the token").click()
    expect(page.get_by_role("heading", name="Token 1 was made")).to_be_visible()


def test_a_worker_comes_and_goes_on_a_page_that_is_looked_at(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/workers")
    expect(page.locator("#alive")).to_contain_text("No worker is alive")
    worker = desk.worker()
    worker.register()
    expect(page.locator("#alive")).to_contain_text(f"process {worker.who.pid}")
    tasks = page.locator("#alive details summary")
    tasks.click()
    expect(page.get_by_text("research.run")).to_be_visible()
    worker.stop()
    worker.close()
    expect(page.locator("#alive")).to_contain_text("No worker is alive")
    expect(page.get_by_role("heading", name="Left within the last hour")).to_be_visible()
