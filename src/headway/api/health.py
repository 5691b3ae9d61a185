"""How this process stands: `/healthz`, `/readyz`, `/metrics`; and the description of the API."""

from __future__ import annotations

from fastapi import Response

from headway.api.access import is_loopback
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers
from headway.engine.metrics import CONTENT_TYPE
from headway.engine.tokens import any_token
from headway.errors import HeadwayError
from headway.model.access import Role

routes = Routes("health")


@routes.get("/healthz", None, answer=answers.Alive)
async def healthz(here: Here) -> Response:
    """Say that the process lives."""
    return answer({"status": "alive"})


@routes.get("/readyz", None, answer=answers.Readiness)
def readyz(here: Here) -> Response:
    """Say whether it can do its work, and why not: 503 then. Strangers get the codes of the reasons only."""
    found = here.service.health()
    known = _is_known(here)
    shown = {
        name: [one.text if known else one.code for one in reasons]
        for name, reasons in (("reasons", found.reasons), ("warnings", found.warnings))
    }
    return answer({"ready": found.ready, **shown}, 200 if found.ready else 503)


def _is_known(here: Visit) -> bool:
    """Who has a token; without any tokens, who is on this machine. When that cannot be found out, nobody."""
    if here.request.scope.get("headway.visitor") is not None:
        return True
    client = here.request.client
    if not is_loopback(here.service.terms.host) or client is None or not is_loopback(client.host):
        return False
    try:
        return not any_token(here.service.database)
    except HeadwayError:
        return False


@routes.get("/metrics", Role.VIEWER, system=True, media="text/plain")
def metrics(here: Here) -> Response:
    """Figures for Prometheus."""
    return Response(here.service.metrics.text(), 200, media_type=CONTENT_TYPE)


@routes.get("/api/openapi.json", None)
async def openapi(here: Here) -> Response:
    """Describe the API."""
    root = here.request.scope.get("root_path", "")
    return answer({**here.request.app.openapi(), **({"servers": [{"url": root}]} if root else {})})
