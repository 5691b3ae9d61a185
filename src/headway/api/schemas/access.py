"""The JSON of tokens and tenants, and the bodies about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from headway.api.schemas.common import (
    MOST_TIME,
    ActorSchema,
    Body,
    Instant,
    Json,
    Name,
    Reader,
    Schema,
    actor_json,
    actor_or_none,
    given,
    time_or_none,
)
from headway.model.access.permissions import Token
from headway.model.access.tenants import Tenant
from headway.model.values.times import instant_text

# --- tokens -------------------------------------------------------------------------------------------------------

_token = Reader[Token]()


class TokenSchema(Schema[Token]):
    token_id: int = _token(lambda token: token.id)
    name: str = _token(lambda token: token.name)
    role: Literal["viewer", "operator", "admin"] = _token.literal(lambda token: token.role.value)
    # Null for a system token.
    tenant: str | None = _token(lambda token: token.tenant)
    hint: str = _token(lambda token: token.hint)
    state: Literal["live", "expired", "revoked"] = given()
    created_at: Instant = _token(lambda token: instant_text(token.created_at))
    created_by: ActorSchema = _token(lambda token: actor_json(token.created_by))
    expires_at: Instant | None = _token(lambda token: time_or_none(token.expires_at))
    revoked_at: Instant | None = _token(lambda token: time_or_none(token.revoked_at))
    deleted_at: Instant | None = _token(lambda token: time_or_none(token.revoked_at))
    deleted_by: ActorSchema | None = given()
    version: int = _token(lambda token: token.version)


class NewTokenSchema(TokenSchema):
    token: str | None


def token_json(token: Token, now: int, deleted_by: str | None = None) -> Json:
    made: Json = TokenSchema.of(token, state=token.state(now), deleted_by=actor_or_none(deleted_by))
    return made


def made_json(token: Token, plain: str, now: int) -> Json:
    """Returns a created token with its text, which is null in a repeated answer."""
    made: Json = NewTokenSchema.of(token, state=token.state(now), token=plain or None)
    return made


# --- tenants ------------------------------------------------------------------------------------------------------

_tenant = Reader[Tenant]()


class TenantSchema(Schema[Tenant]):
    tenant_id: int = _tenant(lambda tenant: tenant.id)
    name: str = _tenant(lambda tenant: tenant.name)
    active: bool = _tenant(lambda tenant: tenant.active)
    paused_at: Instant | None = _tenant(lambda tenant: time_or_none(tenant.paused_at))
    paused_until: Instant | None = _tenant(lambda tenant: time_or_none(tenant.paused_until))
    # Null means no limit.
    max_queued: int | None = _tenant(lambda tenant: tenant.allowance.max_queued)
    max_running: int | None = _tenant(lambda tenant: tenant.allowance.max_running)
    max_schedules: int | None = _tenant(lambda tenant: tenant.allowance.max_schedules)
    allow: list[str] = _tenant(lambda tenant: list(tenant.kinds))
    created_at: Instant = _tenant(lambda tenant: instant_text(tenant.created_at))
    version: int = _tenant(lambda tenant: tenant.version)


# --- bodies -------------------------------------------------------------------------------------------------------

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]


class NewTokenBody(Body):
    """A new token.

    Without `tenant` the token is for the caller's tenant; null means a system token.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "role": "operator", "expires": "90d"}]})
    name: Name
    role: Literal["viewer", "operator", "admin"]
    tenant: Name | None = None
    expires: Annotated[
        float | Annotated[str, Field(max_length=MOST_TIME)] | None,
        Field(description="An instant, or a duration from now"),
    ] = None


AdminKind = Literal["command", "powershell", "sql", "policy"]
Kinds = Annotated[list[AdminKind], Field(max_length=len(get_args(AdminKind)))]


class TenantEditBody(Body):
    """null removes a limit.

    `allow` are the admin kinds that the tenant's own admins may give; their work runs as the user of the worker.
    """

    max_queued: Count | None = None
    max_running: Count | None = None
    max_schedules: Count | None = None
    allow: Kinds | None = None


class NewTenantBody(TenantEditBody):
    """A new tenant.

    `default_allow` are the admin kinds that the tenant `default` keeps when its first neighbour is made.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "press", "max_running": 2}]})
    name: Name
    default_allow: Kinds | None = None


# --- functions ----------------------------------------------------------------------------------------------------

tenant_json: Callable[[Tenant], Json] = TenantSchema.of
