"""The README's program does what the README says: it stores jobs, a worker runs them, their results are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway import App
from tests.docs.pages import ROOT, blocks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program in it, as a reader would have it."""
    (program,) = [block for block in blocks(ROOT / "README.md") if block.note == ("file", "stories.py")]
    (tmp_path / "stories.py").write_text(program.text, "utf-8")
    return tmp_path


def run(folder: Path, empty_url: str, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**clean, "HEADWAY_DATABASE": empty_url, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_program_runs(folder: Path, empty_url: str) -> None:
    assert run(folder, empty_url, "stories.py") == "job 1 is QUEUED\n"
    run(folder, empty_url, "-m", "headway", "work", "--burst", "--app", "stories:app")
    with App(database=empty_url) as app:
        story, announcement = app.job(1), app.job(2)
        assert story.result() == {"title": "Fog", "chapters": 3}
        assert announcement.result() == "Fog is out"
    listed = run(folder, empty_url, "-m", "headway", "jobs", "ls")
    assert listed.count("COMPLETED") == 2
    assert run(folder, empty_url, "-m", "headway", "jobs", "logs", "1").count("writing chapter") == 3
    run(folder, empty_url, "-m", "headway", "verify", "--quiet")


def test_enqueued_twice_the_key_makes_it_one_story(folder: Path, empty_url: str) -> None:
    run(folder, empty_url, "stories.py")
    assert run(folder, empty_url, "stories.py") == "job 1 is QUEUED\n"


def test_the_program_is_short() -> None:
    (program,) = [block for block in blocks(ROOT / "README.md") if block.note is not None]
    assert len(program.text.splitlines()) <= 30
