"""What is taken about tokens, tenants and webhooks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from headway.api.wire.bodies import Body, Name

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Url = Annotated[str, Field(min_length=1, max_length=2_000)]
Secret = Annotated[str, Field(min_length=1, max_length=200)]
Tries = Annotated[int, Field(strict=True, ge=1)]


class NewToken(Body):
    """Without `tenant` it is for the tenant you act for; null is the system's."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "role": "operator", "expires": "90d"}]})
    name: Name
    role: Literal["viewer", "operator", "admin"]
    tenant: Name | None = None
    expires: Annotated[float | str | None, Field(description="A time, or a duration from now on")] = None


class TenantEdit(Body):
    """`null` takes a limit away."""

    max_queued: Count | None = None
    max_running: Count | None = None
    max_schedules: Count | None = None


class NewTenant(TenantEdit):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "press", "max_running": 2}]})
    name: Name


class NewWebhook(Body):
    """Without events it is told of all of them. Without a secret it gets one, which the answer shows this once."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://example.com/hooks", "events": ["job.run.failed"]}]}
    )
    url: Url
    events: list[str] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    secret: Secret | None = None
    max_tries: Tries | None = None


class WebhookEdit(Body):
    """Enabling it again also lets it be tried at once."""

    url: Url | None = None
    events: list[str] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    max_tries: Tries | None = None
    enabled: bool | None = None


class Rotate(Body):
    secret: Secret | None = None


class Apply(Body):
    """A TOML file, and what to call it in errors."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "[[targets]]\nname = 'desk-1'\n", "dry_run": True}]}
    )
    text: str
    file: Annotated[str, Field(min_length=1, max_length=300)] = "file"
    dry_run: bool = False
