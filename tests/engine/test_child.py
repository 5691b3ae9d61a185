"""Plain functions in a real child process: what they return, report and leave behind, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headway import errors
from headway.engine.execution import process_tree
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import StopFlag, WorkItem
from headway.engine.tasks.loader import load_task
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Lost,
    NeverBegan,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from tests.support.survivors import unkillable

TASKS = "tests.support.tasks_for_child"
DEADLINE = 55.0
SOON = 0.2
TIME_TO_ANSWER = 4.0  # enough for a child on a busy machine; the test waits as long


class Recorder:
    """A sink that keeps everything, and lets a test wait for a line of the log."""

    def __init__(self) -> None:
        self.reports: list[tuple] = []
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def progress(self, done: float, total: float | None, label: str) -> None:
        self.reports.append(("progress", done, total, label))
        self.lines.put(f"progress {done}")

    def log(self, level: str, message: str, at: int) -> None:
        assert abs(at - time.time_ns() // 1000) < DEADLINE * 1_000_000
        self.reports.append(("log", level, message))
        self.lines.put(message)

    def spend(self, amounts: dict[str, float]) -> None:
        self.reports.append(("spend", amounts))

    def checkpoint(self, text: str) -> None:
        self.reports.append(("checkpoint", text))

    def attach(self, path: str, name: str) -> None:
        self.reports.append(("attach", path, name))

    def wait_for(self, line: str) -> None:
        while self.lines.get(timeout=DEADLINE) != line:
            pass

    def logged(self, level: str | None = None) -> list[str]:
        return [report[2] for report in self.reports if report[0] == "log" and level in (None, report[1])]

    def of(self, kind: str) -> list[tuple]:
        return [report[1:] for report in self.reports if report[0] == kind]


class Losing(Recorder):
    """A sink whose claim is lost."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        setattr(self, kind, self.refuse)

    def refuse(self, *_: object) -> None:
        self.reports.append(("refused",))
        raise errors.LeaseLost("fence 1 is stale")


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child.start()
    yield child
    child.close()
    assert process_tree.members(child.tag) == []


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def roster(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A fifo every process of a tree holds open: its end shows that all are gone."""
    path = str(tmp_path / "roster")
    os.mkfifo(path)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, fd
    os.close(fd)


def work(task: str, *, module: str | None = TASKS, **params: object) -> WorkItem:
    return WorkItem(job_id=7, task=task, fence=3, attempt=2, params=params, module=module)


def start(pool: ThreadPoolExecutor, child: Child, sink: Recorder, task: str, **params: Any) -> Future[Outcome]:
    return pool.submit(child.run, work(task, **params), sink)


def result_of(outcome: Outcome) -> object:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.result)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def read_roster(fd: int, count: int) -> None:
    data = b""
    while data.count(b"\n") < count:
        assert select.select([fd], [], [], DEADLINE)[0]
        data += os.read(fd, 4096)


def wait_for_end(fd: int) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + DEADLINE
    while True:
        events = poller.poll(max(0, deadline - time.monotonic()) * 1000)
        assert events, "somebody survived"
        if not os.read(fd, 4096):
            return


# --- results ------------------------------------------------------------------------------------------------------


def test_a_result_comes_back(child: Child, sink: Recorder):
    value = {"title": "Fog", "words": [1, 2.5, None, True], "deep": {"ä": "✓"}}

    assert result_of(child.run(work("echo", value=value), sink)) == value
    assert child.run(work("nothing"), sink) == Completed("null")
    assert sink.reports == []


def test_the_context_says_what_the_work_is(child: Child, sink: Recorder):
    job = WorkItem(7, "describe", 3, 2, {}, {"chapter": 1}, results={"a": 1}, module=TASKS)

    assert result_of(child.run(job, sink)) == [7, "describe", 2, 3, {"chapter": 1}, {"a": 1}, False]


def test_a_context_may_have_any_name(child: Child, sink: Recorder):
    assert result_of(child.run(work("takes_context_by_annotation", word="fog"), sink)) == [7, "fog"]


def test_the_same_process_serves_many_jobs(child: Child, sink: Recorder):
    for n in range(1, 20):
        assert result_of(child.run(work("count_calls"), sink)) == [child.pid] * n
    assert child.usable


def test_large_params_and_results_fit(child: Child, sink: Recorder):
    value = "é" * 120_000

    assert result_of(child.run(work("echo", value=value), sink)) == value


def test_a_result_over_the_limit_is_refused_for_good(child: Child, sink: Recorder):
    failed = failure(child.run(work("large", size=300 * 1024), sink))

    assert failed.final
    assert failed.error.startswith("result is 300.1 KiB, the limit is 256 KiB")


def test_a_result_that_is_not_json_is_refused_for_good(child: Child, sink: Recorder):
    failed = failure(child.run(work("not_json"), sink))

    assert (failed.kind, failed.final) == (FailureKind.EXCEPTION, True)
    assert failed.error.startswith("result.when is of type set, which JSON cannot hold")


def test_stdin_is_empty(child: Child, sink: Recorder):
    assert result_of(child.run(work("read_stdin"), sink)) == ""


def test_a_job_finds_the_folder_its_predecessor_found(child: Child, sink: Recorder):
    assert [result_of(child.run(work("change_folder"), sink)) for _ in range(2)] == [os.getcwd()] * 2


def test_environment_and_folder_can_be_given(sink: Recorder, tmp_path: Path):
    child = Child.start(env={"PATH": os.environ["PATH"], "COLOUR": "grey"}, cwd=str(tmp_path), tag="ab" * 16)
    try:
        assert result_of(child.run(work("environment", name="COLOUR"), sink)) == "grey"
        assert result_of(child.run(work("environment", name="HEADWAY_WORK"), sink)) == "ab" * 16 == child.tag
        assert result_of(child.run(work("change_folder"), sink)) == str(tmp_path)
    finally:
        child.close()


def test_a_child_is_light(child: Child, sink: Recorder):
    loaded = set(result_of(child.run(work("modules"), sink)))  # type: ignore[call-overload]

    assert loaded.isdisjoint({"apsw", "psycopg", "pydantic", "typer", "rich", "asyncio", "fastapi", "headway.store"})


# --- failures -----------------------------------------------------------------------------------------------------


def test_an_exception_is_a_failure_with_a_traceback_of_user_code_only(child: Child, sink: Recorder):
    failed = failure(child.run(work("fail"), sink))

    assert failed.kind is FailureKind.EXCEPTION
    assert failed.error.startswith("ValueError: no such chapter\n")
    assert 'raise ValueError("no such chapter")' in failed.error
    assert "engine" not in failed.error
    assert child.usable


def test_a_long_error_keeps_its_ends(child: Child, sink: Recorder):
    failed = failure(child.run(work("fail_deeply"), sink))

    assert failed.error.startswith("RuntimeError: xxx")
    assert failed.error.endswith("xxx")
    assert len(failed.error.encode()) <= 16 * 1024


@pytest.mark.parametrize(("after", "seconds"), [(None, None), (2.5, 2.5), ("10m", 600.0)])
def test_a_task_can_ask_for_a_retry(child: Child, sink: Recorder, after: object, seconds: float | None):
    outcome = child.run(work("ask_for_retry", after=after), sink)

    assert outcome == Failed(FailureKind.EXCEPTION, "the model is loading", retry_after=seconds)


def test_a_task_can_give_up_or_skip(child: Child, sink: Recorder):
    assert child.run(work("give_up"), sink) == Failed(FailureKind.EXCEPTION, "the story does not exist", final=True)
    assert child.run(work("skip"), sink) == Skipped("nothing new")


def test_sys_exit_is_an_exit_code(child: Child, sink: Recorder):
    assert child.run(work("leave", code=0), sink) == Completed()
    assert failure(child.run(work("leave", code=4), sink)).exit_code == 4
    assert failure(child.run(work("leave", code="out of paper"), sink)).error == "out of paper"
    assert child.usable


def test_params_that_do_not_fit_the_function_are_bad_params(child: Child, sink: Recorder):
    failed = failure(child.run(work("echo", colour="grey"), sink))

    assert failed.kind is FailureKind.BAD_PARAMS
    assert "unexpected keyword argument 'colour'" in failed.error


def test_a_process_that_leaves_is_a_failure(child: Child, sink: Recorder):
    failed = failure(child.run(work("leave_at_once", code=3), sink))

    assert (failed.kind, failed.exit_code) == (FailureKind.EXIT_CODE, 3)
    assert failed.error == "the task's process exited with code 3 before the task returned\nlast words"
    assert sink.logged("WARNING") == ["last words"]
    assert not child.usable


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_process_killed_by_a_signal_is_a_failure(child: Child, sink: Recorder, number: signal.Signals):
    failed = failure(child.run(work("die_by", number=int(number)), sink))

    assert (failed.kind, failed.exit_code) == (FailureKind.EXIT_CODE, -number)
    assert failed.error.startswith(f"the task's process was killed by {number.name}")


def test_a_segfault_shows_where_it_was(child: Child, sink: Recorder):
    failed = failure(child.run(work("touch_nothingness"), sink))

    assert failed.exit_code == -signal.SIGSEGV
    assert "in touch_nothingness" in failed.error


def test_no_process_stops_unasked(child: Child, sink: Recorder):
    assert failure(child.run(work("stop_by_itself"), sink)).error.startswith("the task stopped itself")


def test_a_dead_child_is_not_usable(child: Child, sink: Recorder):
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not child.usable
    outcome = child.run(work("nothing"), sink)
    assert isinstance(outcome, NeverBegan), "it died before it could take the work"
    assert "killed by SIGKILL" in outcome.error
    with pytest.raises(errors.WrongState):
        child.run(work("nothing"), sink)


# --- finding the task ---------------------------------------------------------------------------------------------


def test_an_unknown_task_is_named_with_the_known_ones(child: Child, sink: Recorder):
    failed = failure(child.run(work("no.such.task"), sink))

    assert failed.kind is FailureKind.UNKNOWN_TASK
    assert "has no task named 'no.such.task' (tasks there: ask_for_retry," in failed.error


def test_a_module_that_is_missing_or_broken_makes_its_tasks_unknown(child: Child, sink: Recorder, tmp_path: Path):
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_library")
    leaving = tmp_path / "leaving.py"
    leaving.write_text("raise SystemExit(0)")

    for module, text in (
        ("no.such.module", "No module named 'no'"),
        (str(broken), "No module named 'no_such_library'"),
        (str(leaving), "the module ended the process"),
        (str(tmp_path / "absent.py"), "No such file"),
    ):
        failed = failure(child.run(work("nothing", module=module), sink))
        assert failed.kind is FailureKind.UNKNOWN_TASK
        assert text in failed.error
    assert child.usable


PROGRAM = """
from types import SimpleNamespace
greet = SimpleNamespace(name="greet", function=lambda who: f"hello {who} from {__name__}")
app = SimpleNamespace(tasks={"greet": greet})
del greet
if __name__ == "__main__":
    raise SystemExit("must not run")
"""


def test_a_task_can_live_in_the_file_of_a_program(child: Child, sink: Recorder, tmp_path: Path):
    program = tmp_path / "my program.py"
    program.write_text(PROGRAM)

    outcome = child.run(work("greet", module=str(program), who="you"), sink)

    assert result_of(outcome) == "hello you from __headway_main__"


def test_modules_are_found_where_the_parent_finds_them(sink: Recorder, tmp_path: Path):
    (tmp_path / "only_here.py").write_text(PROGRAM)
    child = Child.start(sys_path=[str(tmp_path), *sys.path])
    try:
        assert result_of(child.run(work("greet", module="only_here", who="you"), sink)) == "hello you from only_here"
    finally:
        child.close()


def test_a_module_in_the_current_folder_cannot_break_the_start(sink: Recorder, tmp_path: Path):
    (tmp_path / "json.py").write_text("raise RuntimeError('not the library')")
    child = Child.start(cwd=str(tmp_path))
    try:
        assert child.run(work("nothing"), sink) == Completed()
    finally:
        child.close()


def test_tasks_are_found_beside_things_that_must_not_be_touched():
    assert callable(load_task(TASKS, "nothing"))


# --- reports ------------------------------------------------------------------------------------------------------


def test_log_lines_arrive_with_their_level(child: Child, sink: Recorder):
    child.run(work("log"), sink)

    assert sink.reports[:2] == [("log", "DEBUG", "1 of 3"), ("log", "ERROR", "bad \ufffd text \ufffd")]
    assert sink.logged()[2].startswith("it broke\nTraceback")
    assert sink.logged()[2].endswith("KeyError: 'k'")


def test_output_of_any_kind_becomes_log_lines(child: Child, sink: Recorder):
    child.run(work("say"), sink)

    said = ["from print", "from C with ends", "bytes \ufffd\ufffd", "from a command", "no newline"]
    assert sink.logged("INFO") == said
    assert sink.logged("WARNING") == ["from stderr"]


def test_a_flood_of_output_arrives_whole(child: Child, sink: Recorder):
    child.run(work("flood", lines=20_000), sink)

    assert [int(line.split()[0]) for line in sink.logged()] == list(range(20_000))


def test_long_lines_are_cut_into_pieces(child: Child, sink: Recorder):
    child.run(work("long_line", size=100_000), sink)

    assert max(map(len, sink.logged())) == 8192
    assert "".join(sink.logged()) == "y" * 100_000


def test_output_between_jobs_belongs_to_none(child: Child, sink: Recorder, tmp_path: Path):
    fifo = str(tmp_path / "now")
    os.mkfifo(fifo)
    child.run(work("print_when_told", module="tests.support.tasks_with_thread", fifo=fifo), sink)
    with open(fifo, "w"):
        out = child._process.stdout
        assert out is not None
    assert select.select([out.fileno()], [], [], DEADLINE)[0]

    child.run(work("nothing"), sink)

    assert sink.logged() == []


def test_progress_is_reported_first_and_last(child: Child, sink: Recorder):
    assert result_of(child.run(work("count", to=5000), sink)) == sum(range(5000))

    reports = sink.of("progress")
    assert reports[0] == (0, 5000, "steps")
    assert reports[-1] == (5000, 5000, "steps")
    assert len(reports) < 100


def test_progress_is_shown_while_the_work_waits(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "report_then_wait")

    sink.wait_for("progress 9")

    child.stop(DEADLINE)
    assert running.result(DEADLINE) == StoppedByRequest()


def test_spending_is_summed_and_ends_at_the_cap(child: Child, sink: Recorder):
    budget, spent = {"tokens": 20.0, "usd": 1.0}, {"tokens": 10.0}
    job = WorkItem(7, "spend", 3, 2, {"amounts": [4, 5, 6]}, budget=budget, spent=spent, module=TASKS)

    outcome = child.run(job, sink)

    assert outcome == Failed(FailureKind.BUDGET, "budget for tokens used up: 25 of 20")
    assert sum(amounts["tokens"] for (amounts,) in sink.of("spend")) == 15
    assert sink.logged() == []


def test_a_checkpoint_returns_when_it_is_stored(child: Child, sink: Recorder):
    assert result_of(child.run(work("checkpoint", values=[1, {"n": 2}]), sink)) == {"n": 2}

    assert sink.reports == [
        ("checkpoint", "1"),
        ("log", "INFO", "stored 1"),
        ("checkpoint", '{"n":2}'),
        ("log", "INFO", "stored {'n': 2}"),
    ]


def test_checkpoints_from_threads_take_turns(child: Child, sink: Recorder):
    child.run(work("checkpoint_in_threads", count=20), sink)

    assert sorted(int(text) for (text,) in sink.of("checkpoint")) == list(range(20))


def test_a_file_is_attached_by_its_whole_path(child: Child, sink: Recorder, tmp_path: Path):
    file = tmp_path / "story.md"
    file.write_text("fog")

    child.run(work("attach", path=str(file)), sink)
    child.run(work("attach", path=os.path.relpath(file), name="b.md"), sink)

    assert sink.of("attach") == [(str(file), "story.md"), (str(file), "b.md")]
    failed = failure(child.run(work("attach", path="/no/such/file"), sink))
    assert "there is no file /no/such/file to attach" in failed.error


# --- a lost lease, a refusing sink --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "task"), [("checkpoint", "checkpoint_anyway"), ("progress", "report_then_wait"), ("log", "sleep")]
)
def test_a_lost_lease_stops_the_work(child: Child, kind: str, task: str):
    sink = Losing(kind)

    with pytest.raises(errors.LeaseLost, match="fence 1 is stale"):
        child.run(work(task), sink, grace=DEADLINE)

    assert sink.reports == [("refused",)]
    assert not child.usable


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (errors.Unreachable("no database"), ["Unreachable", "no database"]),
        (errors.BadInput("too much"), ["BadInput", "too much"]),
        (OSError("disk full"), ["Refused", "disk full"]),
    ],
)
def test_work_may_handle_a_checkpoint_that_was_refused(child: Child, sink: Recorder, error: Exception, seen: list[str]):
    def refuse(text: str) -> None:
        raise error

    sink.checkpoint = refuse  # type: ignore[method-assign]

    assert result_of(child.run(work("checkpoint_and_tell"), sink)) == seen
    assert child.usable


def test_an_error_of_the_sink_ends_the_work(child: Child, sink: Recorder):
    def refuse(level: str, message: str, at: int) -> None:
        raise ZeroDivisionError

    sink.log = refuse  # type: ignore[method-assign]

    with pytest.raises(ZeroDivisionError):
        child.run(work("refuse_to_stop"), sink)

    assert not child.usable
    assert process_tree.members(child.tag) == []


# --- stopping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["sleep", "spin", "loop_to_stop_point", "clean_up"])
def test_work_stops_when_asked(child: Child, sink: Recorder, pool: ThreadPoolExecutor, task: str):
    running = start(pool, child, sink, task)
    sink.lines.get(timeout=DEADLINE)

    assert child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest()
    assert not child.usable


def test_work_may_clean_up(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "clean_up")
    sink.wait_for("asleep")

    child.stop(DEADLINE)
    running.result(DEADLINE)

    assert sink.logged() == ["asleep", "cleaned up, stopping: True"]


def test_a_stop_point_is_not_followed_by_a_second_stop(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "clean_up_after_stop_point")
    sink.wait_for("looping")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest()
    assert sink.logged() == ["looping", "cleaned up"]


def test_a_task_may_handle_the_signal_itself(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "handle_the_signal_itself")
    sink.wait_for("asleep")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == Completed("[true]")


def test_work_that_ignores_the_request_is_killed(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "refuse_to_stop")
    sink.wait_for("asleep")

    child.stop(TIME_TO_ANSWER)

    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)
    assert sink.logged() == ["asleep", "no"]


def test_a_second_request_can_shorten_the_grace(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "refuse_to_stop")
    sink.wait_for("asleep")

    child.stop(DEADLINE * 10)
    child.stop(0)

    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)


def test_work_that_completes_first_is_completed(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "finish_when_asked")
    sink.wait_for("asleep")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == Completed('"done after all"')


def test_a_request_reaches_work_that_has_not_begun(sink: Recorder, pool: ThreadPoolExecutor):
    for _ in range(5):
        child = Child.start()
        running = start(pool, child, sink, "sleep")
        while not child.stop(DEADLINE):
            assert not running.done()
        assert running.result(DEADLINE) == StoppedByRequest()
        child.close()


def test_a_request_made_before_the_run_is_heard(child: Child, sink: Recorder):
    stop = StopFlag()
    stop.asked = True
    assert not child.stop(DEADLINE)

    assert child.run(work("sleep"), sink, grace=DEADLINE, stop=stop) == StoppedByRequest()


def test_an_import_can_be_stopped(child: Child, sink: Recorder, pool: ThreadPoolExecutor, tmp_path: Path):
    module = tmp_path / "slow.py"
    module.write_text("import time; print('importing', flush=True); time.sleep(3600)")
    running = pool.submit(child.run, work("nothing", module=str(module)), sink)
    sink.wait_for("importing")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest()


def test_nothing_is_stopped_when_nothing_runs(child: Child, sink: Recorder):
    assert not child.stop(0)
    assert child.run(work("nothing"), sink) == Completed()
    assert not child.stop(0)
    assert child.run(work("nothing"), sink) == Completed()


def test_signals_from_elsewhere_do_not_stop_work(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = start(pool, child, sink, "sleep")
    sink.wait_for("asleep")

    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child.pid, number)
    assert not running.done()

    child.stop(DEADLINE)
    assert running.result(DEADLINE) == StoppedByRequest()


def test_a_worker_that_ignores_signals_has_children_that_stop(sink: Recorder, pool: ThreadPoolExecutor):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        child = Child.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    running = start(pool, child, sink, "sleep")
    sink.wait_for("asleep")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest()
    child.close()


def test_work_over_its_time_fails(child: Child, sink: Recorder):
    outcome = child.run(work("sleep"), sink, timeout=SOON, grace=DEADLINE, allowed=1800)

    assert outcome == Failed(FailureKind.TIMEOUT, "ran longer than 30m")
    assert not child.usable


def test_work_over_its_time_that_ignores_the_request_is_killed(child: Child, sink: Recorder):
    child.run(work("nothing"), sink)  # the time of the next begins when it is sent, warm or not

    outcome = child.run(work("refuse_to_stop"), sink, timeout=TIME_TO_ANSWER, grace=SOON)

    assert outcome == Failed(FailureKind.TIMEOUT, "ran longer than 4s", exit_code=-signal.SIGKILL)


def test_work_in_time_does_not_fail(child: Child, sink: Recorder):
    assert child.run(work("nothing"), sink, timeout=DEADLINE) == Completed()
    assert child.usable


def test_a_sink_that_waits_does_not_keep_work_alive(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    entered, leave = threading.Event(), threading.Event()

    def hang(text: str) -> None:
        entered.set()
        assert leave.wait(DEADLINE)

    sink.checkpoint = hang  # type: ignore[method-assign]
    running = start(pool, child, sink, "checkpoint", values=[1])
    assert entered.wait(DEADLINE)

    child.stop(0)
    pidfd = os.pidfd_open(child.pid)
    assert process_tree.ended(pidfd, DEADLINE)
    os.close(pidfd)
    leave.set()

    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)


def test_old_kernels_have_no_pidfd(sink: Recorder, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open")
    child = Child.start()
    assert child.usable
    assert child.run(work("nothing"), sink, timeout=DEADLINE) == Completed()
    running = start(pool, child, sink, "refuse_to_stop")
    sink.wait_for("asleep")
    child.stop(0)
    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)
    child.close()

    child = Child.start()
    assert failure(child.run(work("fork_and_hold"), sink)).exit_code == -signal.SIGKILL
    assert not child.usable
    child.close()


# --- what is left behind ------------------------------------------------------------------------------------------


def test_left_over_processes_are_killed_and_counted(child: Child, sink: Recorder, roster: tuple[str, int]):
    path, fd = roster

    assert child.run(work("leave_processes", fifo=path, count=3), sink) == Completed()

    wait_for_end(fd)
    assert sink.logged("WARNING") == ["the task left 3 processes running: killed"]
    assert child.usable
    assert child.run(work("nothing"), sink) == Completed()


def test_work_whose_processes_cannot_be_ended_is_lost(child: Child, sink: Recorder, roster: tuple[str, int]):
    path, fd = roster

    with unkillable():
        outcome = child.run(work("die_beside_processes", fifo=path, count=2), sink)

    left = process_tree.members(child.tag)
    pids = ", ".join(map(str, left))
    assert len(left) == 2
    assert outcome == Lost(f"the job ended, but its processes could not be ended (pids: {pids})", remains=True)
    assert not child.usable
    assert process_tree.end_tree(child.tag, grace=0)
    wait_for_end(fd)


def test_a_left_over_thread_ends_the_process(child: Child, sink: Recorder):
    assert child.run(work("leave_thread"), sink) == Completed()

    assert sink.logged("WARNING") == ["the task left 1 thread running: its process is ended"]
    assert not child.usable


def test_a_fork_that_holds_everything_open_hides_no_death(child: Child, sink: Recorder):
    assert failure(child.run(work("fork_and_hold"), sink)).exit_code == -signal.SIGKILL


def test_a_fork_that_returns_reports_nothing(child: Child, sink: Recorder):
    assert result_of(child.run(work("fork_and_return"), sink)) == os.getpid()
    assert child.run(work("nothing"), sink) == Completed()


def test_a_fork_has_no_use_of_the_context(child: Child, sink: Recorder):
    assert result_of(child.run(work("use_context_in_fork"), sink)) == 7

    assert sink.logged("WARNING") == ["log from the fork"]
    assert sink.logged("INFO") == ["Refused: the context belongs to the process of the task, not to one it forked"]


def test_a_signal_reaches_a_process_that_the_task_has_just_forked(child: Child, sink: Recorder):
    """A lost SIGTERM would leave `Pool.terminate` waiting for ever."""
    assert result_of(child.run(work("end_forks", count=50), sink)) == [-signal.SIGTERM] * 50
    assert child.usable


def test_a_pool_of_processes_works_and_ends(child: Child, sink: Recorder):
    assert result_of(child.run(work("use_pool"), sink)) == [1, 4, 9]
    assert child.usable


def test_a_stop_ends_the_whole_tree(child: Child, sink: Recorder, pool: ThreadPoolExecutor, roster: tuple[str, int]):
    path, fd = roster
    running = start(pool, child, sink, "keep_processes", fifo=path, count=4)
    read_roster(fd, 5)

    child.stop(0)

    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)
    wait_for_end(fd)


PARENT = """
import sys
sys.path[:] = {path!r}
from tests.engine.test_child import Recorder, work
from headway.engine.execution.child_process import Child
child = Child.start()
child.run(work("keep_processes", fifo={fifo!r}, count=4), Recorder())
"""


@pytest.mark.parametrize("forks", [False, True])
def test_work_dies_with_its_worker(roster: tuple[str, int], forks: bool):
    path, fd = roster
    program = PARENT.format(path=sys.path, fifo=path)
    if forks:  # a process that inherited the sockets must not keep the work alive
        program = program.replace("child.run", "import os, signal\nif not os.fork(): signal.pause()\nchild.run")
    parent = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        read_roster(fd, 5)
        parent.kill()
        wait_for_end(fd)
    finally:
        parent.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_closing_ends_an_idle_child(sink: Recorder):
    child = Child.start()
    child.run(work("nothing"), sink)
    assert process_tree.alive(child.pid, child.start_time)
    assert process_tree.members(child.tag) == [child.pid] == [child.pgid]

    child.close()
    child.close()

    assert not process_tree.alive(child.pid, child.start_time)
    assert not child.usable


def test_a_child_knows_since_when_it_is_idle(child: Child, sink: Recorder):
    before = time.monotonic()
    child.run(work("nothing"), sink)

    assert before <= child.idle_since <= time.monotonic()
