"""The parent's side of a warm child process.

Hands work to the child, passes its reports to a sink, and ends it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Literal

import headway
from headway import errors
from headway.clock import Clock, SystemClock
from headway.engine.execution import cgroups, process_tree
from headway.engine.execution.channel import MESSAGE_LIMIT, Channel, ChannelMessage, Garbled
from headway.engine.execution.context import Sink, StopFlag, WorkItem
from headway.engine.execution.exhausted import is_exhausted
from headway.engine.execution.outcome import ending, outcome_from_dict
from headway.engine.execution.output import Pipe
from headway.engine.execution.own_variables import own_settings
from headway.model.jobs.outcome import Failed, FailureKind, Lost, NeverBegan, Outcome, StoppedByRequest
from headway.model.values.times import duration_text

GRACE = 10.0
CLOSE_SECONDS = 2.0

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(headway.__file__)))
# With -P and our own path, a json.py in the current folder cannot hide the standard library's.
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from headway.engine.execution.child_main import main; main()"
_TAIL_LINES = 20
_EXHAUSTED_SECONDS = 300.0
_EXHAUSTED_PAUSE = 0.2
_TRIES = 3  # attempts to kill the processes of work that has ended, each up to KILL_SECONDS long
_WITHOUT_PIDFD = 0.05


class _Run:
    """One piece of work in progress, and the reason to stop it, if there is one."""

    __slots__ = (
        *("deadline", "grace", "heard", "lost", "running", "sent", "serial", "sink", "tail", "too_long", "why", "work"),
    )

    def __init__(self, serial: int, work: WorkItem, sink: Sink, grace: float) -> None:
        self.serial = serial
        self.work = work
        self.sink: Sink | None = sink
        self.grace = grace
        self.deadline: float | None = None
        self.too_long = ""
        self.why: Literal["stop", "timeout", "lease"] | None = None
        self.lost: errors.LeaseLost | None = None
        self.sent = self.heard = False  # the child got the work; the child has sent a message since
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.running = threading.Lock()  # cheaper to create than an Event
        self.running.acquire()


class Child:
    """A child process that runs one piece of work at a time.

    One thread calls `run` and `close`; any thread may call `stop`. `pid`, `pgid`, `start_time` and `tag` identify the
    process. `stuck`: its processes were killed, but some still exist.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], work: socket.socket, control: socket.socket, *, tag: str, clock: Clock
    ) -> None:
        self.pid = process.pid
        self.pgid = process.pid  # it leads a session, and so a group, of its own
        self.start_time = process_tree.start_time(process.pid) or 0
        self.tag = tag
        self.idle_since = clock.monotonic()
        self.stuck = False
        self._process = process
        self._clock = clock
        self._channel = Channel(work, limit=MESSAGE_LIMIT)
        self._control = Channel(control)
        self._pidfd = process_tree.open_pidfd(process.pid)
        self._pipes = {pipe.fd: pipe for pipe in self._pipes_of(process)}
        self._poller = select.poll()
        for fd in (self._channel.fileno(), self._pidfd, *self._pipes):
            if fd is not None:
                self._poller.register(fd, select.POLLIN)
        self._ready = False
        self._serial = 0
        self._run: _Run | None = None
        self._ending = threading.Lock()
        self._buried = False
        self._grouped = False

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
        """Starts the process.

        No user code runs before `run`, so its identity can be stored first.
        """
        tag = tag or process_tree.new_tag()
        with ExitStack() as ours, ExitStack() as theirs:
            (work, its_work), (control, its_control) = (_pair(ours, theirs) for _ in range(2))
            process = _spawn(tag, (its_work.fileno(), its_control.fileno()), cwd, env)
            ours.callback(_discard, process, tag)
            grouped = cgroups.enter(tag, process.pid)
            child = cls(process, work, control, tag=tag, clock=clock or SystemClock())
            ours.pop_all()
        child._grouped = grouped
        child._tell(child._channel, {"kind": "begin", "sys_path": list(sys.path if sys_path is None else sys_path)})
        return child

    @property
    def usable(self) -> bool:
        """True if the child waits for work.

        False if it runs, is closed or dead, or if earlier work left it unusable.
        """
        return self._run is None and not self._buried and not self._dead()

    def run(
        self,
        work: WorkItem,
        sink: Sink,
        *,
        timeout: float | None = None,
        grace: float = GRACE,
        allowed: float | None = None,
        stop: StopFlag | None = None,
    ) -> Outcome:
        """Runs one piece of work to its end, in this thread.

        Only the idle child is left of it then. `timeout` is the time that remains, `allowed` the whole of it, for the
        message. When the sink raises LeaseLost the work is stopped and LeaseLost raised here. Other errors of
        `progress`, `log` and `spend` end the work at once and are raised as well; other errors of `checkpoint` and
        `attach` are raised in the work. `stop` is read once, after the work has been sent: a caller that sets it, then
        calls `stop()`, is never missed.
        """
        run = self._begin(work, sink, grace)
        if timeout is not None:
            run.deadline = self._clock.monotonic() + timeout
            run.too_long = f"ran longer than {duration_text(timeout if allowed is None else allowed)}"
        try:
            run.sent = self._tell(self._channel, {"kind": "run", "serial": run.serial, "work": work.fields()})
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
        """Asks the work to stop, and kills its processes after the grace.

        Returns at once; False if nothing runs. After a second call the shorter grace counts.
        """
        run = self._run
        if run is not None:
            self._ask_to_stop(run, "stop", grace)
        return run is not None

    def close(self) -> None:
        """Ends the idle process."""
        if not self._buried:
            self._tell(self._channel, {"kind": "exit"})
            self._await_end(CLOSE_SECONDS)
            self._bury()
        self._release()

    # --- one run ---

    def _begin(self, work: WorkItem, sink: Sink, grace: float) -> _Run:
        if self._run is not None or self._buried:
            raise errors.WrongState("this child has work, or has ended")
        if self._serial:
            self._drain_output()  # output from the idle time belongs to no job
        self._serial += 1
        self._run = _Run(self._serial, work, sink, grace)
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
            return Failed(FailureKind.EXCEPTION, f"the task's process sent an invalid message: {error}")
        if messages is None:
            return self._died(run)
        return self._take(run, messages)

    def _take(self, run: _Run, messages: list[ChannelMessage]) -> Outcome | None:
        for message in messages:
            match message:
                case {"kind": "ready"}:
                    self._ready = True
                    continue
                case {"kind": "end", "outcome": outcome, "reusable": reusable}:
                    return self._ended(run, outcome_from_dict(outcome), reusable)
                case {"kind": "checkpoint" | "attach"}:
                    self._answer(run, message)
                case {"kind": "settings"}:
                    self._tell(self._channel, _settings_for(run.work))
                case _:
                    self._report(run, partial(_pass_on, message))
            run.heard = True
        return None

    def _ended(self, run: _Run, outcome: Outcome, reusable: bool) -> Outcome:
        self._drain_output()
        # A stop request may have interrupted the work anywhere, with a lock held or a file half written.
        if run.why is not None or not reusable:
            self._bury(run)
        if self.stuck:
            return self._remains()
        return Failed(FailureKind.TIMEOUT, run.too_long) if run.why == "timeout" else outcome

    def _remains(self) -> Lost:
        """Returns the outcome of a job whose processes could not be killed.

        A retry would run the job twice, so a person has to decide.
        """
        left = ", ".join(map(str, process_tree.members(self.tag, session=self.pid)))
        return Lost(f"the job ended, but its processes could not be ended (pids: {left or 'unknown'})", remains=True)

    def _died(self, run: _Run) -> Outcome:
        self._bury(run)
        if self.stuck:
            return self._remains()
        if (outcome := self._last_words(run)) is not None:
            return outcome
        self._drain_output()
        code = self._process.returncode
        match run.why:
            case "timeout":
                return Failed(FailureKind.TIMEOUT, run.too_long, exit_code=code)
            case None if not self._began(run):
                return NeverBegan(_how_it_died(code, run.tail))
            case None:
                return Failed(FailureKind.EXIT_CODE, _how_it_died(code, run.tail), exit_code=code)
        return StoppedByRequest(code)

    def _began(self, run: _Run) -> bool:
        """Returns True if user code may have run.

        The child was up then, and read its work before it died.
        """
        return self._ready and run.sent and (run.heard or not self._channel.unread)

    def _last_words(self, run: _Run) -> Outcome | None:
        """Handles the last messages of a dead child; returns the outcome or None."""
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

    def _answer(self, run: _Run, message: ChannelMessage) -> None:
        try:
            if run.sink is None:
                raise errors.LeaseLost("the lease of this job was lost")
            _pass_on(message, run.sink)
            answer: ChannelMessage = {"kind": "stored"}
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
        if pipe.ended:  # all writers have closed it, and poll would report it for ever
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
        # A new thread, because the thread in `run` may wait for its sink when the work has to end.
        try:
            threading.Thread(target=self._end_after, args=(run, grace), name="headway-stop", daemon=True).start()
        except RuntimeError:  # no thread can be started: end the work without a grace
            self._end_after(run, 0)

    def _end_after(self, run: _Run, grace: float) -> None:
        if run.running.acquire(timeout=max(0, grace)):
            run.running.release()  # for the thread of another stop request
            return
        with self._ending:
            if not self._buried:
                self.stuck = not self._end_tree()

    def _bury(self, run: _Run | None = None) -> None:
        """Kills all its processes and waits until they are gone.

        Work that was asked to stop keeps its claim as long as that takes. For work that ended by itself, the attempts
        are limited; then `stuck` stays true.
        """
        with self._ending:
            tries = 0
            while not self._buried:
                tries += 1
                self.stuck = not self._end_tree()
                if not self.stuck:
                    self._process.wait()
                self._buried = not self.stuck or (run is not None and run.why is None and tries >= _TRIES)

    def _end_tree(self) -> bool:
        """Kills the processes of the work. While descriptors or memory are exhausted, it tries again.

        The claim stays until the processes are known to be gone.
        """
        deadline = time.monotonic() + _EXHAUSTED_SECONDS
        while True:
            try:
                return self._end_processes()
            except OSError as error:
                if not is_exhausted(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_EXHAUSTED_PAUSE)

    def _end_processes(self) -> bool:
        # Must run before the child is reaped. Until then no other session can get its number.
        if not process_tree.end_tree(self.tag, grace=0, session=self.pid):
            return False
        if self._grouped:
            cgroups.leave(self.tag)
            process_tree.reap_orphans()
            return True
        return not process_tree.is_subreaper() or self._end_orphans()

    def _end_orphans(self) -> bool:
        """Kills daemons that left the session and the tag.

        They become our children only after the child has ended.
        """
        self._await_end(process_tree.KILL_SECONDS)
        ended = process_tree.end_tree(self.tag, grace=0, session=self.pid, orphans_since=self.start_time)
        process_tree.reap_orphans()
        return ended

    def _release(self) -> None:
        self._process.poll()  # reaps a child whose other processes could not be ended
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
            return not process_tree.alive(self.pid, self.start_time)
        return process_tree.ended(self._pidfd, 0)

    def _await_end(self, seconds: float) -> None:
        if self._pidfd is not None:
            process_tree.ended(self._pidfd, seconds)

    def _tell(self, channel: Channel, message: ChannelMessage) -> bool:
        """Sends a message; returns False if the child is dead.

        The thread in `run` notices that by itself.
        """
        try:
            channel.send(message)
        except OSError:
            return False
        return True


