"""Idempotency-Key over real HTTP, for what takes several transactions, and for what is judged by what it finds."""

from __future__ import annotations

from typing import Any

from tests.support.service import Site

KEY = {"Idempotency-Key": "again-1"}
FILE = """
[[schedules]]
name = "nightly"
cron = "0 3 * * *"
steps = [{ task = "fails" }]

[[webhooks]]
url = "https://hooks.example/headway"
events = ["job.run.failed"]
"""


def forget_answers(site: Site) -> None:
    """As after a crash between what was done and the answer to it."""
    database = site.app.database
    text = "update hw_answer set status = null, headers = null, body = null;"
    database.transact("forget", lambda tx: database.execute_script(tx, text))


def failed(site: Site, count: int) -> None:
    for _ in range(count):
        site.http.post("/api/jobs", json={"task": "fails", "retry_policy": {"max_attempts": 0}})
    site.drain()


def counted(site: Site) -> int:
    return len(site.http.get("/api/jobs").json()["items"])


def test_many_retries_are_made_once(site: Site) -> None:
    failed(site, 2)
    wish: dict[str, Any] = {"filter": {"status": ["FAILED"]}, "action": "retry", "expected_count": 3}
    refused = site.http.post("/api/jobs/bulk", json=wish, headers=KEY)
    assert (refused.status_code, refused.json()["code"]) == (409, "count_mismatch")
    wish["expected_count"] = 2  # nothing was done: the key is as free as before
    first = site.http.post("/api/jobs/bulk", json=wish, headers=KEY)
    again = site.http.post("/api/jobs/bulk", json=wish, headers=KEY)
    assert (first.status_code, len(first.json()["changed"]), counted(site)) == (200, 2, 4)
    assert (again.content, again.headers.get("idempotent-replayed")) == (first.content, "true")
    other = site.http.post("/api/jobs/bulk", json={**wish, "action": "cancel"}, headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    forget_answers(site)
    unknown = site.http.post("/api/jobs/bulk", json=wish, headers=KEY)
    assert (unknown.status_code, unknown.json()["code"], counted(site)) == (409, "in_progress", 4)
    none = {"filter": {"status": ["RUNNING"]}, "action": "cancel", "expected_count": 0}
    key = {"Idempotency-Key": "again-2"}
    site.http.post("/api/jobs/bulk", json=none, headers=key)
    empty = site.http.post("/api/jobs/bulk", json=none, headers=key)
    assert (empty.status_code, empty.headers.get("idempotent-replayed")) == (200, "true")


def test_a_file_is_applied_once_and_its_secrets_are_not_kept(site: Site) -> None:
    wish = {"text": FILE, "file": "headway.toml"}
    first = site.http.post("/api/apply", json=wish, headers=KEY)
    assert first.status_code == 200, first.text
    assert [one["change"] for one in first.json()["items"]] == ["+", "+"]
    assert first.json().pop("secrets")
    again = site.http.post("/api/apply", json=wish, headers=KEY)
    assert again.headers.get("idempotent-replayed") == "true"
    assert again.json() == {name: fact for name, fact in first.json().items() if name != "secrets"}
    forget_answers(site)
    assert site.http.post("/api/apply", json=wish, headers=KEY).json()["code"] == "in_progress"
    assert [one["change"] for one in site.http.post("/api/apply", json=wish).json()["items"]] == ["=", "="]


def test_a_retry_that_was_made_is_not_judged_again(site: Site) -> None:
    job = site.http.post(
        "/api/jobs", json={"task": "command", "params": {"argv": ["false"]}, "retry_policy": {"max_attempts": 0}}
    )
    assert job.status_code == 201, job.text
    site.drain()
    admin, operator = site.as_(site.token("admin")), site.as_(site.token("operator"))
    path, wish = f"{job.headers['location']}/retry", {"params": {"argv": ["true"]}}
    made = admin.post(path, json=wish, headers=KEY)
    assert made.status_code == 201, made.text
    forget_answers(site)
    again = operator.post(path, json=wish, headers=KEY)
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (201, "true"), again.text
    assert again.json()["job_id"] == made.json()["job_id"]
    assert operator.post(path, json=wish).status_code == 403


def test_a_run_of_a_schedule_that_was_made_is_not_judged_again(site: Site) -> None:
    wish = {"name": "nightly", "cron": "0 3 * * *", "steps": [{"task": "research.run", "params": {"topic": "fog"}}]}
    schedule = site.http.post("/api/schedules", json=wish)
    path, seen = f"{schedule.headers['location']}/run", {**KEY, "If-Match": schedule.headers["etag"]}
    made = site.http.post(path, headers=seen)
    assert made.status_code == 201, made.text
    forget_answers(site)
    assert site.http.patch(schedule.headers["location"], json={"note": "changed meanwhile"}).status_code == 200
    again = site.http.post(path, headers=seen)
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (201, "true"), again.text
    assert again.json()["execution_id"] == made.json()["execution_id"]
    assert site.http.post(path, headers={"If-Match": schedule.headers["etag"]}).status_code == 412


def test_a_webhook_that_was_deleted_meanwhile_is_answered_as_when_it_was_made(site: Site) -> None:
    wish = {"url": "https://hooks.example/headway", "events": ["job.run.failed"]}
    made = site.http.post("/api/webhooks", json=wish, headers=KEY)
    assert made.status_code == 201, made.text
    assert site.http.patch(made.headers["location"], json={"description": "changed meanwhile"}).status_code == 200
    assert site.http.delete(made.headers["location"]).status_code == 200
    again = site.http.post("/api/webhooks", json=wish, headers=KEY)
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (201, "true"), again.text
    assert again.json() == {**made.json(), "secret": None}, "a secret is shown once"
    assert [again.headers[name] for name in ("location", "etag")] == [
        made.headers[name] for name in ("location", "etag")
    ]
    forget_answers(site)
    unknown = site.http.post("/api/webhooks", json=wish, headers=KEY)
    assert (unknown.status_code, unknown.headers.get("idempotent-replayed")) == (201, "true"), unknown.text
    assert (unknown.json()["webhook_id"], unknown.json()["secret"]) == (made.json()["webhook_id"], None)
    assert site.http.get("/api/webhooks").json()["items"] == [], "another one was made"


def test_a_schedule_that_was_deleted_meanwhile_is_answered_as_when_it_was_made(site: Site) -> None:
    wish = {"name": "nightly", "cron": "0 3 * * *", "steps": [{"task": "research.run", "params": {"topic": "fog"}}]}
    made = site.http.post("/api/schedules", json=wish, headers=KEY)
    assert site.http.delete(made.headers["location"]).is_success
    again = site.http.post("/api/schedules", json=wish, headers=KEY)
    assert (again.status_code, again.content) == (201, made.content), again.text
    forget_answers(site)
    unknown = site.http.post("/api/schedules", json=wish, headers=KEY)
    assert (unknown.status_code, unknown.headers.get("idempotent-replayed")) == (201, "true"), unknown.text
    assert unknown.json()["schedule_id"] == made.json()["schedule_id"]


def test_a_token_that_was_revoked_meanwhile_is_answered_as_when_it_was_made(site: Site) -> None:
    root, wish = site.as_(site.token("admin", tenant=None)), {"name": "olga", "role": "operator"}
    made = root.post("/api/tokens", json=wish, headers=KEY)
    assert made.status_code == 201, made.text
    assert root.delete(f"/api/tokens/{made.json()['token_id']}").is_success
    again = root.post("/api/tokens", json=wish, headers=KEY)
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (201, "true"), again.text
    assert again.json() == {**made.json(), "token": None}, "its text is shown once"
    with site.app.database.read() as tx:
        kept = tx.connection.execute("select body from hw_answer").fetchall()  # type: ignore[attr-defined]
    assert made.json()["token"] not in str(kept)
