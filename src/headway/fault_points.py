"""Named points at which a test can kill a process. `point()` does nothing unless a test armed an action."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


class Faults:
    """Holds the armed action of this process."""

    def __init__(self) -> None:
        self.action: Callable[[str], None] | None = None


FAULTS = Faults()


def point(name: str, place: str = "") -> None:
    """Calls the armed action with `name`, or with `name.place` for a point inside a transaction.

    The text is built only if an action is armed.
    """
    if FAULTS.action is not None:
        FAULTS.action(f"{name}.{place}" if place else name)


def arm(action: Callable[[str], None] | None) -> None:
    FAULTS.action = action


class KillAt:
    """Kills this process with SIGKILL at the n-th point whose name begins with `prefix`."""

    def __init__(self, count: int, prefix: str = "") -> None:
        self.left = count
        self.prefix = prefix

    def __call__(self, name: str) -> None:
        if name.startswith(self.prefix):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def arm_from_environment() -> None:
    """Arms a kill in a process that a test started: `HEADWAY_TEST_FAULT=3` or `=3:claim`."""
    fault = os.environ.get("HEADWAY_TEST_FAULT")
    if fault:
        count, _, prefix = fault.partition(":")
        arm(KillAt(int(count), prefix))
