"""All pages under `/ui`, beside the HTTP API and behind the same door."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from headway.api.access import Door
from headway.api.app import make as make_api
from headway.api.service import Service
from headway.dashboard import (
    access,
    executions,
    health,
    history,
    job_verbs,
    jobs,
    login,
    missing,
    now,
    queue,
    resources,
    schedule_editor,
    schedules,
    settings,
    targets,
    template_editor,
    template_pages,
    webhooks,
    workers,
)
from headway.dashboard.pages import UI, Pages

PAGES: Sequence[Pages] = (
    now.pages,
    queue.pages,
    jobs.pages,
    job_verbs.pages,
    schedules.pages,
    schedule_editor.pages,
    template_pages.pages,
    template_editor.pages,
    executions.pages,
    targets.pages,
    resources.pages,
    history.pages,
    workers.pages,
    webhooks.pages,
    access.pages,
    settings.pages,
    health.pages,
    login.pages,
)
_STATIC = Path(__file__).parent / "static"


def make(service: Service) -> Door:
    """The ASGI application of a service, with the pages."""
    return make_api(service, mount)


def mount(app: FastAPI) -> None:
    """Beside the API. `/` leads to the first page."""
    app.router.routes.append(Route("/", _first, methods=["GET"], include_in_schema=False))
    app.router.routes.append(Route(UI, _first, methods=["GET"], include_in_schema=False))
    app.router.routes.append(Mount(UI, app=_site(app)))


def _site(api: FastAPI) -> Starlette:
    routes: list[Route | Mount] = [one for pages in PAGES for one in pages.routes()]
    routes.append(Mount("/static", app=_Static(directory=_STATIC)))
    site = Starlette(routes=routes, exception_handlers={HTTPException: missing.on_http, Exception: missing.on_mistake})
    site.state = api.state
    site.state.gates = {one.path: one for pages in PAGES for one in pages.declared if one.method == "GET"}
    return site


class _Static(StaticFiles):
    """Asked for again each time, and sent again when changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _first(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{UI}/", 307)
