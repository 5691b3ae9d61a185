"""Tokens as JSON. Only the answer that creates a token contains its text."""

from __future__ import annotations

from typing import Any

from headway.api.schemas.jobs import actor_json, time_or_none
from headway.model.access.permissions import Token


def token_json(token: Token, now: int) -> dict[str, Any]:
    """**Token** of the API. `tenant` is null for a system token."""
    return {
        "token_id": token.id,
        "name": token.name,
        "role": token.role.value,
        "tenant": token.tenant,
        "hint": token.hint,
        "state": token.state(now),
        "created_at": time_or_none(token.created_at),
        "created_by": actor_json(token.created_by),
        "expires_at": time_or_none(token.expires_at),
        "revoked_at": time_or_none(token.revoked_at),
        "version": token.version,
    }


def made_json(token: Token, plain: str, now: int) -> dict[str, Any]:
    """Returns a created token with its text, which is null in a repeated answer."""
    return {**token_json(token, now), "token": plain or None}
