"""The application: all routes behind one door, errors as problems, the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from headway import __version__
from headway.api import (
    applying,
    direct,
    executions,
    files,
    groups,
    health,
    history,
    jobs,
    legacy,
    live,
    problems,
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
from headway.api.access import Door
from headway.api.naming import KeepSlashes
from headway.api.routes import Routes
from headway.api.service import Service
from headway.api.streams import Streams
from headway.api.wire import answers
from headway.errors import HeadwayError

NOUNS: Sequence[Routes] = (
    jobs.routes,
    runs.routes,
    templates.routes,
    groups.routes,
    schedules.routes,
    executions.routes,
    queue.routes,
    history.routes,
    targets.routes,
    direct.routes,
    reservations.routes,
    system.routes,
    files.routes,
    tokens.routes,
    tenants.routes,
    webhooks.routes,
    applying.routes,
    live.routes,
    health.routes,
    legacy.routes,
)


def make(service: Service, more: Callable[[FastAPI], None] = lambda app: None) -> Door:
    """The ASGI application of a service. `more` is added beside the API."""
    app = build()
    app.state.service = service
    more(app)
    direct.mount_own_paths(app, service.system.registry)
    return Door(KeepSlashes(app), service)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.service.close()


def build() -> FastAPI:
    """All routes. What they stand on is given to them with `app.state.service`."""
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
    for noun in NOUNS:
        noun.mount(app)
    app.add_exception_handler(HeadwayError, problems.on_error)
    app.add_exception_handler(HTTPException, problems.on_http)
    app.add_exception_handler(RequestValidationError, problems.on_invalid)
    app.add_exception_handler(Exception, problems.on_mistake)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """FastAPI's own words about 422 give way to ours; the schema of problems is added."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            problem = TypeAdapter(answers.Problem).json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs", {}))
            schemas["Problem"] = problem
            document["components"]["securitySchemes"] = _SECURITY
            document["security"] = [{"bearer": []}, {"key": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
