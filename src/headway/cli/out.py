"""How commands speak: data on stdout, messages on stderr, and nothing of a job's text that a terminal would obey."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"\s+")


def visible(text: str) -> str:
    """A text from outside with its control characters spelled out: `\\x1b` instead of what a terminal would do."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text).expandtabs()


def one_line(text: str | None) -> str:
    return visible(_SPACE.sub(" ", text or "")).strip()


class Out:
    """Where one command speaks."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @cached_property
    def stdout(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    @cached_property
    def stderr(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False, markup=False, emoji=False)

    def data(self, value: object) -> None:
        """The answer for programs."""
        print(json.dumps(value, ensure_ascii=False, indent=2))

    def record(self, value: object) -> None:
        """One of many answers, one a line, as they come."""
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def show(self, *things: RenderableType) -> None:
        """The answer for people."""
        if self.stdout.is_terminal:
            self._print(things)
            return
        with self.stdout.capture() as captured:  # a table fills its lines with spaces: no use in a file
            self._print(things)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def _print(self, things: Sequence[RenderableType]) -> None:
        for thing in things:
            self.stdout.print(thing, soft_wrap=isinstance(thing, str))

    def lines(self, text: str) -> None:
        """Text from outside, as it is."""
        print(visible(text), flush=True)

    def say(self, text: str) -> None:
        """A message beside the data."""
        print(visible(text), file=sys.stderr, flush=True)


def table(*columns: str, flexible: Sequence[str] = ()) -> Table:
    """Columns side by side without lines. The flexible ones give way where the terminal ends, the others never."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # Rich narrows columns that may wrap, and only those; their cells do not, they are cut.
        made.add_column(column, no_wrap=column not in flexible)
    return made


def styled(text: str, style: str = "") -> Text:
    """A cell: one line, cut where there is no room."""
    from rich.text import Text

    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def paragraph(text: str, style: str = "") -> Text:
    """Words that go on in the next line."""
    from rich.text import Text

    return Text(visible(text), style=style)


def problem(error_code: str, text: str, exit_code: int, **facts: Any) -> dict[str, object]:
    """An error as programs read it."""
    kept = {name: fact for name, fact in facts.items() if fact is not None}
    return {"error": {"code": error_code, "message": text, "exit_code": exit_code, **kept}}
