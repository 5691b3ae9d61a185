"""Bad input of every kind, made by hand: refused with a problem that says what is wrong, and nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.support import postgres
from tests.support.service import Site, serving

STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}
SCHEDULE: dict[str, Any] = {"name": "nightly", "cron": "30 2 * * *", "steps": [STORY]}
TEMPLATE: dict[str, Any] = {"name": "fog", "task": "story.generate", "params": {"topic": "fog"}}
GROUP: dict[str, Any] = {"name": "g", "mode": "parallel", "jobs": [STORY]}

# --- bodies that are no JSON as it is taken here ---

_DEEP = "[" * 33 + "]" * 33
BROKEN = [
    b"{",
    b"[",
    b'{"task": }',
    b'{"task": "a",}',
    b"{'task': 'a'}",
    b"nul",
    b'"task"',
    b"[]",
    b"1",
    b"true",
    b"{}{}",
    b'{"task": NaN}',
    b'{"params": Infinity}',
    b'{"params": -Infinity}',
    b'{"task": "a", "task": "b"}',
    b'{"params": {"a": 1, "a": 2}}',
    b'{"task": "\\ud800"}',
    b'{"task": "a\\u0000b"}',
    b'{"priority": 9223372036854775808}',
    b'{"priority": -9223372036854775809}',
    b'{"priority": 1e999}',
    b"\xff\xfe",
    b'{"task": "\xff"}',
    b"\x00",
    f'{{"params": {{"a": {_DEEP}}}}}'.encode(),
    b'{"task": "a"',
    b'/* */ {"task": "a"}',
    b'{"a": 01}',
    b'{"a": +1}',
    b'{"a": .5}',
    b'{"a": 0x10}',
    b'{"a": "\n"}',
    b"undefined",
    b"<job/>",
    b"task=story.generate",
    b'{"params": {"a": 1e400}}',
]
WHERE = ["/api/jobs", "/api/jobs/batch", "/api/jobs/bulk", "/api/schedules", "/api/job-templates", "/api/job-groups"]

# --- fields that mean nothing ---

WORDS: list[Any] = [None, 1, True, [], {}, "", "x" * 201, "a\x00b", "a\nb"]
NUMBERS: list[Any] = ["5", 1.5, -1, 101, True, [], {}, 10**30]
DURATIONS: list[Any] = ["soon", -1, [], {}, "10 parsecs", "", "1e309s", "-5m"]
TIMES: list[Any] = ["yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00", 17, [], {}, "", "25:00"]
LISTS: list[Any] = ["ollama", 1, {}, [1], [None], ["nothing-like-it"], [""], [["ollama"]]]
OBJECTS: list[Any] = ["x", 1, [], True, "{}"]
CHOICES: list[Any] = ["maybe", 1, [], {}, "", "RETRY"]
JOB_FIELDS: dict[str, list[Any]] = {
    "task": [word for word in WORDS if word is not None],
    "template_id": ["1", 0, -1, 1.5, True, 10**30, [], 987654321],
    "params": OBJECTS,
    "priority": NUMBERS,
    "target": [1, True, [], {}, "", "x" * 201, "a\x00b", "a\nb"],
    "resources": LISTS,
    "delay": DURATIONS,
    "not_before": TIMES,
    "expires_at": TIMES,
    "key": [1, True, [], {}, "", "x" * 201, "a\x00b"],
    "hold": ["maybe", 17, [], {}],
    "timeout": [*DURATIONS, 0],
    "retry_policy": [
        3,
        "3",
        [],
        {"max_attempts": -1},
        {"max_attempts": "x"},
        {"base_delay": "soon"},
        {"jitter": 2},
        {"tries": 3},
    ],
    "budget": [5, "5", [], {"tokens": "many"}, {"tokens": -1}, {"": 1}, {"tokens": None}, {"a\x00": 1}],
    "on_lost": CHOICES,
    "on_error": CHOICES,
    "webhook_url": [
        1,
        [],
        "",
        "ftp://example.com",
        "nothing",
        "http://",
        "http://user:secret@example.com",
        "javascript:alert(1)",
    ],
    "webhook_events": ["job.*", 1, {}, [1], ["nothing.like.it"]],
}
SCHEDULE_FIELDS: dict[str, list[Any]] = {
    "name": [1, [], {}, "", "x" * 201, "a\nb"],
    "cron": ["", "* * * *", "* * * * * *", "0 0 0 * * ? *", "60 * * * *", "0 0 30 2 *", "a b c d e", 5, [], {}],
    "timezone": ["Mars/Olympus", "", 1, [], "UTC+2", "../etc/passwd"],
    "steps": ["x", {}, [], [1], [{}], [{"task": "nothing.like.it"}], [{**STORY, "colour": "red"}]],
    "overlap": CHOICES,
    "catch_up": CHOICES,
    "jitter": DURATIONS,
    "window": DURATIONS,
    "start": TIMES,
    "end": TIMES,
    "cap": ["5", -1, 1.5, [], {}],
    "interval": DURATIONS,
    "times": ["x", 1, {}, [1], ["yesterday"]],
    "params": OBJECTS,
    "enabled": ["maybe", 17, []],
    "colour": ["red"],
    "on_failure": [1, [], "", "explode"],
}
VERBS: list[tuple[str, str, Any]] = [
    ("PATCH", "/api/jobs/1", {"status": "RUNNING"}),
    ("PATCH", "/api/jobs/1", {"priority": 101}),
    ("PATCH", "/api/jobs/1", {"params": {"topic": 5}}),
    ("PATCH", "/api/jobs/1", {"params": {"nothing": 5}}),
    ("PATCH", "/api/jobs/1", []),
    ("POST", "/api/jobs/1/move", {}),
    ("POST", "/api/jobs/1/move", {"to": "moon"}),
    ("POST", "/api/jobs/1/move", {"to": "top", "rank": 1}),
    ("POST", "/api/jobs/1/move", {"before": 1}),
    ("POST", "/api/jobs/1/move", {"before": 987654321}),
    ("POST", "/api/jobs/1/move", {"rank": 0}),
    ("POST", "/api/jobs/1/retry", {"params": {"topic": 5}}),
    ("POST", "/api/jobs/1/retry", {"colour": "red"}),
    ("POST", "/api/jobs/1/resume", {"budget": {"tokens": "many"}}),
    ("POST", "/api/jobs/1/resume", {}),
    ("POST", "/api/jobs/1/resolve", {"result": 1, "colour": "red"}),
    ("POST", "/api/jobs/1/cancel", {"colour": "red"}),
    ("POST", "/api/jobs/batch", {"jobs": []}),
    ("POST", "/api/jobs/batch", {"jobs": [STORY] * 1001}),
    ("POST", "/api/jobs/batch", {"jobs": [STORY], "mode": "sideways"}),
    ("POST", "/api/jobs/batch", {"jobs": [STORY], "on_failure": "stop"}),
    ("POST", "/api/jobs/batch", {"jobs": [{**STORY, "stage": 1}]}),
    ("POST", "/api/jobs/batch", {"jobs": [{**STORY, "stage": 1}], "mode": "parallel"}),
    ("POST", "/api/jobs/batch", {"jobs": [STORY], "mode": "parallel", "on_failure": "explode"}),
    ("POST", "/api/jobs/bulk", {"filter": {}, "action": "delete", "expected_count": 1}),
    ("POST", "/api/jobs/bulk", {"filter": {}, "action": "cancel"}),
    ("POST", "/api/jobs/bulk", {"filter": {"colour": "red"}, "action": "cancel", "expected_count": 1}),
    ("POST", "/api/jobs/bulk", {"filter": {"status": ["NOWHERE"]}, "action": "cancel", "expected_count": 1}),
    ("POST", "/api/jobs/bulk", {"filter": {}, "action": "cancel", "expected_count": -1}),
]
QUERIES = (
    [("/api/jobs", {"limit": value}) for value in ("0", "201", "-1", "many", "1.5", "")]
    + [
        ("/api/jobs", {"cursor": value})
        for value in ("x", "aWQ6", "aWQ6LTE", "aWQ6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ", "🙂", "x" * 400)
    ]
    + [
        ("/api/jobs", {name: value})
        for name, values in {
            "status": ("NOWHERE", "1", "QUEUED,NOWHERE"),
            "failure_kind": ("BAD", ""),
            "since": ("yesterday", "2026"),
            "until": ("tomorrow",),
            "group_id": ("x", "0", "99999999999999999999"),
            "schedule_id": ("x", "-1"),
            "target": ("nothing-like-it", "x" * 301),
        }.items()
        for value in values
    ]
)
PATHS = [
    "/api/jobs/0",
    "/api/jobs/x",
    "/api/jobs/-1",
    "/api/jobs/99999999999999999999",
    "/api/jobs/1.5",
    "/api/jobs/%00",
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all: what it holds must not change."""
    with site_of(request, tmp_path_factory) as site:
        assert site.http.post("/api/jobs", json=STORY).status_code == 201
        yield site


