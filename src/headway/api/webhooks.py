"""`/api/webhooks` and `/api/deliveries`: who is told of what, and how that went."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Response

from headway.api.asking import Cursor, Id, JobId, Limit
from headway.api.routes import Here, Routes, Visit, answer, etag
from headway.api.wire import answers, answers_system, bodies
from headway.api.wire import bodies_access as wished
from headway.api.wire.hooks import delivery_json, endpoint_json, try_json
from headway.engine.client import Client
from headway.model.access import Role
from headway.model.webhooks import Delivery, Endpoint
from headway.store.pages import Page, make_cursor, read_cursor

routes = Routes("webhooks")
DeliveryStatus = Annotated[Literal["PENDING", "DELIVERED", "FAILED"] | None, Query()]


@routes.post("/api/webhooks", Role.ADMIN, answer=answers_system.NewWebhook, status=201, creates=True)
def create(here: Here, body: wished.NewWebhook) -> Response:
    """Tell an address of events. The secret that signs them is shown this once."""
    given = body.given()

    def work(client: Client) -> tuple[Endpoint, str | None]:
        one = client.webhooks.create(**given)
        return one, None if client.replayed else one.secret

    def render(made: tuple[Endpoint, str | None]) -> Response:
        one, secret = made
        facts = {**endpoint_json(one), "secret": secret}
        return answer(facts, 201, Location=here.address(f"/api/webhooks/{one.id}"), ETag=etag(one.version))

    return here.make_once(work, render, body.model_dump(), hide=lambda made: (made[0], None))


@routes.get("/api/webhooks", answer=answers.Page[answers_system.Webhook])
def ls(here: Here, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List webhooks, the oldest first."""
    after = 0 if cursor is None else read_cursor(cursor)
    found = here.client.webhooks.list(after=after, limit=limit + 1)
    more = make_cursor(found[limit - 1].id) if len(found) > limit else None
    return answer({"items": [endpoint_json(one) for one in found[:limit]], "next": more})


@routes.get("/api/webhooks/secret", Role.ADMIN, answer=answers_system.Secret)
def secret(here: Here) -> Response:
    """Show what signs deliveries to the `webhook_url` of jobs."""
    return answer({"secret": here.client.webhooks.secret()})


@routes.post("/api/webhooks/secret/rotate", Role.ADMIN, answer=answers_system.Secret)
def rotate_secret(here: Here, body: bodies.Body | None = None) -> Response:
    """Make another one of these. For a day the old one signs too."""
    return answer({"secret": here.client.webhooks.rotate_secret()})


@routes.get("/api/webhooks/{webhook_id}", answer=answers_system.Webhook)
def show(here: Here, webhook_id: Id) -> Response:
    """Show a webhook, but for its secret."""
    return _answer(here.client.webhooks.get(webhook_id))


@routes.patch("/api/webhooks/{webhook_id}", Role.ADMIN, answer=answers_system.Webhook)
def edit(here: Here, webhook_id: Id, body: wished.WebhookEdit) -> Response:
    """Change a webhook, or disable it."""
    changes = body.model_dump(exclude_unset=True)
    changes = {name: value for name, value in changes.items() if value is not None or name == "description"}
    return _answer(here.client.webhooks.edit(webhook_id, if_version=here.if_version, **changes))


@routes.delete("/api/webhooks/{webhook_id}", Role.ADMIN, answer=answers_system.Webhook)
def delete(here: Here, webhook_id: Id) -> Response:
    """Send nothing more to it; what was on its way is given up."""
    return _answer(here.client.webhooks.delete(webhook_id, if_version=here.if_version))


@routes.post("/api/webhooks/{webhook_id}/rotate", Role.ADMIN, answer=answers_system.NewWebhook, matches=True)
def rotate(here: Here, webhook_id: Id, body: wished.Rotate | None = None) -> Response:
    """Give a webhook another secret, shown this once. For a day the old one signs too.

    With `If-Match` it can be asked for again when the answer was lost: done twice, it forgets what receivers have."""
    secret = body.secret if body is not None else None
    one = here.client.webhooks.rotate(webhook_id, secret=secret, if_version=here.if_version)
    return answer(endpoint_json(one, secret=True), ETag=etag(one.version))


@routes.post("/api/webhooks/{webhook_id}/test", Role.ADMIN, answer=answers_system.Delivery, status=201, creates=True)
def send_test(here: Here, webhook_id: Id, body: bodies.Body | None = None) -> Response:
    """Send `webhook.test` to see whether it arrives."""
    return here.make_once(lambda client: client.webhooks.test(webhook_id), partial(_made, here))


def _answer(one: Endpoint) -> Response:
    return answer(endpoint_json(one), ETag=etag(one.version))


# --- deliveries ---------------------------------------------------------------------------------------------------


@routes.get("/api/webhooks/{webhook_id}/deliveries", answer=answers.Page[answers_system.Delivery])
def of_webhook(
    here: Here, webhook_id: Id, status: DeliveryStatus = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List what was sent to a webhook, the newest first."""
    return _page(here, webhook=webhook_id, status=status, limit=limit, cursor=cursor)


@routes.get("/api/jobs/{job_id}/deliveries", answer=answers.Page[answers_system.Delivery])
def of_job(
    here: Here, job_id: JobId, status: DeliveryStatus = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List what was sent about a job, the newest first."""
    return _page(here, job=job_id, status=status, limit=limit, cursor=cursor)


def _page(here: Visit, **asked: Any) -> Response:
    page: Page[Delivery] = here.client.webhooks.deliveries(**asked)
    return answer({"items": [delivery_json(one) for one in page.items], "next": page.next})


@routes.get("/api/deliveries/{delivery_id}", answer=answers_system.DeliveryWithTries)
def show_delivery(here: Here, delivery_id: Id) -> Response:
    """Show a delivery, and how each try went."""
    one, tries = here.client.webhooks.delivery(delivery_id), here.client.webhooks.tries(delivery_id)
    return answer({**delivery_json(one), "body": one.body, "attempts": [try_json(each) for each in tries]})


@routes.post("/api/deliveries/{delivery_id}/replay", answer=answers_system.Delivery, status=201, creates=True)
def replay(here: Here, delivery_id: Id, body: bodies.Body | None = None) -> Response:
    """Send the same message once more, as a new delivery."""
    return here.make_once(lambda client: client.webhooks.replay(delivery_id), partial(_made, here))


def _made(here: Visit, one: Delivery) -> Response:
    return answer(delivery_json(one), 201, Location=here.address(f"/api/deliveries/{one.id}"))
