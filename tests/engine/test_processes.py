"""Real trees of processes, of every shape that work can take: none of them survives."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from headway.engine.execution import process_tree
from tests.support.figures import Figure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trees are found through /proc")

DEADLINE = 55.0

# Every process of a tree writes its pid to the roster when it is as it should be, and holds the roster open: its end
# is the proof that all of them are gone.
TREE = r"""
import os, signal, sys, threading, time

shape, manner, roster = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.set_inheritable(roster, True)

def behave():
    if manner == "ignore":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if manner == "clean up":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

def stay():
    behave()
    os.write(roster, b"%d\n" % os.getpid())
    while True:
        signal.pause()

def fork(then):
    pid = os.fork()
    if pid == 0:
        then()
        os._exit(0)
    return pid

def alone():
    stay()

def child():
    fork(stay)
    stay()

def fan():
    for _ in range(4):
        fork(stay)
    stay()

def chain(depth=4):
    if depth:
        fork(lambda: chain(depth - 1))
    stay()

def setsid_grandchild():
    fork(lambda: (os.setsid(), fork(stay), stay()))
    stay()

def own_group():
    fork(lambda: (os.setpgid(0, 0), stay()))
    stay()

def double_fork():
    os.waitpid(fork(lambda: (os.setsid(), fork(stay))), 0)
    stay()

def orphan():
    fork(lambda: (os.setsid(), stay()))
    behave()

def other_program():
    program = "import os, signal; os.write(%d, b'%%d\\n' %% os.getpid())\nwhile True: signal.pause()" % roster
    fork(lambda: (behave(), os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", program])))
    stay()

def empty_environment():
    program = "import os, signal; os.write(%d, b'%%d\\n' %% os.getpid())\nwhile True: signal.pause()" % roster
    fork(lambda: (os.setsid(), os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], {})))
    stay()

def stopped():
    fork(lambda: (behave(), os.write(roster, b"%d\n" % os.getpid()), os.kill(os.getpid(), signal.SIGSTOP), stay()))
    stay()

def respawning():
    fork(stay)
    os.write(roster, b"%d\n" % os.getpid())
    behave()
    while True:
        os.wait()
        fork(stay)

def multiplying():
    behave()
    os.write(roster, b"%d\n" % os.getpid())
    for _ in range(30):
        fork(stay)
        time.sleep(0.002)
    stay()

def running_away():
    behave()
    os.write(roster, b"%d\n" % os.getpid())
    for _ in range(20000):
        if os.fork():
            os._exit(0)
    stay()

def making_threads():
    behave()
    os.write(roster, b"%d\n" % os.getpid())
    while True:
        threading.Thread(target=os.getpid).start()

