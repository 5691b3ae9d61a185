"""`/api/webhooks` and `/api/deliveries`: webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Response

from headway.api.http.query import Cursor, Id, JobId, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer, etag
from headway.api.schemas.common import Body, PageSchema
from headway.api.schemas.webhooks import (
    DeliverySchema,
    DeliveryWithTriesSchema,
    NewWebhookBody,
    NewWebhookSchema,
    RotateBody,
    SecretSchema,
    WebhookEditBody,
    WebhookSchema,
    delivery_json,
    endpoint_json,
    try_json,
)
from headway.engine.client.client import Client
from headway.model.access.permissions import Role
from headway.model.webhooks.webhook import Delivery, Endpoint
from headway.store import audit_views
from headway.store.paging import Page, make_cursor, read_cursor

routes = Routes("webhooks")
Deleted = Annotated[bool, Query(description="List the deleted ones instead")]
DeliveryStatus = Annotated[Literal["PENDING", "DELIVERED", "FAILED"] | None, Query()]


@routes.post("/api/webhooks", Role.ADMIN, answer=NewWebhookSchema, status=201, creates=True)
def create(here: Here, body: NewWebhookBody) -> Response:
    """Create a webhook that sends events to an address.

    The signing secret is shown only once.
    """
    given = body.given()

    def work(client: Client) -> tuple[Endpoint, str | None]:
        endpoint = client.webhooks.create(**given)
        return endpoint, None if client.replayed else endpoint.secret

    def render(made: tuple[Endpoint, str | None]) -> Response:
        endpoint, secret = made
        facts = {**endpoint_json(endpoint), "secret": secret}
        location = here.address(f"/api/webhooks/{endpoint.id}")
        return answer(facts, 201, Location=location, ETag=etag(endpoint.version))

    return here.make_once(work, render, body.model_dump(), hide=lambda made: (made[0], None))


@routes.get("/api/webhooks", answer=PageSchema[WebhookSchema])
def ls(here: Here, deleted: Deleted = False, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List webhooks, the oldest first. With `deleted` the deleted ones."""
    after = 0 if cursor is None else read_cursor(cursor)
    found = here.client.webhooks.list(after=after, limit=limit + 1, deleted=deleted)
    more = make_cursor(found[limit - 1].id) if len(found) > limit else None
    by = _deleted_by(here, found[:limit])
    items = [endpoint_json(here.shown(endpoint), deleted_by=by.get(endpoint.id)) for endpoint in found[:limit]]
    return answer({"items": items, "next": more})


@routes.get("/api/webhooks/secret", Role.ADMIN, answer=SecretSchema)
def secret(here: Here) -> Response:
    """Show the secret that signs deliveries to the `webhook_url` of jobs."""
    return answer({"secret": here.client.webhooks.secret()})


@routes.post("/api/webhooks/secret/rotate", Role.ADMIN, answer=SecretSchema)
def rotate_secret(here: Here, body: Body | None = None) -> Response:
    """Rotate the secret that signs deliveries to the `webhook_url` of jobs.

    The old secret signs too for one day.
    """
    return answer({"secret": here.client.webhooks.rotate_secret()})


@routes.get("/api/webhooks/{webhook_id}", answer=WebhookSchema)
def show(here: Here, webhook_id: Id) -> Response:
    """Show a webhook without its secret. A deleted one too."""
    return _answer(here, here.shown(here.client.webhooks.get(webhook_id, deleted=True)))


@routes.patch("/api/webhooks/{webhook_id}", Role.ADMIN, answer=WebhookSchema)
def edit(here: Here, webhook_id: Id, body: WebhookEditBody) -> Response:
    """Edit or disable a webhook."""
    changes = body.model_dump(exclude_unset=True)
    changes = {name: value for name, value in changes.items() if value is not None or name == "description"}
    return _answer(here, here.client.webhooks.edit(webhook_id, if_version=here.if_version, **changes))


