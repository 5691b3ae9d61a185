"""Direct calls: `POST /api/direct/{task}`, and the paths that tasks declare."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Request, Response

from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.queue import CallBody, ResultSchema
from headway.api.service import DIRECT_CALLS
from headway.engine.client.authority import check_task
from headway.engine.tasks.registry import Registry, TaskSpec
from headway.errors import BadInput, Busy, NotFound, Refused
from headway.model.values.suggestions import closest
from headway.model.values.times import seconds

routes = Routes("direct")
LONGEST_WAIT = 3_600.0
GONE = "the caller went away"
CLOSING = "this process is shutting down: try again"
CLOSING_SECONDS = 5
_WRONG = "The task failed; `state` is its final state, `failure_kind` the kind of failure"
_numbers = itertools.count(1)


@routes.post("/api/direct/{task}", answer=ResultSchema, also={424: _WRONG})
async def call(here: Here, task: Annotated[str, Path(max_length=200)], body: CallBody | None = None) -> Response:
    """Run a task now and return its result, without a job."""
    given = body.given() if body is not None else {}
    params = given.pop("params", {})
    return answer({"result": await run(here, task, params, given)})


async def run(here: RequestContext, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Runs a direct call and returns its result.

    If the caller disconnects, its reservation is released and a running task is stopped.
    """
    if "wait" in options and seconds(options["wait"], field="wait") > LONGEST_WAIT:
        raise BadInput("wait must be at most 1h: create a job for work that can wait longer", field="wait")
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
        if not self.here.service.direct_calls.acquire(blocking=False):
            raise Busy(f"this server has {DIRECT_CALLS} direct calls, its limit: try again later", retry_after=5)
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
        self.here.service.direct_calls.release()

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
    async def call_it(here: Here, params: Annotated[dict[str, Any] | None, Body()] = None) -> Response:
        return answer(await run(here, spec.name, params or {}, {}))

    call_it.__name__ = "call_" + re.sub(r"\W", "_", spec.name)
    call_it.__doc__ = f"Run {spec.name} now; the body is its params, the answer its result."
    return call_it
