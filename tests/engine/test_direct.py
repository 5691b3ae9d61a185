"""Direct calls in this process, on both databases: they run next, are recorded, and give their place back."""

from __future__ import annotations

import inspect
import itertools
import json
import linecache
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headway import App, Context, fault_points
from headway.engine.client import limits
from headway.engine.direct import call as direct_call
from headway.engine.direct import reservation_holder as holders
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace
from headway.engine.direct.reservations import End, ReservationRequest
from headway.errors import BadInput, Busy, CommitUnknown, JobFailed, LeaseLost, NotFound, Unreachable
from headway.model.jobs.job import SYSTEM, Reservation
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.queue import reservations
from headway.testing import drain
from tests.support import tasks_for_worker
from tests.support.deadlines import join
from tests.support.waiting import until

PATIENCE = 55.0
QUICK = {"heartbeat": 0.2}


class Doors:
    """Work that waits until it is let go, and says that it has begun."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.open = threading.Event()


@pytest.fixture
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    made.open.set()


def make_app(url: str, doors: Doors, **settings: Any) -> App:
    app = App(database=url, **settings)
    for spec in tasks_for_worker.app.registry:
        if spec.name not in app.tasks:
            isolation = None if spec.isolation == "async" else spec.isolation
            app.task(spec.name, isolation=isolation, retry=spec.options.retry)(spec.function)

    def stands(ctx: Context, word: str = "") -> str:
        doors.began.append(word)
        while not doors.open.wait(0.005):
            ctx.check()
        return word

    app.task("stands", isolation="thread", retry=0)(stands)
    return app


@pytest.fixture
def app(database_url: str, doors: Doors) -> Iterator[App]:
    app = make_app(database_url, doors)
    yield app
    doors.open.set()
    app.close()


def rows(app: App) -> list[Reservation]:
    with app.database.read() as tx:
        numbers = tx.connection.execute("select id from hw_reservation order by id").fetchall()  # type: ignore[attr-defined]
        found = [reservations.find(tx, number) for (number,) in numbers]
    return [one for one in found if one is not None]


def waiting(app: App) -> int:
    """How many stand in the line."""
    return len([one for one in rows(app) if one.finished_at is None and one.granted_at is None])


def events(app: App, thing: str = "reservation") -> list[str]:
    text = f"select kind from hw_event where thing = '{thing}' order by id"
    with app.database.read() as tx:
        return [kind for (kind,) in tx.connection.execute(text).fetchall()]  # type: ignore[attr-defined]


def callers(app: App) -> list[tuple[str, bool]]:
    """The state of each process that made direct calls, and whether it was given up."""
    text = "select state, gone_at from hw_worker where kind = 'caller' order by started_at, id"
    with app.database.read() as tx:
        return [(state, gone is not None) for state, gone in tx.connection.execute(text).fetchall()]  # type: ignore[attr-defined]


@contextmanager
def elsewhere(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """A call in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


@contextmanager
def running_job(app: App, doors: Doors, **wishes: Any) -> Iterator[None]:
    """A job that has its lanes until the block is over."""
    app.tasks["stands"].using(**wishes).enqueue(word="job")
    with elsewhere(lambda: drain(app, limit=1)) as done:
        until(lambda: "job" in doors.began)
        try:
            yield
        finally:
            doors.open.set()
    assert done.result() == 1


# --- what a call answers ------------------------------------------------------------------------------------------


def test_a_call_answers_the_result_of_its_task_and_is_no_job(app: App) -> None:
    assert app.tasks["add"].call(a=2, b=3) == 5
    first = app.tasks["plain"].call(word="x")
    assert first == {"word": "x", "pid": first["pid"]}
    assert first["pid"] != os.getpid()
    assert app.direct("plain", {"word": "y"})["pid"] == first["pid"], "the child was not kept warm"
    assert app.direct("threaded").startswith("headway-slot-")
    with app.database.read() as tx:
        assert tx.run("verify_jobs", after=0, limit=10) == []


