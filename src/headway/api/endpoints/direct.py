"""Direct calls: `POST /api/direct/{task}`, and the paths that tasks declare."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, Path, Request, Response

from headway.api.http.routing import KEY, Here, RequestContext, Routes, answer
from headway.api.schemas.queue import CallBody, ResultSchema
from headway.api.service import KeptPlace
from headway.engine.client.authority import check_task
from headway.engine.tasks.registry import Registry, TaskSpec
from headway.errors import BadInput, Busy, HeadwayError, JobFailed, NotFound, Refused
from headway.model.values.names import check_name
from headway.model.values.suggestions import closest
from headway.model.values.times import duration_text, longest_wait

routes = Routes("direct")
GONE = "the caller went away"
CLOSING = "this process is shutting down: try again"
CLOSING_SECONDS = 5
# A call with an Idempotency-Key keeps its place, and then its result, for this long after its caller left.
KEPT_SECONDS = 30.0
_WRONG = "The task failed; `state` is its final state, `failure_kind` the kind of failure"
_numbers = itertools.count(1)


WaitHeader = Annotated[
    str | None,
    Header(
        max_length=100,
        alias="Headway-Wait",
        description="Longest time to wait for a slot: a duration like 30m, or none for no limit",
        examples=["30m"],
    ),
]
PreferHeader = Annotated[
    str | None,
    Header(
        max_length=100,
        alias="Prefer",
        description="wait=SECONDS: longest time to wait for a slot (RFC 7240)",
        examples=["wait=600"],
    ),
]


@routes.post("/api/direct/{task}", answer=ResultSchema, also={424: _WRONG})
async def call(
    here: Here,
    task: Annotated[str, Path(max_length=200)],
    body: CallBody | None = None,
    headway_wait: WaitHeader = None,
    prefer: PreferHeader = None,
) -> Response:
    """Run a task now and return its result, without a job."""
    given = body.given() if body is not None else {}
    params = given.pop("params", {})
    wait, applied = asked_wait(headway_wait, prefer) if "wait" not in given else ({}, {})
    return answer({"result": await run(here, task, params, {**given, **wait})}, 200, **applied)


_PREFERRED = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=[,;]|$)", re.IGNORECASE)


def asked_wait(headway_wait: str | None, prefer: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the wait that the headers ask for, as an option, and the headers of the answer.

    A preference that is not understood is ignored, as RFC 7240 has it.
    """
    if headway_wait is not None:
        return {"wait": longest_wait(headway_wait.strip(), field="Headway-Wait")}, {}
    found = _PREFERRED.search(prefer or "")
    if found is None:
        return {}, {}
    return {"wait": float(found[1])}, {"Preference-Applied": f"wait={int(found[1])}"}


