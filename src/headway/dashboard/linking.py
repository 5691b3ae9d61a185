"""Sentences whose jobs, or executions, are links. What else they say may be anybody's, and stays text."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

JOBS = re.compile(r"\b([Jj]ob [1-9][0-9]{0,17})\b")
# What a message is about begins with a capital.
EXECUTIONS = re.compile(r"\b(Execution [1-9][0-9]{0,17})\b")


def linked(text: str, address: Callable[[str], str], named: re.Pattern[str] = JOBS, *, here: str = "") -> Markup:
    """`address` is that of a page. Nothing leads to where one is."""
    # Every other part is a word and a number.
    parts = named.split(text)
    return Markup("").join(_link(part, address, here) if n % 2 else escape(part) for n, part in enumerate(parts))


def _link(part: str, address: Callable[[str], str], here: str) -> Markup:
    word, number = part.lower().split()
    to = address(f"/{word}s/{number}")
    return escape(part) if to == here else Markup('<a href="{}">{}</a>').format(to, part)
