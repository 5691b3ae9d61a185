"""The program of a warm child process: it runs one plain function after the other for the worker that started it.

Two sockets lead to the parent. The main thread reads the first (work, answers); the second is watched by a thread of
its own, for stop requests and for the end of the parent, which is also the end of this process and all below it.
"""

from __future__ import annotations

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

from headway import errors
from headway.clock import SystemClock
from headway.engine import processes, tracing
from headway.engine.calling import outcome_of, outcome_to_dict, wants_context
from headway.engine.channel import Channel, Message
from headway.engine.context import Context, Stop, Work
from headway.engine.loading import load_task
from headway.engine.parent_sink import ParentSink
from headway.model.outcome import Failed, FailureKind, Outcome, Stopped

_NAG = 0.1


class Gate(Stop):
    """Lets a stop request into the user's code as an exception, once, and never into the middle of ours."""

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
        """In the main thread: raise if there is a request that has not been raised yet."""
        if self.wanted and not self._inside:
            self.check()

    def check(self) -> None:
        # A stop point raises each time, but once it has, no signal may interrupt the clean-up that follows.
        self._raised = self._raised or (self.asked and threading.get_ident() == self._main)
        super().check()

    def __enter__(self) -> None:
        """Our own code begins: half a message sent or an answer left unread would garble all that follow."""
        if threading.get_ident() == self._main:
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() == self._main:
            self._inside -= 1
            if getattr(signal.getsignal(signal.SIGTERM), "__func__", None) is Program._on_signal:
                self.deliver()  # a task that handles the signal itself is left alone


def _pass_on(traceparent: str | None) -> None:
    """To every program that the work starts. Nothing is left of the job before, nor of whoever started the worker."""
    if traceparent is not None:
        os.environ[tracing.VARIABLE] = traceparent
    elif tracing.VARIABLE in os.environ:
        del os.environ[tracing.VARIABLE]


