"""Named places where a process may die. `point()` does nothing unless a test armed it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


class Faults:
    """The one armed action of this process, kept in an object so that nothing needs `global`."""

    def __init__(self) -> None:
        self.action: Callable[[str], None] | None = None


FAULTS = Faults()


def point(name: str) -> None:
    if FAULTS.action is not None:
        FAULTS.action(name)


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
    """`HEADWAY_TEST_FAULT=3` or `=3:claim` arms a kill, for processes that a test starts."""
    wish = os.environ.get("HEADWAY_TEST_FAULT")
    if wish:
        count, _, prefix = wish.partition(":")
        arm(KillAt(int(count), prefix))
