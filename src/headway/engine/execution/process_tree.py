"""Identifies processes, and finds and ends all processes of one piece of work.

Uses no database. Work has a tag, a token in the environment of its first process that survives fork, exec, setsid and
re-parenting. Finding processes by tag needs /proc and therefore Linux; on other systems nothing is found.
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
from typing import Any, NamedTuple

from headway.engine.execution import cgroups

TAG = "HEADWAY_WORK"
KILL_SECONDS = 5.0

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LOOK_AGAIN = 0.25  # longest wait before the next search, because a process may fork while the known ones end
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
    """Names the boot, and on Linux the pid namespace, of this process.

    Within it, a pid and a start time identify a process. Containers on one machine share the boot but not the pids.
    Without the namespace, a container would take the other's workers for dead, and jobs would run twice.
    """
    if _LINUX:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    return _ask(["sysctl", "-n", "kern.bootsessionuuid"]) or f"unknown boot of {host()}"


def start_time(pid: int) -> int | None:
    """Returns the start time of a process in kernel units; None if it is gone.

    A zombie is gone.
    """
    if not _LINUX:
        return _start_time_by_ps(pid)
    process = _look_at(pid)
    return process.started if process else None


def alive(pid: int, started: int) -> bool:
    now = start_time(pid)
    return now == started if now is not None else _hidden(pid)


def halted(pid: int) -> bool:
    """Returns True if a signal has stopped the process (SIGSTOP, Ctrl-Z)."""
    return _LINUX and _read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1] == b"T"


def _hidden(pid: int) -> bool:
    """Returns True if the process exists although /proc does not show it.

    /proc can be mounted so that it hides other users' processes. Such a process must not be taken for dead.
    """
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
    import subprocess  # imported here, because children on Linux do not need it and must start quickly

    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env).stdout.strip()


def become_subreaper() -> None:
    """Makes orphaned descendants our children instead of init's.

    No descendant can leave the tree then.
    """
    if _LINUX:
        libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_subreaper() -> bool:
    """Returns True if orphaned descendants become children of this process."""
    return _LINUX and flags()[2] != 0


@cache
def libc() -> Any:
    """Returns the C library.

    Loaded on first use, because the import of ctypes takes milliseconds.
    """
    import ctypes

    return ctypes.CDLL(None)


# --- the state of this process ------------------------------------------------------------------------------------


def flags() -> tuple[int, ...]:
    """Returns flags of this process by prctl(2).

    They are dumpable, the signal at the parent's death, and subreaper.
    """
    from ctypes import byref, c_int

    libc_, number = libc(), c_int()
    values = [libc_.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)]
    for option in (_PR_GET_PDEATHSIG, _PR_GET_CHILD_SUBREAPER):
        libc_.prctl(option, byref(number), 0, 0, 0)
        values.append(number.value)
    return tuple(values)


def set_flags(values: tuple[int, ...]) -> None:
    """Sets the flags, except subreaper.

    Without that flag, orphans of this process became children of its parent. The parent finds and ends them only when
    it ends this process, so a process that switched the flag off must not be used again.
    """
    for option, value in zip((_PR_SET_DUMPABLE, _PR_SET_PDEATHSIG), values, strict=False):
        libc().prctl(option, value, 0, 0, 0)


def protect_memory() -> None:
    """Keeps other processes of this user from reading the memory, the environment and the open files of this one.

    Only root and processes with CAP_SYS_PTRACE can read them then. Programs that this process starts are not protected.
    On systems other than Linux it does nothing.
    """
    if _LINUX:
        libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def set_name(name: str) -> None:
    """Sets the name that ps shows for the main thread."""
    libc().prctl(_PR_SET_NAME, name.encode("utf-8", "surrogateescape"), 0, 0, 0)


# --- finding ------------------------------------------------------------------------------------------------------


class WorkTag(NamedTuple):
    """Identifies the processes of one piece of work. `end_tree` describes the fields."""

    tag: str
    session: int | None = None
    orphans_since: int | None = None


def members(tag: str, *, session: int | None = None) -> list[int]:
    """Returns all live processes that have the tag, and their descendants.

    `session`: see `end_tree`.
    """
    return sorted(_tree(WorkTag(tag, session)))


def tags_at_work() -> set[str]:
    """Returns the tags of all live processes, in one pass over /proc."""
    mark = f"{TAG}=".encode()
    every = (entry for process in _all_processes() for entry in _environment(process.pid).split(b"\0"))
    carried = {entry.removeprefix(mark).decode("ascii", "replace") for entry in every if entry.startswith(mark)}
    return carried | cgroups.tags()


def _tree(work: WorkTag) -> dict[int, _Process]:
    mark = f"\0{TAG}={work.tag}\0".encode()
    tree: dict[int, _Process] = {}
    others: list[_Process] = []
    grouped = cgroups.pids(work.tag)
    for process in _all_processes():
        if process.session == work.session or process.pid in grouped or _carries(process.pid, mark):
            tree[process.pid] = process
        else:
            others.append(process)
    if work.orphans_since is not None:
        tree.update((process.pid, process) for process in _orphans(others, work.orphans_since))
    while born := [process for process in others if process.parent in tree]:
        tree.update((process.pid, process) for process in born)
        others = [process for process in others if process.pid not in tree]
    return tree


def _orphans(processes: Collection[_Process], since: int) -> list[_Process]:
    """Returns the orphans that became children of this process, a subreaper.

    Processes that we started ourselves are in our session, or a Python object waits for them. Processes with a tag are
    found by it.
    """
    here, session = os.getpid(), os.getsid(0)
    strange = [
        process
        for process in processes
        if process.parent == here
        and process.session != session
        and process.started >= since
        and not _carries(process.pid, f"\0{TAG}=".encode())
    ]
    if not strange:
        return []
    started = _started_here()
    return [process for process in strange if process.pid not in started]


def _started_here() -> set[int]:
    """Returns the child processes that Python objects wait for.

    We must not reap them.
    """
    import gc
    import subprocess

    known = [thing for thing in gc.get_objects() if issubclass(type(thing), subprocess.Popen)]
    if (multiprocessing := sys.modules.get("multiprocessing.process")) is not None:
        known += list(multiprocessing._children)
    return {pid for thing in known if isinstance(pid := getattr(thing, "pid", None), int)}


def reap_orphans() -> None:
    """Reaps the ended orphans that became our children, each by its pid.

    The code that started our other children waits for them.
    """
    session, here = os.getsid(0), os.getpid()
    ended = [fields for fields in _ended_processes() if fields[1] == here and fields[2] != session]
    started = _started_here() if ended else set()
    for pid, _, _ in ended:
        if pid not in started:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _ended_processes() -> Iterator[tuple[int, int, int]]:
    """Yields pid, parent and session of each zombie."""
    for name in os.listdir("/proc") if _LINUX else ():
        if name.isdecimal():
            fields = _read(f"/proc/{name}/stat").rpartition(b") ")[2].split()
            if fields and fields[0] == b"Z":
                yield int(name), int(fields[1]), int(fields[3])


def _all_processes() -> Iterator[_Process]:
    """Yields each process as soon as it is read, the newest first.

    A process that forks and exits all the time lives only for an instant.
    """
    if not _LINUX:
        return
    newest = _last_pid()
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdecimal()), reverse=True):
        if process := _look_at(pid):
            yield process
    yield from _born_after(newest)


def _born_after(newest: int) -> Iterator[_Process]:
    """Yields the processes born during the listing, until there are no new ones.

    A listing of /proc is out of date before it has been read.
    """
    give_up = time.monotonic() + _CHASE
    while (latest := _last_pid()) != newest and time.monotonic() < give_up:
        # After the highest pid the kernel starts again with low pids, which the next listing shows.
        for pid in range(latest, max(newest, latest - _MOST_BORN), -1):
            if _leads(pid) and (process := _look_at(pid)):
                yield process
        newest = latest


def _leads(pid: int) -> bool:
    """Returns True if the pid is a process and not a thread.

    Threads get their numbers from the same sequence. /proc opens them by number, although it does not list them.
    """
    return b"\nTgid:\t%d\n" % pid in _read(f"/proc/{pid}/status")


def _last_pid() -> int:
    return int(_read("/proc/loadavg").split()[-1])


def _look_at(pid: int) -> _Process | None:
    # The name is in parentheses and may contain parentheses. Fields 3 to 6, 20 and 22 of proc_pid_stat(5).
    fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if not fields:
        return None
    # A main thread that ended before the other threads looks like a zombie, but the process lives.
    if fields[0] in (b"Z", b"X") and int(fields[17]) < 2:
        return None
    return _Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _carries(pid: int, mark: bytes) -> bool:
    return mark in b"\0" + _environment(pid) + b"\0"


def _environment(pid: int) -> bytes:
    """Returns the environment of a process; empty if it cannot be read.

    Waits for a moment if the process is just in execve, because its environment is empty then.
    """
    give_up = time.monotonic() + _CHASE
    while not (environment := _read(f"/proc/{pid}/environ")):
        if not _begins_another(pid) or time.monotonic() > give_up:
            return b""
    return environment


def _begins_another(pid: int) -> bool:
    """Returns True if the process is in execve, which replaces its environment.

    The environment of a process that we may not read stays empty.
    """
    if not os.access(f"/proc/{pid}/environ", os.R_OK):
        return False
    # Fields 9, 26, 50 and 51 of proc_pid_stat(5): flags, start of the code (set last), start and end of environment.
    fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if not fields or int(fields[6]) & (_PF_KTHREAD | _PF_EXITING):
        return False
    return fields[23] == b"0" or fields[47] != fields[48]


def _read(path: str) -> bytes:
    """Reads a file of /proc; returns b"" if the process is gone or may not be read."""
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
    orphans_since: int | None = None,
) -> bool:
    """Ends every process of the work except this one; returns True if none is left.

    Sends `first`, and SIGKILL after the grace. `session` also finds processes that cleared their environment after
    their parents died. Give it only if the session's leader is not reaped yet: until then its number cannot be reused.
    `orphans_since`, the start time of the work, also finds the work's daemons, with any environment and session. They
    became children of this process, a subreaper, when their parents died.
    """
    work = WorkTag(tag, session, orphans_since)
    if grace > 0:
        _signal(work, first)
        # A process that forks and exits all the time can be missed, unless its whole session is stopped first.
        if _gone_by(monotonic() + grace, monotonic, work) and session is None:
            return True
    return _kill_tree(work, monotonic)


def signal_tree(tag: str, number: signal.Signals, *, session: int | None = None) -> int:
    """Sends a signal to every other process of the work; returns their number."""
    return _signal(WorkTag(tag, session), number)


def _signal(work: WorkTag, number: signal.Signals) -> int:
    others = _others(work)
    _send(others, number)
    _send(others, signal.SIGCONT)  # a stopped process handles a signal only after it is continued
    return len(others)


def _others(work: WorkTag) -> list[_Process]:
    return [process for pid, process in _tree(work).items() if pid > 1 and pid != os.getpid()]


def _gone_by(deadline: float, monotonic: Callable[[], float], work: WorkTag) -> bool:
    while left := _others(work):
        if (remaining := deadline - monotonic()) <= 0:
            return False
        _wait(left, min(remaining, _LOOK_AGAIN))
    return True


def _kill_tree(work: WorkTag, monotonic: Callable[[], float]) -> bool:
    session = work.session
    deadline = monotonic() + KILL_SECONDS
    _send_group(session, signal.SIGSTOP)
    while left := _freeze(work, deadline, monotonic):
        _send_groups(left, session, signal.SIGKILL)
        _send(left, signal.SIGKILL)
        if (remaining := deadline - monotonic()) <= 0:
            return False
        _wait(left, min(remaining, _LOOK_AGAIN))
    _send_group(session, signal.SIGKILL)  # on systems without /proc the tree is unknown, but the group is not
    return True


def _freeze(work: WorkTag, deadline: float, monotonic: Callable[[], float]) -> list[_Process]:
    """Stops and returns all processes of the work, until no new one appears.

    A stopped process cannot fork while its siblings are killed.
    """
    frozen: dict[int, _Process] = {}
    while fresh := [process for process in _others(work) if process.pid not in frozen]:
        _send_groups(fresh, work.session, signal.SIGSTOP)
        _send(fresh, signal.SIGSTOP)
        frozen.update((process.pid, process) for process in fresh)
        if monotonic() > deadline:
            break
    return list(frozen.values())


def _send_groups(processes: Collection[_Process], session: int | None, number: signal.Signals) -> None:
    """Sends a signal to the whole process groups of these processes.

    The kernel signals a group atomically, which is the only way to catch processes that fork and exit all the time.
    Only groups of sessions that began in the tree are signalled: all members of such a session descend from its leader.
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
    """Opens a pidfd of the process.

    Raises ProcessLookupError if another process has its pid now.
    """
    handle = open_pidfd(process.pid)
    try:
        if start_time(process.pid) != process.started:
            raise ProcessLookupError(errno.ESRCH, "it has ended", process.pid)
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def open_pidfd(pid: int) -> int | None:
    """Opens a descriptor that becomes readable when the process ends.

    Returns None where pidfds do not exist: old kernels, strict sandboxes.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def ended(pidfd: int, seconds: float) -> bool:
    """Waits this long for the process of a pidfd; returns True if it has ended."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _wait(processes: Collection[_Process], seconds: float) -> None:
    """Waits until all these processes are gone, or the time is up."""
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
