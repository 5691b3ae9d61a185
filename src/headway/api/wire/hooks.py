"""Webhooks as JSON, by the field names of the API, and the body that is sent to a receiver."""

from __future__ import annotations

import json

from headway.api.wire.jobs import Json, actor_json, job_json, time_or_none
from headway.api.wire.lanes import target_json
from headway.api.wire.plans import execution_json, group_json, tick_json
from headway.errors import NotFound
from headway.model.schedule import Tick
from headway.model.values import instant_text
from headway.model.webhooks import TEST, Delivery, Endpoint, Try
from headway.store import endpoints, targets
from headway.store.db import Tx
from headway.store.plans_reading import group_view
from headway.store.reading import Event, view


def endpoint_json(one: Endpoint, *, secret: bool = False) -> Json:
    """**Webhook** of the API. The secret is in the answer that makes it, and in no other."""
    return {
        "webhook_id": one.id,
        "url": one.url,
        "events": json.loads(one.events),
        "description": one.description,
        "max_tries": one.max_tries,
        "enabled": bool(one.enabled),
        "state": state(one),
        "reason": one.reason,
        "failures": one.failures,
        "opened_at": time_or_none(one.opened_at),
        "probe_at": time_or_none(one.probe_at),
        "old_secret_until": time_or_none(one.old_until),
        "created_at": time_or_none(one.created_at),
        "created_by": actor_json(one.created_by),
        "version": one.version,
        **({"secret": one.secret} if secret else {}),
    }


def state(one: Endpoint) -> str:
    if one.deleted_at is not None:
        return "deleted"
    if not one.enabled:
        return "disabled"
    return "open" if one.opened_at is not None else "closed"


def delivery_json(one: Delivery) -> Json:
    """**Delivery** of the API. `endpoint_id` is null for one that goes to its job's own `webhook_url`."""
    return {
        "delivery_id": one.id,
        "event_id": one.event_id,
        "event": one.event,
        "endpoint_id": one.endpoint_id or None,
        "job_id": one.job_id,
        "url": one.url,
        "message_id": one.message_id,
        "status": one.status,
        "tries": one.tries,
        "max_tries": one.max_tries,
        "next_try_at": time_or_none(one.next_try_at),
        "last_status_code": one.last_status_code,
        "last_error": one.last_error,
        "replay_of": one.replay_of,
        "created_at": time_or_none(one.created_at),
        "delivered_at": time_or_none(one.delivered_at),
        "finished_at": time_or_none(one.finished_at),
    }


def try_json(one: Try) -> Json:
    return {
        "number": one.number,
        "at": instant_text(one.at),
        "seconds": one.took / 1e6,
        "status_code": one.status_code,
        "error": one.error,
        "address": one.address,
        "request": json.loads(one.request),
        "response": json.loads(one.response) if one.response else None,
    }


# --- what is sent -------------------------------------------------------------------------------------------------


def render(tx: Tx, delivery: Delivery, event: Event) -> str:
    """The body of a delivery: what happened, when, and what it happened to, as the API shows that now."""
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
    raise NotFound(f"what event {event.id} is about is gone")
