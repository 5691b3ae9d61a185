"""`/api/tenants`: the tenants of the installation, for system tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.http.path_names import Name
from headway.api.http.query import Limit
from headway.api.http.routing import Here, Routes, answer, etag
from headway.api.schemas.access import NewTenantBody, TenantEditBody, TenantSchema, tenant_json
from headway.api.schemas.common import Body, PageSchema
from headway.model.access.permissions import Role
from headway.model.access.tenants import Tenant

routes = Routes("tenants")
NAMED = "/api/tenants/{name:path}"
After = Annotated[str, Query(max_length=300, description="`next` of the page before")]


@routes.post("/api/tenants", Role.ADMIN, system=True, answer=TenantSchema, status=201, creates=True)
def create(here: Here, body: NewTenantBody) -> Response:
    """Create a tenant."""
    given = body.given()
    return here.make_once(lambda client: client.tenants.create(**given), lambda made: _answer(made, 201), given)


@routes.get("/api/tenants", Role.ADMIN, system=True, answer=PageSchema[TenantSchema])
def ls(here: Here, limit: Limit = 50, cursor: After = "") -> Response:
    """List tenants by name."""
    found = here.client.tenants.list(after=cursor, limit=limit + 1)
    more = found[limit - 1].name if len(found) > limit else None
    return answer({"items": [tenant_json(tenant) for tenant in found[:limit]], "next": more})


@routes.post(f"{NAMED}/deactivate", Role.ADMIN, system=True, answer=TenantSchema)
def deactivate(here: Here, name: Name, body: Body | None = None) -> Response:
    """Deactivate a tenant.

    Its jobs do not start, new jobs and its tokens are refused. Running jobs continue.
    """
    return _answer(here.client.tenants.deactivate(name))


@routes.post(f"{NAMED}/activate", Role.ADMIN, system=True, answer=TenantSchema)
def activate(here: Here, name: Name, body: Body | None = None) -> Response:
    """Activate a tenant; its jobs continue where they stopped."""
    return _answer(here.client.tenants.activate(name))


@routes.get(NAMED, Role.ADMIN, system=True, answer=TenantSchema)
def show(here: Here, name: Name) -> Response:
    """Show a tenant."""
    return _answer(here.client.tenants.get(name))


@routes.patch(NAMED, Role.ADMIN, system=True, answer=TenantSchema)
def edit(here: Here, name: Name, body: TenantEditBody) -> Response:
    """Edit the limits of a tenant and the admin kinds in `allow`; a lowered limit stops no running job.

    Every admin of a tenant with an admin kind runs code as the user of the worker: they can read what that user can,
    the jobs and secrets of other tenants included. `sql` opens every database in `connections` of the settings.
    """
    return _answer(here.client.tenants.edit(name, body.model_dump(exclude_unset=True), here.if_version))


def _answer(tenant: Tenant, status: int = 200) -> Response:
    return answer(tenant_json(tenant), status, ETag=etag(tenant.version))
