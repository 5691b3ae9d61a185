"""Who a process is, and how every process of one piece of work is found and ended. Knows no database.

Work is known by its tag, a token in the environment of its first process: it survives fork, exec, setsid and
re-parenting. Finding by tag needs /proc, so it is Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import NamedTuple

TAG = "HEADWAY_WORK"
KILL_SECONDS = 5.0

_LINUX = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_AGAIN = 0.25  # a process may fork while the ones we know of end, so no wait is longer than this
_WITHOUT_PIDFD = 0.01
_CHASE = 0.25
_MOST_BORN = 1000
_PF_EXITING = 0x00000004
_PF_KTHREAD = 0x00200000


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    started: int


# --- identity -----------------------------------------------------------------------------------------------------


def new_tag() -> str:
    return os.urandom(16).hex()


def host() -> str:
    return os.uname().nodename


@cache
def boot_id() -> str:
    """Names the one boot, and on Linux the one pid namespace, in which a pid and a start time mean the same process.

    Containers on one machine share the boot but not the pids: taking the other's workers for dead would run jobs twice.
    """
    if _LINUX:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    return _ask(["sysctl", "-n", "kern.bootsessionuuid"]) or f"unknown boot of {host()}"


def start_time(pid: int) -> int | None:
    """When the process began (in the kernel's own units); None if it is gone. A zombie is gone."""
    if not _LINUX:
        return _start_time_by_ps(pid)
    process = _look_at(pid)
    return process.started if process else None


def alive(pid: int, started: int) -> bool:
    now = start_time(pid)
    return now == started if now is not None else _hidden(pid)


def halted(pid: int) -> bool:
    """Whether a signal has stopped the process (SIGSTOP, Ctrl-Z): it is there, and does nothing."""
    return _LINUX and _read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1] == b"T"


def _hidden(pid: int) -> bool:
    """/proc can be mounted so that it hides the processes of others: what we may not see is not to be called dead."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _start_time_by_ps(pid: int) -> int | None:
    state, _, started = _ask(["ps", "-o", "stat=,lstart=", "-p", str(pid)]).partition(" ")
    if not state or state.startswith("Z"):
        return None
    return int(time.mktime(time.strptime(started.strip(), "%a %b %d %H:%M:%S %Y")))


def _ask(argv: list[str]) -> str:
    import subprocess  # not on Linux, whose children are to start quickly

    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env).stdout.strip()


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's, so that none can leave the tree."""
    if _LINUX:
        import ctypes  # takes milliseconds, and only a child needs it

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# --- finding ------------------------------------------------------------------------------------------------------


def members(tag: str, *, session: int | None = None) -> list[int]:
    """All live processes that carry the tag, and all that descend from one. `session`: see `end_tree`."""
    return sorted(_tree(tag, session))


def _tree(tag: str, session: int | None) -> dict[int, _Process]:
    mark = f"\0{TAG}={tag}\0".encode()
    found: dict[int, _Process] = {}
    others: list[_Process] = []
    for process in _all_processes():
        if process.session == session or _carries(process.pid, mark):
            found[process.pid] = process
        else:
            others.append(process)
    while born := [process for process in others if process.parent in found]:
        found.update((process.pid, process) for process in born)
        others = [process for process in others if process.pid not in found]
    return found


def _all_processes() -> Iterator[_Process]:
    """Each as soon as it is seen, the newest first: what forks and exits all the time lives for an instant only."""
    if not _LINUX:
        return
    newest = _last_pid()
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdecimal()), reverse=True):
        if process := _look_at(pid):
            yield process
    yield from _born_after(newest)


def _born_after(newest: int) -> Iterator[_Process]:
    """The ones born while we looked, until none is: a list of /proc is out of date before it is read."""
    give_up = time.monotonic() + _CHASE
    while (latest := _last_pid()) != newest and time.monotonic() < give_up:
        # After the highest number they begin again with low ones, which the next look will see.
        for pid in range(latest, max(newest, latest - _MOST_BORN), -1):
            if _leads(pid) and (process := _look_at(pid)):
                yield process
        newest = latest


def _leads(pid: int) -> bool:
    """Threads take their numbers from the same row, and can be looked at like processes, although no list has them."""
    return b"\nTgid:\t%d\n" % pid in _read(f"/proc/{pid}/status")


def _last_pid() -> int:
    return int(_read("/proc/loadavg").split()[-1])


def _look_at(pid: int) -> _Process | None:
    # The name is in parentheses and may hold some itself. Fields 3 to 6, 20 and 22 of proc_pid_stat(5).
    fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if not fields:
        return None
    # A leader that ended before its threads looks like a zombie, but the process lives.
    if fields[0] in (b"Z", b"X") and int(fields[17]) < 2:
        return None
    return _Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _carries(pid: int, mark: bytes) -> bool:
    """Whether the mark is in its environment, which cannot be read while it begins another program (execve)."""
    give_up = time.monotonic() + _CHASE
    while not (environment := _read(f"/proc/{pid}/environ")):
        if not _begins_another(pid) or time.monotonic() > give_up:
            return False
    return mark in b"\0" + environment + b"\0"


