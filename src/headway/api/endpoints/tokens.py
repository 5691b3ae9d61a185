"""`/api/tokens`: API tokens.

Only the answer that creates a token contains its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.http.auth import names_tenant
from headway.api.http.query import Cursor, Id, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.access import NewTokenBody, NewTokenSchema, TokenSchema, made_json, token_json
from headway.api.schemas.common import Json, PageSchema
from headway.api.schemas.jobs import EventSchema, event_json
from headway.model.access.permissions import Role, Token, check_grant
from headway.store import audit_views
from headway.store.jobs import views as job_views
from headway.store.paging import make_cursor, read_cursor

routes = Routes("tokens")


@routes.post("/api/tokens", Role.ADMIN, answer=NewTokenSchema, status=201, creates=True)
def create(here: Here, body: NewTokenBody) -> Response:
    """Create a token; its text is shown only once."""
    tenant = body.tenant if "tenant" in body.model_fields_set else here.visitor.tenant
    check_grant(here.visitor, tenant)

    def render(made: tuple[Token, str]) -> Response:
        token, plain = made
        return answer(made_json(token, plain, _now(here)), 201, Location=here.address(f"/api/tokens/{token.id}"))

    def work(client: Any) -> Any:
        return client.tokens.create(body.name, body.role, tenant=tenant, expires=body.expires)

    return here.make_once(work, render, body.model_dump(), hide=lambda made: (made[0], ""))


@routes.get("/api/tokens", Role.ADMIN, answer=PageSchema[TokenSchema])
def ls(here: Here, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List tokens, the oldest first.

    A system token lists those of all tenants, unless the request names one.
    """
    everywhere = here.visitor.system and not names_tenant(here.request.scope)
    after = 0 if cursor is None else read_cursor(cursor)
    found = here.client.tokens.list(everywhere=everywhere, after=after, limit=limit + 1)
    more = make_cursor(found[limit - 1].id) if len(found) > limit else None
    return answer({"items": _shown(here, found[:limit]), "next": more})


@routes.get("/api/tokens/{token_id}", Role.ADMIN, answer=TokenSchema)
def show(here: Here, token_id: Id) -> Response:
    """Show a token without its text. A revoked one too."""
    return answer(_shown(here, [here.client.tokens.get(token_id, everywhere=here.visitor.system)])[0])


@routes.get("/api/tokens/{token_id}/events", Role.ADMIN, answer=PageSchema[EventSchema])
def events(
    here: Here,
    token_id: Id,
    after: Annotated[int, Query(ge=0, le=(1 << 31) - 1, description="`next` of the page before")] = 0,
    limit: Limit = 200,
) -> Response:
    """List the events of a token, oldest first. Those of a revoked one stay."""
    here.client.tokens.get(token_id, everywhere=here.visitor.system)
    with here.look() as tx:  # a token of the system belongs to no tenant
        found = job_views.history(tx, "token", token_id, after=after, limit=limit)
    more = str(found[-1].version) if len(found) == limit else None
    return answer({"items": [event_json(event) for event in found], "next": more})


@routes.delete("/api/tokens/{token_id}", Role.ADMIN, answer=TokenSchema, matches=False)
def revoke(here: Here, token_id: Id) -> Response:
    """Revoke a token; it is refused from now on."""
    return answer(_shown(here, [here.client.tokens.revoke(token_id, everywhere=here.visitor.system)])[0])


def _shown(here: RequestContext, found: Sequence[Token]) -> list[Json]:
    revoked = [token.id for token in found if token.revoked_at is not None]
    with here.look() as tx:
        by = audit_views.deleted_by(tx, "token", revoked)
    now = _now(here)
    return [token_json(token, now, by.get(token.id)) for token in found]


def _now(here: RequestContext) -> int:
    return here.service.database.clock.now()
