"""Finds similar names, for "did you mean …?"."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from itertools import islice, pairwise

# Bounds of a suggestion. A comparison takes time with the product of both lengths, and callers choose the names.
MOST_CANDIDATES, MOST_COMPARED, LONGEST_COMPARED = 1_000, 8, 64


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate most similar to `name`; None if none is similar."""
    found = similar(name, candidates, most=1)
    return found[0] if found else None


def similar(name: str, candidates: Iterable[str], *, most: int, cutoff: float = 0.6) -> list[str]:
    """Returns the candidates most similar to `name`, the best first.

    Only those that share most characters and pairs of characters with it are compared. Long names are left out: to
    compare 1,000 of them would take seconds.
    """
    if len(name) > LONGEST_COMPARED:
        return []
    own = _pieces(name)
    short = [other for other in islice(candidates, MOST_CANDIDATES) if len(other) <= LONGEST_COMPARED]
    likely = heapq.nlargest(MOST_COMPARED, short, key=lambda other: _overlap(own, _pieces(other)))
    return difflib.get_close_matches(name, likely, n=most, cutoff=cutoff)


def _pieces(text: str) -> set[str]:
    return {*text, *map("".join, pairwise(text))}


def _overlap(these: set[str], those: set[str]) -> float:
    return len(these & those) / (len(these | those) or 1)
