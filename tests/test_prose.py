"""The prose check finds headless sentences in code and in pages, and leaves correct ones alone."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "check_prose.py"))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("<p>\nNobody is told of anything yet.</p>", [2]),
        ("// whoever stops listening lets the connection go", [1]),
        ("<p>No webhook exists yet.</p>", []),
        ('{{ action(url, {"everybody": "1"}) }}', []),
        ("{% if page.strip.everybody %}paused{% endif %}", []),
    ],
)
def test_a_page_is_checked_for_headless_sentences(text: str, lines: list[int]) -> None:
    assert [line for line, _ in CHECK["page_mistakes"](text)] == lines


def test_a_docstring_is_checked_for_headless_sentences() -> None:
    assert [line for line, _ in CHECK["mistakes"]('"""Who may join is decided here."""\n')] == [1]
    assert list(CHECK["mistakes"]('"""Decides which jobs may join."""\n')) == []


def test_the_files_of_the_dashboard_are_among_those_checked(tmp_path: Path) -> None:
    for name in ("page.html", "live.js", "base.css", "module.py", "picture.svg"):
        (tmp_path / name).write_text("")
    assert [path.name for path in CHECK["files_below"](tmp_path)] == ["base.css", "live.js", "module.py", "page.html"]
