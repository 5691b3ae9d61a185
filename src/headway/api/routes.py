"""How an endpoint is declared: its address, the role it needs, what it takes and answers; and what it is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, APIRouter
from starlette.routing import BaseRoute

from headway import errors
from headway.api.problems import MEDIA_TYPE, BadBody
from headway.api.service import Service
from headway.api.wire import answers
from headway.engine import tracing
from headway.engine.answers import Replayed, complete
from headway.engine.client import Client
from headway.model.access import Role, Visitor
from headway.model.values import check_name, closest, from_json
from headway.store.db import Tx

KEY = "idempotency-key"
TRACE = "traceparent"
_JSON = "application/json"


class StrictRequest(Request):
    """JSON as both databases can keep it: no NaN, no duplicate keys, no lone surrogates, not too deep."""

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
class Declared:
    """One endpoint. `role` None: for everybody, without a token. `creates`: it takes an Idempotency-Key. `media`: what
    it answers, if that is not JSON. `matches`: it heeds If-Match, as every PATCH, PUT and DELETE does. `hidden`:
    another spelling, not worth describing."""

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
    also: Mapping[int, str] = field(default_factory=dict)


class Visit:
    """One request: who comes, and what they may use."""

    def __init__(self, request: Request, service: Service, declared: Declared) -> None:
        self.request = request
        self.service = service
        self.declared = declared
        self.visitor: Visitor = request.scope.get("headway.visitor")  # type: ignore[assignment]

    def admit(self) -> None:
        needed = self.declared.role
        if needed is None:
            return
        if self.visitor is None:
            raise errors.Refused("say who you are: Authorization: Bearer hw_…", code="unauthorised")
        if not self.visitor.role.may(needed):
            text = f"this needs the role {needed.value}, and this token has the role {self.visitor.role.value}"
            raise errors.Refused(text, code="not_allowed")
        if self.declared.system and not self.visitor.system:
            raise errors.Refused("this is for tokens of the system, not of a tenant", code="not_allowed")

    def check_asked(self, known: Collection[str]) -> None:
        """What would be passed over in silence is refused; probes and old clients may say more than is heard."""
        if self.declared.role is None or self.declared.deprecated:
            return
        for name in self.request.query_params:
            if name not in known:
                near = closest(name, known)
                hint = f": did you mean {near}?" if near else f": there are {', '.join(sorted(known)) or 'none'}"
                raise errors.BadInput(f"{name}: there is no such query parameter{hint}", field=name)
        if "if-match" in self.request.headers and not heeds_match(self.declared):
            text = "If-Match is for changes of what was seen (PATCH, PUT, DELETE, move, run, rotate), not heeded here"
            raise errors.BadInput(text, field="If-Match")

    @property
    def client(self) -> Client:
        return self.service.client(self.visitor)

    @property
    def tenant_id(self) -> int:
        return self.visitor.tenant_id

    def address(self, path: str) -> str:
        """Where something is, also when we are mounted in another application."""
        return f"{self.request.scope.get('root_path', '')}{path}"

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self.service.read(self.visitor) as tx:
            yield tx

    @contextmanager
    def look(self) -> Iterator[Tx]:
        """Beyond the wall, for what depends on everybody's work: why a job waits, who has a lane."""
        with self.service.database.read() as tx:
            yield tx

    @property
    def if_version(self) -> int | None:
        """What `If-Match` says. `*` is any."""
        given = self.request.headers.get("if-match")
        if given is None or given.strip() == "*":
            return None
        text = given.strip().removeprefix("W/").strip('"')
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise errors.BadInput('If-Match must be an ETag that an answer gave, like "3"', field="If-Match")
        return int(text)

    @property
    def trace(self) -> dict[str, Any]:
        """The trace that the caller is in, as a wish for what is made: what is no trace is ignored."""
        found = tracing.valid(self.request.headers.get(TRACE))
        return {} if found is None else {"traceparent": found}

    # --- creating, at most once for a key ---

    def make_once(
        self,
        work: Callable[[Client], Any],
        render: Callable[[Any], Response],
        body: object = None,
        *,
        hide: Callable[[Any], Any] | None = None,
    ) -> Response:
        """Runs what creates something and renders it. With an Idempotency-Key, a repeated request gets the answer of
        the first; what it made and its key are stored in one transaction. `hide` takes away what is shown once: the
        answer is kept without it."""
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
        if keyed.replayed:  # made before, by a request whose answer is not known
            answer.headers["Idempotent-Replayed"] = "true"
        return answer

    def do_once(self, work: Callable[[Client], tuple[Response, Response]], body: object) -> Response:
        """The same for what takes several transactions. A repeated request gets the answer of the first, or is refused
        while that is not known. `work` returns the answer, and it without its secrets, which is kept."""
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
    """JSON. The texts of jobs may hold anything, but nothing that UTF-8 cannot say."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, _JSON)


def etag(version: int) -> str:
    return f'"{version}"'


async def enter(request: Request) -> Visit:
    """Before the body is judged: who may not come learns nothing about it."""
    which = request.scope["endpoint"], request.method
    declared: Declared = request.app.state.declared[which]
    visit = Visit(request, request.app.state.service, declared)
    visit.admit()
    asked: dict[Any, set[str]] = request.app.state.asked
    if which not in asked:
        asked[which] = _query_names(request.scope["route"].dependant)
    visit.check_asked(asked[which])
    return visit


def heeds_match(one: Declared) -> bool:
    return one.method in ("PATCH", "PUT", "DELETE") if one.matches is None else one.matches


def _query_names(dependant: Any) -> set[str]:
    """The query parameters of an endpoint and of what it depends on."""
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_query_names(one) for one in dependant.dependencies))


Here = Annotated[Visit, Depends(enter)]


class Routes:
    """The endpoints of one noun."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.declared: list[Declared] = []

    def add(self, method: str, path: str, role: Role | None, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
        def declare(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            self.declared.append(Declared(method, path, role, endpoint, **facts))
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
        app.state.declared.update({(one.endpoint, one.method): one for one in self.declared})
        app.router.routes.extend(self.made)

    @cached_property
    def made(self) -> list[BaseRoute]:
        """For every application of this process: looking into the types of all endpoints takes a third of a second."""
        router = APIRouter()
        for one in self.declared:
            _make(router, one, self.tag)
        return router.routes


def _make(router: APIRouter, one: Declared, tag: str) -> None:
    extra: dict[str, Any] = {"x-role": one.role.value if one.role else "public"}
    parameters = [_KEY_PARAMETER] if one.creates else []
    parameters += [_MATCH_PARAMETER] if heeds_match(one) else []
    extra |= {"parameters": parameters} if parameters else {}
    router.add_api_route(
        one.path,
        one.endpoint,
        methods=[one.method],
        tags=[tag],
        status_code=one.status,
        summary=(one.endpoint.__doc__ or "").strip().split("\n")[0].rstrip("."),
        operation_id=f"{tag}_{one.endpoint.__name__}".replace(" ", "_").replace("-", "_"),
        response_model=None,
        response_class=JSONResponse if one.media == _JSON else type("Answer", (Response,), {"media_type": one.media}),
        responses=_responses(one),
        openapi_extra=extra,
        deprecated=one.deprecated or None,
        include_in_schema=not one.hidden,
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
    "description": "The ETag of what was seen: if it has changed since, nothing is done (412).",
    "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
}
_USUAL = {
    400: "The body is not JSON as it is taken here",
    401: "No token, or one that is unknown",
    403: "Not allowed",
    404: "There is no such thing here",
    409: "The state does not allow it",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "Bad input; `errors` names the fields",
    503: "The database cannot be reached, or others are at work; try again after Retry-After",
}


def _responses(one: Declared) -> dict[int | str, dict[str, Any]]:
    told: dict[int | str, dict[str, Any]] = {}
    wanted = {
        **_USUAL,
        **({412: "It has changed since it was read"} if one.method in ("PATCH", "PUT", "POST", "DELETE") else {}),
    }
    for status, text in wanted.items():
        told[status] = {"description": text, "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
    told[one.status] = {"description": "Done"}
    if one.media != _JSON:
        told[one.status]["content"] = {one.media: {"schema": {"type": "string"}}}
    if one.answer is not None:
        told[one.status]["model"] = one.answer
    for status, text in one.also.items():
        told.setdefault(status, {}).update(description=text)
        if status < 300 and one.answer:
            told[status]["model"] = one.answer
    return told


_PROBLEM = {"$ref": f"#/components/schemas/{answers.Problem.__name__}"}
