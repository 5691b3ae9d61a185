"""Mounts all pages under `/ui`, beside the API and behind the same middleware."""

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

from headway.api.app import make as make_api
from headway.api.http.auth import AccessMiddleware
from headway.api.service import Service
from headway.dashboard import error_pages
from headway.dashboard.page import UI, Pages
from headway.dashboard.pages import (
    access,
    audit,
    groups,
    health,
    history,
    home,
    job,
    job_actions,
    login,
    queue,
    reference,
    resources,
    schedule_editor,
    schedules,
    settings,
    targets,
    template_editor,
    templates,
    webhooks,
    workers,
)

PAGES: Sequence[Pages] = (
    home.pages,
    queue.pages,
    job.pages,
    job_actions.pages,
    schedules.pages,
    schedule_editor.pages,
    templates.pages,
    template_editor.pages,
    groups.pages,
    targets.pages,
    resources.pages,
    history.pages,
    workers.pages,
    webhooks.pages,
    access.pages,
    audit.pages,
    settings.pages,
    health.pages,
    login.pages,
)
_STATIC = Path(__file__).parent / "static"


def make(service: Service) -> AccessMiddleware:
    """Builds the ASGI application of a service, with the pages."""
    return make_api(service, mount)


def mount(app: FastAPI) -> None:
    """Mounts the pages and the API reference beside the API; `/` redirects to the first page."""
    app.router.routes.append(Route("/", _first, methods=["GET"], include_in_schema=False))
    app.router.routes.append(Route(UI, _first, methods=["GET"], include_in_schema=False))
    app.router.routes += reference.pages.routes()
    app.router.routes.append(Mount(UI, app=_site(app)))


def _site(api: FastAPI) -> Starlette:
    routes: list[Route | Mount] = [route for pages in PAGES for route in pages.routes()]
    routes.append(Mount("/static/swagger", app=_Static(packages=[reference.FILES])))
    routes.append(Mount("/static", app=_Static(directory=_STATIC)))
    site = Starlette(
        routes=routes, exception_handlers={HTTPException: error_pages.on_http, Exception: error_pages.on_mistake}
    )
    site.state = api.state
    site.state.gates = {spec.path: spec for pages in PAGES for spec in pages.declared if spec.method == "GET"}
    return site


class _Static(StaticFiles):
    """Static files that browsers revalidate on each use."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _first(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{UI}/", 307)