def test_its_record_is_its_reservation(app: App) -> None:
    app.tasks["add"].call(a=2, b=3)
    (one,) = rows(app)
    assert (one.status, one.outcome, one.error, one.task) == ("RELEASED", "COMPLETED", None, "add")
    assert json.loads(one.params or "") == {"a": 2, "b": 3}
    assert one.granted_at is not None
    assert one.finished_at is not None
    assert one.created_at <= one.granted_at <= one.finished_at
    assert one.holder == app.client.actor.shown
    assert json.loads(one.created_by)["type"] == "user"
    assert events(app) == ["reservation.created", "reservation.granted", "reservation.released"]


def test_one_caller_for_all_calls_that_takes_leave_with_the_app(app: App, database_url: str, doors: Doors) -> None:
    for _ in range(3):
        app.direct("add", {"a": 1, "b": 1})
    assert callers(app) == [("live", False)]
    app.close()
    other = make_app(database_url, doors)
    assert callers(other) == [("gone", True)]
    other.close()


def test_the_child_is_stored_before_it_runs_and_forgotten_when_it_has_ended(app: App) -> None:
    pid = app.direct("plain", {"word": "x"})["pid"]
    with app.database.read() as tx:
        ((_, _, stored, *_),) = tx.run("processes_of", worker_id=app.caller.holder.who.id)
        owner = app.caller.holder.who.id
    assert stored == pid
    app.close()
    with app.database.read() as tx:
        assert tx.run("processes_of", worker_id=owner) == []


@pytest.mark.parametrize(
    ("task", "outcome", "words"),
    [
        ("fails", "FAILED", "ValueError: broken"),
        ("raises.fail", "FAILED", "no use"),
        ("raises.retry", "FAILED", "not yet"),
        ("raises.skip", "SKIPPED", "nothing new"),
        ("segfault", "FAILED", "SIGSEGV"),
        ("cancels_itself", "FAILED", "without a stop request"),
    ],
)
def test_a_failed_call_is_raised_and_recorded(app: App, task: str, outcome: str, words: str) -> None:
    with pytest.raises(JobFailed, match=words) as raised:
        app.direct(task)
    assert (raised.value.code, raised.value.facts["status"]) == ("call_failed", outcome)
    (one,) = rows(app)
    assert (one.status, one.outcome) == ("RELEASED", outcome)
    assert words in (one.error or "")


@pytest.mark.parametrize("task", ["wait.async", "wait.child", "wait.thread"])
def test_a_timeout_holds_for_calls(app: App, task: str) -> None:
    with pytest.raises(JobFailed, match="ran longer than 100ms"):
        app.direct(task, timeout=0.1)
    assert rows(app)[0].outcome == "FAILED"


