"""Every address with the number of another tenant's thing answers as if there were none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from headway.api.app import NOUNS
from headway.api.http.routing import RouteSpec
from tests.api.test_bad_input import site_of
from tests.support.service import Site

STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}
ROUTES = [
    one
    for noun in NOUNS
    for one in noun.declared
    if "{" in one.path and not one.system and one.role is not None and one.status != 410
]
# Bodies without which the address would be refused before the number is looked at.
BODIES: dict[str, Any] = {
    "move": {"to": "top"},
    "backfill": {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
    "PUT /api/schedules/{schedule_id}": {"name": "x", "cron": "30 2 * * *", "steps": [STORY]},
}
# Names that are not of a tenant, and a target's jobs, which come into being with the first one.
OPEN = (
    "/api/direct/{task}",
    *(
        f"POST {path}"
        for path in ("/api/targets/{name:path}/jobs", "/targets/{name:path}/jobs", "/targets/{name:path}/jobs/")
    ),
)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, dict[str, Any], str]]:
    """A tenant with one of everything, and somebody of another one who may do anything there."""
    with site_of(request, tmp_path_factory) as site:
        numbers = stock(site)
        site.app.client.tenants.create("acme")
        mine, theirs = site.token("admin", tenant="default"), site.token("admin", tenant="acme", name="eve")
        numbers["token_id"] = site.app.client.tokens.list()[0].id
        assert mine
        yield site, numbers, theirs


def stock(site: Site) -> dict[str, Any]:
    http = site.http
    failed = http.post("/api/jobs", json={"task": "fails", "target": "desk-1"}).json()["job_id"]
    site.drain()
    group = http.post("/api/job-groups", json={"name": "g", "mode": "parallel", "jobs": [STORY]}).json()["group_id"]
    template = http.post("/api/job-templates", json={"name": "t", **STORY}).json()["template_id"]
    schedule = http.post("/api/schedules", json={"name": "s", "cron": "30 2 * * *", "steps": [STORY]}).json()
    execution = http.post(f"/api/schedules/{schedule['schedule_id']}/run").json()["execution_id"]
    reservation = http.post("/api/reservations", json={"resources": ["ollama"]}).json()["reservation_id"]
    hook = http.post("/api/webhooks", json={"url": "https://example.com/hook", "events": ["job.*"]}).json()
    delivery = http.post(f"/api/webhooks/{hook['webhook_id']}/test").json()["delivery_id"]
    return {
        "job_id": failed,
        "run_id": failed,
        "group_id": group,
        "template_id": template,
        "schedule_id": schedule["schedule_id"],
        "execution_id": execution,
        "reservation_id": reservation,
        "webhook_id": hook["webhook_id"],
        "delivery_id": delivery,
        "name": "desk-1",
    }


def path_of(one: RouteSpec, numbers: dict[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        return str(numbers.get(match[1], "1"))

    return re.sub(r"\{(\w+)(?::\w+)?\}", value, one.path)


@pytest.mark.parametrize("one", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_things_of_another_tenant_are_not_there(two: tuple[Site, dict[str, Any], str], one: RouteSpec) -> None:
    site, numbers, theirs = two
    if one.path in OPEN or f"{one.method} {one.path}" in OPEN:
        return
    body = BODIES.get(f"{one.method} {one.path}", BODIES.get(one.path.rpartition("/")[2], {}))
    visitor = site.as_(theirs)
    path = path_of(one, numbers)
    answer = visitor.request(one.method, path, json=None if one.method == "GET" else body)
    assert answer.status_code == 404, (path, answer.status_code, answer.text)
    unknown = visitor.request(
        one.method, path_of(one, dict.fromkeys(numbers, 987654321)), json=None if one.method == "GET" else body
    )
    assert unknown.status_code == 404
    assert unknown.json()["code"] == answer.json()["code"]


LISTS = [one.path for noun in NOUNS for one in noun.declared if one.method == "GET" and "{" not in one.path]


@pytest.mark.parametrize("path", [path for path in LISTS if path.startswith("/api/") and "events" not in path])
def test_no_list_shows_anything_of_another_tenant(two: tuple[Site, dict[str, Any], str], path: str) -> None:
    site, _, theirs = two
    answer = site.as_(theirs).get(path)
    if path in ("/api/tasks", "/api/workers", "/api/limits", "/api/openapi.json"):
        return  # of the installation
    if answer.status_code == 403:
        return  # of the system
    assert answer.status_code == 200
    for secret in ("desk-1", "default", "example.com"):
        assert secret not in answer.text
    items = answer.json().get("items")
    assert not items or path in ("/api/tokens", "/api/audit")  # its own token, and that it was made
