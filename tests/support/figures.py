"""Figures of a run: how many kills, histories, jobs a test made. They are printed at the end, also with xdist."""

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "figure"

Figure = Callable[[str], None]


def lines(terminal: pytest.TerminalReporter) -> list[str]:
    """Returns the figures of all tests that ended, in the order of their names."""
    reports = [report for kind in ("passed", "failed") for report in terminal.getreports(kind)]
    found = [(report.nodeid, text) for report in reports for name, text in report.user_properties if name == NAME]
    return [str(text) for _, text in sorted(dict.fromkeys(found))]