@routes.delete("/api/webhooks/{webhook_id}", Role.ADMIN, answer=WebhookSchema)
def delete(here: Here, webhook_id: Id) -> Response:
    """Delete a webhook; its pending deliveries are given up."""
    return _answer(here, here.client.webhooks.delete(webhook_id, if_version=here.if_version))


@routes.post("/api/webhooks/{webhook_id}/rotate", Role.ADMIN, answer=NewWebhookSchema, matches=True)
def rotate(here: Here, webhook_id: Id, body: RotateBody | None = None) -> Response:
    """Rotate the secret of a webhook; it is shown only once.

    The old secret signs too for one day. Send `If-Match`, so that a repeated request does not rotate twice: a second
    rotation drops the secret that receivers have."""
    secret = body.secret if body is not None else None
    endpoint = here.client.webhooks.rotate(webhook_id, secret=secret, if_version=here.if_version)
    return answer(endpoint_json(endpoint, secret=True), ETag=etag(endpoint.version))


@routes.post("/api/webhooks/{webhook_id}/test", Role.ADMIN, answer=DeliverySchema, status=201, creates=True)
def send_test(here: Here, webhook_id: Id, body: Body | None = None) -> Response:
    """Send a `webhook.test` event to a webhook."""
    return here.make_once(lambda client: client.webhooks.test(webhook_id), partial(_made, here))


def _answer(here: RequestContext, endpoint: Endpoint) -> Response:
    by = _deleted_by(here, [endpoint]).get(endpoint.id)
    return answer(endpoint_json(endpoint, deleted_by=by), ETag=etag(endpoint.version))


def _deleted_by(here: RequestContext, found: Sequence[Endpoint]) -> dict[int, str]:
    gone = [endpoint.id for endpoint in found if endpoint.deleted_at is not None]
    with here.read() as tx:
        return audit_views.deleted_by(tx, "webhook", gone)


# --- deliveries ---------------------------------------------------------------------------------------------------


@routes.get("/api/webhooks/{webhook_id}/deliveries", answer=PageSchema[DeliverySchema])
def of_webhook(
    here: Here, webhook_id: Id, status: DeliveryStatus = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List the deliveries to a webhook, the newest first."""
    return _page(here, webhook=webhook_id, status=status, limit=limit, cursor=cursor)


@routes.get("/api/jobs/{job_id}/deliveries", answer=PageSchema[DeliverySchema])
def of_job(
    here: Here, job_id: JobId, status: DeliveryStatus = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List the deliveries about a job, the newest first."""
    return _page(here, job=job_id, status=status, limit=limit, cursor=cursor)


def _page(here: RequestContext, **asked: Any) -> Response:
    page: Page[Delivery] = here.client.webhooks.deliveries(**asked)
    return answer({"items": [delivery_json(here.shown(delivery)) for delivery in page.items], "next": page.next})


@routes.get("/api/deliveries/{delivery_id}", answer=DeliveryWithTriesSchema)
def show_delivery(here: Here, delivery_id: Id) -> Response:
    """Show a delivery with its attempts."""
    delivery = here.shown(here.client.webhooks.delivery(delivery_id))
    tries = [try_json(here.shown(each)) for each in here.client.webhooks.tries(delivery_id)]
    return answer({**delivery_json(delivery), "body": delivery.body, "attempts": tries})


@routes.post("/api/deliveries/{delivery_id}/replay", answer=DeliverySchema, status=201, creates=True)
def replay(here: Here, delivery_id: Id, body: Body | None = None) -> Response:
    """Send the message of a delivery again, as a new delivery."""
    return here.make_once(lambda client: client.webhooks.replay(delivery_id), partial(_made, here))


def _made(here: RequestContext, delivery: Delivery) -> Response:
    return answer(delivery_json(delivery), 201, Location=here.address(f"/api/deliveries/{delivery.id}"))
