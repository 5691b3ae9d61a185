"""Turns job and execution numbers in a sentence into links.

The rest stays escaped text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

JOBS = re.compile(r"\b([Jj]ob [1-9][0-9]{0,17})\b")
# A message begins with its subject, so only the capitalised word is linked.
EXECUTIONS = re.compile(r"\b(Execution [1-9][0-9]{0,17})\b")


def linked(text: str, address: Callable[[str], str], named: re.Pattern[str] = JOBS, *, here: str = "") -> Markup:
    """Links every match of `named`.

    `address` maps a path to a URL, `here` is not linked.
    """
    # re.split alternates between text and match.
    parts = named.split(text)
    return Markup("").join(_link(part, address, here) if n % 2 else escape(part) for n, part in enumerate(parts))


def _link(part: str, address: Callable[[str], str], here: str) -> Markup:
    word, number = part.lower().split()
    to = address(f"/{word}s/{number}")
    return escape(part) if to == here else Markup('<a href="{}">{}</a>').format(to, part)
