"""Tasks that leave the state of their process changed, one kind of dirt each, and what an innocent job sees of it."""

# ruff: noqa: SIM115 (dirt is what these are for)
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import atexit
import builtins
import contextvars
import ctypes
import decimal
import faulthandler
import fcntl
import gc
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.tasks_for_child import task

FOR_EVER = 3600
LIBC = ctypes.CDLL(None)
SET_DUMPABLE, SET_NAME, SET_NO_NEW_PRIVS = 4, 15, 38
GET_DUMPABLE, GET_NAME, GET_NO_NEW_PRIVS = 3, 16, 39
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="new")
decimal.getcontext()  # as a module that computes at its import would

Dirty = Callable[[str], object]
Look = Callable[[str], object]
DIRT: dict[str, tuple[Dirty, Look]] = {}


def dirt(look: Look) -> Callable[[Dirty], Dirty]:
    def declare(make: Dirty) -> Dirty:
        DIRT[make.__name__.strip("_")] = (make, look)
        return make

    return declare


@task
def soil(kind: str, folder: str) -> object:
    """Make the dirt, and show what there is to see of it."""
    make, look = DIRT[kind]
    make(folder)
    return look(folder)


@task
def look(kind: str, folder: str) -> object:
    return DIRT[kind][1](folder)


@task
def soil_all(kinds: list[str], folder: str) -> None:
    for kind in kinds:
        DIRT[kind][0](folder)


@task
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


_kept: list[int] = []


