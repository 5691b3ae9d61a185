"""Figures of a run: how many kills, histories, jobs its tests made. They are printed at the end, also with xdist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import pytest

NAME = "figure"


class Figure(Protocol):
    def __call__(self, text: str, count: int | None = None) -> None:
        """Gives a line to print. With a count, the run prints the sum of the counts of all tests with this text."""


def lines(terminal: pytest.TerminalReporter) -> list[str]:
    """Returns the figures of all tests that ended, in the order of their names, and the sums after them."""
    told: dict[str, None] = {}
    sums: Counter[str] = Counter()
    for text, count in _figures(terminal):
        if count is None:
            told[text] = None
        else:
            sums[text] += count
    return [*told, *(f"{count:,} {text}" for text, count in sorted(sums.items()))]


def _figures(terminal: pytest.TerminalReporter) -> Iterator[tuple[str, int | None]]:
    """The last report of a test, the one of its teardown, has what the earlier ones have and more."""
    reports = [report for kind in terminal.stats.values() for report in kind if isinstance(report, pytest.TestReport)]
    longest: dict[str, list[tuple[str, object]]] = {}
    for report in reports:
        if len(report.user_properties) >= len(longest.get(report.nodeid, ())):
            longest[report.nodeid] = report.user_properties
    for _, properties in sorted(longest.items()):
        for name, value in properties:
            if name == NAME and isinstance(value, tuple | list):  # a list, where another process sent it
                text, count = value
                yield str(text), count
