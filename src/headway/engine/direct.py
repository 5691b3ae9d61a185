"""Direct calls: a task runs now, in this process or a child of it, before the queue of its lanes; it is not a job."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from headway.engine import tracing
from headway.engine.children import adopt, disown
from headway.engine.client import Client
from headway.engine.context import Stop
from headway.engine.holder import Holder, Place, Terms, wait_in_steps
from headway.engine.registry import TaskSpec
from headway.engine.reserving import End, Wish
from headway.engine.run import STOP_GRACE, AsyncRunner, Running, SlotRunner
from headway.engine.secrets import NO_VAULT, Vault
from headway.engine.slot import Child
from headway.engine.task import Wishes
from headway.errors import BadInput, Busy, JobFailed, LeaseLost
from headway.model.job import Claim
from headway.model.outcome import Completed, Failed, Interrupted, Lost, Outcome, Skipped, Stopped
from headway.model.values import to_json

log = logging.getLogger("headway")
WENT_AWAY = Interrupted("the caller went away")
# How long a caller that goes away waits for its work to stop: work that does not keeps its place until it ends.
STOP_SECONDS = STOP_GRACE + 5.0
_NUMBERS: Mapping[str, int] = logging.getLevelNamesMapping()


@dataclass(frozen=True, slots=True)
class Direct:
    """One call, checked. `params` and `options` are JSON text; `wait` is how long it may stand in the line."""

    spec: TaskSpec
    params: str
    options: str
    resources: tuple[str, ...] = ()
    target: str | None = None
    wait: float | None = None


class LogSink:
    """Where a direct call reports. There is no job to keep it with: what is worth reading goes to the log.

    Spending is compared with the budget by the context itself, which also remembers the checkpoint.
    """

    def __init__(self, task: str) -> None:
        self.task = task

    def progress(self, done: float, total: float | None, label: str) -> None:
        of = "" if total is None else f" of {total:g}"
        log.debug("%s: %s %g%s", self.task, label or "done", done, of)

    def log(self, level: str, message: str, at: int) -> None:
        log.log(_NUMBERS.get(level, logging.INFO), "%s: %s", self.task, message)

    def spend(self, amounts: dict[str, float]) -> None:
        """Nobody adds it up."""

    def checkpoint(self, text: str) -> None:
        """Nobody resumes it."""

    def attach(self, path: str, name: str) -> None:
        log.warning("%s: %s is not kept: a direct call has no artifacts", self.task, name)


def prepare(client: Client, spec: TaskSpec, params: Mapping[str, object], wishes: Wishes) -> Direct:
    """A call of a task with these params and wishes, checked."""
    if wishes.only_jobs:
        name = wishes.only_jobs[0]
        raise BadInput(f"{name} is for jobs: a direct call is the next one, once", field=name)
    checked = to_json(spec.signature.check(params), field="params")
    target = wishes.fields["target"]
    assert target is None or isinstance(target, str)
    return Direct(spec, checked, wishes.text(client.usual_retry), wishes.options.resources, target, wishes.wait)


class Call:
    """One call under way. Its outcome is what is known of it so far. Any thread may give it up."""

    def __init__(self) -> None:
        self.place = Place()
        self.running: Running | None = None
        self.ended = threading.Event()
        self.news = threading.Event()
        self.outcome: Outcome = WENT_AWAY
        self.given_up: str | None = None
        self.handed_over = False

    def abandon(self, why: str) -> None:
        """Its place is given back: it waits no longer, or its work is stopped."""
        self.given_up = self.given_up or why
        self.news.set()
        self.place.news.set()

    def check(self) -> None:
        if self.given_up is not None:
            raise Busy(f"the call was given up: {self.given_up}", code="given_up")


class Caller:
    """The direct calls of one incarnation. Any thread calls; each call has its own runner, whose child stays warm."""

    def __init__(self, client: Client, terms: Terms, *, wait: float, vault: Vault = NO_VAULT) -> None:
        self.client = client
        self.wait = wait
        self.vault = vault
        self.database = client.database
        self.holder = Holder(client.database, terms, resources=client.lanes.defined)
        self.lock = threading.Lock()
        self.calls: dict[int, Call] = {}
        self.runners: list[SlotRunner] = []
        self.idle: list[int] = []
        self.async_runner: AsyncRunner | None = None

    @property
    def gone(self) -> bool:
        """Given up by others: the next call needs another incarnation."""
        return self.holder.gone

    def open(self) -> None:
        self.holder.open()

    def call(self, direct: Direct, *, client: Client | None = None, call: Call | None = None) -> Any:
        """Waits for the work that runs on its lanes, runs, gives the lanes back and answers the result. `client` is who
        calls, if it is not the app itself."""
        client, call, name = client or self.client, call or Call(), direct.spec.name
        wish = _wish(client, direct)
        try:
            self.holder.reserve(call.place, wish, actor=client.actor)
            call.check()
            self._wait(call, self.wait if direct.wait is None else direct.wait, name)
            self._run(call, direct)
        except (Busy, LeaseLost) as error:
            call.outcome = Interrupted(call.given_up or str(error))
            raise
        finally:
            try:
                self._leave(call)
            except BaseException:  # Ctrl-C, here or once more: nobody waits, but the place is given back
                self._let_go(call)
                raise
        return _answer(name, call.outcome)

    def _wait(self, call: Call, seconds: float, name: str) -> None:
        try:
            self.holder.wait_for(call.place, seconds, what=name)
        except Busy:
            call.check()
            raise
        call.check()

    # --- running ---

    def _run(self, call: Call, direct: Direct) -> None:
        number = call.place.id
        assert number is not None
        spec = direct.spec
        slot = None if spec.isolation == "async" else self._take_slot()
        options = tracing.carry(direct.options)
        claim = Claim(0, number, slot or 0, spec.name, direct.params, options, 1, 0, 0)
        running = Running(claim, spec, LogSink(spec.name), vault=self.vault)
        if slot is None:
            self._loop()
        self.holder.wait_for_beat()
        call.check()
        # What may fail comes first: from `call.running` on, the place is given back by the end of the work alone.
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
        """Ctrl-C may have come just before it was handed over, or just after. It was told to stop, so that nothing
        begins this time: it ends, unless it is at work from the first time."""
        if running.spec.isolation == "async":
            # In the loop's own thread, where nothing comes between the look and the start.
            loop = self._loop().loop
            loop.call_soon_threadsafe(lambda: None if running.ask is not None else self._hand_over(running))
        else:
            self._hand_over(running)  # the slot does one after the other

    def _take_slot(self) -> int:
        with self.lock:
            if self.idle:
                return self.idle.pop()  # the one used last: its child is warm
            slot = len(self.runners)
            self.runners.append(SlotRunner(slot, self._done, self._adopt, partial(disown, self.database)))
            return slot

    def _loop(self) -> AsyncRunner:
        with self.lock:
            self.async_runner = self.async_runner or AsyncRunner(self._done)
            return self.async_runner

    def _adopt(self, slot: int, child: Child, _stop: Stop) -> None:
        adopt(self.database, self.holder.who.id, slot, child)

    def _done(self, batch: list[tuple[Running, Outcome]]) -> None:
        """Called from wherever work ends: in a thread that no Ctrl-C reaches, so that the place is given back for
        certain."""
        for running, outcome in batch:
            call = self.calls.pop(running.claim.fence, None)
            if call is None:
                continue  # handed over twice
            if running.spec.isolation != "async":
                with self.lock:
                    self.idle.append(running.claim.slot)
            call.outcome = running.ended(outcome).outcome
            self.holder.finish(call.place)
            self.holder.release_soon(call.place, recorded(call.outcome))
            call.ended.set()
            call.news.set()

    # --- the end ---

    def _leave(self, call: Call) -> None:
        """Gives the place back, never before its work has ended."""
        self._let_go(call)
        if call.running is not None:
            wait_in_steps(call.ended, STOP_SECONDS)
        self.holder.write_ends()

    def _let_go(self, call: Call) -> None:
        """The same without waiting for it. Any number of times."""
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
        self.holder.close()


def _wish(client: Client, direct: Direct) -> Wish:
    name = direct.target
    target_id = None if name is None else client.lanes.target(client.tenant_id, name)
    return Wish(client.tenant_id, client.actor.shown, direct.resources, target_id, direct.spec.name, direct.params)


def _stop(running: Running, why: Outcome, grace: float) -> None:
    running.override = running.override or why
    running.request_stop(grace)


def recorded(outcome: Outcome) -> End:
    """What the reservation keeps of it."""
    match outcome:
        case Completed():
            return End("COMPLETED")
        case Failed(error=error):
            return End("FAILED", error)
        case Skipped(reason=reason):
            return End("SKIPPED", reason)
        case Interrupted(error=error):
            return End("ABANDONED", error)
        case Lost(why=why):
            return End("ABANDONED", why)
        case Stopped():
            return End("ABANDONED", "it was stopped")
        case _:
            assert_never(outcome)


def _answer(task: str, outcome: Outcome) -> Any:
    if isinstance(outcome, Completed):
        return json.loads(outcome.result)
    end = recorded(outcome)
    facts = {"failure_kind": outcome.kind.value} if isinstance(outcome, Failed) else {}
    raise JobFailed(f"{task} {end.outcome}: {end.error}", code="call_failed", status=end.outcome, **facts)
