"""Output of commands: data on stdout, messages on stderr, control characters escaped."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Json = dict[str, Any]
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# The same in JSON text, whose own line breaks are characters of the layout.
_BEYOND_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"\s+")


def visible(text: str) -> str:
    """Escapes the control characters of untrusted text, such as `\\x1b`, so that no terminal obeys them."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text).expandtabs()


def json_text(value: object, *, indent: int | None = None) -> str:
    """Returns JSON in which control characters and direction marks are escaped as `\\u009b`.

    JSON itself escapes only the characters below U+0020; a terminal obeys others too.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _BEYOND_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str | None) -> str:
    return visible(_SPACE.sub(" ", text or "")).strip()


class Out:
    """The output of one command."""

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
        """Prints the answer as JSON."""
        print(json_text(value, indent=2))

    def answer(
        self, value: object, table: Callable[[], Iterable[RenderableType]], *, notes: Iterable[str] = ()
    ) -> None:
        """Prints the answer: as JSON, or for people what `table` makes of it, and then `notes` as messages."""
        if self.as_json:
            self.data(value)
            return
        if shown := list(table()):
            self.show(*shown)
        for note in notes:
            self.say(note)

    def page(self, found: Json, table: Callable[[list[Json]], RenderableType], *, empty: Iterable[str]) -> None:
        """Prints one page of a list: as JSON, or for people as a table; the messages of `empty` if it is empty."""
        if self.as_json:
            self.data({"items": found["items"], "next": found["next"]})
        elif not found["items"]:
            for note in empty:
                self.say(note)
        else:
            self.show(table(found["items"]))
            if found["next"] is not None:
                self.say(f"there are more: --cursor {found['next']}")

    def record(self, value: object) -> None:
        """Prints one object of a stream as one line of JSON, and flushes it."""
        print(json_text(value), flush=True)

    def show(self, *things: RenderableType) -> None:
        """Prints the answer for people: text and tables."""
        if self.stdout.is_terminal:
            self._print(things)
            return
        with self.stdout.capture() as captured:  # a table pads its lines with spaces, which a file does not need
            self._print(things)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def _print(self, things: Sequence[RenderableType]) -> None:
        for thing in things:
            self.stdout.print(visible(thing) if isinstance(thing, str) else thing, soft_wrap=isinstance(thing, str))

    def lines(self, text: str) -> None:
        """Prints untrusted text on stdout, with its control characters escaped."""
        print(visible(text), flush=True)

    def say(self, text: str) -> None:
        """Prints a message on stderr, unless its reader is gone."""
        if sys.stderr is not None:
            with suppress(BrokenPipeError):
                print(visible(text), file=sys.stderr, flush=True)


def table(*columns: str, flexible: Sequence[str] = ()) -> Table:
    """Creates a table without borders. On a narrow terminal only the flexible columns shrink."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # Rich shrinks only columns that may wrap. The cells themselves are cut instead of wrapped, see `styled`.
        made.add_column(column, no_wrap=column not in flexible)
    return made


def styled(text: str, style: str = "") -> Text:
    """Creates a cell of one line, which is cut where there is no room."""
    from rich.text import Text

    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def paragraph(text: str, style: str = "") -> Text:
    """Creates a text that wraps."""
    from rich.text import Text

    return Text(visible(text), style=style)


def problem(error_code: str, text: str, exit_code: int, **facts: Any) -> dict[str, object]:
    """Returns an error in the shape that --json prints."""
    kept = {name: fact for name, fact in facts.items() if fact is not None}
    return {"error": {"code": error_code, "message": text, "exit_code": exit_code, **kept}}
