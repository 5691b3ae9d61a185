"""Errors as `application/problem+json`, with one table of status codes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from headway import errors
from headway.model.values.suggestions import closest

log = logging.getLogger("headway")
MEDIA_TYPE = "application/problem+json"
_BY_CODE = {
    "version_mismatch": 412,
    "limit_reached": 409,
    "tenant_inactive": 409,
    "not_allowed": 403,
    "bad_json": 400,
    "too_large": 413,
    "unauthorised": 401,
    "gone": 410,
    "too_many_streams": 429,
    "too_many_calls": 429,
    "too_many_requests": 429,
}
_BY_KIND: tuple[tuple[type[errors.HeadwayError], int], ...] = (
    (errors.BadInput, 422),
    (errors.NotFound, 404),
    (errors.WrongState, 409),
    (errors.Refused, 403),
    (errors.Busy, 503),
    (errors.Unreachable, 503),
    # The task failed, not the server; 424 says so.
    (errors.JobFailed, 424),
    (errors.LeaseLost, 503),
)
_TITLES = {
    400: "Malformed request",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Wrong state",
    410: "Gone",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Not JSON",
    422: "Bad input",
    424: "The task failed",
    429: "Too many at once",
    500: "A mistake in Headway itself",
    503: "Not available now",
}
# Titles for codes that say more than their status.
_TITLES_BY_CODE = {
    "count_mismatch": "Another number than expected",
    "in_progress": "Still under way",
    "key_reused": "This key was used for another request",
    "limit_reached": "A limit is reached",
    "tenant_inactive": "The tenant is not active",
    "params_frozen": "The params are fixed",
    "retried": "Tried again already",
}
_LOGGED = "headway.mistake"
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}


class BadBody(HTTPException):
    """A body that is not acceptable JSON.

    FastAPI passes an HTTPException on unchanged.
    """

    def __init__(self, error: errors.HeadwayError, status: int) -> None:
        super().__init__(status, str(error))
        self.error = error


def status_of(error: errors.HeadwayError) -> int:
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    return next((status for kind, status in _BY_KIND if isinstance(error, kind)), 500)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    found: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {
        "type": f"urn:headway:problem:{code}",
        "title": _TITLES_BY_CODE.get(code) or _TITLES.get(status, "Problem"),
        "status": status,
        "detail": detail,
        "code": code,
        "errors": list(found),
        **(facts or {}),
    }
    text = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(text, status, dict(headers or {}), MEDIA_TYPE)


def of_error(error: errors.HeadwayError, status: int | None = None) -> Response:
    status = status or status_of(error)
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = str(max(1, round(float(error.facts.get("retry_after", 2)))))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="headway"'
    facts = {}
    if "status" in error.facts:
        facts["state"] = error.facts["status"]
    facts |= {name: error.facts[name] for name in ("job_id", "failure_kind", "secrets") if name in error.facts}
    return problem(status, error.code, str(error), found=_found(error), facts=facts, headers=headers)


def _found(error: errors.HeadwayError) -> list[dict[str, str]]:
    single = [{"field": error.field, "problem": str(error)}] if error.field is not None else []
    listed = error.facts.get("errors")
    if not isinstance(listed, list):
        return single
    return [{"field": str(item["field"]), "problem": str(item["problem"])} for item in listed]


# --- handlers -----------------------------------------------------------------------------------------------------


async def on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.HeadwayError)
    if status_of(error) == 500:
        log.error("an error has no HTTP status of its own: %s: %s", type(error).__name__, error)
    return of_error(error)


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, BadBody):
        return of_error(error.error, error.status_code)
    code = _CODES.get(error.status_code, "bad_request")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return problem(error.status_code, code, _detail(request, error.status_code, headers, error.detail), headers=headers)


def _methods(request: Request) -> set[str]:
    """Returns the methods of all routes at this path.

    Starlette knows only those of the first match.
    """
    found: set[str] = set()
    for route in request.app.router.routes:
        match, _ = route.matches(request.scope)
        found |= set(route.methods or ()) if match is not Match.NONE else set()
    return found


def _detail(request: Request, status: int, headers: Mapping[str, str], detail: object) -> str:
    match status:
        case 404:
            root = request.scope.get("root_path", "")
            return f"there is nothing at this address: {root}/api/openapi.json lists what there is"
        case 405:
            return f"this address takes {headers['Allow']} only"
    return str(detail)


async def on_invalid(_: Request, error: Exception) -> Response:
    """Answers pydantic's errors in our words.

    Inputs are left out, because they may be secrets.
    """
    assert isinstance(error, RequestValidationError)
    found = [{"field": _place(item["loc"]), "problem": _words(item)} for item in error.errors()]
    detail = "; ".join(
        f"{item['field']}: {item['problem']}" if item["field"] else item["problem"] for item in found[:5]
    )
    return problem(422, "bad_input", detail, found=found)


def _place(loc: Sequence[object]) -> str:
    place = ""
    for part in loc[1:]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    return place


def _words(item: Mapping[str, Any]) -> str:
    kind, facts = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        near = closest(str(item["loc"][-1]), facts.get("known", ()))
        return "there is no such field" + (f": did you mean {near}?" if near else "")
    if kind == "missing":
        return "is missing" if len(item["loc"]) > 1 else "a JSON object is needed as the body"
    if kind == "model_attributes_type":
        return "must be a JSON object"
    if kind == "value_error" and "error" in facts:
        return str(facts["error"])
    message = str(item["msg"])
    return f"{message[:1].lower()}{message[1:]}"


def is_logged(scope: Mapping[str, Any]) -> bool:
    """Returns True if `on_mistake` has logged and answered the exception."""
    return bool(scope.get(_LOGGED))


async def on_mistake(request: Request, error: Exception) -> Response:
    request.scope[_LOGGED] = True
    log.error("a mistake in Headway itself at %s %s", request.method, request.url.path, exc_info=error)
    return problem(500, "mistake", "Headway made a mistake: its log has the details; please report it")
