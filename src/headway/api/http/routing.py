"""Declares endpoints: path, role, body and answer; and the request they receive."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, APIRouter
from starlette.routing import BaseRoute

from headway import errors
from headway.api.http.problems import MEDIA_TYPE, BadBody
from headway.api.http.shares import LongRequests
from headway.api.legacy import announcement
from headway.api.schemas.common import ProblemSchema
from headway.api.service import Service
from headway.engine import tracing
from headway.engine.client.client import Client
from headway.engine.client.idempotency import Replayed, complete
from headway.model.access.permissions import Role, Visitor
from headway.model.values.json import from_json
from headway.model.values.names import check_name
from headway.model.values.suggestions import closest
from headway.model.webhooks.address import for_viewer
from headway.store.db import Tx

KEY = "idempotency-key"
TRACE = "traceparent"
_JSON = "application/json"


class StrictRequest(Request):
    """Accepts JSON that both databases can store.

    It refuses NaN, duplicate keys, lone surrogates and deep nesting.
    """

    async def json(self) -> Any:
        body = await self.body()
        if not body:
            return None
        try:
            return from_json(body, field="body")
        except errors.BadInput as error:
            raise BadBody(errors.BadInput(str(error), code="bad_json", field="body"), 400) from None


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Any]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "")
            if kind and not _is_json(kind) and request.method not in ("GET", "HEAD"):
                error = errors.BadInput(f"the body must be {_JSON}, not {kind!r}", code="unsupported_media_type")
                raise BadBody(error, 415)
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _is_json(kind: str) -> bool:
    media = kind.split(";")[0].strip().lower()
    return media == _JSON or media.endswith("+json")


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """The declaration of an endpoint.

    `role` None makes it public. `creates` makes it accept an Idempotency-Key. `media` is the type of the answer.
    `matches` makes it accept If-Match, as every PATCH, PUT and DELETE does. `hidden` keeps an alternative spelling out
    of the OpenAPI document. A `long` request takes turns with others, a `probe` has threads of its own.
    """

    method: str
    path: str
    role: Role | None
    endpoint: Callable[..., Any]
    answer: Any = None
    status: int = 200
    creates: bool = False
    system: bool = False
    media: str = _JSON
    matches: bool | None = None
    deprecated: bool = False
    hidden: bool = False
    long: bool = False
    probe: bool = False
    also: Mapping[int, str] = field(default_factory=dict)


T = TypeVar("T")


class RequestContext:
    """A request with its visitor, and the client and transactions it may use."""

    def __init__(self, request: Request, service: Service, declared: RouteSpec) -> None:
        self.request = request
        self.service = service
        self.declared = declared
        self.visitor: Visitor = request.scope.get("headway.visitor")  # type: ignore[assignment]

    def admit(self) -> None:
        needed = self.declared.role
        if needed is None:
            return
        if self.visitor is None:
            raise errors.Refused("a token is needed: send `Authorization: Bearer hw_…`", code="unauthorised")
        if not self.visitor.role.may(needed):
            text = f"this needs the role {needed.value}, and this token has the role {self.visitor.role.value}"
            raise errors.Refused(text, code="not_allowed")
        if self.declared.system and not self.visitor.system:
            raise errors.Refused("this is for tokens of the system, not of a tenant", code="not_allowed")

    def note_old_call(self) -> None:
        """Counts a call of an old address; refuses it if these addresses have ended."""
        now = self.service.clock.now()
        visitor: Visitor | None = self.request.scope.get("headway.visitor")
        named = visitor is not None and visitor.actor.type == "token"
        client = visitor.actor.name if visitor is not None and named else self.request.headers.get("user-agent")
        path = self.declared.path.replace(":path", "").rstrip("/")
        self.service.metrics.legacy_calls.count(path, client or "", now)
        if not announcement.in_force(self.service.terms.legacy_enabled, now):
            new = self.address(announcement.successor_of(path) or "/api")
            text = f"the addresses of the older systems have ended here: use {new}, or set legacy.enabled to true"
            raise errors.Refused(text, code="gone")

    def check_asked(self, known: Collection[str]) -> None:
        """Refuses unknown query parameters and a useless If-Match.

        Public and deprecated endpoints ignore both, because probes and old clients may send more. A deprecated list
        refuses an unknown parameter: the client would take all jobs for those that it asked for.
        """
        if self.declared.role is None or (self.declared.deprecated and not known):
            return
        for name in self.request.query_params:
            if name not in known:
                near = closest(name, known)
                hint = f": did you mean {near}?" if near else f": there are {', '.join(sorted(known)) or 'none'}"
                raise errors.BadInput(f"{name}: there is no such query parameter{hint}", field=name)
        if self.declared.deprecated:
            return
        if "if-match" in self.request.headers and not heeds_match(self.declared):
            text = "If-Match is not accepted here: it is for PATCH, PUT, DELETE, move, run and rotate: leave it out"
            raise errors.BadInput(text, field="If-Match")

    @property
    def client(self) -> Client:
        return self.service.client(self.visitor)

    @property
    def tenant_id(self) -> int:
        return self.visitor.tenant_id

    def shown(self, thing: T) -> T:
        """Returns a webhook, a delivery, a try or an event as this visitor may see it.

        Viewers see addresses of webhooks without path and query.
        """
        return thing if self.visitor.role.may(Role.OPERATOR) else for_viewer(thing)

    def address(self, path: str) -> str:
        """Returns a path below the root path.

        Another application may have mounted this one there.
        """
        return f"{self.request.scope.get('root_path', '')}{path}"

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self.service.read(self.visitor) as tx:
            yield tx

    @contextmanager
    def look(self) -> Iterator[Tx]:
        """Opens a read transaction without row-level security.

        Why a job waits and what occupies a lane may depend on other tenants' jobs.
        """
        with self.service.database.read() as tx:
            yield tx

    @property
    def if_version(self) -> int | None:
        """Returns the version in `If-Match`; None without it and for `*`."""
        given = self.request.headers.get("if-match")
        if given is None or given.strip() == "*":
            return None
        text = given.strip().removeprefix("W/").strip('"')
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise errors.BadInput('If-Match must be the ETag of an answer, like "3"', field="If-Match")
        return int(text)

    @property
    def trace(self) -> dict[str, Any]:
        """Returns the caller's trace as an option for the created job.

        An invalid header is ignored.
        """
        found = tracing.valid(self.request.headers.get(TRACE))
        return {} if found is None else {"traceparent": found}

    # --- idempotency keys ---

    def make_once(
        self,
        work: Callable[[Client], Any],
        render: Callable[[Any], Response],
        body: object = None,
        *,
        hide: Callable[[Any], Any] | None = None,
    ) -> Response:
        """Creates something and renders it, at most once per Idempotency-Key.

        A repeated request gets the first answer; the created thing and its key are stored in one transaction. `hide`
        removes secrets that are shown once, so that the stored answer does not contain them.
        """
        if KEY not in self.request.headers:
            return render(work(self.client))
        try:
            keyed = self._keyed(body)
            made = work(keyed)
        except Replayed as replayed:
            return _again(replayed)
        answer = render(made)
        kept = answer if hide is None else render(hide(made))
        body_kept = bytes(kept.body).decode()
        complete(keyed, kept.status_code, _kept(kept), body_kept, without_secrets=hide is not None)
        if keyed.replayed:  # created by an earlier request whose answer was not stored
            answer.headers["Idempotent-Replayed"] = "true"
        return answer

    def do_once(self, work: Callable[[Client], tuple[Response, Response]], body: object) -> Response:
        """Runs work of several transactions, at most once per Idempotency-Key.

        A repeated request gets the first answer, and is refused until that is stored. `work` returns the answer, and
        the answer to store, without secrets.
        """
        if KEY not in self.request.headers:
            return work(self.client)[0]
        try:
            keyed = self._keyed(body, several=True)
            shown, kept = work(keyed)
        except Replayed as replayed:
            return _again(replayed)
        complete(keyed, kept.status_code, _kept(kept), bytes(kept.body).decode())
        return shown

    def _keyed(self, body: object, *, several: bool = False) -> Client:
        key = check_name(self.request.headers[KEY], field="Idempotency-Key")
        route = f"{self.declared.method} {self.request.scope['path']}"
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()
        return self.client.keyed(route, key, digest, several=several)


def _kept(answer: Response) -> dict[str, str]:
    return {name: answer.headers[name] for name in ("location", "etag", "content-type") if name in answer.headers}


def _again(replayed: Replayed) -> Response:
    headers = {**replayed.headers, "Idempotent-Replayed": "true"}
    return Response(replayed.body.encode(), replayed.status, headers)


def answer(value: object, status: int = 200, **headers: str) -> Response:
    """Returns a JSON response; characters that UTF-8 cannot encode are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, _JSON)


