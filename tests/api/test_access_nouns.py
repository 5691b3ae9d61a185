"""Tokens, tenants and webhooks over real HTTP."""

from __future__ import annotations

from headway.api.schemas.access import NewTokenSchema, TenantSchema, TokenSchema
from headway.api.schemas.common import PageSchema
from headway.api.schemas.webhooks import DeliveryWithTriesSchema, NewWebhookSchema, WebhookSchema
from tests.support.service import Site
from tests.support.waiting import until
from tests.support.wire import fits

HOOK = {"url": "https://example.com/hooks", "events": ["job.run.failed"]}


def test_tokens_are_made_listed_and_revoked(site: Site) -> None:
    key = {"Idempotency-Key": "one"}
    body = {"name": "root", "role": "admin", "tenant": None, "expires": "90d"}
    made = site.http.post("/api/tokens", json=body, headers=key)
    fits(NewTokenSchema, made, 201)
    root = site.as_(made.json()["token"])
    again = root.post("/api/tokens", json=body, headers=key)
    assert (again.status_code, again.json()["token"]) == (201, None), "shown once"
    assert again.json()["token_id"] == made.json()["token_id"]
    until(lambda: site.http.get("/api/tokens").status_code == 401, "that everybody has to show one")
    ours = root.post("/api/tokens", json={"name": "ours", "role": "admin"}).json()
    assert ours["tenant"] == "default"
    admin = site.as_(ours["token"])
    operator = admin.post("/api/tokens", json={"name": "olga", "role": "operator"}).json()
    assert admin.post("/api/tokens", json=body).status_code == 403
    assert admin.post("/api/tokens", json={**body, "tenant": "other"}).status_code == 404
    assert [one["name"] for one in admin.get("/api/tokens").json()["items"]] == ["ours", "olga"]
    assert [one["name"] for one in root.get("/api/tokens").json()["items"]] == ["root", "ours", "olga"]
    page = root.get("/api/tokens", params={"limit": 2}).json()
    second = root.get("/api/tokens", params={"limit": 2, "cursor": page["next"]})
    rest = fits(PageSchema[TokenSchema], second)
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["olga"], None)
    assert admin.delete(f"/api/tokens/{made.json()['token_id']}").status_code == 404, "the system's is not theirs"
    as_operator = site.as_(operator["token"])
    assert as_operator.get("/api/jobs").status_code == 200
    assert as_operator.get("/api/tokens").status_code == 403
    revoked = admin.delete(f"/api/tokens/{operator['token_id']}").json()
    assert revoked["state"] == "revoked"
    assert as_operator.get("/api/jobs").status_code == 401
    for bad in ({"name": "x"}, {"name": "x", "role": "king"}, {"name": "x", "role": "viewer", "expires": "soon"}):
        assert admin.post("/api/tokens", json=bad).status_code == 422, bad
    texts = [one["token"] for one in (ours, operator)]
    listed = root.get("/api/tokens").text
    assert not any(text in listed for text in texts)


def test_tenants_are_made_changed_and_stopped_by_the_system(site: Site) -> None:
    key = {"Idempotency-Key": "one"}
    made = site.http.post("/api/tenants", json={"name": "press/1", "max_running": 2}, headers=key)
    again = site.http.post("/api/tenants", json={"name": "press/1", "max_running": 2}, headers=key)
    assert (made.status_code, made.json()["max_running"], again.json()) == (201, 2, made.json())
    assert site.http.post("/api/tenants", json={"name": "press/1"}).status_code == 422
    path = "/api/tenants/press%2F1"
    fits(TenantSchema, site.http.get(path))
    edited = site.http.patch(path, json={"max_running": None, "max_queued": 1}, headers={"If-Match": '"1"'}).json()
    assert (edited["max_running"], edited["max_queued"]) == (None, 1)
    assert site.http.patch(path, json={"max_queued": 5}, headers={"If-Match": '"1"'}).status_code == 412
    assert [one["name"] for one in site.http.get("/api/tenants").json()["items"]] == ["default", "press/1"]
    page = site.http.get("/api/tenants", params={"limit": 1}).json()
    assert page["next"] == "default"
    assert site.http.get("/api/tenants/nobody").status_code == 404
    job = {"task": "research.run", "params": {"topic": "fog"}}
    theirs = {"Headway-Tenant": "press/1"}
    assert site.http.post("/api/jobs", json=job, headers=theirs).status_code == 201
    full = site.http.post("/api/jobs", json=job, headers=theirs)
    assert (full.status_code, full.json()["code"]) == (409, "limit_reached")
    token = site.token("admin", tenant="press/1")
    stopped = site.as_(site.token("admin", tenant=None)).post(f"{path}/deactivate").json()
    assert stopped["active"] is False
    assert site.as_(token).get("/api/jobs").status_code == 401
    root = site.as_(site.token("admin", tenant=None))
    assert root.post(f"{path}/activate").json()["active"] is True
    assert site.as_(token).get("/api/jobs").status_code == 200
    assert site.as_(token).get("/api/tenants").status_code == 403, "a tenant's admin is not the system's"
    assert site.as_(site.token("operator", tenant=None)).post("/api/tenants", json={"name": "x"}).status_code == 403