def site_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "sqlite":
        return serving(str(tmp_path_factory.mktemp("bad") / "headway.db"))
    return _on_postgres(request.getfixturevalue("postgres_server"))


@contextmanager
def _on_postgres(server: str) -> Iterator[Site]:
    with postgres.fresh_database(server) as url, serving(url) as site:
        yield site


def refused(site: Site, answer: httpx.Response, *, statuses: tuple[int, ...] = (400, 404, 409, 413, 415, 422)) -> None:
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["detail"]
    assert body["code"]
    assert "Traceback" not in answer.text
    jobs = site.http.get("/api/jobs").json()["items"]
    assert [(job["job_id"], job["version"], job["status"]) for job in jobs] == [(1, 1, "QUEUED")]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_json_as_it_is_taken_here(full: Site, where: str, body: bytes) -> None:
    refused(full, full.http.post(where, content=body, headers={"Content-Type": "application/json"}))


def cases(fields: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in fields.items() for value in values]


@pytest.mark.parametrize(("name", "value"), cases(JOB_FIELDS))
def test_a_field_of_a_job_that_means_nothing(full: Site, name: str, value: Any) -> None:
    body = {**STORY, name: value}
    if name == "template_id":
        del body["task"]
    answer = full.http.post("/api/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    refused(full, answer)


@pytest.mark.parametrize(("name", "value"), cases(SCHEDULE_FIELDS))
def test_a_field_of_a_schedule_that_means_nothing(full: Site, name: str, value: Any) -> None:
    body = {**SCHEDULE, name: value}
    if name in ("interval", "times"):
        del body["cron"]
    refused(full, full.http.post("/api/schedules", json=body))
    assert full.http.get("/api/schedules").json()["items"] == []


@pytest.mark.parametrize(("method", "path", "body"), VERBS, ids=range(len(VERBS)))
def test_a_verb_that_cannot_be_done(full: Site, method: str, path: str, body: Any) -> None:
    refused(full, full.http.request(method, path, json=body))


@pytest.mark.parametrize(("path", "query"), QUERIES, ids=range(len(QUERIES)))
def test_a_query_that_asks_for_nothing(full: Site, path: str, query: dict[str, str]) -> None:
    refused(full, full.http.get(path, params=query))


@pytest.mark.parametrize("path", PATHS)
def test_a_number_that_is_none(full: Site, path: str) -> None:
    refused(full, full.http.get(path))


def test_a_body_that_is_too_large_or_no_json_at_all(full: Site) -> None:
    large = json.dumps({**STORY, "params": {"topic": "x" * 300_000}})
    refused(full, full.http.post("/api/jobs", content=large, headers={"Content-Type": "application/json"}))
    parts = (b"x" * 10_000 for _ in range(40))
    streamed = full.http.post("/api/jobs", content=parts, headers={"Content-Type": "application/json"})
    refused(full, streamed, statuses=(413,))
    refused(full, full.http.post("/api/jobs", data={"task": "story.generate"}))
    refused(full, full.http.post("/api/jobs", content=b"", headers={"Content-Type": "application/json"}))
    refused(full, full.http.post("/api/jobs", json=STORY, headers={"Idempotency-Key": "x" * 300}))


@pytest.mark.parametrize(
    "text", ["a=" + "[" * 100_000, "a." * 100_000 + "a = 1", "a = " + "1" * 5_000, "[a]\n" * 6_000]
)
def test_a_file_that_a_parser_cannot_bear_is_bad_input(site: Site, text: str) -> None:
    for dry_run in (True, False):
        answer = site.http.post("/api/apply", json={"text": text, "file": "plans.toml", "dry_run": dry_run})
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_input"), answer.text
        assert answer.json()["detail"].startswith("plans.toml:")
