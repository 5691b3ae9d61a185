"""Interrupts: an exception from a signal handler, between any two lines or bytecodes, leaves nothing taken."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import apsw
import psycopg_pool.pool
import pytest

import headway
from headway import App
from headway import app as app_module
from headway.engine.client import group_commit
from headway.engine.events.tail import Tail
from headway.errors import CommitUnknown
from headway.store import db
from headway.store.postgres import database as postgres_database
from headway.store.postgres import locks, notifications, pipeline, session
from headway.store.postgres import transaction as postgres_transaction
from headway.store.postgres.database import POOL_SIZE, PostgresDatabase
from headway.store.sqlite import checkpoints, files, waiter
from headway.store.sqlite import database as sqlite_database
from headway.store.sqlite import transaction as sqlite_transaction
from headway.store.sqlite.database import SqliteDatabase
from tests.support.figures import Figure
from tests.support.waiting import until

LONG = os.environ.get("HEADWAY_PROOF") == "1"
SEAM = (
    *(app_module, db),
    *(sqlite_database, sqlite_transaction, checkpoints, files, waiter),
    *(postgres_database, postgres_transaction, pipeline, session, locks, notifications),
)
OURS = os.path.dirname(headway.__file__)
FILES = {module.__file__ for module in (*SEAM, group_commit, psycopg_pool.pool)}
# Of the bytecodes, each run takes one in so many, with another beginning for each seed.
STRIDE = 1 if LONG else 7
STORM_SECONDS = 20.0 if LONG else 1.5
PATIENCE = 20.0
LINES = "interrupts at a line of an acquire or release, each line once"


class Interrupt(BaseException):
    """As Ctrl-C is one."""


def _takes_or_gives(frame: FrameType) -> bool:
    return frame.f_code.co_filename in FILES


class Injection:
    """Raises at the n-th event in the files with acquires and releases, or in the frames that are watched."""

    def __init__(self, nth: int, event: str, watched: Callable[[FrameType], bool] = _takes_or_gives) -> None:
        self.left = nth
        self.event = event
        self.watched = watched
        self.at = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not self.watched(frame):
            return None
        frame.f_trace_opcodes = self.event == "opcode"
        return self.local

    def local(self, frame: FrameType, event: str, _: object) -> Any:
        if event == self.event and frame.f_code.co_name != "__del__":
            self.left -= 1
            if self.left == 0:
                self.at = f"{frame.f_code.co_qualname}:{frame.f_lineno}+{frame.f_lasti}"
                raise Interrupt(self.at)
        return self.local


def interrupted(
    act: Callable[[], object], nth: int, event: str, watched: Callable[[FrameType], bool] = _takes_or_gives
) -> str:
    """Where the interrupt came; empty: the act was over before."""
    injection = Injection(nth, event, watched)
    sys.settrace(injection)
    try:
        act()
    except Interrupt:
        pass
    finally:
        sys.settrace(None)
    return injection.at


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database=database_url) as app:
        app.task("t", isolation="thread")(_nothing)
        app.tasks["t"].enqueue()
        yield app


def _nothing() -> None:
    pass


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as other:
        yield other


def refuse_leftovers(app: App, other: ThreadPoolExecutor) -> None:
    database = app.database
    if isinstance(database, SqliteDatabase):
        await_checkpoints()
        assert not database.writer.in_transaction
        assert not any(reader.in_transaction for reader in database.connections)
        raw = apsw.Connection(database.path)
        raw.execute("begin immediate")  # the file is free at once, without any wait
        raw.execute("rollback")
        raw.close()
    else:
        assert isinstance(database, PostgresDatabase)
        until(lambda: _all_there(database), "that the pool is full")  # other threads use it too, for a moment
    assert other.submit(lambda: app.tasks["t"].enqueue().id).result(PATIENCE) > 0
    app.job(1)


def await_checkpoints() -> None:
    """A checkpoint goes on after an interrupt, with a connection of its own."""
    for thread in threading.enumerate():
        # One whose start was interrupted is listed, and never runs.
        if thread.name == checkpoints.CHECKPOINT and thread.is_alive():
            thread.join(PATIENCE)
            assert not thread.is_alive()


def _all_there(database: PostgresDatabase) -> bool:
    stats = database.pool.get_stats()
    return stats.get("pool_size", 0) == stats.get("pool_available", 0)


def look(app: App) -> object:
    return app.job(1).status


def enqueue(app: App) -> object:
    return app.tasks["t"].enqueue()


def several(app: App) -> object:
    with app.database.transaction("several") as tx:
        return tx.run("time")


ACTS = [enqueue, look, several]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_an_interrupt_at_any_line_leaves_nothing_taken(
    app: App, other_thread: ThreadPoolExecutor, act: Callable[[App], object], figure: Figure
) -> None:
    count = every_place(app, other_thread, act, "line", 1, 1)
    assert count > 20
    figure(LINES, count)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_an_interrupt_at_any_bytecode_leaves_nothing_taken(
    app: App, other_thread: ThreadPoolExecutor, act: Callable[[App], object], figure: Figure
) -> None:
    first = 1 if LONG else 1 + os.getpid() % STRIDE
    count = every_place(app, other_thread, act, "opcode", first, STRIDE)
    assert count > 5
    figure(f"interrupts at a bytecode of an acquire or release, one in {STRIDE} of all", count)


def every_place(
    app: App, other: ThreadPoolExecutor, act: Callable[[App], object], event: str, first: int, step: int
) -> int:
    nth = first
    while at := interrupted(lambda: act(app), nth, event):
        try:
            refuse_leftovers(app, other)
        except BaseException as error:
            error.add_note(f"interrupted at {at}, event {nth}")
            raise
        nth += step
    act(app)
    return (nth - first) // step


# --- all that a user's program may do in its main thread -----------------------------------------------------------


class AfterCalls:
    """Raises after the n-th call that Headway makes into C, or at the beginning of a function of its own, or of one
    of `threading` that it calls: there the interpreter runs signal handlers, with the effect of the call made."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.at = ""

    def __call__(self, frame: FrameType, event: str, called: object) -> None:
        if event not in ("c_return", "call") or frame.f_code.co_name == "__del__" or not _counts(frame):
            return
        code = frame.f_code
        self.left -= 1
        if self.left == 0:
            self.at = f"{code.co_qualname}:{frame.f_lineno} after {event} {called}"
            raise Interrupt(self.at)


