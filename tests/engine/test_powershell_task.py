"""The built-in task `powershell`, in a real child, with a `pwsh` of the test's own that shows what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.execution import process_tree
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.errors import BadInput
from headway.model.jobs.outcome import Completed, Failed, FailureKind, StoppedByRequest
from tests.engine.test_child import DEADLINE, Recorder

# Says its options and arguments, then runs the file as a shell script.
PWSH = """#!/bin/sh
while [ "$1" != -File ]; do echo "option $1"; shift; done
shift; file=$1; shift
case "$file" in *.ps1) ;; *) echo "not a .ps1: $file" >&2; exit 64 ;; esac
for arg in "$@"; do echo "arg $arg"; done
. "$file"
"""


@contextmanager
def child_with(folder: Path, **env: str) -> Iterator[Child]:
    child = Child.start(env={"PATH": f"{folder}:/bin:/usr/bin", "TMPDIR": str(folder), **env})
    try:
        yield child
    finally:
        child.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "pwsh"
    program.write_text(PWSH)
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


def powershell(script: str, **params: Any) -> WorkItem:
    return WorkItem(7, "powershell", 3, 2, {"script": script, **params}, module="headway.tasks.powershell")


def test_a_script_runs_with_its_arguments_as_they_are(folder: Path, sink: Recorder):
    with child_with(folder) as child:
        outcome = child.run(powershell("echo done; echo oops >&2", args=["a b", "$(id); é"]), sink)

    assert outcome == Completed('{"exit_code":0}', 0)
    options = ["option -NoLogo", "option -NoProfile", "option -NonInteractive"]
    assert sink.logged("INFO") == [*options, "arg a b", "arg $(id); é", "done"]
    assert sink.logged("WARNING") == ["oops"]
    assert [path.name for path in folder.iterdir()] == ["pwsh"], "the script was left behind"


def test_it_gets_the_folder_and_the_variables_it_was_given_and_no_others(folder: Path, sink: Recorder):
    with child_with(folder, DATABASE_URL="postgresql://private") as child:
        child.run(powershell("pwd; env", cwd="/", env={"COLOUR": "grey"}), sink)

    lines = sink.logged("INFO")
    assert "/" in lines
    assert {"COLOUR=grey", "POWERSHELL_TELEMETRY_OPTOUT=1", "HEADWAY_JOB_ID=7"} <= set(lines)
    assert not [line for line in lines if "private" in line]


def test_a_bad_exit_code_is_a_failure_unless_it_is_said_to_be_good(folder: Path, sink: Recorder):
    with child_with(folder) as child:
        failed = child.run(powershell("echo broken >&2; exit 5"), sink)
        assert child.run(powershell("exit 5", ok_exit_codes=[5]), sink) == Completed('{"exit_code":5}', 5)

    assert isinstance(failed, Failed)
    assert (failed.kind, failed.exit_code) == (FailureKind.EXIT_CODE, 5)
    assert failed.error == "the command exited with code 5\nbroken"


def test_a_stopped_script_is_ended_and_its_file_removed(folder: Path, sink: Recorder):
    with child_with(folder) as child, ThreadPoolExecutor(1) as pool:
        running = pool.submit(child.run, powershell("echo ready; sleep 3600"), sink)
        sink.wait_for("ready")
        child.stop(DEADLINE)
        assert isinstance(running.result(DEADLINE), StoppedByRequest)
        assert process_tree.members(child.tag) == []
    assert [path.name for path in folder.iterdir()] == ["pwsh"]


def test_without_pwsh_the_job_says_so_and_is_not_tried_again(tmp_path: Path, sink: Recorder):
    with child_with(tmp_path) as child:
        failed = child.run(powershell("echo done"), sink)

    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.BAD_PARAMS
    assert failed.error.startswith("PowerShell is not installed here: no program named pwsh is on the worker's PATH")


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"script": " \n"}, "params.script is empty"),
        ({"script": ["a"]}, "params.script must be str, not list"),
        ({}, "params.script is missing"),
        ({"script": "a", "args": "b"}, "params.args must be list"),
        ({"script": "a", "args": [1]}, r"params.args\[0\] must be str, not int"),
    ],
)
def test_bad_params_are_refused_at_enqueue(params: dict[str, Any], problem: str):
    with pytest.raises(BadInput, match=problem):
        App().tasks["powershell"].enqueue(**params)
