"""One running claim, and the slot that runs plain functions."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

from headway import forks
from headway.engine import tracing
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import Context, Sink, StopFlag, WorkItem
from headway.engine.execution.deadlines import NO_ROOM, Deadline, Deadlines
from headway.engine.execution.exhausted import check_room
from headway.engine.execution.outcome import failure_of, outcome_of
from headway.engine.execution.own_job import OwnJob, at_work
from headway.engine.execution.own_variables import for_tasks
from headway.engine.execution.secrets import NO_VAULT, Mask, MaskedSink, Vault, password_of
from headway.engine.tasks.registry import TaskSpec
from headway.engine.worker.finish import Ended
from headway.errors import BadInput, HeadwayError, LeaseLost
from headway.model.groups.group import references
from headway.model.jobs.job import Carried, Claim, Options
from headway.model.jobs.outcome import Failed, FailureKind, Lost, NeverBegan, Outcome, StoppedByRequest
from headway.model.values.times import duration_text

log = logging.getLogger("headway")

STOP_GRACE = 5.0
IDLE_CHILD_SECONDS = 300.0
NOTHING = Carried()
SQL = "headway.tasks.sql"

OnDone = Callable[[list[tuple["Running", Outcome]]], None]


class Prepared(NamedTuple):
    """A claim's work as its code gets it, with the sink for its reports."""

    work: WorkItem
    sink: Sink


