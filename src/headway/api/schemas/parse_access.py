"""Reads tokens, tenants, webhooks and applied files from the API's JSON."""

from __future__ import annotations

from headway.api.schemas.jobs import Json
from headway.api.schemas.parse_jobs import actor_text, at, json_text, moment
from headway.engine.client.apply import Applying, ManifestChange
from headway.model.access.permissions import Role, Token
from headway.model.access.tenants import FIELDS, Allowance, Tenant
from headway.model.webhooks.webhook import PENDING, Delivery, Endpoint, Try


def token_of(found: Json) -> Token:
    return Token(
        id=found["token_id"],
        tenant_id=None if found["tenant"] is None else 0,
        tenant=found["tenant"],
        name=found["name"],
        role=Role(found["role"]),
        hint=found["hint"],
        created_at=at(found["created_at"]),
        created_by=actor_text(found["created_by"]),
        expires_at=moment(found["expires_at"]),
        revoked_at=moment(found["revoked_at"]),
        version=found["version"],
    )


def tenant_of(found: Json) -> Tenant:
    return Tenant(
        id=found["tenant_id"],
        name=found["name"],
        created_at=at(found["created_at"]),
        active=found["active"],
        allowance=Allowance(**{name: found[name] for name in FIELDS}),
        paused_at=moment(found["paused_at"]),
        paused_until=moment(found["paused_until"]),
        version=found["version"],
        allow=tuple(found["allow"]),
    )


def endpoint_of(found: Json) -> Endpoint:
    """Reads a webhook; the secret is present only in the answer that created it."""
    created = at(found["created_at"])
    return Endpoint(
        id=found["webhook_id"],
        tenant_id=0,
        url=found["url"],
        events=json_text(found["events"]),
        description=found["description"],
        secret=found.get("secret") or "",
        old_secret=None,
        old_until=moment(found["old_secret_until"]),
        max_tries=found["max_tries"],
        enabled=int(found["enabled"]),
        reason=found["reason"],
        failures=found["failures"],
        opened_at=moment(found["opened_at"]),
        probe_at=moment(found["probe_at"]),
        created_at=created,
        created_by=actor_text(found["created_by"]),
        deleted_at=created if found["state"] == "deleted" else None,
        version=found["version"],
    )


def delivery_of(found: Json) -> Delivery:
    """Reads a delivery; a pending one without a next attempt is being sent."""
    sending = found["status"] == PENDING and found["next_try_at"] is None
    return Delivery(
        id=found["delivery_id"],
        tenant_id=0,
        endpoint_id=found["endpoint_id"] or 0,
        event_id=found["event_id"],
        event=found["event"],
        job_id=found["job_id"],
        url=found["url"],
        message_id=found["message_id"],
        body=found.get("body"),
        status=found["status"],
        tries=found["tries"],
        lost=0,
        max_tries=found["max_tries"],
        due_at=moment(found["next_try_at"]),
        lease_by="a process" if sending else None,
        fence=0,
        last_status_code=found["last_status_code"],
        last_error=found["last_error"],
        replay_of=found["replay_of"],
        created_at=at(found["created_at"]),
        delivered_at=moment(found["delivered_at"]),
        finished_at=moment(found["finished_at"]),
        version=0,
    )


def try_of(found: Json) -> Try:
    return Try(
        number=found["number"],
        at=at(found["at"]),
        took=round(found["seconds"] * 1e6),
        status_code=found["status_code"],
        error=found["error"],
        address=found["address"],
        message_id="",
        digest="",
        request=json_text(found["request"]),
        response=json_text(found["response"]) if found["response"] is not None else None,
    )


def applied_of(found: Json) -> tuple[Applying, dict[str, str]]:
    """Reads the changes of an applied file, and the secrets of created webhooks."""
    changes = [
        ManifestChange(change["change"], change["thing"], change["name"], tuple(change["differences"]), None)
        for change in found["items"]
    ]
    return Applying(tuple(changes), tuple(found["left"])), found.get("secrets", {})
