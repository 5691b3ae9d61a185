"""The environment of processes that run tasks: the user's variables without Headway's own.

Headway's own are the addresses of its databases, its tokens, and the variables that secrets come from. Programs that a
task starts inherit none of them. A task that uses its app asks the worker for the settings among them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from headway.errors import Refused

# Names the settings that a task's process did not get, so that no process takes a default instead of them.
WITHHELD = "HEADWAY_WITHHELD"
_SETTINGS = ("HEADWAY_DATABASE", "HEADWAY_LISTEN", "HEADWAY_CONNECTIONS")
_TOKEN = "HEADWAY_TOKEN"


def own_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with addresses, by variable. Their names are read without regard to case."""
    return {name: value for name, value in environ.items() if name.upper().startswith(_SETTINGS)}


def for_tasks(environ: Mapping[str, str], secret: Collection[str] = ()) -> dict[str, str]:
    """Returns the environment for a task's process; `secret` are the variables that secrets come from."""
    settings = own_settings(environ)
    withheld = {*settings, *secret}
    kept = {name: value for name, value in environ.items() if name not in withheld and not name.startswith(_TOKEN)}
    return {**kept, WITHHELD: ",".join(sorted(settings))} if settings else kept


class TaskSettings:
    """The settings that this process asks its worker for, if it runs a task. Any thread may ask."""

    def __init__(self) -> None:
        self.ask: Callable[[], dict[str, str]] | None = None
        self._values: dict[str, str] = {}

    def environment(self) -> Mapping[str, str]:
        """Returns the variables to read settings from."""
        if WITHHELD not in os.environ:
            return os.environ
        if not self._values and self.ask is not None:
            with suppress(Refused):  # a process that the task forked, and a built-in task, do not get them
                self._values = self.ask()
        return {**os.environ, **self._values}


here = TaskSettings()
