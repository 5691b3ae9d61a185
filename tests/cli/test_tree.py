"""The command tree: a command line loads its own branch, and a worker loads no HTTP server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.tree import build
from tests.support.cli import PATIENCE, environment

LOADED = "import sys; from headway.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"


@pytest.mark.parametrize("name", build().commands)
def test_a_branch_has_its_command_as_the_whole_tree_has_it(name: str) -> None:
    whole, branch = build().commands, build(name).commands
    assert name in branch
    assert branch.keys() <= whole.keys()
    assert branch[name].help == whole[name].help


def test_an_unknown_word_gets_the_whole_tree() -> None:
    assert build("job").commands.keys() == build().commands.keys()


def test_a_worker_loads_no_http_server_and_no_other_command(tmp_path: Path) -> None:
    args = ["work", "--burst", "--json", "--database", "jobs.db"]
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, *args],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "headway.cli.commands.up" in loaded
    assert loaded & {"fastapi", "starlette", "uvicorn", "jinja2", "httpx", "headway.cli.commands.jobs"} == set()
