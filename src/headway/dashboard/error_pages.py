"""Error pages for missing pages and for internal errors."""

from __future__ import annotations

import logging

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headway.api.http.routing import RouteSpec
from headway.dashboard.page import PageRequest

log = logging.getLogger("headway")


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        text = "this address accepts forms only: go to the page that has the form"
    elif error.status_code == 404:
        text = "there is no such page, or its subject has been pruned"
    else:
        text = str(error.detail)
    return await run_in_threadpool(_problem, request, error.status_code, text)


async def on_mistake(request: Request, error: Exception) -> Response:
    log.error("internal error at %s %s", request.method, request.url.path, exc_info=error)
    return await run_in_threadpool(_problem, request, 500, "internal error of Headway: see its log for the details")


def _problem(request: Request, status: int, text: str) -> Response:
    page = PageRequest(request, request.app.state.service, RouteSpec(request.method, "", None, on_http))
    return page.problem(status, str(status), text)