def _counts(frame: FrameType) -> bool:
    if frame.f_code.co_filename == threading.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(OURS)


def interrupted_after_calls(act: Callable[[], object], nth: int) -> str:
    injection = AfterCalls(nth)
    sys.setprofile(injection)
    try:
        act()
    except Interrupt:
        pass
    finally:
        sys.setprofile(None)
    return injection.at


def enqueue_several(app: App) -> object:
    return app.tasks["t"].enqueue_many([{}, {}, {}])


def enqueue_with_key(app: App) -> object:
    return app.tasks["t"].using(key="k").enqueue()


def start_group(app: App) -> object:
    return app.group([app.tasks["t"].step(), app.tasks["t"].step()]).start()


def call_directly(app: App) -> object:
    return app.tasks["t"].call()


def open_and_close(app: App) -> object:
    with App(database=app.database.url) as other:
        other.task("t")(_nothing)
        return other.tasks["t"].enqueue()


def wait_for_result(app: App) -> object:
    job = app.tasks["t"].using(delay=3600).enqueue()
    with suppress(TimeoutError):
        job.result(timeout=0.01)
    return job


def follow_events(app: App) -> object:
    loop = Tail(app.database)
    reader = loop.subscribe(0)
    try:
        loop.tick()
        return [reader.get(0.01) for _ in range(3)]
    finally:
        reader.close()
        loop.stop()
        loop.waiter.close()


# How many places of each act are passed over: the longer acts have a thousand.
USED: dict[Callable[[App], object], int] = {
    enqueue_several: 5,
    enqueue_with_key: 5,
    start_group: 11,
    call_directly: 23,
    open_and_close: 97,
    wait_for_result: 11,
    follow_events: 3,
}


