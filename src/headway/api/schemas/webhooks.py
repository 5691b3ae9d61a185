"""The JSON of webhooks and deliveries, the bodies about them, and what a delivery sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from headway.api.schemas.common import (
    ActorSchema,
    AnyJson,
    Body,
    Instant,
    Json,
    Reader,
    Schema,
    Words,
    actor_json,
    actor_or_none,
    given,
    strict,
    time_or_none,
)
from headway.api.schemas.groups import execution_json, group_json
from headway.api.schemas.jobs import job_json
from headway.api.schemas.queue import target_json
from headway.api.schemas.schedules import tick_json
from headway.errors import NotFound
from headway.model.event import Event
from headway.model.schedules.schedule import Tick
from headway.model.values.times import instant_text
from headway.model.webhooks.webhook import TEST, Delivery, Endpoint, Try
from headway.store.db import Tx
from headway.store.groups.views import group_view
from headway.store.jobs.views import view
from headway.store.queue import targets
from headway.store.webhooks import endpoints

# --- webhooks -----------------------------------------------------------------------------------------------------

_endpoint = Reader[Endpoint]()


def state(endpoint: Endpoint) -> str:
    if endpoint.deleted_at is not None:
        return "deleted"
    if not endpoint.enabled:
        return "disabled"
    return "open" if endpoint.opened_at is not None else "closed"


class WebhookSchema(Schema[Endpoint]):
    webhook_id: int = _endpoint(lambda endpoint: endpoint.id)
    url: str = _endpoint(lambda endpoint: endpoint.url)
    events: list[str] = _endpoint(lambda endpoint: json.loads(endpoint.events))
    description: str | None = _endpoint(lambda endpoint: endpoint.description)
    max_tries: int = _endpoint(lambda endpoint: endpoint.max_tries)
    enabled: bool = _endpoint(lambda endpoint: bool(endpoint.enabled))
    state: Literal["closed", "open", "disabled", "deleted"] = _endpoint.literal(lambda endpoint: state(endpoint))
    reason: str | None = _endpoint(lambda endpoint: endpoint.reason)
    failures: int = _endpoint(lambda endpoint: endpoint.failures)
    opened_at: Instant | None = _endpoint(lambda endpoint: time_or_none(endpoint.opened_at))
    probe_at: Instant | None = _endpoint(lambda endpoint: time_or_none(endpoint.probe_at))
    old_secret_until: Instant | None = _endpoint(lambda endpoint: time_or_none(endpoint.old_until))
    created_at: Instant = _endpoint(lambda endpoint: instant_text(endpoint.created_at))
    created_by: ActorSchema = _endpoint(lambda endpoint: actor_json(endpoint.created_by))
    deleted_at: Instant | None = _endpoint(lambda endpoint: time_or_none(endpoint.deleted_at))
    deleted_by: ActorSchema | None = given()
    version: int = _endpoint(lambda endpoint: endpoint.version)


class NewWebhookSchema(WebhookSchema):
    secret: str | None


@strict
class SecretSchema(TypedDict):
    secret: str


def endpoint_json(endpoint: Endpoint, *, secret: bool = False, deleted_by: str | None = None) -> Json:
    """Returns a webhook. Only the answer that creates the secret contains it."""
    shown = {"secret": endpoint.secret} if secret else {}
    made: Json = WebhookSchema.of(endpoint, deleted_by=actor_or_none(deleted_by), **shown)
    return made


# --- deliveries ---------------------------------------------------------------------------------------------------

_delivery, _try = Reader[Delivery](), Reader[Try]()


class DeliverySchema(Schema[Delivery]):
    delivery_id: int = _delivery(lambda delivery: delivery.id)
    event_id: int | None = _delivery(lambda delivery: delivery.event_id)
    event: str = _delivery(lambda delivery: delivery.event)
    # Null for a delivery to the job's `webhook_url`.
    webhook_id: int | None = _delivery(lambda delivery: delivery.endpoint_id or None)
    # The former name of `webhook_id`, until the next version of the API.
    endpoint_id: Annotated[int | None, Field(deprecated=True)] = _delivery(
        lambda delivery: delivery.endpoint_id or None
    )
    job_id: int | None = _delivery(lambda delivery: delivery.job_id)
    url: str | None = _delivery(lambda delivery: delivery.url)
    message_id: str | None = _delivery(lambda delivery: delivery.message_id)
    status: str = _delivery(lambda delivery: delivery.status)
    tries: int = _delivery(lambda delivery: delivery.tries)
    max_tries: int = _delivery(lambda delivery: delivery.max_tries)
    next_try_at: Instant | None = _delivery(lambda delivery: time_or_none(delivery.next_try_at))
    last_status_code: int | None = _delivery(lambda delivery: delivery.last_status_code)
    last_error: str | None = _delivery(lambda delivery: delivery.last_error)
    replay_of: int | None = _delivery(lambda delivery: delivery.replay_of)
    created_at: Instant = _delivery(lambda delivery: instant_text(delivery.created_at))
    delivered_at: Instant | None = _delivery(lambda delivery: time_or_none(delivery.delivered_at))
    finished_at: Instant | None = _delivery(lambda delivery: time_or_none(delivery.finished_at))


class TrySchema(Schema[Try]):
    number: int = _try(lambda attempt: attempt.number)
    at: Instant = _try(lambda attempt: instant_text(attempt.at))
    seconds: float = _try(lambda attempt: attempt.took / 1e6)
    status_code: int | None = _try(lambda attempt: attempt.status_code)
    error: str | None = _try(lambda attempt: attempt.error)
    address: str | None = _try(lambda attempt: attempt.address)
    request: AnyJson = _try(lambda attempt: json.loads(attempt.request))
    response: AnyJson = _try(lambda attempt: json.loads(attempt.response) if attempt.response else None)


class DeliveryWithTriesSchema(DeliverySchema):
    """`body` is the request body; null until it is rendered."""

    body: str | None
    attempts: list[TrySchema]


# --- bodies -------------------------------------------------------------------------------------------------------

Url = Annotated[str, Field(min_length=1, max_length=2_000)]
GivenSecret = Annotated[str, Field(min_length=1, max_length=200)]
Tries = Annotated[int, Field(strict=True, ge=1)]


class NewWebhookBody(Body):
    """A new webhook.

    Without `events` it receives all of them. Without `secret` a secret is generated and shown once.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://example.com/hooks", "events": ["job.run.failed"]}]}
    )
    url: Url
    events: Words | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    secret: GivenSecret | None = None
    max_tries: Tries | None = None


