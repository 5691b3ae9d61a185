"""Parses TOML texts of callers within bounds. Pure.

tomllib takes quadratic time for a key of many parts and recurses into brackets. One linear pass over the text therefore
refuses such texts before tomllib sees them.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, time
from typing import Any

from headway.errors import BadInput
from headway.model.values.json import LARGEST

MOST_PARTS = 10
MOST_BRACKETS = 32
MOST_TABLES = 5_000
# A TOML file nests at most this deep: brackets, each with a key of several parts, below a heading of several.
_MAX_DEPTH = 64

# Comments, strings, and the characters that build keys and brackets. A line's end takes blank lines and comments with
# it. A multi-line string ends with up to five quotes, of which two belong to it. The inner quantifiers are possessive,
# so that a string without an end is looked at once.
_TOKEN = re.compile(
    r"""
    (?P<mark> \n ) (?: \s++ | \#[^\n]*+ )*
  | \#[^\n]*+
  | \"{3} (?: [^"\\]++ | \\. | "{1,2}+(?!") )* "{3,5}+
  | '{3} (?: [^']++ | '{1,2}+(?!') )* '{3,5}+
  | " (?: [^"\\\n]++ | \\[^\n] )* "
  | ' [^'\n]*+ '
  | (?P<other> [\[\]{}.=,"'] )
    """,
    re.VERBOSE | re.DOTALL,
)


def loads(text: str, *, file: str) -> dict[str, Any]:
    """Parses a TOML text into plain JSON values, with dates and times as text; or raises BadInput."""
    _check(text, file)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file}: is not TOML: {error}", field="file") from None
    except ValueError:  # Python parses no decimal number of more than 4,300 digits
        raise BadInput(f"{file}: has a number of thousands of digits: write it as text", field="file") from None
    return {name: _plain(value, file, 1) for name, value in tree.items()}


def _check(text: str, file: str) -> None:
    """Refuses keys of many parts, deep brackets and many tables.

    tomllib stops at the first character that is not TOML, so that nothing behind one needs a check.
    """
    dots = depth = tables = 0
    before = "\n"
    for token in _TOKEN.finditer(text):
        match mark := token["mark"] or token["other"]:
            case None:  # a comment or a string, which may be a part of a key
                continue
            case '"' | "'":  # a string without an end
                return
            case ".":
                dots += 1
            case "[" | "{":
                tables += mark == "[" and before == "\n" and depth == 0
                depth, dots = depth + 1, 0
            case "]" | "}":
                depth, dots = max(depth - 1, 0), 0
            case _:
                dots = 0
        before = mark
        problem = (
            f"a key has more than {MOST_PARTS} parts: write inner tables"
            if dots >= MOST_PARTS
            else f"brackets are nested more than {MOST_BRACKETS} levels deep: flatten the value"
            if depth > MOST_BRACKETS
            else f"there are more than {MOST_TABLES} tables: split the file"
            if tables > MOST_TABLES
            else None
        )
        if problem is not None:
            line = text.count("\n", 0, token.start()) + 1
            raise BadInput(f"{file}:{line}: {problem}", field="file")


def _plain(value: Any, file: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise BadInput(f"{file}: values are nested more than {_MAX_DEPTH} levels deep: flatten them", field="file")
    match value:
        case date() | time():
            return value.isoformat()
        case list():
            return [_plain(item, file, depth + 1) for item in value]
        case dict():
            return {name: _plain(item, file, depth + 1) for name, item in value.items()}
        case int() if not -LARGEST - 1 <= value <= LARGEST:
            raise BadInput(f"{file}: has an integer outside 64 bits: write it as text", field="file")
    return value
