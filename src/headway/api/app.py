"""The ASGI application: all routes, the access middleware, the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from headway import __version__
from headway.api.descriptions import describe
from headway.api.endpoints import (
    apply,
    artifacts,
    audit,
    direct,
    events,
    executions,
    groups,
    health,
    jobs,
    live,
    queue,
    reservations,
    runs,
    schedules,
    system,
    targets,
    templates,
    tenants,
    tokens,
    webhooks,
)
from headway.api.http import problems
from headway.api.http.auth import AccessMiddleware
from headway.api.http.path_names import KeepSlashes
from headway.api.http.routing import Routes
from headway.api.http.shares import LongRequests
from headway.api.http.sse import Streams
from headway.api.legacy import endpoints
from headway.api.openapi import Documents
from headway.api.schemas.common import ProblemSchema
from headway.api.service import Service
from headway.errors import HeadwayError

NOUNS: Sequence[Routes] = (
    jobs.routes,
    runs.routes,
    templates.routes,
    groups.routes,
    schedules.routes,
    executions.routes,
    queue.routes,
    events.routes,
    audit.routes,
    targets.routes,
    direct.routes,
    reservations.routes,
    system.routes,
    artifacts.routes,
    tokens.routes,
    tenants.routes,
    webhooks.routes,
    apply.routes,
    live.routes,
    health.routes,
    endpoints.routes,
)


def make(service: Service, more: Callable[[FastAPI], None] = lambda app: None) -> AccessMiddleware:
    """Builds the ASGI application of a service; `more` adds routes beside the API."""
    app = build()
    app.state.service = service
    more(app)
    before = {getattr(route, "path", None) for route in app.routes}
    direct.mount_own_paths(app, service.system.registry)
    app.state.documents.own_paths = {getattr(route, "path", "") for route in app.routes} - before
    return AccessMiddleware(KeepSlashes(app), service)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.service.close()


def build() -> FastAPI:
    """Builds the application with all routes.

    They find the service in `app.state.service`.
    """
    app = FastAPI(
        title="Headway",
        version=__version__,
        summary="Durable jobs: nothing is lost, nothing runs twice unseen, every waiting job can say why it waits",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.declared, app.state.asked = {}, {}
    app.state.streams = Streams()
    app.state.long_requests = LongRequests()
    app.state.documents = Documents()
    for noun in NOUNS:
        noun.mount(app)
    app.add_exception_handler(HeadwayError, problems.on_error)
    app.add_exception_handler(HTTPException, problems.on_http)
    app.add_exception_handler(RequestValidationError, problems.on_invalid)
    app.add_exception_handler(Exception, problems.on_mistake)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Replaces FastAPI's schema of a 422 answer; adds descriptions, examples and the security schemes."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            problem = TypeAdapter(ProblemSchema).json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs", {}))
            schemas["Problem"] = problem
            describe(document)
            document["components"]["securitySchemes"] = _SECURITY
            document["security"] = [{"bearer": []}, {"key": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
