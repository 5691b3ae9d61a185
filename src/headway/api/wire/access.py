"""Tokens as programs read them. What a token is stands in the answer that makes it, and nowhere else."""

from __future__ import annotations

from typing import Any

from headway.api.wire.jobs import actor_json, time_or_none
from headway.model.access import Token


def token_json(token: Token, now: int) -> dict[str, Any]:
    """**Token** of the API. `tenant` null: it is the system's."""
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
    """A token that was just made, with its text: the one time it is shown. Null when a request was repeated."""
    return {**token_json(token, now), "token": plain or None}
