"""docs/threats.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "threats.md").read_text())


def test_every_attack_names_a_test_that_exists() -> None:
    assert len(NAMED) > 40
    for file, test in NAMED:
        assert (ROOT / file).is_file(), file
        assert not test or re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), (file, test)


def test_every_row_names_a_test() -> None:
    """A row of an attack has a test in its last cell."""
    rows = [line for line in (ROOT / "docs" / "threats.md").read_text().splitlines() if line.startswith("| ")]
    told = [row for row in rows if not re.search(r"\| (Shown by|Test) \|$|^\| ---", row)]
    assert [row for row in told if not re.search(r"`tests/[\w/]+\.py(::\w+)?` \|$", row)] == []
