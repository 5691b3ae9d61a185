"""Forks with an open App: what a child enqueues is in the database, and its parent goes on as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from headway.store.db import open_database
from headway.store.sqlite.database import SqliteDatabase
from tests.support.figures import Figure

LONG = os.environ.get("HEADWAY_PROOF") == "1"
ROUNDS = 25 if LONG else 1
DEADLINE = 60.0

# Each fork of a test's program, and of its children, adds a byte to this file.
FORKS = "FORKS_OF_THIS_TEST"

BEGINNING = f"""
    import multiprocessing, os, signal, sys, threading, time
    from headway import App

    tally = os.open(os.environ["{FORKS}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.register_at_fork(after_in_parent=lambda: os.write(tally, b"x"))

    app = App(database=sys.argv[1])

    @app.task("t", isolation="thread")
    def work(n: int = 0) -> None: ...

    def enqueue(count: int, first: int) -> None:
        for n in range(count):
            work.enqueue(n=first + n)

    def child(act) -> int:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                act()
                code = 0
            finally:
                os._exit(code)
        return pid

    def ended_well(*pids: int) -> None:
        for pid in pids:
            _, status = os.waitpid(pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0, status
"""


@pytest.fixture(autouse=True)
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure) -> Iterator[Path]:
    """Counts what the programs of a test fork."""
    file = tmp_path / "forks"
    monkeypatch.setenv(FORKS, str(file))
    yield file
    figure("forks with an open App", file.stat().st_size if file.exists() else 0)


def run(url: str, text: str, *more: str, seconds: float = DEADLINE) -> str:
    """A program of its own, because this one has threads and databases of other tests."""
    program = dedent(BEGINNING) + dedent(text)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program, url, *more],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def numbers(url: str) -> list[int]:
    """The params of every job there is, read by a process that has nothing to do with any of them."""
    database = open_database(url)
    try:
        with database.read() as tx:
            sql = "select params from hw_job"
            rows = tx.connection.execute(sql).fetchall()  # type: ignore[attr-defined]
    finally:
        database.close()
    return sorted(json.loads(params)["n"] for (params,) in rows)


@pytest.mark.parametrize("_", range(ROUNDS))
def test_a_child_that_outlives_its_parent_loses_nothing(database_url: str, _: int) -> None:
    """The parent's end takes the log away: not one that the child writes to."""
    text = """
        enqueue(1, 0)
        reading, writing = os.pipe()
        if os.fork():
            app.close()
            os._exit(0)
        os.close(reading)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        while True:  # until the parent is gone
            try:
                os.write(writing, b"x")
            except BrokenPipeError:
                break
            time.sleep(0.005)
        enqueue(50, 1)
    """
    run(database_url, text)
    assert numbers(database_url) == list(range(51))


@pytest.mark.parametrize("_", range(ROUNDS))
def test_children_of_a_preloading_server_enqueue_side_by_side(database_url: str, _: int) -> None:
    text = """
        enqueue(1, 0)
        ended_well(*(child(lambda k=k: enqueue(10, 1 + 10 * k)) for k in range(8)))
        enqueue(10, 81)
    """
    run(database_url, text)
    assert numbers(database_url) == list(range(91))


def test_parent_and_children_enqueue_at_the_same_time(database_url: str) -> None:
    text = """
        enqueue(1, 0)
        pids = []
        for k in range(5):
            enqueue(5, 1 + 10 * k)
            pids.append(child(lambda: enqueue(5, 6 + 10 * k)))
        ended_well(*pids)
    """
    run(database_url, text)
    assert numbers(database_url) == list(range(51))


def test_children_of_multiprocessing(database_url: str) -> None:
    text = """
        enqueue(1, 0)
        fork = multiprocessing.get_context("fork")
        with fork.Pool(3) as pool:
            pool.starmap(enqueue, [(5, 1 + 5 * k) for k in range(6)])
        one = fork.Process(target=enqueue, args=(5, 31))
        one.start()
        one.join()
        assert one.exitcode == 0
        enqueue(5, 36)
    """
    run(database_url, text)
    assert numbers(database_url) == list(range(41))


def test_a_daemon_is_forked_twice(database_url: str) -> None:
    text = """
        enqueue(1, 0)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                enqueue(20, 1)
                os.write(writing, b"done")
            os._exit(0)
        os.wait()
        os.close(writing)
        assert os.read(reading, 4) == b"done"
    """
    run(database_url, text)
    assert numbers(database_url) == list(range(21))


def test_a_child_that_ends_as_programs_do_harms_nobody(database_url: str) -> None:
    """Destructors and `atexit` run there: on what is its own, never on what its parent has open."""
    text = """
        enqueue(1, 0)
        for k in range(3):
            pid = os.fork()
            if pid == 0:
                if k == 1:
                    enqueue(5, 1)
                if k == 2:
                    app.close()
                sys.exit(0)
            enqueue(5, 100 + 5 * k)
            ended_well(pid)
            enqueue(5, 200 + 5 * k)
        with app.database.read():
            pass
    """
    run(database_url, text)
    expected = [0, *range(1, 6), *range(100, 115), *range(200, 215)]
    assert numbers(database_url) == expected


ONE_BY_ONE = 2_500 if LONG else 100


def test_parent_and_children_take_turns_with_one_app(database_url: str, forks: Path) -> None:
    """Each child uses what its parent has open, and the parent goes on with it while the child is at work."""
    text = f"""
        enqueue(1, 0)
        at_work = []
        for k in range({ONE_BY_ONE}):
            at_work.append(child(lambda: enqueue(2, 2 + 3 * k)))
            enqueue(1, 1 + 3 * k)
            if len(at_work) == 4:
                ended_well(at_work.pop(0))
        ended_well(*at_work)
    """
    run(database_url, text, seconds=DEADLINE * (10 if LONG else 1))
    assert forks.stat().st_size == ONE_BY_ONE
    assert numbers(database_url) == list(range(1 + 3 * ONE_BY_ONE))


AMONG_THREADS = 20 if LONG else 5


def test_forks_while_other_threads_write_and_read(database_url: str) -> None:
    """Whatever lock another thread holds at that moment, no child waits for it."""
    text = f"""
        enqueue(1, 0)
        stop = threading.Event()
        made = [0, 0, 0]

        def write(k: int) -> None:
            while not stop.is_set():
                work.enqueue(n=1000)
                made[k] += 1

        def look() -> None:
            while not stop.is_set():
                app.job(1)

        threads = [threading.Thread(target=write, args=(k,)) for k in range(3)] + [threading.Thread(target=look)]
        for one in threads:
            one.start()
        for k in range({AMONG_THREADS}):
            ended_well(child(lambda: (signal.alarm(20), enqueue(3, 1 + 3 * k))))
        stop.set()
        for one in threads:
            one.join()
        print(sum(made))
    """
    made = int(run(database_url, text))
    expected = [0, *range(1, 1 + 3 * AMONG_THREADS), *[1000] * made]
    assert numbers(database_url) == expected


def test_a_writer_and_a_reader_open_the_file_again_after_a_fork(sqlite_url: str) -> None:
    """Both come first: the connection is made once."""
    text = """
        from headway.store.sqlite.database import SqliteDatabase

        plain = SqliteDatabase._files

        inside = []

        def slow(self):
            inside.append(threading.get_ident())
            time.sleep(0.02)
            assert len(inside) == 1, "two threads open it at once"
            inside.clear()
            return plain(self)

        SqliteDatabase._files = slow
        enqueue(1, 0)
        for n in range(10):
            ended_well(child(os.getpid))
            threads = [threading.Thread(target=act) for act in (lambda: enqueue(1, 1), lambda: app.job(1).status)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
    """
    run(sqlite_url, text)
    assert numbers(sqlite_url) == [0, *[1] * 10]


def test_a_fork_inside_a_transaction_is_refused_in_the_child(database_url: str) -> None:
    """The parent's transaction goes on; on SQLite the child is refused, also with a new App on the same file."""
    text = """
        enqueue(1, 0)
        from headway.errors import HeadwayError

        def in_child() -> None:
            signal.alarm(20)
            if app.database.dialect == "sqlite":
                try:
                    enqueue(1, 7)
                except HeadwayError as error:
                    assert "forked during a transaction" in str(error), error
                else:
                    raise AssertionError("not refused")
                app.close()
                try:
                    App(database=sys.argv[1]).database
                except HeadwayError as error:
                    assert "forked during a transaction" in str(error), error
                else:
                    raise AssertionError("a new App was not refused")
            else:
                enqueue(1, 1)

        with app.database.transaction("outer") as tx:
            tx.run("time")
            pid = child(in_child)
            ended_well(pid)
        if app.database.dialect == "sqlite":
            enqueue(1, 1)
        enqueue(1, 2)
    """
    run(database_url, text)
    assert numbers(database_url) == [0, 1, 2]


def test_a_fork_does_not_wait_for_a_reader_that_an_interrupt_closed(sqlite_url: str) -> None:
    """A traceback may keep such a connection referenced for long: the last error of a notebook does."""

    class Interrupt(BaseException): ...

    def interrupted() -> None:
        raise Interrupt

    database = open_database(sqlite_url)
    assert isinstance(database, SqliteDatabase)
    try:
        tx = database.begin_read()
        tx.rollback = interrupted  # type: ignore[method-assign]
        with pytest.raises(Interrupt):
            database.end(tx)
        database.before_fork()
        try:
            assert database.at_rest
        finally:
            database.after_fork_in_parent()
        assert tx.reads  # referenced until here
    finally:
        database.close()


def test_a_child_forked_inside_a_read_loses_nothing_when_its_parent_closes(sqlite_url: str) -> None:
    """A new App in such a child acknowledged 50 jobs that were in no file afterwards."""
    text = """
        enqueue(1, 0)
        from headway.errors import HeadwayError
        app.job(1).status
        going, gone = os.pipe()

        def in_child() -> None:
            signal.alarm(30)
            os.read(going, 1)  # the parent has closed its app
            try:
                fresh = App(database=sys.argv[1])
                fresh.task("t", isolation="thread")(work.function).enqueue(n=7)
            except HeadwayError as error:
                assert "forked during a transaction" in str(error), error
            else:
                raise AssertionError("not refused")

        with app.database.read() as tx:
            tx.run("time")
            pid = child(in_child)
        app.close()
        os.write(gone, b"x")
        ended_well(pid)
    """
    run(sqlite_url, text)
    assert numbers(sqlite_url) == [0]


def test_threads_that_fork_at_the_same_time_leave_no_lock_taken(sqlite_url: str) -> None:
    text = """
        enqueue(1, 0)
        until = time.monotonic() + 3.0
        made, forked = [0], [0]

        def keep_forking() -> None:
            while time.monotonic() < until:
                ended_well(child(os.getpid))
                forked[0] += 1

        def keep_enqueueing() -> None:
            while time.monotonic() < until:
                enqueue(1, 1)
                made[0] += 1

        threads = [threading.Thread(target=keep_forking) for _ in range(3)]
        threads.append(threading.Thread(target=keep_enqueueing))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        enqueue(1, 2)
        print(made[0], forked[0])
    """
    made, forked = map(int, run(sqlite_url, text).split())
    assert forked > 3
    assert numbers(sqlite_url) == [0, *[1] * made, 2]


def test_a_forked_child_has_none_of_our_signal_handlers(sqlite_url: str) -> None:
    """A worker runs thread tasks, and these fork: a child of theirs ends when it is asked to."""
    text = """
        from headway import forks

        heard = []
        forks.own_signal(signal.SIGTERM, lambda *_: heard.append("term"))
        forks.own_signal(signal.SIGINT, lambda *_: heard.append("int"))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1]) == [1]
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["term"]

        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what user code sets, its child inherits
        ended_well(child(lambda: os.kill(os.getpid(), signal.SIGTERM)))
    """
    run(sqlite_url, text)