@dataclass(slots=True, eq=False)
class Running:
    """A claim that is being run.

    `override` is the outcome if the worker itself ended the work. `mask` hides the secrets that the work has received.
    """

    claim: Claim
    spec: TaskSpec
    sink: Sink
    carried: Carried = NOTHING
    stop: StopFlag = field(default_factory=StopFlag)
    asked_at: float | None = None
    override: Outcome | None = None
    ask: Callable[[float], object] | None = None
    attached: bool = False
    vault: Vault = NO_VAULT
    mask: Mask | None = None
    thread: int = 0
    pid: int = 0

    def prepare(self) -> Prepared:
        """Builds the work item, and the sink that masks its secrets; raises BadInput if a secret is missing."""
        params = self._params()
        options = Options.parse(self.claim.options)
        checkpoint = self.carried.checkpoint
        work = WorkItem(
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
        return Prepared(work, self.sink if self.mask is None else MaskedSink(self.sink, self.mask))

    def _params(self) -> dict[str, Any]:
        """Returns the params with their secrets filled in.

        The process that enqueued the job may not have known the task, or may have known another version of it. The
        params are therefore checked here, before user code sees them. An error may quote a secret, so the mask comes
        first.
        """
        params, secrets = self.vault.reveal(self.claim.params, task=self.claim.task, tenant=self.carried.tenant)
        if secrets:
            self.mask = Mask(secrets, self.mask)
        self.spec.signature.refuse_misfits(params)
        if self.claim.stage and references(params):
            raise BadInput("params: the results are too large to be filled in", hint="use ctx.results", field="params")
        return params

    def _connection(self, params: dict[str, Any]) -> str | None:
        """Returns the address of a connection for the task `sql`, else None."""
        if self.spec.module != SQL:
            return None
        address = self.vault.connection(params.get("connection"))
        if hidden := password_of(address):
            self.mask = Mask(hidden, self.mask)
        return address

    @property
    def own(self) -> OwnJob:
        return OwnJob(self.claim.job_id, self.claim.fence, self.thread, self.pid)

    def call_apart(self) -> Any:
        """Calls the function in this thread, with context variables of its own."""
        return copy_context().run(self.call)

    def call(self) -> Any:
        """Calls the function in this thread and context."""
        self.thread, self.pid = threading.get_ident(), os.getpid()
        at_work.set(self)
        try:
            given, params = self._arguments()
        except (OSError, MemoryError) as error:
            check_room(error, "its params could not be prepared")
            raise
        return self.spec.function(*given, **params)

    def _arguments(self) -> tuple[tuple[Context, ...], dict[str, Any]]:
        if not self.spec.signature.takes_context:
            return (), self._params()
        work, sink = self.prepare()
        return (Context(work, sink, self.stop),), work.params

    def set_deadline(self, deadlines: Deadlines) -> Deadline | None:
        """Sets the deadline of the job's timeout; returns None if the job has none.

        At the deadline the work gets a stop request. A thread ends at its next stop point, a child is killed at last.
        """
        if '"timeout"' not in self.claim.options:
            return None
        whole = Options.parse(self.claim.options).timeout
        if whole is None:
            return None
        return deadlines.set(max(0.0, whole - self.claim.ran / 1e6), partial(self.expire, whole))

    def request_stop(self, grace: float) -> None:
        """Asks the work to stop. Does nothing if it has ended."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
        self.stop.asked = True
        ask = self.ask  # read once, because work that ends in another thread clears it
        if ask is not None:
            ask(grace)

    def expire(self, whole: float) -> None:
        """Stops the work because its timeout is over."""
        self.override = Failed(FailureKind.TIMEOUT, f"ran longer than {duration_text(whole)}")
        self.request_stop(STOP_GRACE)

    def ended(self, outcome: Outcome) -> Ended:
        """Returns the outcome to record, with secrets masked.

        If the worker stopped the work, `override` replaces the work's own outcome. Work that stopped without a stop
        request has failed.
        """
        if self.override is not None and isinstance(outcome, (StoppedByRequest, Failed)):
            outcome = self.override  # also if its clean-up failed
        elif isinstance(outcome, StoppedByRequest) and self.asked_at is None:
            outcome = Failed(FailureKind.EXCEPTION, "the work stopped without a stop request", outcome.exit_code)
        return Ended(self.claim, self.mask.outcome(outcome) if self.mask is not None else outcome, self.attached)


class SlotRunner:
    """One slot for plain functions: a thread with a warm child process.

    The thread runs a function itself, or in the child.
    """

    def __init__(
        self,
        slot: int,
        done: OnDone,
        deadlines: Deadlines,
        *,
        adopt: Callable[[int, Child, StopFlag], None],
        disown: Callable[[Child], None],
    ) -> None:
        self.slot = slot
        self.deadlines = deadlines
        self.done = done
        self.adopt = adopt
        self.disown = disown
        self.pid = os.getpid()
        self.child: Child | None = None
        self.inbox: SimpleQueue[Running | Literal["rest"] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._live, name=f"headway-slot-{slot}", daemon=True)
        self.thread.start()

    def start(self, running: Running) -> None:
        self.inbox.put(running)

    def rest(self) -> None:
        """Ends the warm child process, after the work that was started before."""
        self.inbox.put("rest")

    def _live(self) -> None:
        while (running := self._next()) is not None:
            self.done([(running, self._run(running))])
        self._close_child()

    def _next(self) -> Running | None:
        while True:
            try:
                received = self.inbox.get(timeout=IDLE_CHILD_SECONDS)
            except Empty:
                received = "rest"
            if received != "rest":
                return received
            try:
                self._close_child()
            except (*NO_ROOM, HeadwayError) as error:  # the slot must go on; recovery ends what is left
                log.warning("the warm process of slot %d could not be ended: %s", self.slot, error)

    def _run(self, running: Running) -> Outcome:
        if running.stop.asked:
            return NeverBegan("it was stopped before it began")
        span = deadline = None
        try:
            span = tracing.begin(running.claim)
            deadline = running.set_deadline(self.deadlines)
        except NO_ROOM as error:
            outcome: Outcome = NeverBegan(f"its timeout could not be watched: {error}")
        else:
            outcome = self._perform(running)
        if deadline is not None:
            self.deadlines.cancel(deadline)
        if span is not None:
            span.end(running.ended(outcome).outcome)
        return outcome

    def _perform(self, running: Running) -> Outcome:
        if running.spec.isolation == "thread":
            outcome = outcome_of(running.call_apart)
            forks.end_copy(self.pid, failed=isinstance(outcome, Failed))
            return outcome
        try:
            return self._run_in_child(running)
        except LeaseLost:
            return StoppedByRequest()
        except Exception as error:
            try:
                self._close_child()
            except OSError as problem:
                return Lost(f"the job ended ({error}), but its processes could not be ended: {problem}", remains=True)
            return failure_of(error)

    def _run_in_child(self, running: Running) -> Outcome:
        try:
            work, sink = running.prepare()
            child = self._usable_child(running)
        except LeaseLost:  # it was stopped while the record of its child was being stored
            return NeverBegan("it was stopped before it began")
        except BadInput as error:
            return failure_of(error)
        except (*NO_ROOM, HeadwayError) as error:
            return NeverBegan(f"no process could be started for it: {error}")
        running.ask = child.stop
        return child.run(work, sink, grace=STOP_GRACE, stop=running.stop)

    def _usable_child(self, running: Running) -> Child:
        if self.child is not None and not self.child.usable:
            self._close_child()
        if self.child is None:
            self.child = Child.start(env=for_tasks(os.environ, running.vault.variables))
            try:
                self.adopt(self.slot, self.child, running.stop)
            except BaseException:
                self._close_child()  # recovery could not find it, so no user code may run in it
                raise
        return self.child

    def _close_child(self) -> None:
        if self.child is not None:
            child, self.child = self.child, None
            child.close()
            if not child.stuck:  # otherwise recovery ends its processes, after the end of this worker
                self.disown(child)

    def close(self) -> None:
        self.inbox.put(None)