class WebhookEditBody(Body):
    """Enabling a webhook also retries its deliveries at once."""

    url: Url | None = None
    events: Words | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    max_tries: Tries | None = None
    enabled: bool | None = None


class RotateBody(Body):
    secret: GivenSecret | None = None


# --- functions ----------------------------------------------------------------------------------------------------

delivery_json: Callable[[Delivery], Json] = DeliverySchema.of
try_json: Callable[[Try], Json] = TrySchema.of


# --- what a delivery sends ----------------------------------------------------------------------------------------


def render(tx: Tx, delivery: Delivery, event: Event) -> str:
    """Renders the body of a delivery. `data` is the current JSON of the thing."""
    payload = {"type": delivery.event, "timestamp": instant_text(event.at), "data": _data(tx, delivery, event)}
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _data(tx: Tx, delivery: Delivery, event: Event) -> Json:
    tenant_id = delivery.tenant_id
    if delivery.event == TEST:
        return endpoint_json(endpoints.find(tx, tenant_id, delivery.endpoint_id))
    match event.thing:
        case "job":
            job = view(tx, tenant_id, event.thing_id)
            if delivery.event == "target.held" and job.target is not None:
                return target_json(targets.shown(tx, tenant_id, job.target))
            return job_json(job)
        case "group":
            return group_json(group_view(tx, tenant_id, event.thing_id, "group"), steps=True)
        case "execution":
            return execution_json(group_view(tx, tenant_id, event.thing_id, "execution"), steps=True)
        case "tick":
            found = tx.run("tick_by_id", id=event.thing_id)
            if found and Tick(*found[0]).tenant_id == tenant_id:
                return tick_json(Tick(*found[0]))
    raise NotFound(f"the thing that event {event.id} is about was deleted")
