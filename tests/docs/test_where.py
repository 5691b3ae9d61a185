"""The page "Where to change what" names only files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, prose

PAGE = ROOT / "docs" / "where.md"
SOURCE = ROOT / "src" / "headway"
LAYERS = ("cli", "api", "dashboard", "engine", "store", "text", "model")
_PATH = re.compile(r"`([a-z_]+(?:/[\w.]+)+|\w+\.(?:py|sql))`")


def named_paths() -> list[str]:
    """Lists every path that the page names: with a slash, or a bare name of a Python or SQL file."""
    return sorted({path for line in prose(PAGE) for path in _PATH.findall(line)})


def candidates(path: str) -> list[Path]:
    """Lists where a path may be. Bare names of SQL files are those of the statements."""
    if path.startswith(("docs/", "src/", "tests/")):
        return [ROOT / path]
    return [SOURCE / path, SOURCE / "store" / "sql" / path]


@pytest.mark.parametrize("path", named_paths())
def test_a_named_path_exists(path: str) -> None:
    assert any(candidate.exists() for candidate in candidates(path)), f"docs/where.md names {path}"


def test_the_table_answers_at_least_twenty_questions() -> None:
    table = prose(PAGE)[prose(PAGE).index("## Common changes") :]
    rows = [line for line in table if line.startswith("| ") and not line.startswith(("| You want ", "| --- "))]
    assert len(rows) >= 20
    assert [row for row in rows if not _PATH.search(row)] == []


def test_every_layer_is_named() -> None:
    text = PAGE.read_text("utf-8")
    assert [layer for layer in LAYERS if f"`{layer}`" not in text or not (SOURCE / layer).is_dir()] == []
