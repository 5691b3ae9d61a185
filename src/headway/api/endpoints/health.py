"""`/healthz`, `/readyz`, `/metrics`, and the OpenAPI document."""

from __future__ import annotations

from fastapi import Response

from headway.api.http.auth import is_from_here
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.system import AliveSchema, ReadinessSchema
from headway.engine.client.tokens import any_token
from headway.engine.monitoring.metrics import CONTENT_TYPE
from headway.errors import HeadwayError
from headway.model.access.permissions import Role, Visitor

routes = Routes("health")


@routes.get("/healthz", None, answer=AliveSchema)
async def healthz(here: Here) -> Response:
    """Report that the process is alive."""
    return answer({"status": "alive"})


@routes.get("/readyz", None, probe=True, answer=ReadinessSchema)
def readyz(here: Here) -> Response:
    """Report whether the process is ready; 503 with the reasons if not.

    Callers without a token get the codes of the reasons only.
    """
    found = here.service.health()
    known = _is_known(here)
    shown = {
        name: [reason.text if known else reason.code for reason in reasons]
        for name, reasons in (("reasons", found.reasons), ("warnings", found.warnings))
    }
    return answer({"ready": found.ready, **shown}, 200 if found.ready else 503)


def _is_known(here: RequestContext) -> bool:
    """Returns True if the caller may read the reasons in full.

    That is a caller with a token, or one on this machine while no token exists. False if that cannot be determined.
    """
    if here.request.scope.get("headway.visitor") is not None:
        return True
    if not is_from_here(here.service.terms, here.request.scope):
        return False
    try:
        return not any_token(here.service.database)
    except HeadwayError:
        return False


@routes.get("/metrics", Role.VIEWER, system=True, media="text/plain")
def metrics(here: Here) -> Response:
    """Get metrics in the Prometheus text format."""
    return Response(here.service.metrics.text(), 200, media_type=CONTENT_TYPE)


@routes.get("/api/openapi.json", None)
async def openapi(here: Here) -> Response:
    """Get the OpenAPI document; paths of tasks are in it if the caller may call them."""
    visitor: Visitor | None = here.request.scope.get("headway.visitor")
    calls = visitor is not None and visitor.role.may(Role.OPERATOR)
    text = here.request.app.state.documents.text(here.request.app, here.request.scope.get("root_path", ""), calls)
    return Response(text, 200, media_type="application/json")
