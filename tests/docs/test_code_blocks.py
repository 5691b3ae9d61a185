"""The documentation runs: Python blocks are executed, commands are parsed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup

from headway import App
from headway.cli.tree import build
from tests.docs.pages import PAGES, ROOT, Block, blocks, page_name

_PRINTS = re.compile(r"^\s*print\(.*\)  # (.+)$")
_MOST_NOT_RUN = 8


def of_language(page: Path, *languages: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in languages]


PYTHON_PAGES = [page for page in PAGES if of_language(page, "python")]


# --- Python -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in, without settings, from which modules can be imported."""
    for variable in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
            _close_apps(vars(sys.modules.pop(name)))


def _close_apps(names: dict[str, Any]) -> None:
    for value in list(names.values()):
        if isinstance(value, App):
            value.close()


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=page_name)
def test_python_blocks_run(
    page: Path, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page in order, in one namespace. What a page says that `print` prints is printed."""
    if "DATABASE_URL" in page.read_text("utf-8"):
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("empty_postgres_url"))
    module = ModuleType("page")
    module.__spec__ = ModuleSpec("page", None)
    monkeypatch.setitem(sys.modules, "page", module)  # tasks are declared in modules
    names: dict[str, Any] = vars(module)
    try:
        for block in of_language(page, "python"):
            _run(page, folder, block, names)
        if any(name.startswith("test_") for name in names):
            _run_tests(page, folder)
    finally:
        _close_apps(names)


def _run(page: Path, folder: Path, block: Block, names: dict[str, Any]) -> None:
    kind, detail = block.note or ("", "")
    # Numbered as in the page, so that a traceback points there.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    if kind == "file":
        (folder / detail).write_text(block.text, "utf-8")
    elif kind != "not run":
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        _check_output(block, output.getvalue().splitlines())


def _run_tests(page: Path, folder: Path) -> None:
    """A page about tests shows tests that pass."""
    (folder / "test_page.py").write_text(
        "\n".join(block.text for block in of_language(page, "python") if block.note is None), "utf-8"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_page.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _check_output(block: Block, printed: list[str]) -> None:
    promised = [found[1] for line in block.text.splitlines() if (found := _PRINTS.match(line))]
    rest = iter(printed)
    for line in promised:
        assert line in rest, f"the block of line {block.line} does not print {line!r}, but {printed}"


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    notes = [block.note for page in PAGES for block in of_language(page, "python")]
    assert len([note for note in notes if note is not None and note[0] == "not run"]) <= _MOST_NOT_RUN


# --- commands -----------------------------------------------------------------------------------------------------


def command_lines() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in of_language(page, "sh", "console"):
            for number, line in enumerate(block.text.replace("\\\n", "").splitlines(), block.line):
                bare = line.strip().removeprefix("$ ")
                if bare.startswith("headway"):
                    yield f"{page_name(page)}:{number}", bare


@pytest.mark.parametrize(("place", "line"), [pytest.param(*found, id=found[0]) for found in command_lines()])
def test_commands_can_be_given(place: str, line: str) -> None:
    """The command exists and takes these arguments and options."""
    words = shlex.split(line, comments=True)
    words = words[: next((n for n, word in enumerate(words) if word in ("|", "&&", ">", ";", "&")), len(words))]
    command: Any = build()
    while isinstance(command, TyperGroup) and len(words) > 1 and not words[1].startswith("-"):
        assert words[1] in command.commands, f"{place}: there is no command {' '.join(words[:2])}"
        command, words = command.commands[words[1]], words[1:]
    if isinstance(command, TyperCommand):
        command.make_context(words[0], words[1:]).close()


def test_there_are_commands_to_check() -> None:
    assert len(list(command_lines())) > 20
