"""Webhooks as JSON of the API, and the bodies of deliveries."""

from __future__ import annotations

import json

from headway.api.schemas.groups import execution_json, group_json, tick_json
from headway.api.schemas.jobs import Json, actor_json, job_json, time_or_none
from headway.api.schemas.queue import target_json
from headway.errors import NotFound
from headway.model.event import Event
from headway.model.schedules.definition import Tick
from headway.model.values.json import instant_text
from headway.model.webhooks.webhook import TEST, Delivery, Endpoint, Try
from headway.store.db import Tx
from headway.store.groups.views import group_view
from headway.store.jobs.views import view
from headway.store.queue import targets
from headway.store.webhooks import endpoints


def endpoint_json(endpoint: Endpoint, *, secret: bool = False) -> Json:
    """**Webhook** of the API. Only the answer that creates the secret contains it."""
    return {
        "webhook_id": endpoint.id,
        "url": endpoint.url,
        "events": json.loads(endpoint.events),
        "description": endpoint.description,
        "max_tries": endpoint.max_tries,
        "enabled": bool(endpoint.enabled),
        "state": state(endpoint),
        "reason": endpoint.reason,
        "failures": endpoint.failures,
        "opened_at": time_or_none(endpoint.opened_at),
        "probe_at": time_or_none(endpoint.probe_at),
        "old_secret_until": time_or_none(endpoint.old_until),
        "created_at": time_or_none(endpoint.created_at),
        "created_by": actor_json(endpoint.created_by),
        "version": endpoint.version,
        **({"secret": endpoint.secret} if secret else {}),
    }


def state(endpoint: Endpoint) -> str:
    if endpoint.deleted_at is not None:
        return "deleted"
    if not endpoint.enabled:
        return "disabled"
    return "open" if endpoint.opened_at is not None else "closed"


def delivery_json(delivery: Delivery) -> Json:
    """**Delivery** of the API.

    `endpoint_id` is null for a delivery to the job's `webhook_url`.
    """
    return {
        "delivery_id": delivery.id,
        "event_id": delivery.event_id,
        "event": delivery.event,
        "endpoint_id": delivery.endpoint_id or None,
        "job_id": delivery.job_id,
        "url": delivery.url,
        "message_id": delivery.message_id,
        "status": delivery.status,
        "tries": delivery.tries,
        "max_tries": delivery.max_tries,
        "next_try_at": time_or_none(delivery.next_try_at),
        "last_status_code": delivery.last_status_code,
        "last_error": delivery.last_error,
        "replay_of": delivery.replay_of,
        "created_at": time_or_none(delivery.created_at),
        "delivered_at": time_or_none(delivery.delivered_at),
        "finished_at": time_or_none(delivery.finished_at),
    }


def try_json(attempt: Try) -> Json:
    return {
        "number": attempt.number,
        "at": instant_text(attempt.at),
        "seconds": attempt.took / 1e6,
        "status_code": attempt.status_code,
        "error": attempt.error,
        "address": attempt.address,
        "request": json.loads(attempt.request),
        "response": json.loads(attempt.response) if attempt.response else None,
    }


# --- bodies of deliveries -----------------------------------------------------------------------------------------


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
