"""Concurrency policies of a user's own, for tests that name them by their dotted names."""

from __future__ import annotations

from collections.abc import Sequence


class ByLetter:
    """One lane for each first letter of a task's name; work that names resources also takes the lane of all."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        letter = f"letter:{task[0]}"
        return (letter, "global") if resources else (letter,)


class NoLanes:
    """No lanes at all."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return ()


by_letter = ByLetter()
