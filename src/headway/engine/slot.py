"""The parent's side of a warm child process: hand it one piece of work, carry its reports to a sink, end it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

import headway
from headway import errors
from headway.clock import Clock, SystemClock
from headway.engine import processes
from headway.engine.calling import ending, outcome_from_dict
from headway.engine.channel import MESSAGE_LIMIT, Channel, Garbled, Message
from headway.engine.context import Pipe, Sink, Stop, Work
from headway.model.outcome import Failed, FailureKind, Outcome, Stopped
from headway.model.values import duration_text

GRACE = 10.0
CLOSE_SECONDS = 2.0

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(headway.__file__)))
# -P and a path of our own: a json.py in the current folder must not come between the child and its library.
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from headway.engine.child import main; main()"
_TAIL_LINES = 20
_WITHOUT_PIDFD = 0.05


class _Run:
    """One piece of work under way, and why it is to end, if it is."""

    __slots__ = ("deadline", "grace", "lost", "running", "serial", "sink", "tail", "too_long", "why")

    def __init__(self, serial: int, sink: Sink, grace: float) -> None:
        self.serial = serial
        self.sink: Sink | None = sink
        self.grace = grace
        self.deadline: float | None = None
        self.too_long = ""
        self.why: Literal["stop", "timeout", "lease"] | None = None
        self.lost: errors.LeaseLost | None = None
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.running = threading.Lock()  # an Event would do, but takes longer to make than all the rest
        self.running.acquire()


class Child:
    """A child process, for one piece of work at a time. `run` and `close` belong to one thread, `stop` to any.

    `pid`, `pgid`, `start_time` and `tag` say who it is. `stuck`: its processes were killed, but some are still there.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], work: socket.socket, control: socket.socket, *, tag: str, clock: Clock
    ) -> None:
        self.pid = process.pid
        self.pgid = process.pid  # it leads a session, and so a group, of its own
        self.start_time = processes.start_time(process.pid) or 0
        self.tag = tag
        self.idle_since = clock.monotonic()
        self.stuck = False
        self._process = process
        self._clock = clock
        self._channel = Channel(work, limit=MESSAGE_LIMIT)
        self._control = Channel(control)
        self._pidfd = processes.open_pidfd(process.pid)
        self._pipes = {pipe.fd: pipe for pipe in self._pipes_of(process)}
        self._poller = select.poll()
        for fd in (self._channel.fileno(), self._pidfd, *self._pipes):
            if fd is not None:
                self._poller.register(fd, select.POLLIN)
        self._serial = 0
        self._run: _Run | None = None
        self._ending = threading.Lock()
        self._buried = False

    @classmethod
    def start(
        cls,
        *,
        tag: str | None = None,
        sys_path: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Child:
        """Start the process. No user code runs in it before `run`, so there is time to store who it is."""
        tag = tag or processes.new_tag()
        work, its_work = socket.socketpair()
        control, its_control = socket.socketpair()
        with its_work, its_control:
            process = _spawn(tag, (its_work.fileno(), its_control.fileno()), cwd, env)
        child = cls(process, work, control, tag=tag, clock=clock or SystemClock())
        child._tell(child._channel, {"kind": "begin", "sys_path": list(sys.path if sys_path is None else sys_path)})
        return child

    @property
    def usable(self) -> bool:
        """Whether it waits for work: neither running, nor closed, nor dead, nor spoilt by the work before."""
        return self._run is None and not self._buried and not self._dead()

    def run(
        self,
        work: Work,
        sink: Sink,
        *,
        timeout: float | None = None,
        grace: float = GRACE,
        allowed: float | None = None,
        stop: Stop | None = None,
    ) -> Outcome:
        """Run one piece of work to its end, in this thread. Returns when nothing of it is left but the idle child.

        `timeout` is the time that remains, `allowed` the whole of it, for the message. When the sink raises LeaseLost
        the work is stopped and LeaseLost raised here. Other errors of `progress`, `log` and `spend` end the work at
        once and are raised as well; other errors of `checkpoint` and `attach` are for the work to handle.
        `stop` is looked at once, when the work is under way: who sets it and then calls `stop()` is never overheard.
        """
        run = self._begin(sink, grace)
        if timeout is not None:
            run.deadline = self._clock.monotonic() + timeout
            run.too_long = f"ran longer than {duration_text(timeout if allowed is None else allowed)}"
        try:
            self._tell(self._channel, {"kind": "run", "serial": run.serial, "work": work.fields()})
            if stop is not None and stop.asked:
                self._ask_to_stop(run, "stop", grace)
            outcome = self._pump(run)
        except BaseException:
            self._bury()
            raise
        finally:
            self._finish(run)
        if run.lost is not None:
            raise run.lost
        return outcome

    def stop(self, grace: float) -> bool:
        """Ask the work to stop, and end its processes after the grace. Returns at once; False if nothing runs.

        May be called again: the shorter grace holds.
        """
        run = self._run
        if run is not None:
            self._ask_to_stop(run, "stop", grace)
        return run is not None

    def close(self) -> None:
        """End the idle process."""
        if not self._buried:
            self._tell(self._channel, {"kind": "exit"})
            self._await_end(CLOSE_SECONDS)
            self._bury()
        self._release()

    # --- one run ---

    def _begin(self, sink: Sink, grace: float) -> _Run:
        if self._run is not None or self._buried:
            raise errors.WrongState("this child has work, or has ended")
        if self._serial:
            self._drain_output()  # what came while nothing ran belongs to no job
        self._serial += 1
        self._run = _Run(self._serial, sink, grace)
        return self._run

    def _finish(self, run: _Run) -> None:
        self._run = None
        run.running.release()
        self.idle_since = self._clock.monotonic()
        if self._buried:
            self._release()

    def _pump(self, run: _Run) -> Outcome:
        while True:
            ready = self._wait(run)
            for fd in ready & self._pipes.keys():
                self._read_output(self._pipes[fd])
            outcome = None
            if self._channel.fileno() in ready:
                outcome = self._receive(run)
            elif self._pidfd in ready or (self._pidfd is None and self._dead()):
                outcome = self._died(run)
            if outcome is not None:
                return outcome

    def _wait(self, run: _Run) -> set[int]:
        wait = None if self._pidfd is not None else _WITHOUT_PIDFD
        if run.deadline is not None:
            left = run.deadline - self._clock.monotonic()
            if left <= 0:
                run.deadline = None
                self._ask_to_stop(run, "timeout", run.grace)
            else:
                wait = min(left, wait or left)
        return {fd for fd, _ in self._poller.poll(None if wait is None else wait * 1000)}

    def _receive(self, run: _Run) -> Outcome | None:
        try:
            messages = self._channel.receive()
        except Garbled as error:
            self._bury()
            return Failed(FailureKind.EXCEPTION, f"the task's process could not be understood: {error}")
        if messages is None:
            return self._died(run)
        return self._take(run, messages)

    def _take(self, run: _Run, messages: list[Message]) -> Outcome | None:
        for message in messages:
            match message:
                case {"kind": "end", "outcome": outcome, "reusable": reusable}:
                    return self._ended(run, outcome_from_dict(outcome), reusable)
                case {"kind": "checkpoint" | "attach"}:
                    self._answer(run, message)
                case _:
                    self._report(run, partial(_pass_on, message))
        return None

    def _ended(self, run: _Run, outcome: Outcome, reusable: bool) -> Outcome:
        self._drain_output()
        # Who was asked to stop may have been hit anywhere, with a lock held or a file half written.
        if run.why is not None or not reusable:
            self._bury()
        return Failed(FailureKind.TIMEOUT, run.too_long) if run.why == "timeout" else outcome

    def _died(self, run: _Run) -> Outcome:
        self._bury()
        if (outcome := self._last_words(run)) is not None:
            return outcome
        self._drain_output()
        code = self._process.returncode
        match run.why:
            case "timeout":
                return Failed(FailureKind.TIMEOUT, run.too_long, exit_code=code)
            case None:
                return Failed(FailureKind.EXIT_CODE, _how_it_died(code, run.tail), exit_code=code)
        return Stopped(code)

    def _last_words(self, run: _Run) -> Outcome | None:
        """What it sent before it died and we have not read yet."""
        self._channel.dont_wait()
        with suppress(BlockingIOError, Garbled):
            while messages := self._channel.receive():
                if (outcome := self._take(run, messages)) is not None:
                    return outcome
        return None

    # --- reports ---

    def _report(self, run: _Run, call: Callable[[Sink], None]) -> None:
        if run.sink is None:
            return
        try:
            call(run.sink)
        except errors.LeaseLost as lost:
            self._lose(run, lost)

    def _answer(self, run: _Run, message: Message) -> None:
        try:
            if run.sink is None:
                raise errors.LeaseLost("the lease of this job was lost")
            _pass_on(message, run.sink)
            answer: Message = {"kind": "stored"}
        except (errors.HeadwayError, OSError) as error:
            answer = _refusal(error)
            if isinstance(error, errors.LeaseLost):
                self._lose(run, error)
        self._tell(self._channel, answer)

    def _lose(self, run: _Run, lost: errors.LeaseLost) -> None:
        if run.lost is None:
            run.lost = lost
            run.sink = None
            self._ask_to_stop(run, "lease", run.grace)

    # --- output ---

    def _pipes_of(self, process: subprocess.Popen[bytes]) -> list[Pipe]:
        streams = ((process.stdout, "INFO"), (process.stderr, "WARNING"))
        return [Pipe(stream.fileno(), partial(self._log, level)) for stream, level in streams if stream is not None]

    def _read_output(self, pipe: Pipe) -> None:
        pipe.read()
        if pipe.ended:  # closed by everybody who had it: it would be ready for ever
            self._poller.unregister(pipe.fd)

    def _drain_output(self) -> None:
        for fd, _ in self._poller.poll(0):
            if fd in self._pipes:
                self._pipes[fd].drain()
        for pipe in self._pipes.values():
            pipe.end_line()

    def _log(self, level: str, line: str) -> None:
        run = self._run
        if run is None:
            return
        if level == "WARNING":
            run.tail.append(line)
        self._report(run, lambda sink: sink.log(level, line, self._clock.now()))

    # --- ending ---

    def _ask_to_stop(self, run: _Run, why: Literal["stop", "timeout", "lease"], grace: float) -> None:
        run.why = run.why or why
        self._tell(self._control, {"kind": "stop", "serial": run.serial})
        # A thread, because the one in `run` may be waiting for its sink just when the work has to end.
        threading.Thread(target=self._end_after, args=(run, grace), name="headway-stop", daemon=True).start()

    def _end_after(self, run: _Run, grace: float) -> None:
        if run.running.acquire(timeout=max(0, grace)):
            run.running.release()  # for the one who waits because of another request
            return
        with self._ending:
            if not self._buried:
                self.stuck = not self._end_tree()

    def _bury(self) -> None:
        """End all its processes, and do not return before they are gone."""
        with self._ending:
            while not self._buried:
                if self._end_tree():
                    self._process.wait()
                    self._buried = True
                self.stuck = not self._buried

    def _end_tree(self) -> bool:
        # Always before the child is reaped: until then, its session's number is its own.
        return processes.end_tree(self.tag, grace=0, session=self.pid)

    def _release(self) -> None:
        self._channel.close()
        self._control.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _dead(self) -> bool:
        if self._pidfd is None:
            return not processes.alive(self.pid, self.start_time)
        return processes.ended(self._pidfd, 0)

    def _await_end(self, seconds: float) -> None:
        if self._pidfd is not None:
            processes.ended(self._pidfd, seconds)

    def _tell(self, channel: Channel, message: Message) -> None:
        with suppress(OSError):  # it is dead, and whoever waits for it will see that
            channel.send(message)


def _spawn(tag: str, fds: tuple[int, int], cwd: str | None, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, *map(str, fds), str(os.getpid()), _ROOT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=fds,
        start_new_session=True,
        cwd=cwd,
        env={**(os.environ if env is None else env), processes.TAG: tag},
    )


def _pass_on(message: Message, sink: Sink) -> None:
    match message:
        case {"kind": "progress", "done": done, "total": total, "label": label}:
            sink.progress(done, total, label)
        case {"kind": "log", "level": level, "message": text, "at": at}:
            sink.log(level, text, at)
        case {"kind": "spend", "amounts": amounts}:
            sink.spend(amounts)
        case {"kind": "checkpoint", "text": text}:
            sink.checkpoint(text)
        case {"kind": "attach", "path": path, "name": name}:
            sink.attach(path, name)


def _refusal(error: errors.HeadwayError | OSError) -> Message:
    code, field = (error.code, error.field) if isinstance(error, errors.HeadwayError) else ("refused", None)
    return {"kind": "refused", "code": code, "message": str(error), "field": field}


def _how_it_died(code: int, tail: Sequence[str]) -> str:
    text = f"the task's process {ending(code)}"
    if code == -signal.SIGKILL:
        text += " (not by Headway: out of memory?)"
    elif code >= 0:
        text += " before the task returned"
    return "\n".join([text, *tail])