def etag(version: int) -> str:
    return f'"{version}"'


async def enter(request: Request) -> RequestContext:
    """Checks role, query and If-Match before the body is validated.

    A caller without the role learns nothing about the body.
    """
    which = request.scope["endpoint"], request.method
    declared: RouteSpec = request.app.state.declared[which]
    visit = RequestContext(request, request.app.state.service, declared)
    if declared.deprecated:
        visit.note_old_call()
    visit.admit()
    asked: dict[Any, set[str]] = request.app.state.asked
    if which not in asked:
        asked[which] = _query_names(request.scope["route"].dependant)
    visit.check_asked(asked[which])
    return visit


def heeds_match(route: RouteSpec) -> bool:
    return route.method in ("PATCH", "PUT", "DELETE") if route.matches is None else route.matches


def _query_names(dependant: Any) -> set[str]:
    """Returns the query parameters of an endpoint and of its dependencies."""
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_query_names(one) for one in dependant.dependencies))


Here = Annotated[RequestContext, Depends(enter)]


def _apart(endpoint: Callable[..., Response], *, long: bool) -> Callable[..., Awaitable[Response]]:
    """Returns the endpoint for threads other than those of most requests."""

    @wraps(endpoint)
    async def run(here: RequestContext, **given: Any) -> Response:
        long_requests: LongRequests = here.request.app.state.long_requests
        if long:
            return await long_requests.run(here.visitor, endpoint, here=here, **given)
        return await to_thread.run_sync(partial(endpoint, here=here, **given), limiter=long_requests.probes)

    run.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    return run


