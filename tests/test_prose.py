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


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Access\n\nWhoever reads it once has it.", [3, 3]),
        ("It waits for nothing. Who holds it\nends.", [1, 1]),
        ("```toml\n# nobody\n```\nThe kind is `everybody`.", []),
        ("The caller gets the answer.", []),
    ],
)
def test_a_page_of_the_docs_is_checked_outside_its_code(text: str, lines: list[int]) -> None:
    assert [line for line, _ in CHECK["markdown_mistakes"](text)] == lines


def test_every_page_but_the_one_with_the_rules_is_checked() -> None:
    pages = {path.as_posix() for path in CHECK["files_below"](Path("docs"))}
    assert "docs/glossary.md" in pages
    assert "docs/style.md" not in pages


def test_the_files_of_the_dashboard_are_among_those_checked(tmp_path: Path) -> None:
    for name in ("page.html", "live.js", "base.css", "module.py", "picture.svg"):
        (tmp_path / name).write_text("")
    assert [path.name for path in CHECK["files_below"](tmp_path)] == ["base.css", "live.js", "module.py", "page.html"]


def test_messages_are_checked_for_headless_sentences() -> None:
    raised = 'def f():\n    raise BadInput(f"{name}: nobody knows it", hint="ask whoever made it")\n'
    assert [line for line, _ in CHECK["mistakes"](raised)] == [2, 2]
    assert list(CHECK["mistakes"]('raise BadInput("the name is taken", hint="choose another one")\n')) == []


def test_comments_of_sql_are_checked_for_headless_sentences() -> None:
    text = "-- Who holds a target.\nselect 'nobody';\nselect 1; -- The holder of a target.\n"
    assert [line for line, _ in CHECK["sql_mistakes"](text)] == [1, 1]
