"""Restores the process state that a job changed, for the next job.

A facet reads one part of the state and restores it. If a part cannot be restored, the process is replaced.
"""

from __future__ import annotations

import builtins
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from headway.engine.execution import library_state, process_tree
from headway.engine.execution.environment import Environment
from headway.engine.execution.facet import Facet

_LINUX = sys.platform == "linux"
_SETTLE = 0.1  # Python still counts a joined thread for an instant
_MOST_NAMED = 3
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_STATUS = b"/proc/self/status"
# Lines of proc_pid_status(5) that only user code changes. The first ones can be restored, the others cannot.
_LINES = (
    *("Umask", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list", "Name"),
    *("Uid", "Gid", "Groups", "TracerPid", "NSpgid", "NSsid", "VmLck", "SigPnd", "ShdPnd"),
    *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Mems_allowed_list"),
)


class Leftover(NamedTuple):
    """The reason why a process cannot be used again.

    `told`: logged, because the task's author can fix it.
    """

    text: str
    logged: bool


class ProcessState:
    """The state of this process at one moment. Belongs to the main thread."""

    def __init__(self, *, variables: Collection[str] = ()) -> None:
        """Saves the state. `variables`: environment variables that are set for each job."""
        self._facets = [*_timers(), *_kernel(), *_interpreter(), *library_state.facets()]
        self._environment = Environment(without=variables)
        self._threads = _thread_count()
        self._descriptors = _Descriptors()

    def begin(self) -> None:
        """Prepares for a job. Call it before its user code begins."""
        self._environment.begin()

    def restore(self) -> list[Leftover]:
        """Restores this state; returns the reasons why the process cannot be used again."""
        faulthandler.cancel_dump_traceback_later()
        changed = [facet.name for facet in self._facets if not facet.restore()]
        left = [Leftover(f"the task changed {name}", logged=False) for name in changed]
        self._environment.restore()
        if threads := self._more_threads():
            left.append(Leftover(f"the task left {_count(threads, 'thread')} running", logged=True))
        if text := self._descriptors.changed():
            left.append(Leftover(text, logged=True))
        library_state.reseed()
        return left

    def _more_threads(self) -> int:
        deadline = time.monotonic() + _SETTLE
        while (more := _thread_count() - self._threads) > 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        return max(0, more)


def _thread_count() -> int:
    import _thread

    return _thread._count()


def _count(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one + 's'}"


# --- timers and signals -------------------------------------------------------------------------------------------


def _timers() -> Iterator[Facet]:
    yield Facet("a timer", _running_timers, _stop_timers)
    yield _Signals().facet()
    yield Facet("the descriptor that signals wake", _wakeup_descriptor, signal.set_wakeup_fd)


def _running_timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def _stop_timers(before: tuple[bool, ...]) -> None:
    for timer, running in zip(_TIMERS, before, strict=True):
        if not running:
            signal.setitimer(timer, 0)


class _Signals:
    """The handlers of all signals, in Python's table and in the kernel.

    C code may change the kernel's table alone. On Linux the other lines of /proc/self/status are read at the same time.
    """

    def __init__(self) -> None:
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._status = _Status(_LINES) if _LINUX else None
        self._processors = os.sched_getaffinity(0) if _LINUX else set()
        # For a signal that is neither caught nor ignored, the kernel's masks suffice.
        self._watched = [number for number in self._handlers if self._status is None or self._was_caught(number)]

    def facet(self) -> Facet:
        return Facet("the handler of a signal, or an attribute of its process", self._read, self._restore)

    def _was_caught(self, number: signal.Signals) -> bool:
        return self._status is not None and bool(_mask(self._status.before["SigCgt"]) >> (number - 1) & 1)

    def _read(self) -> object:
        kernel = self._status.read() if self._status is not None else ()
        return kernel, [signal.getsignal(number) for number in self._watched]

    def _restore(self, _: object) -> None:
        now = self._status.lines() if self._status is not None else {}
        changed = [
            number for number, handler in self._handlers.items() if handler is not None and self._differs(number, now)
        ]
        for number in changed:
            signal.signal(number, self._handlers[number])
        if any(self._handlers[number] is signal.SIG_DFL and self._was_caught(number) for number in changed):
            faulthandler.disable()  # sets its handlers again, which are not in Python's table
            faulthandler.enable()
        if self._status is not None:
            _restore_status(self._status.before, now, self._processors)

    def _differs(self, number: signal.Signals, now: Mapping[str, str]) -> bool:
        if signal.getsignal(number) != self._handlers[number]:
            return True
        bit = 1 << (number - 1)
        return self._status is not None and any(
            (_mask(now[name]) ^ _mask(self._status.before[name])) & bit for name in ("SigIgn", "SigCgt")
        )


def _mask(text: str) -> int:
    return int(text, 16)


def _wakeup_descriptor() -> int:
    now = signal.set_wakeup_fd(-1)
    if now != -1:
        signal.set_wakeup_fd(now)
    return now


# --- kernel state -------------------------------------------------------------------------------------------------


class _Status:
    """Some lines of /proc/self/status, found by their position.

    Parsing all lines takes longer than reading them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        present = [line.partition(b":")[0].decode() for line in _status_lines()]
        self._places = [(name, present.index(name)) for name in names if name in present]
        self.before = self.lines()

    def read(self) -> tuple[bytes, ...]:
        lines = _status_lines()
        return tuple([lines[place] for _, place in self._places])

    def lines(self) -> dict[str, str]:
        values = (line.partition(b":")[2].strip().decode() for line in self.read())
        return dict(zip((name for name, _ in self._places), values, strict=True))


def _status_lines() -> list[bytes]:
    fd = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).split(b"\n")
    finally:
        os.close(fd)


def _kernel() -> Iterator[Facet]:
    import resource

    kinds = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})

    def set_limits(before: list[tuple[int, int]]) -> None:
        for kind, limits in zip(kinds, before, strict=True):
            if resource.getrlimit(kind) != limits:
                with suppress(OSError, ValueError):  # a lowered hard limit; the comparison that follows reports it
                    resource.setrlimit(kind, limits)

    yield Facet("a limit of resources", lambda: [resource.getrlimit(kind) for kind in kinds], set_limits)
    yield Facet("the working directory", _working_directory, _change_directory)
    yield Facet("the root directory", lambda: os.stat("/")[1:3])
    if _LINUX:
        yield from _of_linux()
    else:
        yield Facet("the file mode mask", _read_umask, os.umask)


def _of_linux() -> Iterator[Facet]:
    yield Facet("the scheduling", _scheduling, _set_scheduling)
    yield Facet("the score for the OOM killer", _oom_score, _set_oom_score)
    yield Facet("a process flag", process_tree.flags, process_tree.set_flags)


def _restore_status(before: Mapping[str, str], now: Mapping[str, str], processors: set[int]) -> None:
    os.umask(int(before["Umask"], 8))
    os.sched_setaffinity(0, processors)
    process_tree.set_name(before["Name"])
    if before["SigBlk"] != now["SigBlk"] and all(before[name] == now[name] for name in ("SigPnd", "ShdPnd")):
        # A pending signal would be delivered here, so the mask is restored only without one.
        blocked = _mask(before["SigBlk"])
        signal.pthread_sigmask(
            signal.SIG_SETMASK, [number for number in signal.valid_signals() if blocked >> (number - 1) & 1]
        )


def _read_umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # removed
        return None


def _change_directory(before: str | None) -> None:
    if before is not None:
        with suppress(OSError):
            os.chdir(before)


def _scheduling() -> tuple[int, int, int]:
    return os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getparam(0).sched_priority


def _set_scheduling(before: tuple[int, int, int]) -> None:
    nice, policy, priority = before
    with suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))
        os.setpriority(os.PRIO_PROCESS, 0, nice)


def _oom_score() -> bytes:
    fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 32)
    finally:
        os.close(fd)


def _set_oom_score(before: bytes) -> None:
    with suppress(PermissionError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(before)


# --- the interpreter ----------------------------------------------------------------------------------------------


def _interpreter() -> Iterator[Facet]:
    for get, put in _SETTINGS:
        yield Facet(get.__name__.removeprefix("get"), get, put)
    names = dict(vars(builtins))
    yield Facet("the built-in names", lambda: vars(builtins), lambda _: _restore_names(names), before=names)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            yield _stream(stream)


def _restore_names(before: Mapping[str, object]) -> None:
    names = vars(builtins)
    for name in names.keys() - before.keys():
        del names[name]
    names.update(before)


def _stream(stream: Any) -> Facet:
    def restore(before: tuple[str, str, bool, bool]) -> None:
        encoding, errors, line_buffering, write_through = before
        with suppress(ValueError):  # a closed stream, which the check of descriptors reports
            stream.reconfigure(
                encoding=encoding, errors=errors, line_buffering=line_buffering, write_through=write_through
            )

    def read() -> tuple[str, str, bool, bool]:
        return stream.encoding, stream.errors, stream.line_buffering, stream.write_through

    return Facet("an output stream", read, restore)


def _set_collecting(before: bool) -> None:
    (gc.enable if before else gc.disable)()


def _set_faulthandler(before: bool) -> None:
    (faulthandler.enable if before else faulthandler.disable)()


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (threading.stack_size, threading.stack_size),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (sys.getdlopenflags, sys.setdlopenflags),
    (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
    (sys.get_asyncgen_hooks, lambda hooks: sys.set_asyncgen_hooks(*hooks)),
    (gc.isenabled, _set_collecting),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (gc.get_debug, gc.set_debug),
    (faulthandler.is_enabled, _set_faulthandler),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
)


# --- descriptors --------------------------------------------------------------------------------------------------


class _Descriptors:
    """The open descriptors.

    New ones are not closed, because an object that holds one may be used again.
    """

    def __init__(self) -> None:
        self._files = _open_files()
        self._waiting = [number for number in (0, 1, 2) if number in self._files and os.get_blocking(number)]

    def changed(self) -> str | None:
        """Describes the descriptors that the job left open or replaced, or None."""
        if (now := _open_files()) != self._files:
            gc.collect()  # closes files in reference cycles
            now = _open_files()
        if now == self._files:
            self._wait_again()
            return None
        more = sorted(now.keys() - self._files.keys())
        if not more:
            return "the task closed or replaced a file of its process"
        names = ", ".join(_file_name(number) for number in more[:_MOST_NAMED])
        return f"the task left {_count(len(more), 'file')} open ({names}{', …' if len(more) > _MOST_NAMED else ''})"

    def _wait_again(self) -> None:
        for number in self._waiting:
            if not os.get_blocking(number):
                os.set_blocking(number, True)


def _open_files() -> dict[int, tuple[int, int]]:
    """Returns the file behind each open descriptor.

    The listing's own descriptor is closed by then.
    """
    files = {}
    for name in os.listdir("/proc/self/fd" if _LINUX else "/dev/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            files[int(name)] = (status.st_dev, status.st_ino)
    return files


def _file_name(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return f"descriptor {number}"