class Routes:
    """The endpoints with one tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.declared: list[RouteSpec] = []

    def add(self, method: str, path: str, role: Role | None, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        def declare(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            spec = RouteSpec(method, path, role, endpoint, **facts)
            if spec.long or spec.probe:
                spec = replace(spec, endpoint=_apart(endpoint, long=spec.long))
            self.declared.append(spec)
            return endpoint

        return declare

    def get(self, path: str, role: Role | None = Role.VIEWER, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        return self.add("GET", path, role, **facts)

    def post(self, path: str, role: Role | None = Role.OPERATOR, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        return self.add("POST", path, role, **facts)

    def put(self, path: str, role: Role | None = Role.OPERATOR, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        return self.add("PUT", path, role, **facts)

    def patch(self, path: str, role: Role | None = Role.OPERATOR, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        return self.add("PATCH", path, role, **facts)

    def delete(self, path: str, role: Role | None = Role.OPERATOR, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        return self.add("DELETE", path, role, **facts)

    def mount(self, app: FastAPI) -> None:
        app.state.declared.update({(route.endpoint, route.method): route for route in self.declared})
        app.router.routes.extend(self.made)

    @cached_property
    def made(self) -> list[BaseRoute]:
        """The routes, built once per process.

        Inspecting the types of all endpoints takes a third of a second.
        """
        router = APIRouter()
        for route in self.declared:
            _make(router, route, self.tag)
        return router.routes


def _make(router: APIRouter, route: RouteSpec, tag: str) -> None:
    extra: dict[str, Any] = {"x-role": route.role.value if route.role else "public"}
    parameters = [_KEY_PARAMETER] if route.creates else []
    parameters += [_MATCH_PARAMETER] if heeds_match(route) else []
    extra |= {"parameters": parameters} if parameters else {}
    router.add_api_route(
        route.path,
        route.endpoint,
        methods=[route.method],
        tags=[tag],
        status_code=route.status,
        summary=(route.endpoint.__doc__ or "").strip().split("\n")[0].rstrip("."),
        operation_id=f"{tag}_{route.endpoint.__name__}".replace(" ", "_").replace("-", "_"),
        response_model=None,
        response_class=JSONResponse
        if route.media == _JSON
        else type("Answer", (Response,), {"media_type": route.media}),
        responses=_responses(route),
        openapi_extra=extra,
        deprecated=route.deprecated or None,
        include_in_schema=not route.hidden,
        route_class_override=StrictRoute,
    )


_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeating a request with the same key and body gives the same answer for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_MATCH_PARAMETER = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that was read; if the version has changed since, the request is refused (412).",
    "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
}
_USUAL = {
    400: "The body is not valid JSON",
    401: "The token is missing or unknown",
    403: "Not allowed",
    404: "Not found",
    409: "The current state does not allow it",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "Bad input; `errors` names the fields",
    503: "The database cannot be reached or is busy; try again after Retry-After",
}


def _responses(route: RouteSpec) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {}
    problems = {
        **_USUAL,
        **({412: "It has changed since it was read"} if route.method in ("PATCH", "PUT", "POST", "DELETE") else {}),
    }
    for status, text in problems.items():
        responses[status] = {"description": text, "content": _PROBLEM_CONTENT}
    responses[route.status] = {"description": "Done"}
    if route.media != _JSON:
        responses[route.status]["content"] = {route.media: {"schema": {"type": "string"}}}
    if route.answer is not None:
        responses[route.status]["model"] = route.answer
    for status, text in route.also.items():
        responses.setdefault(status, {"content": _PROBLEM_CONTENT} if status >= 400 else {}).update(description=text)
        if status < 300 and route.answer:
            responses[status]["model"] = route.answer
    return responses


_PROBLEM_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemSchema.__name__}"}}}