class Program:
    """The child's life: one job after the other, until the parent ends it or is gone."""

    def __init__(self, work: socket.socket, control: socket.socket, parent: int) -> None:
        self._parent = parent
        self._channel = Channel(work)
        self._control = Channel(control)
        self._tag = os.environ[processes.TAG]
        self._pid = os.getpid()
        self._home = os.getcwd()
        self._main = threading.get_ident()
        self._gate = Gate()
        self._serial = 0
        self._stop_serial = 0
        self._found: dict[tuple[str | None, str], Callable[..., object]] = {}

    def live(self) -> None:
        self._prepare()
        self._channel.send({"kind": "ready"})
        for message in self._messages():
            match message:
                case {"kind": "begin", "sys_path": sys_path}:
                    sys.path[:] = sys_path
                case {"kind": "run", "serial": serial, "work": work}:
                    self._run(serial, Work(**work))
                case {"kind": "exit"}:
                    return

    def _prepare(self) -> None:
        faulthandler.enable()
        processes.become_subreaper()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the thread that started us may have blocked some
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, _ignore)  # a function: SIG_IGN would be inherited by every command
        os.register_at_fork(after_in_child=self._let_go)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False
                )
        threading.Thread(target=self._watch, name="headway-watch", daemon=True).start()

    def _messages(self) -> Iterator[Message]:
        waiting: deque[Message] = deque()
        while True:
            while waiting:
                yield waiting.popleft()
            messages = self._channel.receive()
            if messages is None:
                return
            waiting.extend(messages)

    # --- one job ---

    def _run(self, serial: int, work: Work) -> None:
        threads = set(threading.enumerate())
        gate = Gate()
        self._gate, self._serial = gate, serial
        gate.asked = self._stop_serial >= serial
        sink = ParentSink(self._channel, gate)
        _pass_on(work.traceparent)
        outcome = self._perform(work, Context(work, sink, gate), gate)
        if os.getpid() != self._pid:
            os._exit(0)  # the task forked and its copy came back here as well: only the original may report
        sink.close()
        clean = self._clear(threads)
        reusable = clean and not gate.asked
        self._channel.send({"kind": "end", "outcome": outcome_to_dict(outcome), "reusable": reusable})

    def _perform(self, work: Work, context: Context, gate: Gate) -> Outcome:
        signal.signal(signal.SIGTERM, self._on_signal)  # each time: the job before may have set its own
        loaded: list[object] = []
        outcome: Outcome = Stopped()
        try:
            gate.armed = True
            gate.deliver()
            outcome = outcome_of(partial(self._call, work, context, loaded))
            gate.armed = False
        except errors.Stopped:  # came between the lines above
            gate.armed = False
        if not loaded and not isinstance(outcome, Stopped):
            return _not_loaded(work, outcome)
        if isinstance(outcome, Stopped) and not gate.asked:
            return Failed(FailureKind.EXCEPTION, "the task stopped itself although nobody had asked it to stop")
        return outcome

    def _call(self, work: Work, context: Context, loaded: list[object]) -> object:
        function = self._find(work)
        loaded.append(function)
        with tracing.within(work.traceparent):
            if wants_context(function):
                return function(context, **work.params)
            return function(**work.params)

    def _find(self, work: Work) -> Callable[..., object]:
        key = (work.module, work.task)
        if key not in self._found:
            self._found[key] = load_task(work.module or "headway.tasks.command", work.task)
        return self._found[key]

    def _clear(self, threads: set[threading.Thread]) -> bool:
        """Remove what the job left behind. False if this process cannot be used again."""
        _flush_output()
        with suppress(OSError):
            os.chdir(self._home)
        gone = self._end_left_over()
        running = [thread for thread in threading.enumerate() if not thread.daemon and thread not in threads]
        if running:
            self._warn(f"the task left {_count(len(running), 'thread')} running: its process is ended")
        return gone and not running

    def _end_left_over(self) -> bool:
        # All orphans come to us, so without a child there is no descendant: one cheap call for most jobs.
        if not _reap():
            return True
        left = len(processes.members(self._tag)) - 1
        processes.end_tree(self._tag, grace=0)
        gone = not _reap()
        if left > 0:
            self._warn(f"the task left {_count(left, 'process', 'processes')} running: killed")
        return gone

    def _warn(self, text: str) -> None:
        self._channel.send({"kind": "log", "level": "WARNING", "message": text, "at": SystemClock().now()})

    # --- stopping ---

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        # Signals from elsewhere (a service manager's to all processes) are not ours to follow: the worker decides.
        self._gate.deliver()

    def _watch(self) -> None:
        try:
            if os.getppid() == self._parent:
                self._watch_parent()
        finally:  # whatever happened: without this watch nothing may run
            self._die()

    def _watch_parent(self) -> None:
        """Take its stop requests, until it is gone."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        parent = processes.open_pidfd(self._parent)
        if parent is not None:  # a process forked from the parent may hold the socket open when it dies
            poller.register(parent, select.POLLIN)
        while True:
            for fd, _ in poller.poll(_NAG * 1000 if self._gate.wanted else None):
                messages = None if fd == parent else self._control.receive()
                if messages is None:
                    return
                for message in messages:
                    self._stop(message["serial"])
            # Again and again: a signal just before a system call begins does not interrupt it.
            if self._gate.wanted and signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.pthread_kill(self._main, signal.SIGTERM)

    def _stop(self, serial: int) -> None:
        self._stop_serial = serial
        if self._serial != serial:
            return
        self._gate.asked = True
        if signal.getsignal(signal.SIGTERM) != self._on_signal:  # the task's own: it shall see the signal, but once
            signal.pthread_kill(self._main, signal.SIGTERM)

    def _die(self) -> NoReturn:
        """The parent is gone: end all below us, then ourselves."""
        try:
            processes.end_tree(self._tag, grace=0)
        finally:
            if os.getpgrp() == self._pid:
                # The group in one blow: user code still runs in the main thread and may have forked since.
                os.killpg(self._pid, signal.SIGKILL)
            os._exit(1)

    def _let_go(self) -> None:
        """In a process the task forked: it is not to hold or use our sockets, and signals mean there what they mean."""
        self._channel.close()
        self._control.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    pass


def _reap() -> bool:
    """Take the ended children away; whether live ones are left."""
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


def _not_loaded(work: Work, outcome: Outcome) -> Failed:
    intro = f"the task {work.task} could not be loaded from {work.module}"
    if isinstance(outcome, Failed):
        return replace(outcome, kind=FailureKind.UNKNOWN_TASK, error=f"{intro}: {outcome.error}", final=False)
    return Failed(FailureKind.UNKNOWN_TASK, f"{intro}: the module ended the process when it was imported")


def main() -> None:
    """`python -m headway.engine.child <fd of the work socket> <fd of the control socket> <pid of the parent>`"""
    first, second, parent = map(int, sys.argv[1:])
    del sys.argv[1:]
    work, control = socket.socket(fileno=first), socket.socket(fileno=second)
    for sock in (work, control):
        sock.set_inheritable(False)
    Program(work, control, parent).live()


if __name__ == "__main__":
    main()
