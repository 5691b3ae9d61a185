"""`/api/tenants`: separate worlds in one database, for those of the system."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.asking import Limit
from headway.api.naming import Name
from headway.api.routes import Here, Routes, answer, etag
from headway.api.wire import answers, answers_system, bodies
from headway.api.wire import bodies_access as wished
from headway.api.wire.tenants import tenant_json
from headway.model.access import Role
from headway.model.tenant import Tenant

routes = Routes("tenants")
NAMED = "/api/tenants/{name:path}"
After = Annotated[str, Query(max_length=300, description="`next` of the page before")]


@routes.post("/api/tenants", Role.ADMIN, system=True, answer=answers_system.Tenant, status=201, creates=True)
def create(here: Here, body: wished.NewTenant) -> Response:
    """Make a tenant."""
    given = body.given()
    return here.make_once(lambda client: client.tenants.create(**given), lambda made: _answer(made, 201), given)


@routes.get("/api/tenants", Role.ADMIN, system=True, answer=answers.Page[answers_system.Tenant])
def ls(here: Here, limit: Limit = 50, cursor: After = "") -> Response:
    """List tenants by name."""
    found = here.client.tenants.list(after=cursor, limit=limit + 1)
    more = found[limit - 1].name if len(found) > limit else None
    return answer({"items": [tenant_json(one) for one in found[:limit]], "next": more})


@routes.post(f"{NAMED}/deactivate", Role.ADMIN, system=True, answer=answers_system.Tenant)
def deactivate(here: Here, name: Name, body: bodies.Body | None = None) -> Response:
    """Start nothing of a tenant, give it no new jobs, refuse its tokens. What runs goes on."""
    return _answer(here.client.tenants.deactivate(name))


@routes.post(f"{NAMED}/activate", Role.ADMIN, system=True, answer=answers_system.Tenant)
def activate(here: Here, name: Name, body: bodies.Body | None = None) -> Response:
    """Let a tenant go on where it stood."""
    return _answer(here.client.tenants.activate(name))


@routes.get(NAMED, Role.ADMIN, system=True, answer=answers_system.Tenant)
def show(here: Here, name: Name) -> Response:
    """Show a tenant."""
    return _answer(here.client.tenants.get(name))


@routes.patch(NAMED, Role.ADMIN, system=True, answer=answers_system.Tenant)
def edit(here: Here, name: Name, body: wished.TenantEdit) -> Response:
    """Give a tenant other limits. A lowered one stops nothing."""
    return _answer(here.client.tenants.edit(name, body.model_dump(exclude_unset=True), here.if_version))


def _answer(one: Tenant, status: int = 200) -> Response:
    return answer(tenant_json(one), status, ETag=etag(one.version))
