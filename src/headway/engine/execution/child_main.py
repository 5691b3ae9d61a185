"""The program of a warm child process: runs plain functions for its worker.

Two sockets lead to the parent. The main thread reads work and answers from the first. A second thread watches the other
one for stop requests and for the end of the parent; then it kills this process and all its descendants.
"""

from __future__ import annotations

import contextvars
import faulthandler
import io
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import NoReturn

from headway import errors, forks
from headway.clock import SystemClock
from headway.engine import tracing
from headway.engine.execution import own_variables, process_tree
from headway.engine.execution.channel import Channel, ChannelMessage
from headway.engine.execution.child_sink import ParentSink
from headway.engine.execution.context import Context, StopFlag, WorkItem
from headway.engine.execution.exhausted import check_room, is_exhausted
from headway.engine.execution.exit_hooks import ExitHooks
from headway.engine.execution.outcome import outcome_of, outcome_to_dict, ran_their_module, wants_context
from headway.engine.execution.own_job import OwnJob, at_work
from headway.engine.execution.process_state import ProcessState
from headway.engine.tasks.loader import load_task
from headway.model.jobs.outcome import Failed, FailureKind, NeverBegan, Outcome, StoppedByRequest

_NAG = 0.1


class StopDelivery(StopFlag):
    """Raises a stop request in user code, once, as an exception.

    It is never raised inside Headway's own code.
    """

    __slots__ = ("_inside", "_main", "_raised", "armed")

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self._raised = False
        self._inside = 0
        self._main = threading.get_ident()

    @property
    def wanted(self) -> bool:
        return self.asked and self.armed and not self._raised

    def deliver(self) -> None:
        """Raises a stop request that was not raised yet. The main thread calls this."""
        if self.wanted and not self._inside:
            self.check()

    def check(self) -> None:
        # A stop point raises each time. After the first, no signal may interrupt the clean-up that follows.
        self._raised = self._raised or (self.asked and threading.get_ident() == self._main)
        super().check()

    def __enter__(self) -> None:
        """Enters Headway's own code, which a stop request must not interrupt.

        A message sent in part or an answer left unread would garble all later messages.
        """
        if threading.get_ident() == self._main:
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() == self._main:
            self._inside -= 1
            if getattr(signal.getsignal(signal.SIGTERM), "__func__", None) is ChildMain._on_signal:
                self.deliver()  # a task that handles the signal itself is left alone


def _pass_on(traceparent: str | None) -> None:
    """Sets the trace context for the programs that the task starts.

    Removes the trace context of an earlier job, or of the worker's own environment.
    """
    if traceparent is not None:
        os.environ[tracing.VARIABLE] = traceparent
    elif tracing.VARIABLE in os.environ:
        del os.environ[tracing.VARIABLE]


