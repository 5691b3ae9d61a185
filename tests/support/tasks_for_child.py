"""Obedient tasks for the tests of child processes: each does the one thing its name says."""

# ruff: noqa: BLE001 (user code may catch anything: some of these do, to show that it does not matter)

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.execution.context import Context
from headway.errors import Fail, LeaseLost, Retry, Skip

FOR_EVER = 3600


@dataclass(frozen=True)
class Task:
    name: str
    function: Callable[..., object]


def task(function: Callable[..., object]) -> Task:
    return Task(function.__name__, function)


class Proxy:
    """Like the request of a web framework: whoever touches it from outside is punished."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"{name} was touched")


request = Proxy()
calls: list[int] = []


# --- results ---


@task
def nothing():
    pass


@task
def echo(value):
    return value


@task
def describe(ctx: Context):
    return [ctx.job_id, ctx.task, ctx.attempt, ctx.fence, ctx.last_checkpoint, ctx.results, ctx.stopping]


@task
def takes_context_by_annotation(context: Context, word):
    return [context.job_id, word]


@task
def large(size):
    return "x" * size


@task
def not_json():
    return {"when": {1, 2}}


@task
def count_calls():
    calls.append(os.getpid())
    return calls


@task
def read_stdin():
    return sys.stdin.read()


@task
def environment(name):
    return os.environ.get(name)


@task
def modules():
    return sorted(sys.modules)


@task
def change_folder():
    before = os.getcwd()
    os.chdir("/")
    return before


# --- failures ---


@task
def fail():
    raise ValueError("no such chapter")


@task
def fail_deeply():
    try:
        fail.function()
    except ValueError as error:
        raise RuntimeError("x" * 40_000) from error


@task
def ask_for_retry(after):
    raise Retry("the model is loading", after=after)


@task
def give_up():
    raise Fail("the story does not exist")


@task
def skip():
    raise Skip("nothing new")


@task
def leave(code):
    sys.exit(code)


@task
def leave_at_once(code):
    print("last words", file=sys.stderr, flush=True)
    os._exit(code)


@task
def die_by(number):
    os.kill(os.getpid(), number)
    time.sleep(FOR_EVER)


@task
def touch_nothingness():
    ctypes.string_at(0)


@task
def stop_by_itself():
    from headway.errors import Stopped

    raise Stopped


# --- reports ---


@task
def log(ctx):
    ctx.log.debug("%s of %s", 1, 3)
    ctx.log.error("bad \x00 text \ud800")
    try:
        raise KeyError("k")
    except KeyError:
        ctx.log.exception("it broke")


@task
def say():
    print("from print")
    print("from stderr", file=sys.stderr)
    os.write(1, b"from C")
    os.write(1, b" with ends\nbytes \xff\xfe\n")
    subprocess.run(["echo", "from a command"], check=True)
    print("no newline", end="")


@task
def flood(lines):
    for n in range(lines):
        print(n, "x" * 100)


@task
def long_line(size):
    print("y" * size)


@task
def count(ctx, to, label="steps"):
    return sum(ctx.progress(range(to), label))


@task
def report_then_wait(ctx):
    for n in range(10):
        ctx.report(n, 10, "part")
    time.sleep(FOR_EVER)


@task
def spend(ctx, amounts):
    for amount in amounts:
        try:
            ctx.spend(tokens=amount)
        except Exception:
            ctx.log.error("swallowed")


@task
def checkpoint(ctx, values):
    for value in values:
        ctx.checkpoint(value)
        ctx.log.info("stored %s", ctx.last_checkpoint)
    return ctx.last_checkpoint


@task
def checkpoint_anyway(ctx):
    try:
        ctx.checkpoint(1)
    except LeaseLost:
        ctx.log.info("never seen")
    time.sleep(FOR_EVER)


@task
def checkpoint_and_tell(ctx):
    try:
        ctx.checkpoint(1)
    except Exception as error:
        return [type(error).__name__, str(error)]


@task
def checkpoint_in_threads(ctx, count):
    threads = [threading.Thread(target=ctx.checkpoint, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@task
def attach(ctx, path, name=None):
    ctx.attach(path, name)


# --- stopping ---


@task
def sleep(ctx):
    ctx.log.info("asleep")
    time.sleep(FOR_EVER)


@task
def spin(ctx):
    ctx.log.info("spinning")
    while True:
        pass


@task
def loop_to_stop_point(ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.log.info("looping")
    while True:
        ctx.check()
        time.sleep(0.001)


@task
def clean_up(ctx):
    try:
        ctx.log.info("asleep")
        time.sleep(FOR_EVER)
    finally:
        time.sleep(0.2)
        ctx.log.info("cleaned up, stopping: %s", ctx.stopping)


@task
def clean_up_after_stop_point(ctx):
    try:
        ctx.log.info("looping")
        while True:
            ctx.check()
    finally:
        time.sleep(0.3)
        ctx.log.info("cleaned up")


@task
def handle_the_signal_itself(ctx):
    signals = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append(ctx.stopping))
    ctx.log.info("asleep")
    while not signals:
        signal.pause()
    time.sleep(0.3)
    return signals


@task
def refuse_to_stop(ctx):
    words = iter(["asleep"])
    while True:
        try:
            for word in words:
                ctx.log.info(word)
            time.sleep(FOR_EVER)
        except BaseException:
            ctx.log.info("no")


@task
def finish_when_asked(ctx):
    try:
        ctx.log.info("asleep")
        time.sleep(FOR_EVER)
    except BaseException:
        return "done after all"


# --- processes ---

IGNORING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
    "os.write(int(sys.argv[1]), b'%d\\n' % os.getpid())\n"
    "while True: signal.pause()\n"
)


def _start_stubborn(fifo: str, **options) -> subprocess.Popen:
    fd = os.open(fifo, os.O_WRONLY)
    try:
        return subprocess.Popen([sys.executable, "-I", "-S", "-c", IGNORING, str(fd)], pass_fds=(fd,), **options)
    finally:
        os.close(fd)


@task
def leave_processes(ctx, fifo, count):
    for n in range(count):
        _start_stubborn(fifo, start_new_session=bool(n % 2), env={} if n % 3 == 2 else None)
    ctx.checkpoint("started")


@task
def die_beside_processes(ctx, fifo, count):
    """Nothing of it is left but the processes that it started."""
    leave_processes.function(ctx, fifo, count)
    os.kill(os.getpid(), signal.SIGKILL)


@task
def keep_processes(ctx, fifo, count):
    leave_processes.function(ctx, fifo, count)
    fd = os.open(fifo, os.O_WRONLY)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(fd, b"%d\n" % os.getpid())
    time.sleep(FOR_EVER)


@task
def fork_and_hold(ctx):
    """A fork that keeps every file of the task open, and outlives it."""
    if os.fork() == 0:
        signal.pause()
    ctx.log.info("forked")
    os.kill(os.getpid(), signal.SIGKILL)


@task
def fork_and_return():
    os.fork()
    return os.getppid()


@task
def use_context_in_fork(ctx):
    pid = os.fork()
    if pid == 0:
        ctx.log.info("log from the fork")
        try:
            ctx.report(1)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@task
def end_forks(count):
    """Forks, and asks each child to end before the child has run a line."""
    ends = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        os.kill(pid, signal.SIGTERM)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return ends


def square(n: int) -> int:
    return n * n


@task
def use_pool():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(square, [1, 2, 3])


@task
def leave_thread(ctx):
    threading.Thread(target=threading.Event().wait, args=(FOR_EVER,)).start()
