"""What viewers, and callers without a token, are not told: paths of webhook addresses, and addresses of tasks."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from headway.api.app import NOUNS
from headway.api.schemas.webhooks import render
from headway.dashboard.app import PAGES
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.model.webhooks.address import origin_of, without_paths
from tests.api.test_event_streams import following
from tests.support.receivers import Receiver, answer, receiver
from tests.support.service import Site

HIDDEN = re.compile("hidden-path|hidden-query")
_PART = re.compile(r"\{(\w+)(:\w+)?\}")
DECLARED = [route for noun in NOUNS for route in noun.declared] + [route for pages in PAGES for route in pages.declared]
READS = [route for route in DECLARED if route.method == "GET"]
# A stream has no end; it is read on its own below.
STREAMS = ("/api/events", "/api/jobs/{job_id}/live")


def origin(to: Receiver) -> str:
    return f"http://{httpx.URL(to.url).netloc.decode()}"


def place(to: Receiver, path: str = "hidden-path") -> str:
    return f"{origin(to)}/{path}?key=hidden-query"


def furnish(site: Site, to: Receiver) -> None:
    """A webhook that was tested and told of a job, and a job with an address of its own; one webhook that fails."""
    client = site.app.client
    client.webhooks.create(place(to), events=["job.*"], description="one")
    client.webhooks.create("http://127.0.0.1:9/hidden-path?key=hidden-query", events=["job.*"])
    client.webhooks.edit(1, url=place(to, "again-hidden-path"))
    client.webhooks.test(1)
    made = site.http.post("/api/jobs", json={"task": "fails", "params": {}, "webhook_url": place(to)})
    client.cancel(made.json()["job_id"])
    sender = Deliverer(client.database, render=render, guard=Guard(allow_private=True, deadline=30.0))
    sender.tick()
    assert sender.settle(30)
    sender.tick()


def paths(route: str, prefix: str) -> list[str]:
    """The address with each number of what there is."""
    return sorted({prefix + _PART.sub(str(number), route) for number in range(1, 7)})


def test_viewers_see_webhook_addresses_without_path_and_query(site: Site) -> None:
    with receiver(answer(200, b"ok")) as to:
        furnish(site, to)
        viewer, operator = site.as_(site.token("viewer")), site.as_(site.token("operator", name="bob"))
        told = 0
        for route in READS:
            if route.path in STREAMS:
                continue
            prefix = "" if route.path.startswith(("/api", "/health", "/ready", "/metrics")) else "/ui"
            for path in paths(route.path, prefix):
                shown = viewer.get(path)
                assert not HIDDEN.search(shown.text), path
                told += bool(HIDDEN.search(operator.get(path).text))
        assert told > 10, "operators see them whole"
        webhook = viewer.get("/api/webhooks/1").json()
        assert webhook["url"] == f"{origin(to)}/…"
        own = viewer.get("/api/jobs/1/deliveries").json()["items"]
        assert f"{origin(to)}/…" in {delivery["url"] for delivery in own}


def test_viewers_follow_events_without_the_addresses(site: Site) -> None:
    with receiver(answer(200, b"ok")) as to:
        viewer = site.as_(site.token("viewer"))
        with following(viewer, kind="webhook.*") as reader:
            site.app.client.webhooks.create(place(to), events=["job.*"])
            _, kind, data = reader.next()
        assert (kind, data["data"]["url"]) == ("webhook.created", f"{origin(to)}/…")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.org", "https://hooks.example.org"),
        ("https://hooks.example.org/", "https://hooks.example.org/"),
        ("https://hooks.example.org:8443/services/T0/secret?x=1", "https://hooks.example.org:8443/…"),
        ("https://hooks.example.org?secret", "https://hooks.example.org/…"),
        ("https://me:password@hooks.example.org/", "https://hooks.example.org/…"),
        ("http://[::1]:80/secret", "http://[::1]:80/…"),
        ("http://[::1/secret", "…"),
    ],
)
def test_an_address_without_its_path(url: str, shown: str) -> None:
    assert origin_of(url) == shown
    assert without_paths(f"sent to {url} in vain") == f"sent to {shown} in vain"


# --- the OpenAPI document -----------------------------------------------------------------------------------------


def test_the_document_names_the_path_of_a_task_to_those_who_may_call_it(site: Site) -> None:
    own = "/story/generate"
    assert own in site.http.get("/api/openapi.json").json()["paths"], "everybody is an admin while there is no token"
    tokens = {role: site.token(role, name=role) for role in ("viewer", "operator", "admin")}
    found = {role: site.as_(token).get("/api/openapi.json") for role, token in tokens.items()}
    anybody = site.http.get("/api/openapi.json", headers={"X-Forwarded-For": "203.0.113.9"})
    assert own not in anybody.json()["paths"]
    assert {role: own in answered.json()["paths"] for role, answered in found.items()} == {
        "viewer": False,
        "operator": True,
        "admin": True,
    }
    assert "story_generate" not in anybody.text
    assert anybody.content == found["viewer"].content
    assert anybody.headers["content-type"] == "application/json"
    shared = json.loads(anybody.content)["paths"].keys()
    assert set(found["admin"].json()["paths"]) - set(shared) == {own}


def test_the_document_is_rendered_once_for_each_kind_of_caller(site: Site) -> None:
    documents = site.server.server.config.app.app.app.state.documents  # type: ignore[union-attr]
    first = site.http.get("/api/openapi.json").content
    rendered = dict(documents._rendered)
    assert site.http.get("/api/openapi.json").content == first
    assert all(documents._rendered[key] is text for key, text in rendered.items())
    assert list(rendered.values()) == [first]
