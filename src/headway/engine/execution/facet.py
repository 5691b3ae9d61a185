"""One part of a process's state, which can be read, compared and restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Facet:
    """A value of the process, saved at creation.

    Without `restore` it can only be compared.
    """

    __slots__ = ("_before", "_read", "_restore", "name")

    def __init__(
        self,
        name: str,
        read: Callable[[], Any],
        restore: Callable[[Any], object] | None = None,
        *,
        before: object | None = None,
    ) -> None:
        self.name = name
        self._read = read
        self._restore = restore
        self._before = read() if before is None else before

    def restore(self) -> bool:
        """Restores the value if it has changed; returns False if it still differs."""
        if self._read() == self._before:
            return True
        if self._restore is None:
            return False
        self._restore(self._before)
        return bool(self._read() == self._before)