class ChildMain:
    """Runs one job after the other until the parent ends it or is gone."""

    def __init__(self, work: socket.socket, control: socket.socket, parent: int) -> None:
        self._parent = parent
        self._channel = Channel(work)
        self._control = Channel(control)
        self._tag = os.environ[process_tree.TAG]
        self._pid = os.getpid()
        self._main = threading.get_ident()
        self._gate = StopDelivery()
        self._serial = 0
        self._stop_serial = 0
        self._found: dict[tuple[str | None, str], Callable[..., object]] = {}
        self._hooks = ExitHooks()
        self._state: ProcessState | None = None

    def live(self) -> None:
        self._prepare()
        self._channel.send({"kind": "ready"})
        for message in self._messages():
            match message:
                case {"kind": "begin", "sys_path": sys_path}:
                    sys.path[:] = sys_path
                case {"kind": "run", "serial": serial, "work": work}:
                    self._run(serial, WorkItem(**work))
                case {"kind": "exit"}:
                    return

    def _prepare(self) -> None:
        faulthandler.enable()
        process_tree.become_subreaper()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the thread that started us may have blocked some
        forks.own_signal(signal.SIGTERM, self._on_signal)
        forks.own_signal(signal.SIGINT, _ignore)  # a function, because every command would inherit SIG_IGN
        os.register_at_fork(after_in_child=self._let_go)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False
                )
        threading.Thread(target=self._watch, name="headway-watch", daemon=True).start()

    def _messages(self) -> Iterator[ChannelMessage]:
        waiting: deque[ChannelMessage] = deque()
        while True:
            while waiting:
                yield waiting.popleft()
            messages = self._channel.receive()
            if messages is None:
                return
            waiting.extend(messages)

    # --- one job ---

    def _run(self, serial: int, work: WorkItem) -> None:
        gate = StopDelivery()
        self._gate, self._serial = gate, serial
        gate.asked = self._stop_serial >= serial
        sink = ParentSink(self._channel, gate)
        own_variables.here.ask = sink.settings
        _pass_on(work.traceparent)
        try:
            self._state = self._state or _state()
            self._state.begin()
        except (OSError, MemoryError) as error:
            if not is_exhausted(error):
                raise
            self._report(NeverBegan(f"its process could not be prepared: {error}"), reusable=False)
            return
        outcome = self._perform(work, Context(work, sink, gate), gate)
        # The task forked, and its copy returned here too; only the original may report.
        forks.end_copy(self._pid, failed=isinstance(outcome, Failed))
        reusable = self._cleared(sink, self._state) and not gate.asked
        # An earlier job of this process may have used up what was missing.
        self._report(outcome, reusable=reusable and not isinstance(outcome, NeverBegan))

    def _report(self, outcome: Outcome, *, reusable: bool) -> None:
        self._channel.send({"kind": "end", "outcome": outcome_to_dict(outcome), "reusable": reusable})

    def _perform(self, work: WorkItem, context: Context, gate: StopDelivery) -> Outcome:
        loaded: list[object] = []
        outcome: Outcome = StoppedByRequest()
        try:
            gate.armed = True
            gate.deliver()
            outcome = outcome_of(partial(self._call, work, context, loaded))
            gate.armed = False
        except errors.Stopped:  # raised by a signal between the lines above
            gate.armed = False
        if not loaded and not isinstance(outcome, StoppedByRequest | NeverBegan):
            return _not_loaded(work, outcome)
        if isinstance(outcome, StoppedByRequest) and not gate.asked:
            return Failed(FailureKind.EXCEPTION, "the task stopped itself without a stop request")
        return outcome

    def _call(self, work: WorkItem, context: Context, loaded: list[object]) -> object:
        function = self._find(work)
        loaded.append(function)
        self._hooks.begin()
        arguments = (context,) if wants_context(function) else ()
        with tracing.within(work.traceparent):
            return _in_own_context(work, partial(function, *arguments, **work.params))

    def _find(self, work: WorkItem) -> Callable[..., object]:
        key = (work.module, work.task)
        if key not in self._found:
            self._found[key] = _load(work.module or "headway.tasks.command", work.task)
            self._state = _state()  # changes that a module makes at import belong to the process, not to the job
        return self._found[key]

    def _cleared(self, sink: ParentSink, state: ProcessState) -> bool:
        """Clears up after the job; a failure ends this process, and never the job, whose outcome is known."""
        try:
            return self._clear(sink, state)
        except Exception as error:  # noqa: BLE001 - the task may have left the process in any state
            self._warn(f"the process could not be cleared up after the task ({error}): it is ended")
            return False

    def _clear(self, sink: ParentSink, state: ProcessState) -> bool:
        """Restores the state before the job; returns False if that fails.

        The process cannot be used again then.
        """
        try:
            for problem in self._hooks.run():
                self._warn(f"a hook that the task registered with atexit failed: {problem}")
            _flush_output()
        finally:
            sink.close()  # sends the reports that are still buffered
        gone = self._end_left_over()
        left = state.restore()
        for leftover in left:
            if leftover.logged:
                self._warn(f"{leftover.text}: its process is ended")
        return gone and not left and not self._hooks.for_ever

    def _end_left_over(self) -> bool:
        # Orphans become our children, so without a child there is no descendant. Most jobs need one cheap call.
        if not _reap():
            return True
        left = len(process_tree.members(self._tag)) - 1
        process_tree.end_tree(self._tag, grace=0)
        gone = not _reap()
        if left > 0:
            self._warn(f"the task left {_count(left, 'process', 'processes')} running: killed")
        return gone

    def _warn(self, text: str) -> None:
        self._channel.send({"kind": "log", "level": "WARNING", "message": text, "at": SystemClock().now()})

    # --- stopping ---

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        # Ignores signals of other senders, such as a service manager that signals all processes. The worker decides.
        if not forks.within(frame):  # otherwise `_watch_parent` sends it again
            self._gate.deliver()

    def _watch(self) -> None:
        # A signal that the task blocks in the main thread must not be delivered to this thread instead.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            if os.getppid() == self._parent:
                self._watch_parent()
        finally:  # user code must not run without this watch
            self._die()

    def _watch_parent(self) -> None:
        """Handles the parent's stop requests; returns when the parent is gone."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        parent = process_tree.open_pidfd(self._parent)
        if parent is not None:  # a process forked from the parent may hold the socket open when it dies
            poller.register(parent, select.POLLIN)
        while True:
            for fd, _ in poller.poll(_NAG * 1000 if self._gate.wanted else None):
                messages = None if fd == parent else self._control.receive()
                if messages is None:
                    return
                for message in messages:
                    self._stop(message["serial"])
            # Repeated, because a signal just before a system call begins does not interrupt the call.
            if self._gate.wanted and signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.pthread_kill(self._main, signal.SIGTERM)

    def _stop(self, serial: int) -> None:
        self._stop_serial = serial
        if self._serial != serial:
            return
        self._gate.asked = True
        if signal.getsignal(signal.SIGTERM) != self._on_signal:  # the task handles SIGTERM itself: send it once
            signal.pthread_kill(self._main, signal.SIGTERM)

    def _die(self) -> NoReturn:
        """Kills all descendants, then this process, because the parent is gone."""
        try:
            process_tree.end_tree(self._tag, grace=0)
        finally:
            if os.getpgrp() == self._pid:
                # Kills the whole group in one call: user code still runs in the main thread and may have forked since.
                os.killpg(self._pid, signal.SIGKILL)
            os._exit(1)

    def _let_go(self) -> None:
        """Closes our sockets in a process that the task forked."""
        self._channel.close()
        self._control.close()


def _load(module: str, task: str) -> Callable[..., object]:
    """Imports a task. An error before the code of the module is not the fault of the job if something is exhausted."""
    try:
        return load_task(module, task)
    except (OSError, MemoryError) as error:
        if module.startswith("headway.tasks.") or not ran_their_module(error):
            check_room(error, f"{module} could not be imported")
        raise


def _state() -> ProcessState:
    return ProcessState(variables=(tracing.VARIABLE,))


def _in_own_context(work: WorkItem, call: Callable[[], object]) -> object:
    """Makes the call with its own context variables.

    The decimal context is copied too, because a task changes it in place.
    """
    context = contextvars.copy_context()
    context.run(at_work.set, OwnJob(work.job_id, work.fence, threading.get_ident(), os.getpid()))
    if (decimal := sys.modules.get("decimal")) is not None:
        context.run(decimal.setcontext, decimal.getcontext().copy())
    return context.run(call)


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    pass


def _reap() -> bool:
    """Reaps the ended children; returns True if live children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the task may have closed or replaced them
            stream.flush()


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _not_loaded(work: WorkItem, outcome: Outcome) -> Failed:
    intro = f"the task {work.task} could not be loaded from {work.module}"
    if isinstance(outcome, Failed):
        return replace(outcome, kind=FailureKind.UNKNOWN_TASK, error=f"{intro}: {outcome.error}", final=False)
    return Failed(FailureKind.UNKNOWN_TASK, f"{intro}: the module ended the process when it was imported")


def main() -> None:
    """Runs the child.

    Arguments: the fds of the work and the control socket, and the pid of the parent.
    """
    first, second, parent = map(int, sys.argv[1:])
    del sys.argv[1:]
    work, control = socket.socket(fileno=first), socket.socket(fileno=second)
    for sock in (work, control):
        sock.set_inheritable(False)
    ChildMain(work, control, parent).live()


if __name__ == "__main__":
    main()
