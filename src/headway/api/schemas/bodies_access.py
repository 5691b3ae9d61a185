"""Types of the request bodies about tokens, tenants and webhooks."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from headway.api.schemas.bodies import Body, Name

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Url = Annotated[str, Field(min_length=1, max_length=2_000)]
Secret = Annotated[str, Field(min_length=1, max_length=200)]
Tries = Annotated[int, Field(strict=True, ge=1)]


class NewToken(Body):
    """A new token.

    Without `tenant` the token is for the caller's tenant; null means a system token.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "role": "operator", "expires": "90d"}]})
    name: Name
    role: Literal["viewer", "operator", "admin"]
    tenant: Name | None = None
    expires: Annotated[float | str | None, Field(description="An instant, or a duration from now")] = None


Kind = Literal["command", "powershell", "sql", "policy"]
Kinds = Annotated[list[Kind], Field(max_length=len(get_args(Kind)))]


class TenantEdit(Body):
    """null removes a limit.

    `allow` are the admin kinds that the tenant's own admins may give; their work runs as the user of the worker.
    """

    max_queued: Count | None = None
    max_running: Count | None = None
    max_schedules: Count | None = None
    allow: Kinds | None = None


class NewTenant(TenantEdit):
    """A new tenant.

    `default_allow` are the admin kinds that the tenant `default` keeps when its first neighbour is made.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "press", "max_running": 2}]})
    name: Name
    default_allow: Kinds | None = None


class NewWebhook(Body):
    """A new webhook.

    Without `events` it receives all of them. Without `secret` a secret is generated and shown once.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://example.com/hooks", "events": ["job.run.failed"]}]}
    )
    url: Url
    events: list[str] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    secret: Secret | None = None
    max_tries: Tries | None = None


class WebhookEdit(Body):
    """Enabling a webhook also retries its deliveries at once."""

    url: Url | None = None
    events: list[str] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    max_tries: Tries | None = None
    enabled: bool | None = None


class Rotate(Body):
    secret: Secret | None = None


class Apply(Body):
    """A TOML file, and its name in error messages."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "[[targets]]\nname = 'desk-1'\n", "dry_run": True}]}
    )
    text: str
    file: Annotated[str, Field(min_length=1, max_length=300)] = "file"
    dry_run: bool = False