def _pair(ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    own, its = socket.socketpair()
    return ours.enter_context(own), theirs.enter_context(its)


def _discard(process: subprocess.Popen[bytes], tag: str) -> None:
    """Ends a process that was started and cannot be used, such as one that no descriptor is left for."""
    with process:  # closes its pipes, and waits for its end
        process.kill()
    cgroups.leave(tag)


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
        env={**(os.environ if env is None else env), process_tree.TAG: tag},
    )


def _pass_on(message: ChannelMessage, sink: Sink) -> None:
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


def _settings_for(work: WorkItem) -> ChannelMessage:
    """Returns the settings that a task's process did not inherit, for its app.

    A built-in task has no app, and the programs that it starts must not learn them.
    """
    if work.module is None or work.module.startswith("headway.tasks."):
        return _refusal(errors.Refused("a built-in task needs no settings"))
    return {"kind": "settings", "variables": own_settings(os.environ)}


def _refusal(error: errors.HeadwayError | OSError) -> ChannelMessage:
    code, field = (error.code, error.field) if isinstance(error, errors.HeadwayError) else ("refused", None)
    return {"kind": "refused", "code": code, "message": str(error), "field": field}


def _how_it_died(code: int, tail: Sequence[str]) -> str:
    text = f"the task's process {ending(code)}"
    if code == -signal.SIGKILL:
        text += " (not by Headway: out of memory?)"
    elif code >= 0:
        text += " before the task returned"
    return "\n".join([text, *tail])