def _begins_another(pid: int) -> bool:
    """Whether an environment that was empty may be another at the next look. Whose is not ours to read stays empty."""
    if not os.access(f"/proc/{pid}/environ", os.R_OK):
        return False
    # Fields 9, 26, 50 and 51 of proc_pid_stat(5): flags, where its code begins (set last), its environment from and to.
    fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if not fields or int(fields[6]) & (_PF_KTHREAD | _PF_EXITING):
        return False
    return fields[23] == b"0" or fields[47] != fields[48]


def _read(path: str) -> bytes:
    """A file of /proc; empty when the process is gone or not ours to read."""
    data = b""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError), open(path, "rb", buffering=0) as file:
        data = file.read()
    return data


# --- ending -------------------------------------------------------------------------------------------------------


def end_tree(
    tag: str,
    *,
    grace: float,
    monotonic: Callable[[], float] = time.monotonic,
    first: signal.Signals = signal.SIGTERM,
    session: int | None = None,
) -> bool:
    """End every process of the work but ourselves: `first`, and after the grace SIGKILL. True when none is left.

    `session` also finds what wiped its environment after its parents died. Only for who has not yet reaped that
    session's leader: as long as it is a zombie at least, its number cannot belong to anybody else.
    """
    if grace > 0:
        signal_tree(tag, first, session=session)
        if _gone_by(monotonic() + grace, monotonic, tag, session):
            return True
    return _kill_tree(tag, session, monotonic)


def signal_tree(tag: str, number: signal.Signals, *, session: int | None = None) -> int:
    """Send a signal to every process of the work but ourselves; how many there were."""
    others = _others(tag, session)
    _send(others, number)
    _send(others, signal.SIGCONT)  # a stopped process would only see it once it is continued
    return len(others)


def _others(tag: str, session: int | None) -> list[_Process]:
    return [process for pid, process in _tree(tag, session).items() if pid > 1 and pid != os.getpid()]


def _gone_by(deadline: float, monotonic: Callable[[], float], tag: str, session: int | None) -> bool:
    while left := _others(tag, session):
        if (remaining := deadline - monotonic()) <= 0:
            return False
        _wait(left, min(remaining, _LOOK_AGAIN))
    return True


def _kill_tree(tag: str, session: int | None, monotonic: Callable[[], float]) -> bool:
    deadline = monotonic() + KILL_SECONDS
    _send_group(session, signal.SIGSTOP)
    while left := _freeze(tag, session, deadline, monotonic):
        _send_groups(left, session, signal.SIGKILL)
        _send(left, signal.SIGKILL)
        if (remaining := deadline - monotonic()) <= 0:
            return False
        _wait(left, min(remaining, _LOOK_AGAIN))
    _send_group(session, signal.SIGKILL)  # where trees cannot be found, at least the group
    return True


def _freeze(tag: str, session: int | None, deadline: float, monotonic: Callable[[], float]) -> list[_Process]:
    """Stop all of them, until a look finds nobody new: what stands still cannot fork while its siblings are killed."""
    frozen: dict[int, _Process] = {}
    while fresh := [process for process in _others(tag, session) if process.pid not in frozen]:
        _send_groups(fresh, session, signal.SIGSTOP)
        _send(fresh, signal.SIGSTOP)
        frozen.update((process.pid, process) for process in fresh)
        if monotonic() > deadline:
            break
    return list(frozen.values())


def _send_groups(processes: Collection[_Process], session: int | None, number: signal.Signals) -> None:
    """To whole groups, which is one step for the kernel: the only way to catch what forks and exits all the time.

    Only to groups of sessions that began in the tree: all in such a session descend from the one who began it.
    """
    begun = {process.pid for process in processes} | {session}
    groups = {process.group for process in processes if process.session in begun or _look_at(process.session) is None}
    for group in groups:
        _send_group(group, number)


def _send_group(group: int | None, number: signal.Signals) -> None:
    if group is not None and group > 1 and group != os.getpgrp():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _send(processes: Collection[_Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError), _held(process) as handle:
            if handle is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)


@contextmanager
def _held(process: _Process) -> Iterator[int | None]:
    """A pidfd of this process and no other: its number may have gone to a stranger since we looked."""
    handle = open_pidfd(process.pid)
    try:
        if start_time(process.pid) != process.started:
            raise ProcessLookupError(errno.ESRCH, "it has ended", process.pid)
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def open_pidfd(pid: int) -> int | None:
    """Becomes readable when the process ends. None where there is no such thing: old kernels, strict sandboxes."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def ended(pidfd: int, seconds: float) -> bool:
    """Whether the process of a pidfd has ended, waiting for it at most so long."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _wait(processes: Collection[_Process], seconds: float) -> None:
    """Until all of them are gone, or the time is up."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        handles: list[int | None] = []
        for process in processes:
            with suppress(ProcessLookupError):
                handles.append(stack.enter_context(_held(process)))
        if None in handles:
            time.sleep(min(seconds, _WITHOUT_PIDFD))
        else:
            _wait_handles([handle for handle in handles if handle is not None], deadline)


def _wait_handles(handles: list[int], deadline: float) -> None:
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    waiting = len(handles)
    while waiting and (remaining := deadline - time.monotonic()) > 0:
        for handle, _ in poller.poll(remaining * 1000):
            poller.unregister(handle)
            waiting -= 1
