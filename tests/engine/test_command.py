"""The built-in task `command`, in a real child with real programs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headway.engine.execution import process_tree
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Outcome, StoppedByRequest
from tests.engine.test_child import DEADLINE, SOON, Recorder

OK = Completed('{"exit_code":0}', 0)


@pytest.fixture(scope="module")
def warm() -> Iterator[list[Child]]:
    """The one child of most tests here; who spoils it puts the next in its place."""
    children = [Child.start()]
    yield children
    children[-1].close()


@pytest.fixture
def child(warm: list[Child]) -> Child:
    if not warm[-1].usable:
        warm.append(Child.start())
    return warm[-1]


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def command(argv: object, **params: Any) -> WorkItem:
    return WorkItem(7, "command", 3, 2, {"argv": argv, **params}, module="headway.tasks.command")


def sh(script: str, **params: Any) -> WorkItem:
    return command(script, shell=True, **params)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


# --- what it does -------------------------------------------------------------------------------------------------


def test_output_goes_to_the_log_and_the_exit_code_is_the_result(child: Child, sink: Recorder):
    assert child.run(command(["sh", "-c", "echo out; echo err >&2; printf end"]), sink) == OK

    assert sink.logged("INFO") == ["out", "end"]
    assert sink.logged("WARNING") == ["err"]


def test_arguments_are_passed_as_they_are(child: Child, sink: Recorder):
    child.run(command(["printf", "%s\n", "$HOME; *", "100%s"]), sink)

    assert sink.logged() == ["$HOME; *", "100%s"]


def test_a_shell_is_used_only_when_asked_for(child: Child, sink: Recorder):
    assert child.run(sh("echo $((1 + 1)) | tr 2 3"), sink) == OK
    assert child.run(command(["echo", "$((2 + 2))"], shell=True), sink) == OK

    assert sink.logged() == ["3", "4"]
    failed = failure(child.run(command("echo hello"), sink))
    assert failed.kind is FailureKind.BAD_PARAMS
    assert "params.argv must be a list" in failed.error


def test_other_exit_codes_can_be_good(child: Child, sink: Recorder):
    assert child.run(sh("exit 3", ok_exit_codes=[0, 3]), sink) == Completed('{"exit_code":3}', 3)
    assert failure(child.run(sh("exit 0", ok_exit_codes=[3]), sink)).exit_code == 0


def test_a_bad_exit_code_is_a_failure_with_the_end_of_stderr(child: Child, sink: Recorder):
    failed = failure(child.run(sh("for n in $(seq 100); do echo line $n >&2; done; exit 5"), sink))

    assert (failed.kind, failed.exit_code, failed.final) == (FailureKind.EXIT_CODE, 5, False)
    lines = failed.error.splitlines()
    assert lines[0] == "the command exited with code 5"
    assert lines[1:] == [f"line {n}" for n in range(81, 101)]


def test_the_end_of_stderr_is_bounded(child: Child, sink: Recorder):
    failed = failure(
        child.run(sh("for n in $(seq 20); do head -c 1000 /dev/zero | tr '\\0' x >&2; echo >&2; done; false"), sink)
    )

    assert 4000 < len(failed.error) < 4200


def test_a_command_killed_by_a_signal_has_a_negative_code(child: Child, sink: Recorder):
    failed = failure(child.run(sh("kill -SEGV $$"), sink))

    assert (failed.kind, failed.exit_code) == (FailureKind.EXIT_CODE, -signal.SIGSEGV)
    assert failed.error == "the command was killed by SIGSEGV"


def test_input_is_passed_whether_it_is_read_or_not(child: Child, sink: Recorder):
    assert child.run(command(["wc", "-c"], stdin="é" * 500_000), sink) == OK
    assert child.run(command(["true"], stdin="x" * 1_000_000), sink) == OK
    assert child.run(command(["wc", "-c"]), sink) == OK

    assert [line.strip() for line in sink.logged()] == ["1000000", "0"]


def test_the_folder_can_be_given(child: Child, sink: Recorder, tmp_path: Path):
    child.run(command(["pwd"], cwd=str(tmp_path)), sink)

    assert sink.logged() == [str(tmp_path)]


def test_the_environment_is_an_allow_list_and_what_was_given(sink: Recorder):
    secret = {"DATABASE_URL": "postgresql://secret", "LC_ALL": "C", "TZ": "UTC", "PATH": os.environ["PATH"]}
    child = Child.start(env=secret)
    try:
        child.run(command(["env"], env={"COLOUR": "grey", "HEADWAY_FENCE": "99", "HEADWAY_WORK": "mine"}), sink)
    finally:
        child.close()

    seen = dict(line.split("=", 1) for line in sink.logged())
    assert "DATABASE_URL" not in seen
    assert (seen["COLOUR"], seen["LC_ALL"], seen["TZ"]) == ("grey", "C", "UTC")
    assert (seen["HEADWAY_JOB_ID"], seen["HEADWAY_FENCE"], seen["HEADWAY_WORK"]) == ("7", "3", child.tag)


def test_the_log_of_a_command_is_bounded(child: Child, sink: Recorder):
    assert child.run(sh("seq 100000; echo last >&2; exit 0", output_limit=1000), sink) == OK

    *lines, note = sink.logged()
    assert sum(len(line) + 1 for line in lines) <= 1000
    assert note == "the output is longer than 1000 bytes: the rest is not kept"


def test_a_command_that_leaves_something_in_the_background_ends(child: Child, sink: Recorder):
    assert child.run(sh("sleep 3600 & echo started"), sink) == OK

    assert sink.logged() == ["started", "the task left 1 process running: killed"]


# --- what it refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"argv": []}, "params.argv is empty"),
        ({"argv": [""]}, "params.argv is empty"),
        ({"argv": " ", "shell": True}, "params.argv is empty"),
        ({"argv": ["no-such-program-here"]}, "a program that cannot be run: no-such-program-here"),
        ({"argv": ["/etc"]}, "a program that cannot be run: /etc (Permission denied)"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "params.cwd is not a folder on this machine: /no/such/folder"),
        ({"argv": ["true"], "env": {"A=B": "c"}}, "has the name 'A=B'"),
        ({"argv": ["true", "a\0b"]}, "cannot be passed to a program"),
        ({"argv": ["true"], "colour": "grey"}, "unexpected keyword argument 'colour'"),
    ],
)
def test_params_that_cannot_work_are_bad_params(child: Child, sink: Recorder, params: dict[str, Any], problem: str):
    failed = failure(child.run(WorkItem(7, "command", 3, 2, params), sink))

    assert failed.kind is FailureKind.BAD_PARAMS
    assert problem in failed.error


# --- how it ends --------------------------------------------------------------------------------------------------


def test_a_stopped_command_gets_the_time_to_clean_up(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    script = "trap 'echo cleaning; exit 4' TERM; echo ready; while :; do sleep 0.01; done"
    running = pool.submit(child.run, sh(script), sink)
    sink.wait_for("ready")

    child.stop(DEADLINE)

    assert running.result(DEADLINE) == StoppedByRequest(4)
    assert sink.logged("INFO") == ["ready", "cleaning"]


def test_a_stop_reaches_all_below_the_command(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    script = "setsid sh -c \"trap 'echo below; exit' TERM; echo ready; while :; do sleep 0.01; done\" & wait; wait"
    running = pool.submit(child.run, sh(script), sink)
    sink.wait_for("ready")

    child.stop(DEADLINE)

    assert isinstance(running.result(DEADLINE), StoppedByRequest)
    assert process_tree.members(child.tag) == []


def test_a_command_that_ignores_the_request_is_killed(child: Child, sink: Recorder, pool: ThreadPoolExecutor):
    running = pool.submit(child.run, sh("trap '' TERM; echo ready; while :; do sleep 0.01; done"), sink)
    sink.wait_for("ready")

    child.stop(SOON)

    assert running.result(DEADLINE) == StoppedByRequest(-signal.SIGKILL)
    assert process_tree.members(child.tag) == []


def test_a_command_over_its_time_fails(child: Child, sink: Recorder):
    outcome = child.run(command(["sleep", "3600"]), sink, timeout=SOON, grace=DEADLINE)

    assert outcome == Failed(FailureKind.TIMEOUT, "ran longer than 200ms")


def test_a_command_is_found_without_naming_its_module(child: Child, sink: Recorder):
    program = [sys.executable, "-I", "-S", "-c", "import sys; print(sys.argv[1])", json.dumps({"a": 1})]

    assert child.run(WorkItem(7, "command", 3, 2, {"argv": program}), sink) == OK

    assert sink.logged() == ['{"a": 1}']