@pytest.mark.parametrize("act", USED, ids=lambda act: act.__name__)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_after_any_call_leaves_nothing_taken(
    app: App, other_thread: ThreadPoolExecutor, act: Callable[[App], object], figure: Figure
) -> None:
    """Another thread does the same afterwards, without a wait for anything that was left."""
    stride = 1 if LONG else USED[act]
    act(app)
    nth = 1 + os.getpid() % stride
    count = 0
    while at := interrupted_after_calls(lambda: act(app), nth):
        try:
            other_thread.submit(act, app).result(PATIENCE)
            refuse_leftovers(app, other_thread)
        except BaseException as error:
            error.add_note(f"interrupted at {at}, event {nth}")
            raise
        nth += stride
        count += 1
    assert count >= 5
    figure(f"interrupts after a call of Headway in {len(USED)} acts of a program", count)


# Of their lines, one in so many is interrupted in a short run; of their bytecodes, one in STRIDE times as many.
SPARSE: dict[Callable[[App], object], int] = {open_and_close: 41, enqueue_several: 5}


@pytest.mark.parametrize("event", ["line", "opcode"])
@pytest.mark.parametrize("act", SPARSE, ids=lambda act: act.__name__)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_a_connection_that_begins_leaves_nothing_taken(
    app: App, other_thread: ThreadPoolExecutor, act: Callable[[App], object], event: str, figure: Figure
) -> None:
    stride = 1 if LONG else SPARSE[act] * (STRIDE if event == "opcode" else 1)
    act(app)
    count = every_place(app, other_thread, act, event, 1 + os.getpid() % stride, stride)
    assert count >= 5
    figure("interrupts at a line or a bytecode of connections that begin and end", count)


def test_an_interrupt_while_the_pool_is_empty_arrives_as_itself(
    postgres_url: str, other_thread: ThreadPoolExecutor, figure: Figure
) -> None:
    """Between the release of a condition's lock and its wait, the standard library hides it behind a RuntimeError."""
    with App(database=postgres_url) as app:
        app.task("t")(_nothing)
        app.tasks["t"].enqueue()
        nth = 1
        while interrupted(lambda: _enqueue_on_empty_pool(app, other_thread), nth, "line", _in_condition):
            refuse_leftovers(app, other_thread)
            nth += 1
    assert nth > 10
    figure(LINES, nth - 1)


def _enqueue_on_empty_pool(app: App, other_thread: ThreadPoolExecutor) -> None:
    database = app.database
    assert isinstance(database, PostgresDatabase)
    pool = database.pool
    if pool.closed:  # it was replaced
        app.job(1)
        pool = database.pool
    taken = [pool.getconn() for _ in range(POOL_SIZE)]

    def give_back() -> None:
        time.sleep(0.1)
        for connection in taken:
            pool.putconn(connection)

    given = other_thread.submit(give_back)
    try:
        app.tasks["t"].enqueue()
    finally:
        given.result(PATIENCE)


def _in_condition(frame: FrameType) -> bool:
    code = frame.f_code
    caller = frame.f_back
    while caller is not None and caller.f_code.co_name != "_borrow":
        caller = caller.f_back
    return code.co_filename == threading.__file__ and code.co_qualname.startswith("Condition.") and caller is not None


@contextmanager
def storm() -> Iterator[list[int]]:
    """Signals all the time, whose handler raises if it comes while `armed`."""
    armed = [0]

    def strike(*_: object) -> None:
        if armed[0]:
            armed[0] = 0
            raise Interrupt

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.00041)
    try:
        yield armed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Python reports what comes in the middle of a finaliser, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_storm_of_signals_leaves_nothing_taken(app: App, other_thread: ThreadPoolExecutor, figure: Figure) -> None:
    until, struck = time.monotonic() + STORM_SECONDS, 0
    threads = [threading.Thread(target=_enqueue_until, args=(app, until), daemon=True) for _ in range(2)]
    for one in threads:
        one.start()
    with storm() as armed:
        while time.monotonic() < until:
            armed[0] = 1
            try:
                app.tasks["t"].enqueue()
                app.job(1)
                armed[0] = 0
            except Interrupt:
                struck += 1
    for one in threads:
        one.join(PATIENCE)
        assert not one.is_alive()
    refuse_leftovers(app, other_thread)
    figure("interrupts from a storm of signals", struck)
    assert struck > 20


def _enqueue_until(app: App, until: float) -> None:
    while time.monotonic() < until:
        try:
            app.tasks["t"].enqueue()
        except CommitUnknown:  # the leader of its commit was interrupted
            continue
