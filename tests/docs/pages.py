"""The pages of the documentation, taken apart: fenced blocks, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_COMMENT = re.compile(r"<!-- (not run|file): (.+) -->")
_FENCE = re.compile(r"^ {0,3}(`{3,})(\w*)")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    """One fenced block. `note` is the comment right before it: ("not run", why) or ("file", name)."""

    language: str
    text: str
    line: int
    note: tuple[str, str] | None = None


def blocks(page: Path) -> Iterator[Block]:
    note: tuple[str, str] | None = None
    fence, language, begun, inside = "", "", 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if fence:
            if line.strip() == fence:
                yield Block(language, "\n".join(inside) + "\n", begun, note)
                fence, note, inside = "", None, []
            else:
                inside.append(line)
        elif found := _FENCE.match(line):
            fence, language, begun = found[1], found[2], number + 1
        elif comment := _COMMENT.fullmatch(line.strip()):
            note = (comment[1], comment[2])
        elif line.strip():
            note = None
    assert not fence, f"{page_name(page)}: the block of line {begun - 1} has no end"


def prose(page: Path) -> list[str]:
    """The lines outside of fenced blocks; the others are empty, so that numbers stay."""
    lines: list[str] = []
    fence = ""
    for line in page.read_text("utf-8").splitlines():
        if fence:
            fence = "" if line.strip() == fence else fence
            lines.append("")
        elif found := _FENCE.match(line):
            fence = found[1]
            lines.append("")
        else:
            lines.append(line)
    return lines


def links(page: Path) -> list[str]:
    return [link for line in prose(page) for link in _LINK.findall(_CODE.sub("", line))]


def anchors(page: Path) -> set[str]:
    """The headings as GitHub spells their anchors."""
    titles = [line.lstrip("#").strip() for line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
