"""Where tasks may be declared: in a module or a program's file, at a prompt only what the worker's own process runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headway import App
from headway.errors import BadInput
from tests.support.cli import ROOT

SECONDS = 60.0
DECLARES = """
from headway import App
app = App("headway.db", slots=3, concurrency={"limit": 3})

@app.task("plain")
def plain(n: int) -> int:
    return n + 1
"""
# Declares tasks and works them off itself, as a notebook may.
WORKS = """
import asyncio, json

async def main() -> None:
    async with app.lifespan():
        jobs = [task.enqueue(n=1) for task in app.tasks.values() if task.name in ("plain", "light", "loop")]
        print(json.dumps([await asyncio.to_thread(job.result, timeout=50) for job in jobs]))

if __name__ == "__main__":
    asyncio.run(main())
"""
IN_THIS_PROCESS = """
from headway import App
app = App("headway.db", slots=3, concurrency={"limit": 3})

@app.task("light", isolation="thread")
def light(n: int) -> int:
    return n + 2

@app.task("loop")
async def loop(n: int) -> int:
    return n + 3
"""


def python(folder: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWAY_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT / "src")},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def refused(ended: subprocess.CompletedProcess[str]) -> None:
    assert "BadInput: plain: a plain function runs in a child process" in ended.stderr, ended
    assert "it comes from an interactive session, a notebook" in ended.stderr
    assert 'pass isolation="thread"' in ended.stderr


def test_a_plain_function_at_a_prompt_is_refused(tmp_path: Path) -> None:
    refused(python(tmp_path, "-c", DECLARES))
    refused(python(tmp_path, "-", stdin=DECLARES))
    refused(python(tmp_path, "-i", stdin=DECLARES + "\n"))
    (tmp_path / "own.py").write_text("from headway import App\napp = App('headway.db')\n")
    refused(python(tmp_path, "-i", "own.py", stdin="@app.task('plain')\ndef plain(n: int) -> int:\n    return n\n\n"))


@pytest.mark.parametrize("file", ["<ipython-input-1-abc>", "<python-input-3>", "/tmp/ipykernel_12/3456.py"])
def test_a_cell_of_a_notebook_is_refused(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is compiled under a made-up name and run in a module that stands for the program."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(BadInput, match="an interactive session, a notebook"):
        exec(compile(DECLARES, file, "exec"), vars(main))


@pytest.mark.parametrize("names", [{}, {"__name__": "made_up"}])
def test_code_of_exec_is_refused(names: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"standard input or exec\(\)"):
        exec(DECLARES, names)


def test_tasks_of_a_prompt_that_its_own_process_runs_are_welcome(tmp_path: Path) -> None:
    for args, stdin in ((("-c", IN_THIS_PROCESS + WORKS), ""), (("-",), IN_THIS_PROCESS + WORKS)):
        ended = python(tmp_path, *args, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout) == [3, 4]


@pytest.mark.parametrize("name", ["stories.py", "stories"])
def test_a_programs_own_file_is_a_fine_place(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(DECLARES + WORKS)
    ended = python(tmp_path, name)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [2]


def test_a_module_that_is_run_by_its_name_imports_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "sums.py").write_text("def add(n: int) -> int:\n    return n + 1\n")
    (tmp_path / "shop" / "jobs.py").write_text(
        DECLARES.replace("return n + 1", "return add(n)") + "\nfrom .sums import add\n" + WORKS
    )
    ended = python(tmp_path, "-m", "shop.jobs")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [2]


def test_a_module_is_a_fine_place(sqlite_url: str) -> None:
    with App(sqlite_url) as app:
        assert app.task("here")(refused).spec.module == __name__