def test_a_call_reports_to_the_log_and_spends_within_its_budget(
    app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("x")
    caplog.set_level("DEBUG", "headway")
    assert app.direct("report", {"file": str(tmp_path / "file")}) == 1
    assert "report: part 2" in caplog.messages
    assert "report: part 3 of 3" in caplog.messages
    assert any("out.txt is not kept" in message for message in caplog.messages)
    with pytest.raises(JobFailed, match="budget for tokens used up"):
        app.direct("report", {"file": str(tmp_path / "file")}, budget={"tokens": 15})
    with app.database.read() as tx:
        assert tx.connection.execute("select count(*) from hw_report").fetchall() == [(0,)]  # type: ignore[attr-defined]


# --- what is refused ----------------------------------------------------------------------------------------------


def test_a_mistake_is_refused_before_anything_is_stored(app: App) -> None:
    with pytest.raises(BadInput, match="words"):
        app.tasks["plain"].call(words="x")
    with pytest.raises(BadInput, match="by name"):
        app.tasks["plain"].call("x")
    with pytest.raises(NotFound, match="did you mean plain"):
        app.direct("plian")
    with pytest.raises(NotFound, match="declare the task in this app"):
        app.direct("unheard.of")
    with pytest.raises(BadInput, match="no resource is named 'gpu'") as raised:
        app.direct("add", {"a": 1, "b": 1}, resources=["gpu"])
    assert raised.value.code == "unknown_resource"
    with pytest.raises(BadInput, match="control characters"):
        app.direct("add", {"a": 1, "b": 1}, target="desk\n1")
    with pytest.raises(BadInput, match="negative"):
        app.direct("add", {"a": 1, "b": 1}, wait=-1)
    assert rows(app) == []


@pytest.mark.parametrize(
    "wish", [{"priority": 1}, {"delay": 1}, {"key": "k"}, {"hold": True}, {"expires_at": "2030-01-01T00:00:00Z"}]
)
def test_options_of_jobs_alone_are_refused(app: App, wish: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="applies to jobs only") as raised:
        app.direct("add", {"a": 1, "b": 1}, **wish)
    assert raised.value.field == next(iter(wish))
    with pytest.raises(BadInput, match="is for direct calls"):
        app.enqueue("add", {"a": 1, "b": 1}, wait="1m")


# --- the line -----------------------------------------------------------------------------------------------------


def test_a_call_waits_for_what_runs_and_goes_before_what_is_queued(app: App, doors: Doors, tmp_path: Path) -> None:
    file = str(tmp_path / "order")
    with running_job(app, doors):
        queued = app.tasks["append"].enqueue(file=file, line="job")
        with elsewhere(lambda: app.direct("append", {"file": file, "line": "call"})) as call:
            until(lambda: waiting(app) == 1)
            assert not call.done()
            assert drain(app) == 0, "a job was claimed on a reserved lane"
            doors.open.set()
            call.result(PATIENCE)
    assert drain(app) == 1
    assert queued.status == "COMPLETED"
    assert Path(file).read_text().split() == ["call", "job"]


def test_calls_are_let_in_in_their_order(app: App, doors: Doors, tmp_path: Path) -> None:
    file = tmp_path / "order"
    with running_job(app, doors), ThreadPoolExecutor(4) as pool:
        calls = []
        for n in range(4):
            calls.append(pool.submit(app.direct, "append", {"file": str(file), "line": str(n)}))
            until(lambda n=n: waiting(app) == n + 1)  # type: ignore[misc]
        doors.open.set()
        for call in calls:
            call.result(PATIENCE)
    assert file.read_text().split() == ["0", "1", "2", "3"]
    times = [(one.granted_at or 0, one.finished_at or 0) for one in rows(app)]
    assert all(ended <= granted for (_, ended), (granted, _) in itertools.pairwise(times)), "two at once"


def test_a_caller_that_waits_too_long_is_told_and_releases_its_place(app: App, doors: Doors) -> None:
    with running_job(app, doors):
        with pytest.raises(Busy, match="got no slot within 50ms") as raised:
            app.direct("add", {"a": 1, "b": 1}, wait=0.05)
        assert raised.value.facts["retry_after"] == 1
        with pytest.raises(Busy):
            app.tasks["add"].using(wait=0).call(a=1, b=1)
    assert [(one.status, one.outcome, one.granted_at) for one in rows(app)] == [("RELEASED", "ABANDONED", None)] * 2
    app.tasks["add"].enqueue(a=1, b=1)
    assert drain(app) == 1


def test_how_long_it_waits_is_a_setting(database_url: str, doors: Doors) -> None:
    app = make_app(database_url, doors, direct_wait=0.05)
    with running_job(app, doors), pytest.raises(Busy, match="50ms"):
        app.direct("add", {"a": 1, "b": 1})
    app.close()


def test_a_paused_queue_does_not_stop_calls(app: App) -> None:
    app.client.pause_queue()
    app.client.pause_queue(everybody=True)
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


# --- which lanes --------------------------------------------------------------------------------------------------


def settle(app: App, wished: Concurrency, **resources: int) -> None:
    limits.settle(app.database, wished, resources, actor=SYSTEM, adopt=True)


def test_a_call_on_a_target_runs_beside_the_global_lane(app: App, doors: Doors) -> None:
    with running_job(app, doors):
        assert app.direct("add", {"a": 1, "b": 1}, target="desk-1", wait=0) == 2
    assert json.loads(rows(app)[0].lanes) == []


def test_unless_targets_count_there_too(app: App, doors: Doors) -> None:
    settle(app, Concurrency(targets="global"))
    with running_job(app, doors), pytest.raises(Busy):
        app.direct("add", {"a": 1, "b": 1}, target="desk-1", wait=0)


def test_one_call_or_job_at_a_time_on_a_target(app: App, doors: Doors) -> None:
    with running_job(app, doors, target="desk-1"):
        with pytest.raises(Busy):
            app.direct("add", {"a": 1, "b": 1}, target="desk-1", wait=0)
        assert app.direct("add", {"a": 1, "b": 1}, target="desk-2", wait=0) == 2
    assert app.direct("add", {"a": 1, "b": 1}, target="desk-1", wait=0) == 2


def test_a_paused_target_stops_calls_until_it_is_resumed(app: App) -> None:
    app.direct("add", {"a": 1, "b": 1}, target="desk-1")
    app.client.pause_target("desk-1", note="broken")
    with elsewhere(lambda: app.direct("add", {"a": 1, "b": 2}, target="desk-1")) as call:
        until(lambda: waiting(app) == 1)
        assert not call.done()
        app.client.resume_target("desk-1")
        assert call.result(PATIENCE) == 3


def test_a_held_target_stops_calls_until_a_person_lets_go(app: App) -> None:
    held = app.tasks["fails"].using(target="desk-1").enqueue()
    drain(app)
    assert held.status == "ERROR"
    with elsewhere(lambda: app.direct("add", {"a": 1, "b": 2}, target="desk-1")) as call:
        until(lambda: waiting(app) == 1)
        assert not call.done()
        held.release()
        assert call.result(PATIENCE) == 3


def test_resources_are_counted_for_calls(app: App, doors: Doors) -> None:
    settle(app, Concurrency(limit=None), gpu=1, remote=2)
    with running_job(app, doors, resources=["gpu", "remote"]):
        with pytest.raises(Busy):
            app.direct("add", {"a": 1, "b": 1}, resources=["gpu"], wait=0)
        assert app.direct("add", {"a": 1, "b": 1}, resources=["remote"], wait=0) == 2


def test_a_policy_is_respected_from_the_moment_it_holds(app: App, doors: Doors) -> None:
    app.direct("add", {"a": 1, "b": 1})
    settle(app, Concurrency(policy="per_task"))
    with running_job(app, doors):
        assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2
        with pytest.raises(Busy):
            app.direct("stands", wait=0)


def test_a_policy_that_changes_holds_for_calls_that_wait(app: App, doors: Doors) -> None:
    """One that waits for the global lane and then would need another one is let in there."""
    with running_job(app, doors), elsewhere(lambda: app.direct("add", {"a": 1, "b": 1})) as call:
        until(lambda: waiting(app) == 1)
        settle(app, Concurrency(policy="per_task"))
        assert call.result(PATIENCE) == 2, "it went on waiting for a lane that it does not need any more"
    assert "reservation.relaned" in events(app)


# --- going away ---------------------------------------------------------------------------------------------------


@contextmanager
def interrupted_when(reached: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C for the main thread, as soon as a condition holds."""

    def press() -> None:
        until(reached)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    # In the background of a shell the signal is ignored, and Python leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        yield
    finally:
        join(thread)
        signal.signal(signal.SIGINT, before)


def test_a_caller_that_is_interrupted_while_it_waits_gives_its_place_back(app: App, doors: Doors) -> None:
    def in_line() -> bool:  # and its thread knows it: before that, a reservation nobody knows of is given back later
        return waiting(app) == 1 and bool(app.caller.holder.places)

    with running_job(app, doors):
        with pytest.raises(KeyboardInterrupt), interrupted_when(in_line):
            app.direct("add", {"a": 1, "b": 1})
        (one,) = rows(app)
        assert (one.status, one.outcome, one.granted_at) == ("RELEASED", "ABANDONED", None)
        assert "went away" in (one.error or "")


def test_an_interrupt_after_the_loop_got_the_work_stops_it(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = app.caller._loop()
    queue = runner.loop.call_soon_threadsafe

    def interrupted(*args: Any) -> None:
        monkeypatch.setattr(runner.loop, "call_soon_threadsafe", queue)
        queue(*args)
        (call,) = app.caller.calls.values()
        until(lambda: call.running is not None and call.running.ask is not None)  # the loop has started it
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        app.direct("wait.async")
    assert (rows(app)[-1].status, rows(app)[-1].outcome) == ("RELEASED", "ABANDONED")
    assert app.caller.calls == {}


@pytest.mark.parametrize("task", ["stands", "wait.async", "wait.child"])
def test_a_caller_that_is_interrupted_while_it_runs_stops_its_work_first(app: App, task: str) -> None:
    app.direct("add", {"a": 1, "b": 1})

    def under_way() -> bool:
        return bool(app.caller.calls) and next(iter(app.caller.calls.values())).running is not None

    with pytest.raises(KeyboardInterrupt), interrupted_when(under_way):
        app.direct(task)
    assert (rows(app)[-1].status, rows(app)[-1].outcome) == ("RELEASED", "ABANDONED")
    assert app.caller.calls == {}
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


def test_work_that_does_not_stop_keeps_its_place_until_it_ends(
    app: App, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf() -> None:
        doors.began.append("deaf")
        doors.open.wait(600)

    app.task("deaf.thread", isolation="thread")(deaf)
    monkeypatch.setattr("headway.engine.direct.call.STOP_SECONDS", 0.05)
    with pytest.raises(KeyboardInterrupt), interrupted_when(lambda: doors.began == ["deaf"]):
        app.direct("deaf.thread")
    assert rows(app)[0].status == "ACTIVE"
    with pytest.raises(Busy):
        app.direct("add", {"a": 1, "b": 1}, wait=0)
    doors.open.set()
    until(lambda: rows(app)[0].status == "RELEASED")
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


def test_a_second_interrupt_leaves_the_place_to_the_end_of_the_work(app: App, doors: Doors) -> None:
    def deaf() -> None:
        doors.began.append("deaf")
        doors.open.wait(600)

    def asked() -> bool:
        under_way = [one.running for one in list(app.caller.calls.values())]
        return any(one is not None and one.asked_at is not None for one in under_way)

    def both() -> None:
        with interrupted_when(asked), interrupted_when(lambda: doors.began == ["deaf"]):
            app.direct("deaf.thread")

    app.task("deaf.thread", isolation="thread")(deaf)
    with pytest.raises(KeyboardInterrupt):
        both()
    assert rows(app)[0].status == "ACTIVE"
    doors.open.set()
    until(lambda: rows(app)[0].status == "RELEASED", "the place was given back")


@contextmanager
def interrupted_at(step: int) -> Iterator[None]:
    """Ctrl-C at one of the lines of a call, counted from its first, and at the entry of functions.

    Not at the lines that only open a block: no signal is looked at there, and its lock is taken in the same step."""
    files, left = {inspect.getsourcefile(one) for one in (direct_call, holders)}, [step]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if file not in files:
            return None
        opens = linecache.getline(file, frame.f_lineno).lstrip().startswith(("with ", "try:"))
        if event in ("call", "line") and not opens:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("task", ["threaded", "nothing.async"])
def test_no_line_of_a_call_is_one_at_which_an_interrupt_keeps_the_place(app: App, task: str) -> None:
    async def nothing() -> None:
        """Ends at once."""

    app.task("nothing.async")(nothing)
    app.direct(task)
    caller = app.caller
    for step in itertools.count():
        try:
            with interrupted_at(step):
                app.direct(task)
        except KeyboardInterrupt:
            until(lambda: all(one.finished_at for one in rows(app)), f"the place was given back (line {step})")
            until(lambda: not (caller.calls or caller.holder.at_work or caller.holder.places), f"line {step}")
        else:
            break
    assert step > 50, "hardly a line was tried"
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


def test_closing_the_app_stops_the_calls_of_other_threads(app: App, doors: Doors) -> None:
    with elsewhere(lambda: app.direct("wait.async")) as running:
        until(lambda: any(one.granted_at for one in rows(app)))
        with elsewhere(lambda: app.direct("add", {"a": 1, "b": 1})) as waits:
            until(lambda: waiting(app) == 1)
            app.close()
            with pytest.raises(LeaseLost, match="shutting down"):
                waits.result(PATIENCE)
        with pytest.raises(JobFailed, match="shutting down"):
            running.result(PATIENCE)
    assert [(one.status, one.outcome) for one in rows(app)] == [("RELEASED", "ABANDONED")] * 2


# --- the lease ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["stands", "wait.async", "wait.child"])
def test_a_caller_that_was_given_up_stops_its_calls_and_begins_anew(database_url: str, doors: Doors, task: str) -> None:
    app = make_app(database_url, doors, **QUICK)
    with elsewhere(lambda: app.direct(task)) as call:
        until(lambda: any(one.granted_at for one in rows(app)))
        old = app.caller.holder.who.id
        app.database.transact("give_up", lambda tx: workers.retire(tx, old, "presumed dead"))
        with pytest.raises(JobFailed, match="recovered this one as lost"):
            call.result(PATIENCE)
    assert rows(app)[0].outcome == "ABANDONED"
    assert app.direct("add", {"a": 1, "b": 1}) == 2
    assert app.caller.holder.who.id != old
    assert callers(app) == [("gone", True), ("live", False)]
    app.close()


def test_an_abandoned_holder_cannot_reserve(app: App) -> None:
    """Between the moment at which others gave it up and the beat that tells it so."""
    holder = ReservationHolder(app.database, HolderConfig())
    holder.register()
    app.database.transact("give_up", lambda tx: workers.retire(tx, holder.who.id, "presumed dead"))
    with pytest.raises(LeaseLost, match="recovered this one as lost"):
        holder.reserve(ReservedPlace(), ReservationRequest(app.client.tenant_id, "ada", task="add"), actor=SYSTEM)
    assert rows(app) == []
    holder.close()


def test_a_lease_that_cannot_be_renewed_stops_calls_and_the_process_lives(database_url: str, doors: Doors) -> None:
    app = make_app(database_url, doors)
    with elsewhere(lambda: app.direct("stands")) as call:
        until(lambda: app.caller.calls)
        holder = app.caller.holder
        holder.lease.hear({"late": 5.0, "why": "no answer"})
        assert not call.done(), "it was renewed a moment ago"
        holder.lease.renewed = time.monotonic() - 50.0
        holder.lease.hear({"late": 50.0, "why": "no answer"})
        with pytest.raises(JobFailed, match="could not be renewed for 50 s"):
            call.result(PATIENCE)
    assert not holder.gone
    assert holder.at_work == set()
    assert app.direct("add", {"a": 1, "b": 1}) == 2, "a beat of its own made it whole"
    app.close()


# A caller with a short lease, whose heartbeat comes up when a file is there.
SLOW = """
import pathlib, sys
from headway import App
from headway.engine.worker import heartbeat
url, gate = sys.argv[1:]
waits = f"import os, time\\nwhile not os.path.exists({gate!r}): time.sleep(0.01)\\n"
heartbeat._BOOT = waits + heartbeat._BOOT
app = App(database=url, lease=1.5, heartbeat=0.5)
@app.task("echo", isolation="thread")
def echo(word: str) -> str:
    pathlib.Path(gate + ".begun").touch()
    return word
print(app.direct("echo", {"word": "fog"}), flush=True)
app.close()
"""


def test_a_heartbeat_that_starts_slowly_delays_a_call_and_does_not_end_it(app: App, tmp_path: Path) -> None:
    """Until it is up the caller renews its own lease, for several leases here, and nothing is at work."""
    gate, begun = tmp_path / "gate", tmp_path / "gate.begun"

    def beats() -> int:
        with app.database.read() as tx:
            found = tx.connection.execute("select max(beat) from hw_worker where kind = 'caller'").fetchall()  # type: ignore[attr-defined]
        return found[0][0] or 0

    command = [sys.executable, "-c", SLOW, app.client.database.url, str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: beats() >= 6 or process.poll() is not None, "the lease was renewed")
            assert process.poll() is None
            assert not begun.exists(), "work began, and nothing but its own process renewed the lease"
            assert [(one.granted_at is not None, one.finished_at) for one in rows(app)] == [(True, None)]
            gate.touch()
            assert process.communicate(timeout=PATIENCE)[0] == "fog\n"
            assert process.returncode == 0
        finally:
            process.kill()
    assert begun.exists()
    assert rows(app)[0].outcome == "COMPLETED"


# --- answers that get lost ----------------------------------------------------------------------------------------


@contextmanager
def once(point: str, error: BaseException) -> Iterator[None]:
    """The first one who passes a point gets an error there."""
    left = [error]

    def act(name: str) -> None:
        if name == point and left:
            raise left.pop()

    fault_points.arm(act)
    try:
        yield
    finally:
        fault_points.arm(None)
    assert not left, f"nobody passed {point}"


@pytest.mark.parametrize("error", [CommitUnknown("no answer"), KeyboardInterrupt()], ids=["lost", "interrupted"])
def test_a_reservation_nobody_knows_of_is_given_back(app: App, error: BaseException) -> None:
    app.direct("add", {"a": 1, "b": 1})
    with once("reserve.committed", error), pytest.raises(type(error)):
        app.direct("add", {"a": 1, "b": 1})
    until(lambda: rows(app)[1].status == "RELEASED", "the end of the reservation that was made unseen")
    assert rows(app)[1].outcome == "ABANDONED"
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


@pytest.mark.parametrize("point", ["release_reservation.begun", "release_reservation.committed"])
def test_a_result_is_answered_although_the_release_has_to_wait(app: App, point: str) -> None:
    app.direct("add", {"a": 1, "b": 1})
    with once(point, Unreachable("away")):
        assert app.direct("add", {"a": 2, "b": 2}) == 4
    until(lambda: rows(app)[1].status == "RELEASED")
    assert rows(app)[1].outcome == "COMPLETED"
    assert app.direct("add", {"a": 1, "b": 1}, wait=0) == 2


# --- holders by hand ----------------------------------------------------------------------------------------------


def test_one_who_waits_lets_itself_in_when_nobody_else_does(app: App) -> None:
    """No worker, nobody who settles: the one that waits looks for itself, and sees who is gone."""
    first, second = ReservationHolder(app.database, HolderConfig()), ReservationHolder(app.database, HolderConfig())
    wish = ReservationRequest(app.client.tenant_id, "ada", task="add")
    places = [ReservedPlace(), ReservedPlace()]
    for holder, place in zip((first, second), places, strict=True):
        holder.register()
        holder.reserve(place, wish, actor=SYSTEM)
    second.tick()
    assert [place.granted for place in places] == [True, False]
    number = places[0].id or 0
    app.database.transact("end", lambda tx: reservations.end(tx, number, status="EXPIRED", actor=SYSTEM))
    second.settle_at = 0.0
    second.tick()
    assert [place.granted for place in places] == [True, True]
    second.release(places[1], End("COMPLETED"))
    for holder in (first, second):
        holder.close()


def test_one_whose_reservation_others_ended_hears_of_it(app: App) -> None:
    holder = ReservationHolder(app.database, HolderConfig())
    holder.register()
    wish = ReservationRequest(app.client.tenant_id, "ada", task="add")
    has, waits = ReservedPlace(), ReservedPlace()
    holder.reserve(has, wish, actor=SYSTEM)
    holder.reserve(waits, wish, actor=SYSTEM)
    number = waits.id or 0
    app.database.transact("end", lambda tx: reservations.end(tx, number, status="EXPIRED", actor=SYSTEM))
    holder.tick()
    with pytest.raises(LeaseLost, match="another process ended"):
        holder.wait_for(waits, 1.0, what="the call")
    holder.release(has, End("COMPLETED"))
    holder.close()
