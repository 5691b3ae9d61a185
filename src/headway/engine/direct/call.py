"""Direct calls: run a task now, ahead of the queue of its lanes.

A direct call is not a job.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from headway.engine import tracing
from headway.engine.client.client import Client
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace, wait_in_steps
from headway.engine.direct.reservations import End, ReservationRequest
from headway.engine.execution.async_runner import AsyncRunner
from headway.engine.execution.child_process import Child
from headway.engine.execution.children import adopt, disown
from headway.engine.execution.context import StopFlag
from headway.engine.execution.deadlines import NO_ROOM, Deadlines
from headway.engine.execution.running import STOP_GRACE, Running, SlotRunner
from headway.engine.execution.secrets import NO_VAULT, Vault
from headway.engine.tasks.registry import TaskSpec
from headway.engine.tasks.task import JobOptions
from headway.errors import BadInput, Busy, JobFailed, LeaseLost
from headway.model.access.tenants import DEFAULT
from headway.model.jobs.job import Carried, Claim
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    Interrupted,
    Lost,
    NeverBegan,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.model.values.json import to_json
from headway.wakeup import Wakeup

log = logging.getLogger("headway")
WENT_AWAY = Interrupted("the caller went away")
# Longest wait of a leaving caller for its work to stop. Work that does not stop keeps its place until it ends.
STOP_SECONDS = STOP_GRACE + 5.0
# Retry-After when no process or thread could be started.
ROOM_SECONDS = 5
_NUMBERS: Mapping[str, int] = logging.getLevelNamesMapping()


@dataclass(frozen=True, slots=True)
class Direct:
    """One checked call.

    `params` and `options` are JSON text; `wait` is the longest time it may wait for its reservation, math.inf for no
    limit.
    """

    spec: TaskSpec
    params: str
    options: str
    resources: tuple[str, ...] = ()
    target: str | None = None
    wait: float | None = None
    tenant: str = DEFAULT


class LogSink:
    """Reports of a direct call. Without a job to store them with, they go to the log.

    The context itself compares spending with the budget, and keeps the checkpoint.
    """

    def __init__(self, task: str) -> None:
        self.task = task

    def progress(self, done: float, total: float | None, label: str) -> None:
        of = "" if total is None else f" of {total:g}"
        log.debug("%s: %s %g%s", self.task, label or "done", done, of)

    def log(self, level: str, message: str, at: int) -> None:
        log.log(_NUMBERS.get(level, logging.INFO), "%s: %s", self.task, message)

    def spend(self, amounts: dict[str, float]) -> None:
        """Does nothing; there is no job to sum up the spending."""

    def checkpoint(self, text: str) -> None:
        """Does nothing; a direct call is never resumed."""

    def attach(self, path: str, name: str) -> None:
        log.warning("%s: %s is not kept, because a direct call has no artifacts", self.task, name)


def prepare(client: Client, spec: TaskSpec, params: Mapping[str, object], job_options: JobOptions) -> Direct:
    """Returns a checked call of a task with these params and options."""
    if job_options.only_jobs:
        name = job_options.only_jobs[0]
        raise BadInput(f"{name} applies to jobs only", hint="remove it from the direct call", field=name)
    checked = to_json(spec.signature.check(params), field="params")
    client.check_secrets(spec.name, [checked])
    target = job_options.fields["target"]
    assert target is None or isinstance(target, str)
    options = job_options.text(client.usual_retry)
    return Direct(spec, checked, options, job_options.options.resources, target, job_options.wait, client.tenant)


class DirectCall:
    """One direct call from its reservation to its outcome. Any thread may abandon it.

    `outcome` is the outcome so far.
    """

    def __init__(self) -> None:
        self.place = ReservedPlace()
        self.running: Running | None = None
        self.ended = Wakeup()
        self.news = Wakeup()
        self.outcome: Outcome = WENT_AWAY
        self.given_up: str | None = None
        self.closed: str | None = None
        self.handed_over = False

    @property
    def begun(self) -> bool:
        """True if the call has its slot, or has ended."""
        return self.running is not None or self.place.granted or self.ended.is_set()

    def abandon(self, why: str) -> None:
        """Gives the reservation back: the call stops waiting, or its work is stopped."""
        self.given_up = self.given_up or why
        self.news.set()
        self.place.news.set()

    def leave_line(self, why: str) -> None:
        """Ends the call if it still waits for its slot. Work that has begun continues."""
        self.closed = self.closed or why
        self.place.news.set()

    def check(self) -> None:
        if self.given_up is not None:
            raise Busy(f"the call was abandoned: {self.given_up}", code="given_up")

    def check_waiting(self) -> None:
        """Raises Busy if the call must not begin any more."""
        self.check()
        if self.closed is not None:
            raise Busy(f"the call was abandoned: {self.closed}", code="given_up", retry_after=ROOM_SECONDS)


class Caller:
    """The direct calls of one incarnation.

    Any thread may call. Each call gets a runner of its own, whose child process stays warm.
    """

    def __init__(self, client: Client, terms: HolderConfig, *, wait: float, vault: Vault = NO_VAULT) -> None:
        self.client = client
        self.wait = wait
        self.vault = vault
        self.database = client.database
        self.holder = ReservationHolder(client.database, terms, resources=client.lanes.defined)
        self.lock = threading.Lock()
        self.calls: dict[int, DirectCall] = {}
        self.runners: list[SlotRunner] = []
        self.idle: list[int] = []
        self.deadlines = Deadlines()
        self.async_runner: AsyncRunner | None = None

    @property
    def gone(self) -> bool:
        """True if another process recovered this incarnation as lost; a new one is needed."""
        return self.holder.gone

    def open(self) -> None:
        self.holder.open()

    def call(self, direct: Direct, *, client: Client | None = None, call: DirectCall | None = None) -> Any:
        """Waits for running work on its lanes, runs the task and returns its result.

        `client` is the caller, if it is not the app itself.
        """
        client, call, name = client or self.client, call or DirectCall(), direct.spec.name
        request = _request(client, direct)
        try:
            self.holder.reserve(call.place, request, actor=client.actor)
            call.check_waiting()
            self._wait(call, self.wait if direct.wait is None else direct.wait, name)
            self._run(call, direct)
        except (Busy, LeaseLost) as error:
            call.outcome = Interrupted(call.given_up or str(error))
            raise
        finally:
            try:
                self._leave(call)
            except BaseException:  # after Ctrl-C the place is given back without waiting
                self._let_go(call)
                raise
        return _answer(name, call.outcome)

    def _wait(self, call: DirectCall, seconds: float, name: str) -> None:
        try:
            self.holder.wait_for(call.place, seconds, what=name)
        except Busy:
            call.check_waiting()
            raise
        call.check_waiting()

    # --- running ---

    def _run(self, call: DirectCall, direct: Direct) -> None:
        number = call.place.id
        assert number is not None
        spec = direct.spec
        slot = self._room(spec)
        options = tracing.carry(direct.options)
        claim = Claim(0, number, slot or 0, spec.name, direct.params, options, 1, 0, 0)
        running = Running(claim, spec, LogSink(spec.name), Carried(tenant=direct.tenant), vault=self.vault)
        self.holder.wait_for_beat()
        call.check_waiting()
        # Steps that may fail come first: once `call.running` is set, only the end of the work gives the place back.
        self.calls[number] = call
        call.running = running
        self.holder.begin(call.place, lambda why: _stop(running, Lost(why), 0.0))
        self._hand_over(running)
        call.handed_over = True
        wait_in_steps(call.news)
        if not call.ended.is_set():
            call.check()

    def _hand_over(self, running: Running) -> None:
        if running.spec.isolation == "async":
            self._loop().start([running])
        else:
            self.runners[running.claim.slot].start(running)

    def _hand_over_again(self, running: Running) -> None:
        """Hands the work over again after a Ctrl-C around the first time.

        The work has a stop request, so a second start ends at once unless the first one is running.
        """
        if running.spec.isolation == "async":
            # In the loop's own thread, so that nothing runs between the check and the start.
            loop = self._loop().loop
            loop.call_soon_threadsafe(lambda: None if running.ask is not None else self._hand_over(running))
        else:
            self._hand_over(running)  # a slot runs one job at a time

    def _room(self, spec: TaskSpec) -> int | None:
        """Returns a free slot; None for the event loop.

        Raises Busy if neither can be started.
        """
        try:
            if spec.isolation != "async":
                return self._take_slot()
            self._loop()
            return None
        except NO_ROOM as error:
            raise Busy(
                f"{spec.name} {NeverBegan(str(error)).error}", hint="try again later", retry_after=ROOM_SECONDS
            ) from error

    def _take_slot(self) -> int:
        with self.lock:
            if self.idle:
                return self.idle.pop()  # the most recently used one, whose child is warm
            slot = len(self.runners)
            forget = partial(disown, self.database)
            self.runners.append(SlotRunner(slot, self._done, self.deadlines, adopt=self._adopt, disown=forget))
            return slot

    def _loop(self) -> AsyncRunner:
        with self.lock:
            self.async_runner = self.async_runner or AsyncRunner(self._done, self.deadlines)
            return self.async_runner

    def _adopt(self, slot: int, child: Child, _stop: StopFlag) -> None:
        adopt(self.database, self.holder.who.id, slot, child)

    def _done(self, batch: list[tuple[Running, Outcome]]) -> None:
        """Records the end of work and releases its reservation.

        It runs in a thread that no Ctrl-C reaches, so the release is certain.
        """
        for running, outcome in batch:
            call = self.calls.pop(running.claim.fence, None)
            if call is None:
                continue  # the work was handed over twice
            if running.spec.isolation != "async":
                with self.lock:
                    self.idle.append(running.claim.slot)
            stopped = running.override if isinstance(outcome, NeverBegan) else None
            call.outcome = stopped or running.ended(outcome).outcome
            self.holder.finish(call.place)
            self.holder.release_soon(call.place, recorded(call.outcome))
            call.ended.set()
            call.news.set()

    # --- the end ---

    def _leave(self, call: DirectCall) -> None:
        """Gives the place back, never before its work has ended."""
        self._let_go(call)
        if call.running is not None:
            wait_in_steps(call.ended, STOP_SECONDS)
        self.holder.write_ends()

    def _let_go(self, call: DirectCall) -> None:
        """Starts to give the place back, without waiting; may be called more than once."""
        if call.running is None:
            self.calls.pop(call.place.id or 0, None)
            self.holder.release_soon(call.place, recorded(call.outcome))
        elif not call.ended.is_set():
            _stop(call.running, Interrupted(call.given_up or WENT_AWAY.error), STOP_GRACE)
            if not call.handed_over:
                self._hand_over_again(call.running)

    def close(self) -> None:
        self.holder.leave()
        for runner in self.runners:
            runner.close()
        for runner in self.runners:
            runner.thread.join(STOP_GRACE)
        if self.async_runner is not None:
            self.async_runner.close()
        self.deadlines.close()
        self.holder.close()


def _request(client: Client, direct: Direct) -> ReservationRequest:
    name = direct.target
    target_id = None if name is None else client.lanes.target(client.tenant_id, name)
    return ReservationRequest(
        client.tenant_id, client.actor.shown, direct.resources, target_id, direct.spec.name, direct.params
    )


def _stop(running: Running, why: Outcome, grace: float) -> None:
    running.override = running.override or why
    running.request_stop(grace)


def recorded(outcome: Outcome) -> End:
    """Returns the outcome as the reservation stores it."""
    match outcome:
        case Completed():
            return End("COMPLETED")
        case Failed(error=error):
            return End("FAILED", error)
        case Skipped(reason=reason):
            return End("SKIPPED", reason)
        case Interrupted(error=error):
            return End("ABANDONED", error)
        case NeverBegan():
            return End("ABANDONED", outcome.error)
        case Lost(why=why):
            return End("ABANDONED", why)
        case StoppedByRequest():
            return End("ABANDONED", "it was stopped")
        case _:
            assert_never(outcome)


def _answer(task: str, outcome: Outcome) -> Any:
    if isinstance(outcome, Completed):
        return json.loads(outcome.result)
    end = recorded(outcome)
    if isinstance(outcome, NeverBegan):
        raise Busy(f"{task} {outcome.error}", hint="try again later", retry_after=ROOM_SECONDS)
    facts = {"failure_kind": outcome.kind.value} if isinstance(outcome, Failed) else {}
    raise JobFailed(f"{task} {end.outcome}: {end.error}", code="call_failed", status=end.outcome, **facts)