def test_webhooks_are_an_admins_and_a_secret_is_shown_once(site: Site) -> None:
    key = {"Idempotency-Key": "one"}
    made = site.http.post("/api/webhooks", json=HOOK, headers=key)
    again = site.http.post("/api/webhooks", json=HOOK, headers=key)
    fits(NewWebhookSchema, made, 201)
    assert made.json()["secret"].startswith("whsec_")
    assert (again.json()["webhook_id"], again.json()["secret"]) == (made.json()["webhook_id"], None)
    path = made.headers["location"]
    shown = site.http.get(path)
    fits(WebhookSchema, shown)
    assert "secret" not in shown.json()
    edited = site.http.patch(path, json={"description": "mine"}, headers={"If-Match": shown.headers["etag"]})
    assert (edited.json()["description"], edited.json()["url"]) == ("mine", HOOK["url"])
    assert site.http.patch(path, json={"enabled": False}, headers={"If-Match": '"1"'}).status_code == 412
    assert site.http.patch(path, json={"description": None}).json()["description"] is None
    rotated = site.http.post(f"{path}/rotate").json()
    assert rotated["secret"] != made.json()["secret"]
    assert rotated["old_secret_until"] is not None
    assert [one["webhook_id"] for one in site.http.get("/api/webhooks").json()["items"]] == [rotated["webhook_id"]]
    for bad in ({"url": "ftp://x"}, {"url": HOOK["url"], "events": ["job.eaten"]}, {"url": HOOK["url"], "secert": "x"}):
        assert site.http.post("/api/webhooks", json=bad).status_code == 422, bad
    assert site.http.get("/api/webhooks/secret").json()["secret"].startswith("whsec_")
    operator = site.as_(site.token("operator"))
    assert operator.get("/api/webhooks").status_code == 200
    for method, where in (
        ("POST", "/api/webhooks"),
        ("PATCH", path),
        ("DELETE", path),
        ("GET", "/api/webhooks/secret"),
    ):
        assert operator.request(method, where, json=HOOK if method == "POST" else {}).status_code == 403, method
    admin = site.as_(site.token("admin"))
    assert admin.delete(path).json()["state"] == "deleted"
    assert admin.patch(path, json={}).status_code == 404
    assert admin.get(path).json()["deleted_by"]["name"] == "ada"  # its history stays


def test_deliveries_are_listed_shown_and_sent_again(site: Site) -> None:
    path = site.http.post("/api/webhooks", json=HOOK).headers["location"]
    sent = site.http.post(f"{path}/test")
    assert (sent.status_code, sent.json()["event"], sent.json()["status"]) == (201, "webhook.test", "PENDING")
    job = site.http.post("/api/jobs", json={"task": "fails", "params": {}, "retry_policy": {"max_attempts": 0}}).json()
    site.drain()
    (about,) = site.http.get(f"/api/jobs/{job['job_id']}/deliveries").json()["items"]
    assert (about["event"], about["job_id"]) == ("job.run.failed", job["job_id"])
    listed = site.http.get(f"{path}/deliveries").json()["items"]
    assert [one["delivery_id"] for one in listed] == [about["delivery_id"], sent.json()["delivery_id"]]
    shown = fits(DeliveryWithTriesSchema, site.http.get(f"/api/deliveries/{about['delivery_id']}"))
    assert shown == {**about, "attempts": [], "body": None}
    assert site.http.get(f"{path}/deliveries", params={"status": "FAILED"}).json()["items"] == []
    assert site.http.get(f"{path}/deliveries", params={"status": "LOST"}).status_code == 422
    on_its_way = site.http.post(f"/api/deliveries/{about['delivery_id']}/replay")
    assert (on_its_way.status_code, on_its_way.json()["state"]) == (409, "PENDING")
    end = f"update hw_delivery set status = 'FAILED', due_at = null, finished_at = 1 where id = {about['delivery_id']}"
    site.app.database.transact("damage", lambda tx: tx.connection.execute(end))  # type: ignore[attr-defined]
    key = {"Idempotency-Key": "again"}
    first, second = (site.http.post(f"/api/deliveries/{about['delivery_id']}/replay", headers=key) for _ in range(2))
    assert (first.status_code, first.json()["replay_of"]) == (201, about["delivery_id"])
    assert (second.json(), second.headers["idempotent-replayed"]) == (first.json(), "true")
    for wrong in ("/api/deliveries/999", "/api/webhooks/999/deliveries", "/api/jobs/999/deliveries"):
        assert site.http.get(wrong).status_code == 404, wrong