async def run(here: RequestContext, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Runs a direct call and returns its result.

    If the caller disconnects, its reservation is released and a running task is stopped. With an Idempotency-Key a call
    that still waits keeps its place for a while, and the next request with the key continues it.
    """
    if KEY in here.request.headers:
        return await _run_kept(here, task, params, options)
    under_way = _UnderWay(here, task, params, options)
    under_way.start()
    done = asyncio.ensure_future(asyncio.wrap_future(under_way.result))
    gone = asyncio.ensure_future(_gone(here.request))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            under_way.call.abandon(GONE)
        return await asyncio.shield(done)
    finally:
        gone.cancel()
        # This request may have been cancelled. The thread then ends by itself, and its result is discarded.
        under_way.call.abandon(GONE)
        done.add_done_callback(_forget)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _forget(done: asyncio.Future[Any]) -> None:
    """Consumes the exception of an abandoned call, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


class _UnderWay:
    """A direct call, waiting or running in a thread of its own."""

    def __init__(self, here: RequestContext, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        from headway.engine.direct.call import DirectCall  # imports everything that runs tasks

        self.here = here
        self.task = task
        self.params = params
        self.options = options
        self.call = DirectCall()
        self.result: Future[Any] = Future()

    def start(self) -> None:
        self.here.service.direct_calls.enter(self.here.visitor)
        self.here.service.under_way.add(self)
        if self.here.service.draining.is_set():  # looked at after `add`, so that `drain` misses no call
            self._leave()
            raise Busy(CLOSING, retry_after=CLOSING_SECONDS)
        try:
            threading.Thread(target=self._live, name=f"headway-direct-{next(_numbers)}", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self._leave()
            raise Busy("this server is too busy for another direct call: try again later", retry_after=5) from None

    def _leave(self) -> None:
        self.here.service.under_way.discard(self)
        self.here.service.direct_calls.leave(self.here.visitor)

    def _live(self) -> None:
        self.result.set_running_or_notify_cancel()
        try:
            self.result.set_result(self._make())
        except BaseException as error:  # noqa: BLE001  (passed on to the request that waits)
            self.result.set_exception(error)
        finally:
            self._leave()

    def leave_line(self) -> None:
        self.call.leave_line(CLOSING)

    def end(self) -> None:
        self.call.abandon(CLOSING)

    def _make(self) -> Any:
        from headway.engine.direct.call import prepare
        from headway.engine.tasks.task import JobOptions

        caller, client = self.here.service.caller, self.here.client
        check_task(client, self.task)
        if caller is None:
            raise Refused(
                "this server accepts no direct calls: call a server that has a worker", code="no_direct_calls"
            )
        spec = _known(client.registry, self.task)
        direct = prepare(client, spec, self.params, JobOptions(spec, **self.options, **self.here.trace))
        return caller().call(direct, client=client, call=self.call)


def _known(registry: Registry, task: str) -> TaskSpec:
    found = registry.specs.get(task)
    if found is None:
        near = closest(task, registry.specs)
        hint = f"did you mean {near}?" if near else "a direct call runs in this server, so its app must have the task"
        raise NotFound(f"no task here is named {task!r}: {hint}", code="unknown_task")
    return found


# --- calls with an Idempotency-Key -------------------------------------------------------------------------------


class KeptCall:
    """A direct call that its caller may leave and continue, and its result. Only the event loop uses it."""

    def __init__(self, under_way: _UnderWay, digest: str) -> None:
        self.under_way = under_way
        self.digest = digest
        self.done = asyncio.ensure_future(asyncio.wrap_future(under_way.result))
        self.done.add_done_callback(_forget)
        # The requests that wait for the result.
        self.attached = 0
        self.end: asyncio.TimerHandle | None = None

    @property
    def never_ran(self) -> bool:
        """True if the call ended without a run: the next request with the key makes a new one."""
        error = self.done.exception() if self.done.done() else None
        return isinstance(error, HeadwayError) and not isinstance(error, JobFailed)


async def _run_kept(here: RequestContext, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Runs a direct call, or continues the one with the same key that its caller left."""
    given = {**options}
    wait = given.pop("wait", None)
    limit = here.service.terms.direct_wait if wait is None else longest_wait(wait, field="wait")
    name = check_name(here.request.headers[KEY], field="Idempotency-Key")
    place = (here.tenant_id, here.visitor.actor.text(), task, name)
    digest = json.dumps([params, given], sort_keys=True, default=str)
    kept = here.service.kept_calls
    call = kept.get(place)
    if call is None or call.never_ran:
        # This request watches the limit, because the place outlasts it.
        under_way = _UnderWay(here, task, params, {**given, "wait": math.inf})
        under_way.start()
        call = kept[place] = KeptCall(under_way, digest)
    elif call.digest != digest:
        text = f"Idempotency-Key: {name!r} was used here for another request: use a new key for each request"
        raise BadInput(text, code="key_reused", field="Idempotency-Key")
    if call.end is not None:
        call.end.cancel()
    call.attached += 1
    try:
        return await _attend(here, call, task, limit)
    finally:
        call.attached -= 1
        if not call.attached:
            call.end = asyncio.get_running_loop().call_later(KEPT_SECONDS, _end_kept, kept, place, call)


async def _attend(here: RequestContext, call: KeptCall, task: str, limit: float) -> Any:
    """Waits for the result, at most `limit` for the slot."""
    gone = asyncio.ensure_future(_gone(here.request))
    try:
        either = {call.done, gone}
        await asyncio.wait(either, timeout=None if math.isinf(limit) else limit, return_when=asyncio.FIRST_COMPLETED)
        if not call.done.done() and not gone.done():
            if not call.under_way.call.begun:
                text = f"{task} got no slot within {duration_text(limit)}: try again with the same Idempotency-Key"
                raise Busy(f"{text} within {KEPT_SECONDS:g} s to keep its place", retry_after=1)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not call.done.done():
            if not call.under_way.call.begun:
                raise Busy(GONE, code="given_up")  # no client reads it
            if call.attached == 1:
                call.under_way.call.abandon(GONE)
        return await asyncio.shield(call.done)
    finally:
        gone.cancel()


def _end_kept(kept: dict[KeptPlace, KeptCall], place: KeptPlace, call: KeptCall) -> None:
    """Ends a call whose caller did not come again, and forgets its result."""
    call.under_way.call.abandon(GONE)
    if kept.get(place) is call:
        del kept[place]


# --- paths that tasks declare -------------------------------------------------------------------------------------


def mount_own_paths(app: FastAPI, registry: Registry) -> None:
    """Adds a route for each task that declares a path.

    Its body is the params, its answer the result.
    """
    own = Routes("direct")
    for spec in registry:
        if spec.direct is not None:
            own.post(spec.direct, also={424: _WRONG})(_endpoint(spec))
    own.mount(app)


def _endpoint(spec: TaskSpec) -> Callable[..., Any]:
    async def call_it(
        here: Here,
        params: Annotated[dict[str, Any] | None, Body()] = None,
        headway_wait: WaitHeader = None,
        prefer: PreferHeader = None,
    ) -> Response:
        wait, applied = asked_wait(headway_wait, prefer)
        return answer(await run(here, spec.name, params or {}, wait), 200, **applied)

    call_it.__name__ = "call_" + re.sub(r"\W", "_", spec.name)
    call_it.__doc__ = f"Run {spec.name} now; the body is its params, the answer its result."
    return call_it
