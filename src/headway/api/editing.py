"""Editing what others may edit at the same time: rights are judged by what was read, and exactly that is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from headway.api.routes import Visit
from headway.errors import Busy, WrongState

TRIES = 20


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


Seen = TypeVar("Seen", bound=Versioned)
Done = TypeVar("Done")


def as_seen(here: Visit, look: Callable[[], Seen], change: Callable[[Seen, int], Done]) -> Done:
    """`look` reads and judges; `change` is given what was read and its version, and does nothing to any other one."""
    wanted = here.if_version
    for _ in range(TRIES):
        seen = look()
        if wanted is not None and wanted != seen.version:
            text = f"it has changed since it was read (version {seen.version}, not {wanted}): read it again"
            raise WrongState(text, code="version_mismatch")
        try:
            return change(seen, seen.version)
        except WrongState as error:
            if error.code != "version_mismatch" or wanted is not None:
                raise
    raise Busy("it is being changed by others all the time: try again", retry_after=1)
