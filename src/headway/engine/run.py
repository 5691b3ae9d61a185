"""One claim at work: in the event loop (async), in its slot's thread, or in its slot's warm child process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from headway.engine import tracing
from headway.engine.calling import completed, failure_of, outcome_of
from headway.engine.context import Context, Sink, Stop, Work
from headway.engine.finish import Ended
from headway.engine.registry import TaskSpec
from headway.engine.secrets import NO_VAULT, Mask, MaskedSink, Vault, password_of
from headway.engine.slot import Child
from headway.errors import BadInput, LeaseLost
from headway.model.job import Carried, Claim, Options
from headway.model.outcome import Failed, FailureKind, Outcome, Stopped
from headway.model.plan import references
from headway.model.values import duration_text

STOP_GRACE = 5.0
IDLE_CHILD_SECONDS = 300.0
NOTHING = Carried()
SQL = "headway.tasks.sql"

Done = Callable[[list[tuple["Running", Outcome]]], None]


@dataclass(slots=True, eq=False)
class Running:
    """A claim that is being run. `override` is the outcome when the work was ended for a reason of the worker's own."""

    claim: Claim
    spec: TaskSpec
    sink: Sink
    carried: Carried = NOTHING
    stop: Stop = field(default_factory=Stop)
    asked_at: float | None = None
    override: Outcome | None = None
    ask: Callable[[float], object] | None = None
    attached: bool = False
    vault: Vault = NO_VAULT
    mask: Mask | None = None

    def params(self) -> dict[str, Any]:
        """With their secrets filled in: from here on, they are masked in all that the work reports.

        Whoever stored them may not have known the task, or another one of its name: so they are checked here, before
        any code of the user's sees them."""
        params, secrets = self.vault.reveal(self.claim.params)
        if secrets:
            self._hide(secrets)
        self.spec.signature.refuse_misfits(params)
        if self.claim.stage and references(params):
            raise BadInput("params: the results it asks for are too large for params: use ctx.results", field="params")
        return params

    def _hide(self, secrets: Sequence[str]) -> None:
        self.mask = Mask(secrets, self.mask)
        self.sink = MaskedSink(self.sink, self.mask)

    def _connection(self, params: dict[str, Any]) -> str | None:
        """The address that the built-in task `sql` knows only by its name."""
        if self.spec.module != SQL:
            return None
        address = self.vault.connection(params.get("connection"))
        if hidden := password_of(address):
            self._hide(hidden)
        return address

    def work(self) -> Work:
        """Raises BadInput if a secret is not there. To be asked for before `sink`, which it may put a mask on."""
        params = self.params()
        options = Options.parse(self.claim.options)
        checkpoint = self.carried.checkpoint
        return Work(
            job_id=self.claim.job_id,
            task=self.claim.task,
            fence=self.claim.fence,
            attempt=self.claim.attempt,
            params=params,
            last_checkpoint=json.loads(checkpoint) if checkpoint else None,
            budget=dict(options.budget),
            spent=self.carried.spent,
            results=self.carried.results,
            module=self.spec.module,
            connection=self._connection(params),
            traceparent=tracing.carried(options.traceparent),
        )

    def call(self) -> Any:
        """Call its function in this thread."""
        if not self.spec.signature.takes_context:
            return self.spec.function(**self.params())
        work = self.work()
        return self.spec.function(Context(work, self.sink, self.stop), **work.params)

    def timeout(self) -> tuple[float | None, float | None]:
        """Seconds that remain of the running time, and the whole of it."""
        if '"timeout"' not in self.claim.options:
            return None, None
        whole = Options.parse(self.claim.options).timeout
        return (None, None) if whole is None else (max(0.0, whole - self.claim.ran / 1e6), whole)

    def request_stop(self, grace: float) -> None:
        """Asks the work to end; harmless when it has ended."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
        self.stop.asked = True
        ask = self.ask  # once: the work may end, and take it away, between two looks
        if ask is not None:
            ask(grace)

    def expire(self, whole: float) -> None:
        """Its running time is over: from here on it is stopped like work that a person stops."""
        self.override = Failed(FailureKind.TIMEOUT, f"ran longer than {duration_text(whole)}")
        self.request_stop(STOP_GRACE)

    def ended(self, outcome: Outcome) -> Ended:
        """The outcome as it is recorded: work that was stopped ended for our reason, or for none it could know."""
        if self.override is not None and isinstance(outcome, (Stopped, Failed)):
            outcome = self.override  # a failure of its clean-up too
        elif isinstance(outcome, Stopped) and self.asked_at is None:
            outcome = Failed(
                FailureKind.EXCEPTION, "the work stopped although nobody had asked it to", outcome.exit_code
            )
        return Ended(self.claim, self.mask.outcome(outcome) if self.mask is not None else outcome, self.attached)


class AsyncRunner:
    """All `async def` tasks of a worker, in one event loop of its own thread. Results are handed over in batches."""

    def __init__(self, done: Done) -> None:
        self.done = done
        self.finished: list[tuple[Running, Outcome]] = []
        self.active = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="headway-async", daemon=True)
        self.thread.start()

    def start(self, batch: list[Running]) -> None:
        self.loop.call_soon_threadsafe(self._start, batch)

    def _start(self, batch: list[Running]) -> None:
        self.active += len(batch)
        for running in batch:
            if running.stop.asked:  # stopped before it began
                self._finish(running, Stopped())
                continue
            task = asyncio.Task(self._run(running), loop=self.loop)  # as `create_task`, which would ask for a factory
            running.ask = partial(self._cancel, task)
            if running.asked_at is not None:  # asked between the look above and here
                task.cancel()

    def _cancel(self, task: asyncio.Task[None], _grace: float) -> None:
        self.loop.call_soon_threadsafe(task.cancel)

    async def _run(self, running: Running) -> None:
        timer = None
        span = tracing.begin(running.claim)
        try:
            left, whole = running.timeout()
            if left is not None and whole is not None:
                timer = self.loop.call_later(left, running.expire, whole)
            outcome = completed(await running.call())
        except BaseException as error:
            outcome = failure_of(error)
        if timer is not None:
            timer.cancel()
        if span is not None:
            span.end(running.ended(outcome).outcome)
        self._finish(running, outcome)

    def _finish(self, running: Running, outcome: Outcome) -> None:
        running.ask = None  # it leads to the task, which leads back here: the garbage collector would have to find it
        self.finished.append((running, outcome))
        self.active -= 1
        if self.active == 0:
            self._hand_over()
        elif len(self.finished) == 1:
            # After everything that is ready now: what ends together is recorded together.
            self.loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        batch, self.finished = self.finished, []
        if batch:
            self.done(batch)

    def close(self) -> None:
        """Ends the loop. Work that does not stop keeps it open: its process is about to end."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1.0)
        if not self.thread.is_alive():
            self.loop.close()


