"""Known bugs, to be switched on one by one in a forked process: the harness is worth something if it finds them."""

from __future__ import annotations

from collections.abc import Callable

ALL: dict[str, Callable[[], None]] = {}
