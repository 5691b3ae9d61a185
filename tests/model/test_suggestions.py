"""Suggestions: near names are found, and no names make one expensive."""

from __future__ import annotations

import time

import pytest

from headway.model.schedules.timezones import zone_names
from headway.model.values.suggestions import closest, similar


def test_mistyped_names_are_found_among_many() -> None:
    names = [f"service-{n}.sync" for n in range(1_000)]
    assert closest("service-77.snyc", names) == "service-77.sync"
    assert closest("comand", ["command", "http", "sql"]) == "command"
    assert closest("entirely different", names) is None
    assert "europe/berlin" in similar("europe/brelin", [name.lower() for name in zone_names()], most=3, cutoff=0.7)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("a" * 63 + "b", "{:a>64}"), ("a" * 200, "{:a>200}"), ("ab" * 32, "{:b>64}"), ("x" * 100_000, "{:x>64}")],
)
def test_no_names_make_a_suggestion_expensive(name: str, pattern: str) -> None:
    """1,000 names of 200 characters took 3.5 s."""
    names = [pattern.format(n) for n in range(100_000)]

    def cost() -> float:
        began = time.thread_time()
        closest(name, names)
        return time.thread_time() - began

    assert min(cost() for _ in range(3)) < 0.05
