"""Edits with optimistic locking: checks and changes the same version of a thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from headway.api.http.routing import RequestContext
from headway.errors import Busy, WrongState

TRIES = 20


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


Seen = TypeVar("Seen", bound=Versioned)
Done = TypeVar("Done")


def as_seen(here: RequestContext, look: Callable[[], Seen], change: Callable[[Seen, int], Done]) -> Done:
    """Changes what `look` read and checked, at the version it read.

    Without If-Match, a concurrent change makes it read, check and change again.
    """
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
    raise Busy("other requests keep changing it", hint="try again", retry_after=1)
