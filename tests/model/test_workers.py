"""How a worker stands, from what is known of it."""

from __future__ import annotations

import pytest

from headway.text.workers import standing


@pytest.mark.parametrize(
    ("state", "left", "has_lease", "process", "word", "alive"),
    [
        ("live", False, True, True, "live", True),
        ("draining", False, True, True, "draining", True),
        ("paused", False, True, True, "paused", True),
        ("paused", False, False, True, "silent", False),
        ("stuck", False, True, True, "stuck", True),
        ("live", True, False, False, "gone", False),
        ("gone", False, True, True, "gone", False),
        ("live", False, False, True, "silent", False),
        ("live", False, True, False, "dead", False),
    ],
)
def test_standing(state: str, left: bool, has_lease: bool, process: bool, word: str, alive: bool) -> None:
    found = standing(state, left=left, has_lease=has_lease, process=process)
    assert (found.word, found.alive) == (word, alive)
    assert found.text
    assert found.tone in ("good", "held", "bad", "quiet")


def test_a_status_names_the_reason() -> None:
    found = standing("paused", left=False, has_lease=True, process=True, note="no thread could be started")
    assert found.text.startswith("It could not start the work it claimed")
    assert found.text.endswith("It said: no thread could be started.")