globals()[shape]()
"""

SIZES = {
    "alone": 1,
    "child": 2,
    "fan": 5,
    "chain": 5,
    "setsid_grandchild": 3,
    "own_group": 2,
    "double_fork": 2,
    "orphan": 1,
    "other_program": 2,
    "empty_environment": 2,
    "stopped": 2,
    "respawning": 2,
    "multiplying": 1,
    "running_away": 1,
    "making_threads": 1,
}


# Those that take no processor while they live, and so may be many.
QUIET = [shape for shape in SIZES if shape not in ("multiplying", "running_away", "making_threads")]
MANNERS = ["obey", "ignore", "clean up"]
BESIDE = 70 if os.environ.get("HEADWAY_PROOF") else 7
TREES = "process trees of every shape, none survived"


@contextmanager
def trees(shapes: Sequence[str], manner: str) -> Iterator[tuple[str, list[subprocess.Popen], int]]:
    """Trees of one piece of work."""
    tag = process_tree.new_tag()
    roster, theirs = os.pipe()
    processes: list[subprocess.Popen] = []
    try:
        for shape in shapes:
            program = [sys.executable, "-I", "-S", "-c", TREE, shape, manner, str(theirs)]
            env = {**os.environ, process_tree.TAG: tag}
            processes.append(subprocess.Popen(program, pass_fds=(theirs,), env=env, start_new_session=True))
        os.close(theirs)
        yield tag, processes, roster
    finally:
        for process in processes:
            if process.poll() is None:
                process_tree.end_tree(tag, grace=0, session=process.pid)
            process.wait(60)
        os.close(roster)


@contextmanager
def tree(shape: str, manner: str = "obey") -> Iterator[tuple[str, subprocess.Popen, int]]:
    with trees([shape], manner) as (tag, (process,), roster):
        yield tag, process, roster


def read_pids(roster: int, count: int) -> list[int]:
    data = b""
    while data.count(b"\n") < count:
        assert select.select([roster], [], [], DEADLINE)[0], f"only {data!r} reported"
        chunk = os.read(roster, 4096)
        assert chunk, f"all ended after {data!r}"
        data += chunk
    return [int(line) for line in data.split()]


def nobody_holds(roster: int) -> bool:
    deadline = time.monotonic() + DEADLINE
    while select.select([roster], [], [], max(0, deadline - time.monotonic()))[0]:
        if not os.read(roster, 4096):
            return True
    return False


@pytest.mark.parametrize("manner", MANNERS)
def test_many_trees_of_one_job_end_together(manner: str, figure: Figure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_tree, "KILL_SECONDS", DEADLINE)  # there are two hundred processes
    for _ in range(BESIDE // 7):
        with trees(QUIET * 7, manner) as (tag, processes, roster):
            read_pids(roster, 7 * sum(SIZES[shape] for shape in QUIET))

            assert process_tree.end_tree(tag, grace=0.05)

            assert nobody_holds(roster)
            assert process_tree.members(tag) == []
            figure(TREES, len(processes))


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("shape", SIZES)
def test_no_process_of_a_tree_survives(shape: str, manner: str, figure: Figure):
    with tree(shape, manner) as (tag, process, roster):
        read_pids(roster, SIZES[shape])

        assert process_tree.end_tree(tag, grace=0.05, session=process.pid)

        assert nobody_holds(roster)
        assert process_tree.members(tag) == []
        figure(TREES, 1)


@pytest.mark.parametrize("shape", ["fan", "respawning", "multiplying", "running_away"])
def test_a_tree_is_killed_at_once_without_a_grace(shape: str):
    with tree(shape, "ignore") as (tag, _, roster):
        read_pids(roster, SIZES[shape])

        assert process_tree.end_tree(tag, grace=0)

        assert nobody_holds(roster)


@pytest.mark.parametrize("shape", ["fan", "orphan", "respawning", "making_threads"])
def test_old_kernels_have_no_pidfd_and_no_survivors(shape: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open")
    with tree(shape, "ignore") as (tag, _, roster):
        read_pids(roster, SIZES[shape])

        assert process_tree.end_tree(tag, grace=0.05)

        assert nobody_holds(roster)


def test_members_are_all_processes_of_the_tree_and_no_other():
    with tree("setsid_grandchild") as (tag, _, roster), tree("fan") as (other, _, others):
        pids = read_pids(roster, 3)
        read_pids(others, 5)

        assert process_tree.members(tag) == sorted(pids)

        assert process_tree.end_tree(tag, grace=0)
        assert len(process_tree.members(other)) == 5


def test_a_process_that_begins_another_program_is_found():
    """Between two programs a process has no environment that can be read."""
    tag, again = process_tree.new_tag(), 'exec sh -c "$AGAIN"'
    process = subprocess.Popen(["sh", "-c", again], env=os.environ | {"AGAIN": again, process_tree.TAG: tag})
    try:
        mark = f"\0{process_tree.TAG}={tag}\0".encode()
        assert all(process_tree._carries(process.pid, mark) for _ in range(5000))
        assert all(process_tree.members(tag) == [process.pid] for _ in range(20))
        assert process_tree.end_tree(tag, grace=0)
    finally:
        process.kill()
        process.wait(60)


def test_who_has_no_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    process = subprocess.Popen(["sleep", "60"], env={})
    try:
        wait_until(lambda: not process_tree._begins_another(process.pid))
        looks = itertools.count()
        monkeypatch.setattr(
            "headway.engine.execution.process_tree.time.monotonic", lambda: next(looks) * 0.0
        )  # it never gives up
        assert not process_tree._carries(process.pid, b"\0nothing\0")
        assert next(looks) == 1, "it looked again and again"
    finally:
        process.kill()
        process.wait(60)


def test_a_process_that_ends_in_its_grace_is_not_killed():
    with tree("alone", "clean up") as (tag, process, roster):
        read_pids(roster, 1)

        assert process_tree.end_tree(tag, grace=DEADLINE)

        assert process.wait(60) == 0


def test_the_first_signal_can_be_another():
    with tree("alone", "clean up") as (tag, process, roster):
        read_pids(roster, 1)

        assert process_tree.end_tree(tag, grace=DEADLINE, first=signal.SIGINT)

        assert process.wait(60) == -signal.SIGINT


def test_a_stopped_process_sees_the_first_signal():
    with tree("alone", "clean up") as (tag, process, roster):
        read_pids(roster, 1)
        os.kill(process.pid, signal.SIGSTOP)

        assert process_tree.end_tree(tag, grace=DEADLINE)

        assert process.wait(60) == 0


def test_we_never_end_ourselves():
    program = (
        "import os, sys; from headway.engine.execution import process_tree as p; tag = os.environ[p.TAG]\n"
        "pid = os.fork()\n"
        "if not pid: import signal; signal.pause()\n"
        "assert p.members(tag) == sorted([os.getpid(), pid])\n"
        "assert p.end_tree(tag, grace=0)\n"
        "print(os.waitpid(pid, 0)[1])"
    )
    env = {**os.environ, process_tree.TAG: process_tree.new_tag(), "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=DEADLINE)

    assert (done.returncode, done.stdout.strip()) == (0, str(int(signal.SIGKILL))), done.stderr


def test_no_process_carries_an_unknown_tag():
    assert process_tree.members(process_tree.new_tag()) == []
    assert process_tree.end_tree(process_tree.new_tag(), grace=DEADLINE)


# --- identity -----------------------------------------------------------------------------------------------------


def test_a_process_is_known_by_its_start_time():
    with tree("alone") as (_, process, roster):
        read_pids(roster, 1)
        started = process_tree.start_time(process.pid)

        assert started is not None
        assert process_tree.alive(process.pid, started)
        assert not process_tree.alive(process.pid, started - 1)


def test_a_zombie_is_gone():
    with tree("alone") as (_, process, roster):
        read_pids(roster, 1)
        started = process_tree.start_time(process.pid)
        assert started is not None
        process.kill()
        assert nobody_holds(roster)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert process_tree.start_time(process.pid) is None
        assert not process_tree.alive(process.pid, started)


def test_a_process_whose_first_thread_ended_lives():
    program = (
        "import ctypes, os, signal, threading\n"
        "threading.Thread(target=signal.sigwait, args=([signal.SIGUSR1],)).start()\n"
        "os.write(1, b'x')\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        wait_until(lambda: _state(process.pid) == "Z")

        assert process_tree.start_time(process.pid) is not None

        process.kill()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0]


def wait_until(condition) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_no_process_has_an_impossible_number():
    assert process_tree.start_time(2**22 + 1) is None
    assert not process_tree.alive(2**22 + 1, 1)
    assert not process_tree.alive(2**70, 1)


def test_a_name_cannot_confuse_us(tmp_path):
    program = tmp_path / "a) Z 1 (b"
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        started = process_tree.start_time(process.pid)

        assert started is not None
        assert started > 1
        assert process_tree.alive(process.pid, started)


def test_a_boot_has_one_name():
    assert process_tree.boot_id() == process_tree.boot_id()
    assert len(process_tree.boot_id()) > 36
    assert process_tree.host()


def test_tags_differ():
    assert len({process_tree.new_tag() for _ in range(100)}) == 100
