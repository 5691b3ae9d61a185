"""The suite itself: it runs however it was started, and a test that hangs ends with its name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 120.0


# --- how it is started --------------------------------------------------------------------------------------------

# What `nohup make test </dev/null &` in a script, `setsid` and a service manager leave a program with, and worse.
STARTED_BADLY = "trap '' INT QUIT HUP TERM; exec <&-; exec setsid \"$@\""
SIGNALS = """
import os, signal, subprocess, sys
def test_signals_work_here_and_in_children():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert {signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)} == {signal.SIG_DFL}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    os.fstat(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        child = subprocess.Popen(["sleep", "60"])
        child.send_signal(number)
        assert child.wait(30) == -number
"""


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "1")], ids=["here", "xdist"])
def test_signals_work_however_the_session_was_started(tmp_path: Path, workers: tuple[str, ...]) -> None:
    ended = session(tmp_path, SIGNALS, *workers, prefix=["bash", "-c", STARTED_BADLY, "bash"])
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


# --- a test that hangs --------------------------------------------------------------------------------------------

HANGS = """
import os, pytest
@pytest.fixture
def pipe():
    yield os.pipe()
    print("the fixture was cleaned up")
def test_reads_for_ever(pipe):
    try:
        os.read(pipe[0], 1)
    except Exception:
        pass
def test_that_comes_after(): ...
"""
# Holds the interpreter's lock in C for minutes: no signal handler and no other thread gets a turn.
HANGS_IN_C = """
import re
def test_never_comes_back():
    re.match(r"(a+)+$", "a" * 60 + "b")
def test_that_comes_after(): ...
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "xdist", "-c", "/dev/null", "--rootdir=.", "--import-mode=importlib")
LEFT_BEHIND = """
import threading
def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait).start()
"""


def test_a_test_that_hangs_fails_with_its_name_and_the_others_go_on(tmp_path: Path) -> None:
    ended = session(tmp_path, HANGS, HEADWAY_TEST_LIMIT="1")
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "::test_reads_for_ever did not end within 1 s" in ended.stderr
    assert "::test_reads_for_ever did not end within 1 s" in ended.stdout
    assert "the fixture was cleaned up" in ended.stdout


def test_a_process_that_hangs_ends_and_shows_where_it_stood(tmp_path: Path) -> None:
    ended = session(tmp_path, HANGS_IN_C, HEADWAY_TEST_LIMIT="1")
    assert ended.returncode == 1
    assert "in test_never_comes_back" in ended.stderr


def test_a_process_of_xdist_that_hangs_is_reported_with_the_test(tmp_path: Path) -> None:
    ended = session(tmp_path, HANGS_IN_C, "--numprocesses", "1", HEADWAY_TEST_LIMIT="1")
    assert "crashed while running" in ended.stdout, ended.stdout + ended.stderr
    assert "::test_never_comes_back" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout


def test_threads_that_are_left_do_not_keep_the_session(tmp_path: Path) -> None:
    ended = session(tmp_path, LEFT_BEHIND, HEADWAY_TEST_LIMIT="1")
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "Timeout" in ended.stderr


def session(
    folder: Path, text: str, *args: str, prefix: list[str] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A session of its own with the plugins of this one, on one file."""
    (folder / "test_it.py").write_text(text)
    (folder / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HEADWAY"))}
    plain |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [*(prefix or []), sys.executable, "-m", "pytest", *PLAIN, *args, "test_it.py"],
        cwd=folder,
        env=plain | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


# --- a property test that fails -----------------------------------------------------------------------------------

MUTES = "import schemathesis"
FALSE = """
from hypothesis import given, strategies as st
@given(st.integers(7, 7), st.just(("a", 1)))
def test_is_false(number, pair):
    assert number < 7
"""


def test_a_property_test_that_fails_prints_its_example(tmp_path: Path) -> None:
    """Also beside tests that import schemathesis, which makes Hypothesis mute."""
    (tmp_path / "test_first.py").write_text(MUTES)
    ended = session(tmp_path, FALSE, "test_first.py", "-p", "schemathesis")
    assert "number=7" in ended.stdout, ended.stdout + ended.stderr
    assert "pair=('a', 1)" in ended.stdout


# --- what may block -----------------------------------------------------------------------------------------------

BLOCKING = {"readline", "communicate", "wait", "join"}
# Tasks that wait for ever on purpose: the tests end them. A keeper and a fork server wait for their parent.
WAITING_ON_PURPOSE = ("tests/support/tasks_for_", "tests/support/keeper.py", "tests/system/support/crash.py")


def test_every_wait_for_a_process_a_thread_or_a_pipe_has_a_deadline() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 100
    assert [place for file in files for place in endless_waits(file)] == []


def endless_waits(file: Path) -> Iterator[str]:
    name = str(file.relative_to(ROOT))
    if name.startswith(WAITING_ON_PURPOSE):
        return
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=of), args=args, keywords=keywords):
                bounded = args if attr != "communicate" else keywords
                if attr in BLOCKING and not bounded and not keywords and not _has_a_deadline(of):
                    yield f"{name}:{node.lineno} {ast.unparse(node)}"
                if attr == "read" and not args and _is_a_pipe(of):
                    yield f"{name}:{node.lineno} {ast.unparse(node)}"
            case ast.For(iter=ast.Attribute() as of) if _is_a_pipe(of):
                yield f"{name}:{node.lineno} for … in {ast.unparse(of)}"


def _is_a_pipe(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")


def _has_a_deadline(node: ast.expr) -> bool:
    """A task that waits to be cancelled, an awaited event, a program of tests/system/support/started.py."""
    return ast.unparse(node) in ("asyncio.Event()", "ready", "program", "worker")


# --- the long run -------------------------------------------------------------------------------------------------


def test_the_long_run_takes_every_file_that_has_a_longer_form() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nproof:")[2].partition("\n\n")[0]
    taken = [word for word in recipe.split("HEADWAY_PROOF=1")[1].split() if word.startswith("tests/")]
    longer = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if 'os.environ.get("HEADWAY_PROOF' in path.read_text() and path != Path(__file__)
    ]
    assert len(longer) >= 20
    missing = [name for name in longer if not any(name == one or name.startswith(f"{one}/") for one in taken)]
    assert missing == []
    assert "HEADWAY_TEST_POOLER=1 $(BIN)/python -m pytest tests/store" in recipe