class SlotRunner:
    """One slot for plain functions: a thread that runs them itself or in its warm child process."""

    def __init__(
        self, slot: int, done: Done, adopt: Callable[[int, Child, Stop], None], disown: Callable[[Child], None]
    ) -> None:
        self.slot = slot
        self.done = done
        self.adopt = adopt
        self.disown = disown
        self.child: Child | None = None
        self.inbox: SimpleQueue[Running | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._live, name=f"headway-slot-{slot}", daemon=True)
        self.thread.start()

    def start(self, running: Running) -> None:
        self.inbox.put(running)

    def _live(self) -> None:
        while (running := self._next()) is not None:
            self.done([(running, self._run(running))])
        self._close_child()

    def _next(self) -> Running | None:
        while True:
            try:
                return self.inbox.get(timeout=IDLE_CHILD_SECONDS)
            except Empty:
                self._close_child()

    def _run(self, running: Running) -> Outcome:
        if running.stop.asked:
            return Stopped()
        span = tracing.begin(running.claim)
        outcome = self._perform(running)
        if span is not None:
            span.end(running.ended(outcome).outcome)
        return outcome

    def _perform(self, running: Running) -> Outcome:
        if running.spec.isolation == "thread":
            return self._run_here(running)
        try:
            return self._run_in_child(running)
        except LeaseLost:
            return Stopped()
        except Exception as error:
            self._close_child()
            return failure_of(error)

    def _run_here(self, running: Running) -> Outcome:
        timer = self._deadline(running)
        outcome = outcome_of(running.call)
        if timer is not None:
            timer.cancel()
        return outcome

    def _deadline(self, running: Running) -> threading.Timer | None:
        """Beyond its time work is stopped as by a person. A thread ends at its next stop point, a child for certain."""
        left, whole = running.timeout()
        if left is None or whole is None:
            return None
        timer = threading.Timer(left, running.expire, [whole])
        timer.daemon = True
        timer.start()
        return timer

    def _run_in_child(self, running: Running) -> Outcome:
        try:
            work = running.work()
        except BadInput as error:
            return failure_of(error)
        child = self._usable_child(running.stop)
        running.ask = child.stop
        timer = self._deadline(running)
        try:
            return child.run(work, running.sink, grace=STOP_GRACE, stop=running.stop)
        finally:
            if timer is not None:
                timer.cancel()

    def _usable_child(self, stop: Stop) -> Child:
        if self.child is not None and not self.child.usable:
            self._close_child()
        if self.child is None:
            self.child = Child.start()
            try:
                self.adopt(self.slot, self.child, stop)
            except BaseException:
                self._close_child()  # it was not stored, so nothing may run in it
                raise
        return self.child

    def _close_child(self) -> None:
        if self.child is not None:
            child, self.child = self.child, None
            child.close()
            self.disown(child)

    def close(self) -> None:
        self.inbox.put(None)
