"""Who may come in: tokens, roles, Host and Origin, over real HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headway.api.app import NOUNS
from headway.api.http.routing import RouteSpec
from headway.api.server import refuse_open
from headway.api.service import Service, ServiceConfig
from headway.dashboard.page import REFERENCE
from headway.errors import Refused
from headway.model.access.permissions import Role
from tests.support.service import Site, serving

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
SHELL = {"task": "command", "params": {"argv": ["true"]}}
OWN = RouteSpec("POST", "/story/generate", Role.OPERATOR, print)  # the own path of a task of this app
ROUTES = [*(one for noun in NOUNS for one in noun.declared), OWN]
WHO = [None, *Role]


@pytest.fixture(scope="module")
def locked(scratch_module: str) -> Iterator[tuple[Site, dict[Role, str]]]:
    with serving(scratch_module) as site:
        yield site, {role: site.token(role.value, tenant=None, name=role.value) for role in Role}


@pytest.fixture(scope="module")
def scratch_module(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("matrix") / "headway.db")


def ask(site: Site, one: RouteSpec, token: str | None) -> int:
    """The status of an answer; of a stream, its beginning is enough."""
    path = one.path
    for name in ("{job_id}", "{run_id}", "{number}", "{task}", "{name}"):
        path = path.replace(name, "987654321")
    path = "/".join("987654321" if part.startswith("{") else part for part in path.split("/"))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body: dict[str, object] | None = None if one.method == "GET" else {}
    with (
        httpx.Client(base_url=site.url, trust_env=False, timeout=30) as http,
        http.stream(one.method, path, headers=headers, json=body) as answer,
    ):
        return answer.status_code


@pytest.mark.parametrize("who", WHO, ids=lambda role: role.value if role else "nobody")
@pytest.mark.parametrize("one", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_every_route_is_for_its_role_and_those_above(
    locked: tuple[Site, dict[Role, str]], one: RouteSpec, who: Role | None
) -> None:
    site, tokens = locked
    status = ask(site, one, tokens[who] if who else None)
    assert status < 500
    if one.role is None:
        assert status not in (401, 403)
    elif who is None:
        assert status == 401
    elif who.may(one.role):
        assert status not in (401, 403)
    else:
        assert status == 403


def test_every_route_of_the_application_is_in_the_matrix(locked: tuple[Site, dict[Role, str]]) -> None:
    app: Any = locked[0].server.server.config.app
    while not hasattr(app, "router"):  # what stands around it
        app = app.app
    # The pages have a matrix of their own (tests/dashboard/test_roles.py), and what leads to them is open to everybody.
    pages = ("", "/", REFERENCE)
    routes = [route for route in app.router.routes if not route.path.startswith("/ui") and route.path not in pages]
    served = {(method, route.path) for route in routes for method in route.methods}
    assert served == {(one.method, one.path) for one in ROUTES}
    assert {(route.endpoint, method) for route in routes for method in route.methods} == set(app.state.declared)


def test_loopback_is_open_until_there_is_a_token(site: Site) -> None:
    assert site.http.post("/api/jobs", json=STORY).status_code == 201
    token = site.token("operator")
    refused = site.http.get("/api/jobs", headers={"X-API-Key": "hw_" + "a" * 43})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="headway"')
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-API-Key": token}):
        assert site.http.get("/api/jobs", headers=headers).status_code == 200
    for bad in ("Basic YTpi", "Bearer", f"bearer  {token}x", "Bearer hw_"):
        assert site.http.get("/api/jobs", headers={"Authorization": bad}).status_code == 401
    assert site.http.get("/healthz").status_code == 200


def test_a_revoked_token_opens_nothing_from_its_revocation_on(site: Site) -> None:
    _, keep = site.app.client.tokens.create("other", "admin", tenant="default")
    made, plain = site.app.client.tokens.create("ada", "admin", tenant="default")
    assert site.as_(plain).get("/api/jobs").status_code == 200
    site.app.client.tokens.revoke(made.id)
    assert site.as_(plain).get("/api/jobs").status_code == 401
    assert site.as_(keep).get("/api/jobs").status_code == 200


def test_the_actor_of_a_token_is_on_every_event(site: Site) -> None:
    made = site.as_(site.token("operator", name="robot")).post("/api/jobs", json=STORY).json()
    assert (made["created_by"]["type"], made["created_by"]["name"]) == ("token", "robot")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "169.254.169.254", ""]
)
def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    with socket.create_connection(("127.0.0.1", site.server.port)) as one:
        one.sendall(f"GET /api/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    assert answer.split(b"\r\n")[0].split()[1] in (b"403", b"400")


def test_a_page_of_another_origin_may_not_write(site: Site) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{site.server.port}"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        refused = site.http.post("/api/jobs", json=STORY, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "bad_origin"), headers
    for headers in ({"Origin": site.url}, {"Sec-Fetch-Site": "same-origin", "Origin": site.url}):
        assert site.http.post("/api/jobs", json=STORY, headers=headers).status_code == 201
    answer = site.http.get("/api/jobs", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_tasks_that_run_anything_are_for_admins(site: Site) -> None:
    admin, operator = site.as_(site.token("admin")), site.as_(site.token("operator", name="op"))
    assert operator.post("/api/jobs", json=SHELL).json()["code"] == "admin_only"
    assert operator.post("/api/jobs/batch", json={"jobs": [STORY, SHELL]}).status_code == 403
    made = admin.post("/api/jobs", json=SHELL)
    assert made.status_code == 201
    path = made.headers["location"]
    assert operator.patch(path, json={"params": {"argv": ["false"]}}).status_code == 403
    assert operator.patch(path, json={"priority": 3}).status_code == 200
    assert operator.post(f"{path}/cancel").status_code == 200
    template = site.app.client.templates.create(
        "greet", "command", params={"argv": ["echo"], "cwd": "/"}, open_params=["stdin"]
    )
    use = {"template_id": template.id}
    assert operator.post("/api/jobs", json={**use, "params": {"stdin": "x"}}).status_code == 201
    assert operator.post("/api/jobs", json={**use, "params": {"argv": ["sh"]}}).status_code == 403


def test_an_address_that_others_can_reach_needs_a_token(site: Site) -> None:
    behind_a_proxy = ServiceConfig(hosts=("jobs.example.com",))
    for terms in (ServiceConfig(host="0.0.0.0"), behind_a_proxy):
        with pytest.raises(Refused, match="there is no token"):
            refuse_open(Service(site.app.client, terms))
    refuse_open(Service(site.app.client, ServiceConfig()))
    site.token()
    refuse_open(Service(site.app.client, behind_a_proxy))


def test_a_probe_with_a_bad_token_is_answered_and_a_nul_is_not(site: Site) -> None:
    site.token()
    stale = {"Authorization": f"Bearer hw_{'a' * 43}"}
    assert site.http.get("/healthz", headers=stale).status_code == 200
    assert site.http.get("/readyz", headers=stale).status_code == 200
    admin = site.as_(site.token("admin", tenant=None, name="root"))
    for path in (
        "/api/schedules?name=a%00",
        "/api/job-templates?name=a%00",
        "/api/tenants?cursor=a%00",
        "/api/jobs?q=%00",
    ):
        assert admin.get(f"/api/{path}").status_code == 422


def test_a_tenant_is_named_in_any_script(site: Site) -> None:
    site.app.client.tenants.create("zürich")
    admin = site.as_(site.token("admin", tenant=None), **{"Headway-Tenant": "z%C3%BCrich"})
    assert admin.post("/api/jobs", json=STORY).status_code == 201
    assert site.as_(site.token("viewer", tenant="zürich", name="v")).get("/api/jobs").json()["items"]


def test_a_hold_that_would_be_passed_over_is_refused(site: Site) -> None:
    job = site.http.post("/api/jobs", json=STORY).headers["location"]
    wrong = site.http.get("/api/jobs", params={"state": "QUEUED"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "state")
    assert "did you mean" in site.http.get("/api/jobs", params={"statu": "QUEUED"}).json()["detail"]
    stale = site.http.post(f"{job}/cancel", headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["errors"][0]["field"]) == (422, "If-Match")
    assert site.http.get(job).json()["status"] == "QUEUED"
    other = site.http.put(job, json={})
    assert (other.status_code, other.headers["allow"]) == (405, "GET, PATCH")
