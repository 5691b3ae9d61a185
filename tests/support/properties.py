"""Property tests: how many examples they try, and that a failing one shows its example."""

from __future__ import annotations

import os
from typing import Any

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.vendor import pretty

TIMES = int(os.environ.get("HEADWAY_EXAMPLES", "1"))
DEFAULT = 100


def examples(count: int) -> int:
    """The number of examples of a test; `HEADWAY_EXAMPLES=50` makes it fifty times as many."""
    return count * TIMES


def load_profile() -> None:
    # An example that took long once is no failure: the machine may be busy with something else.
    slow = [HealthCheck.too_slow]
    settings.register_profile("headway", deadline=None, suppress_health_check=slow, max_examples=examples(DEFAULT))
    settings.load_profile("headway")


class ExamplesPlugin:
    """Gives Hypothesis its printer back: schemathesis replaces it with a mute one for the whole process."""

    def __init__(self) -> None:
        self.mute: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        core: Any = hypothesis.core
        if core.RepresentationPrinter is not pretty.RepresentationPrinter:
            self.mute = core.RepresentationPrinter
        its_own = self.mute is not None and hasattr(getattr(item, "module", None), "schemathesis")
        core.RepresentationPrinter = self.mute if its_own else pretty.RepresentationPrinter
