"""Every command and every option stands in docs/cli.md, with an example, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.core import TyperGroup

from headway.cli.tree import build
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "cli.md"
EVERYWHERE, FILTERS = "On every command", "Filters"
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in (group or build()).commands.items():
        if isinstance(one, TyperGroup):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


COMMANDS = dict(commands())


@cache
def sections() -> dict[str, str]:
    """The page by its headings of the second rank."""
    parts = re.split(r"^## (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts if name.startswith("-")}


def section_of(path: str) -> str:
    """What the page says about a command, with the sections it refers to."""
    own = sections()[path]
    return own + sections()[EVERYWHERE] + (sections()[FILTERS] if "(#filters)" in own else "")


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_a_section_with_an_example(path: str) -> None:
    examples = re.findall(r"```sh\n(.*?)```", sections()[path], re.DOTALL)
    assert f"headway {path}" in "".join(examples)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_there(path: str) -> None:
    described = set(_OPTION.findall(section_of(path)))
    assert options(COMMANDS[path]) - described == set()


@pytest.mark.parametrize("path", COMMANDS)
def test_no_option_is_there_that_does_not_exist(path: str) -> None:
    rows = [line for line in sections()[path].splitlines() if line.startswith("| `-")]
    described = {option for row in rows for option in _OPTION.findall(row.split(" | ")[0])}
    assert described - options(COMMANDS[path]) == set()


@pytest.mark.parametrize("path", [path for path in COMMANDS if "filters" in path or path.startswith(("jobs", "runs"))])
def test_a_command_with_filters_takes_all_of_them(path: str) -> None:
    rows = [line for line in sections()[FILTERS].splitlines() if line.startswith("| `-")]
    described = {option for row in rows for option in _OPTION.findall(" | ".join(row.split(" | ")[:1]))}
    if "(#filters)" in sections()[path]:
        assert described - options(COMMANDS[path]) == set()
    else:
        assert "--failure-kind" not in options(COMMANDS[path])


def test_options_that_every_command_takes() -> None:
    for path, command in COMMANDS.items():
        taken = options(command)
        assert "--json" in taken
        assert {"--database", "--config"} <= taken or path in ("demo", "version")


def test_the_program_itself() -> None:
    described = set(_OPTION.findall(sections()[EVERYWHERE]))
    assert options(build()) - described == set()


def test_no_section_without_a_command() -> None:
    assert set(sections()) - set(COMMANDS) == {EVERYWHERE, FILTERS}


def test_every_command_and_option_says_what_it_is_for() -> None:
    for path, command in COMMANDS.items():
        assert command.help, path
        assert [param.name for param in command.params if not param.help] == [], path