@task
def take_all_descriptors() -> str:
    """Return with not one descriptor left, so that nothing can be read from /proc any more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        while True:
            _kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return "returned"


@task
def break_listdir() -> str:
    def broken(*_: object) -> list[str]:
        raise RuntimeError("listdir is broken")

    os.listdir = broken
    return "returned"


# --- timers and signals ---


@dirt(lambda _: signal.getitimer(signal.ITIMER_REAL)[0] > 0)
def alarm(_: str) -> None:
    signal.alarm(FOR_EVER)


@dirt(lambda _: signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0)
def virtual_timer(_: str) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, FOR_EVER, 1)


@dirt(lambda _: signal.getitimer(signal.ITIMER_PROF)[0] > 0)
def profiling_timer(_: str) -> None:
    signal.setitimer(signal.ITIMER_PROF, FOR_EVER)


@dirt(lambda _: repr(signal.getsignal(signal.SIGUSR1)))
def handler(_: str) -> None:
    signal.signal(signal.SIGUSR1, print)


@dirt(lambda _: repr(signal.getsignal(signal.SIGHUP)))
def ignored_signal(_: str) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@dirt(lambda _: getattr(signal.getsignal(signal.SIGTERM), "__name__", None))
def handler_of_the_stop(_: str) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@dirt(lambda _: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
def blocked_signal(_: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


@dirt(lambda _: [sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), sorted(signal.sigpending())])
def pending_signal(_: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)


@dirt(lambda _: _wakeup_fd() != -1)
def wakeup_descriptor(folder: str) -> None:
    ours, _ = socket.socketpair()
    ours.setblocking(False)
    signal.set_wakeup_fd(ours.detach())


def _wakeup_fd() -> int:
    now = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(now)
    return now


@dirt(lambda _: _later())
def dump_later(_: str) -> None:
    faulthandler.dump_traceback_later(FOR_EVER, exit=True)


def _later() -> int:
    """The number of threads of the operating system: the dump waits in one."""
    return len(os.listdir("/proc/self/task"))


@dirt(lambda _: faulthandler.is_enabled())
def no_faulthandler(_: str) -> None:
    faulthandler.disable()


@dirt(lambda _: _line("SigCgt"))
def traceback_signal(_: str) -> None:
    faulthandler.register(signal.SIGUSR1)


# --- the process ---


def _line(name: str) -> str:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(line for line in status if line.startswith(name + ":"))


@dirt(lambda _: resource.getrlimit(resource.RLIMIT_CORE))
def soft_limit(_: str) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (4096, hard))


@dirt(lambda _: resource.getrlimit(resource.RLIMIT_MSGQUEUE))
def hard_limit(_: str) -> None:
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (4096, 4096))


@dirt(lambda _: os.getpriority(os.PRIO_PROCESS, 0))
def nice(_: str) -> None:
    os.nice(3)


@dirt(lambda _: os.sched_getscheduler(0))
def scheduling(_: str) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@dirt(lambda _: sorted(os.sched_getaffinity(0)))
def affinity(_: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@dirt(lambda _: Path("/proc/self/oom_score_adj").read_text())
def oom_score(_: str) -> None:
    Path("/proc/self/oom_score_adj").write_text("500")


@dirt(lambda _: _line("Umask"))
def umask(_: str) -> None:
    os.umask(0o077)


@dirt(lambda _: os.getcwd())
def working_directory(folder: str) -> None:
    os.chdir(folder)


@dirt(
    lambda _: sorted(
        (name, value) for name, value in os.environ.items() if name not in ("HEADWAY_WORK", "PYTEST_CURRENT_TEST")
    )
)
def environment(_: str) -> None:
    os.environ["DIRT"] = "yes"
    del os.environ["PATH"]


@dirt(lambda _: [os.environ.get("HEADWAY_WORK", "")[:0], len(os.environ) > 1])
def cleared_environment(_: str) -> None:
    os.environ.clear()


@dirt(lambda _: _printed_env())
def environment_of_c(_: str) -> None:
    os.putenv("DIRT_OF_C", "yes")


def _printed_env() -> bool:
    LIBC.getenv.restype = ctypes.c_char_p
    return LIBC.getenv(b"DIRT_OF_C") is not None


@dirt(lambda _: time.tzname)
def time_zone(_: str) -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


@dirt(lambda _: locale.setlocale(locale.LC_ALL))
def language(_: str) -> None:
    locale.setlocale(locale.LC_NUMERIC, "POSIX" if locale.setlocale(locale.LC_NUMERIC) != "C" else "C.UTF-8")


@dirt(lambda _: LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0))
def not_dumpable(_: str) -> None:
    LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)


@dirt(lambda _: LIBC.prctl(GET_NO_NEW_PRIVS, 0, 0, 0, 0))
def no_new_privileges(_: str) -> None:
    LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)


@dirt(lambda _: Path("/proc/self/comm").read_text())
def name(_: str) -> None:
    LIBC.prctl(SET_NAME, b"dirty", 0, 0, 0)


def _is_subreaper(_: str) -> int:
    number = ctypes.c_int()
    LIBC.prctl(37, ctypes.byref(number), 0, 0, 0)
    return number.value


@dirt(_is_subreaper)
def no_subreaper(_: str) -> None:
    LIBC.prctl(36, 0, 0, 0, 0)


# --- descriptors ---


def _descriptors(_: str) -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


@dirt(_descriptors)
def descriptor(folder: str) -> None:
    os.open(folder, os.O_RDONLY)


@dirt(_descriptors)
def inherited_descriptor(folder: str) -> None:
    os.set_inheritable(os.open(folder, os.O_RDONLY), True)


@dirt(lambda _: [os.fstat(fd).st_rdev for fd in (0, 1, 2)])
def other_output(_: str) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


@dirt(_descriptors)
def closed_input(_: str) -> None:
    os.close(0)


@dirt(lambda _: os.get_blocking(2))
def output_that_does_not_wait(_: str) -> None:
    os.set_blocking(2, False)


@dirt(lambda _: sys.stdout.name)
def other_stdout(folder: str) -> None:
    sys.stdout = open(Path(folder, "out"), "w")


@dirt(lambda _: sys.stdout.encoding)
def other_encoding(_: str) -> None:
    sys.stdout.reconfigure(encoding="latin-1")


# --- threads and hooks ---


@dirt(lambda _: len([t for t in threading.enumerate() if t.name == "dirt"]))
def daemon_thread(_: str) -> None:
    threading.Thread(target=time.sleep, args=(FOR_EVER,), name="dirt", daemon=True).start()


@dirt(lambda _: sum(1 for frame in sys._current_frames().values() if frame.f_code.co_name == "_nap"))
def raw_thread(_: str) -> None:
    import _thread

    begun = threading.Event()

    def _nap() -> None:
        begun.set()
        time.sleep(FOR_EVER)

    _thread.start_new_thread(_nap, ())
    begun.wait()


@dirt(lambda _: "audited" in vars(builtins))
def audit_hook(_: str) -> None:
    def hook(event: str, _args: object) -> None:
        if event == "os.listdir":
            builtins.audited = True

    sys.addaudithook(hook)
    os.listdir(".")


@dirt(lambda folder: _fork_writes(folder))
def fork_hook(folder: str) -> None:
    os.register_at_fork(before=lambda: Path(folder, "forked").touch())


def _fork_writes(folder: str) -> bool:
    Path(folder, "forked").unlink(missing_ok=True)
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return Path(folder, "forked").exists()


@dirt(lambda _: [sys.gettrace() is None, threading.gettrace() is None])
def trace(_: str) -> None:
    sys.settrace(lambda *_: None)
    threading.settrace(lambda *_: None)


@dirt(lambda _: [sys.getprofile() is None, threading.getprofile() is None])
def profile(_: str) -> None:
    sys.setprofile(lambda *_: None)
    threading.setprofile(lambda *_: None)


@dirt(
    lambda _: [hook.__module__ for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook)]
)
def hooks(_: str) -> None:
    sys.excepthook = sys.displayhook = sys.unraisablehook = threading.excepthook = lambda *_: None


# --- the interpreter ---


@dirt(
    lambda _: [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.dont_write_bytecode]
)
def limits_of_python(_: str) -> None:
    sys.setrecursionlimit(5000)
    sys.setswitchinterval(0.5)
    sys.set_int_max_str_digits(640)
    sys.dont_write_bytecode = not sys.dont_write_bytecode


@dirt(lambda _: [logging.getLogRecordFactory() is logging.LogRecord, hasattr(sys, "tracebacklimit")])
def records_and_tracebacks(_: str) -> None:
    logging.setLogRecordFactory(lambda *_, **__: 1 / 0)
    sys.tracebacklimit = 0


@dirt(lambda _: [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)])
def garbage(_: str) -> None:
    gc.disable()
    gc.set_threshold(1, 2, 3)
    gc.callbacks.append(lambda *_: None)


@dirt(lambda _: sys.path)
def search_path(folder: str) -> None:
    sys.path.insert(0, folder)


@dirt(
    lambda _: [getattr(sys.modules.get("json"), "dirty", None), "dirty_fake" in sys.modules, "asyncio" in sys.modules]
)
def modules(_: str) -> None:
    fake = types.ModuleType("json")
    fake.dirty = True
    sys.modules["json"] = fake
    sys.modules["dirty_fake"] = types.ModuleType("dirty_fake")
    del sys.modules["asyncio"]


@dirt(lambda _: getattr(sys.modules.get("dirty_neighbour"), "VALUE", None))
def module_of_another_folder(folder: str) -> None:
    Path(folder, "dirty_neighbour.py").write_text("VALUE = 'of the job before'\n")
    sys.path.insert(0, folder)
    import dirty_neighbour  # noqa: F401


@dirt(lambda _: len(sys.meta_path))
def finder(_: str) -> None:
    sys.meta_path.insert(0, object())


@dirt(lambda _: [print.__name__, "dirty" in vars(builtins)])
def builtin(_: str) -> None:
    builtins.print = repr
    builtins.dirty = 1


@dirt(lambda _: sys.argv)
def arguments(_: str) -> None:
    sys.argv.append("dirt")


# --- the library ---


def _logging(_: str) -> object:
    logger = logging.getLogger("tests.dirt")
    return [
        len(logging.root.handlers),
        logging.root.level,
        logging.root.manager.disable,
        len(logger.handlers),
        logger.level,
    ]


@dirt(_logging)
def logging_handlers(folder: str) -> None:
    logging.basicConfig(level=logging.DEBUG, filename=str(Path(folder, "log")))
    logging.disable(logging.ERROR)
    logger = logging.getLogger("tests.dirt")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.CRITICAL)


@dirt(lambda _: logging.getLogger("headway.of_a_module").disabled)
def disabled_logger(_: str) -> None:
    logging.getLogger("headway.of_a_module").disabled = True


@dirt(lambda _: [len(warnings.filters), warnings.showwarning.__module__])
def warning_filters(_: str) -> None:
    warnings.simplefilter("error")
    logging.captureWarnings(True)


@dirt(lambda _: random.random() == random.Random(7).random())
def random_seed(_: str) -> None:
    random.seed(7)


@dirt(lambda _: [variable.get(), decimal.getcontext().prec])
def context_variable(_: str) -> None:
    variable.set("dirty")
    decimal.getcontext().prec = 3


@dirt(lambda _: socket.getdefaulttimeout())
def socket_timeout(_: str) -> None:
    socket.setdefaulttimeout(0.001)


@dirt(lambda _: tempfile.gettempdir())
def temporary_folder(folder: str) -> None:
    tempfile.tempdir = folder


@dirt(lambda _: urllib.request._opener is None)
def opener(_: str) -> None:
    urllib.request.install_opener(urllib.request.build_opener())


@dirt(lambda _: tracemalloc.is_tracing())
def traced_memory(_: str) -> None:
    tracemalloc.start()


@dirt(lambda _: _loop())
def event_loop(_: str) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.close()


def _loop() -> bool:
    policy = asyncio.get_event_loop_policy()
    loop = getattr(policy._local, "_loop", None)
    return loop is not None and loop.is_closed()


# --- what a job may do and keeps its child ---

kept: dict[str, Any] = {}


@task
def clean() -> int:
    """What ordinary work does: nothing of it is dirt."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "file"), "w") as file:
        file.write("x")
    asyncio.run(asyncio.sleep(0))
    random.random()
    logging.getLogger("some.logger").debug("said")
    thread = threading.Thread(target=time.sleep, args=(0,))
    thread.start()
    thread.join()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    cycle: list[object] = [socket.socketpair()]
    cycle.append(cycle)
    kept["calls"] = kept.get("calls", 0) + 1
    return os.getpid()


@task
def lazy_import() -> int:
    """A module imported by a job stays, with the exit hook it registers."""
    import multiprocessing.util

    return id(multiprocessing.util)


@task
def exit_hook(folder: str, fails: bool = False) -> int:
    def note() -> None:
        print("the hook ran")
        with open(Path(folder, "hooks"), "a") as file:
            file.write("ran\n")
        if fails:
            raise ValueError("the hook is broken")

    atexit.register(note)
    atexit.unregister(atexit.register(lambda: os._exit(9)))
    return os.getpid()


@task
def lock_of_a_file(folder: str) -> None:
    file = open(Path(folder, "lock"), "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    kept["lock"] = file
