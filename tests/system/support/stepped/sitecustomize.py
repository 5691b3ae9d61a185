"""Python loads this at its start where the folder is on PYTHONPATH: the wall clock is off by what a file says.

The clock of every Python process of an installation can be stepped so, while it runs. The monotonic clock stays right.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = os.environ.get("STEPPED_CLOCK")
_right = time.time_ns


def _off() -> int:
    return int(Path(_FILE).read_text() or 0) * 1_000_000_000 if _FILE else 0


def _time_ns() -> int:
    return _right() + _off()


def _time() -> float:
    return _time_ns() / 1e9


if _FILE:
    time.time_ns, time.time = _time_ns, _time
