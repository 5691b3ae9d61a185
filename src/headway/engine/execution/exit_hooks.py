"""Runs the exit hooks of a job at the end of the job, not of its process.

Hooks that a module registers while it is imported belong to the process, like the module.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import FrameType
from typing import Any, ClassVar

from headway.engine.execution.outcome import outcome_of
from headway.model.jobs.outcome import Failed


def at_end_of_job(function: Callable[[], object]) -> None:
    """Registers a function to call when the job ends.

    Outside a task process it is never called.
    """
    if ExitHooks.current is not None:
        ExitHooks.current.add(function)


class ExitHooks:
    """Collects the exit hooks of a job.

    Replaces `atexit.register`, `os.register_at_fork` and `sys.addaudithook`. A process has at most one. `for_ever`
    names the hooks of the job that cannot be removed.
    """

    current: ClassVar[ExitHooks | None] = None

    def __init__(self) -> None:
        self._hooks: list[partial[object]] = []
        self._collects = False
        self.for_ever: list[str] = []
        ExitHooks.current = self
        weakref.finalize(self, int).detach()  # the first finalizer registers an exit hook: here, not in a job
        self._unregister = atexit.unregister
        atexit.register = self._registrar(atexit.register)
        atexit.unregister = self._forget
        os.register_at_fork = self._noted(os.register_at_fork, "a hook for forks")
        sys.addaudithook = self._noted(sys.addaudithook, "an audit hook")

    def add(self, function: Callable[[], object]) -> None:
        if self._collects:
            self._hooks.append(partial(function))

    def begin(self) -> None:
        """Starts collecting hooks for a job, before its user code begins."""
        self._hooks, self._collects, self.for_ever = [], True, []

    def run(self) -> list[str]:
        """Runs the job's hooks, the last one first; returns the errors."""
        self._collects = False
        problems: list[str] = []
        while self._hooks:
            outcome = outcome_of(self._hooks.pop())
            if isinstance(outcome, Failed):
                problems.append(outcome.error)
        return problems

    def _registrar(self, register: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(register)
        def collect(function: Callable[..., object], /, *args: object, **named: object) -> Callable[..., object]:
            if self._collects and not _importing():
                self._hooks.append(partial(function, *args, **named))
            else:
                register(function, *args, **named)
            return function

        return collect

    def _forget(self, function: Callable[..., object], /) -> None:
        self._hooks = [hook for hook in self._hooks if hook.func != function]
        self._unregister(function)

    def _noted(self, register: Callable[..., None], what: str) -> Callable[..., None]:
        @wraps(register)
        def note(*args: Any, **named: Any) -> None:
            register(*args, **named)
            if self._collects and not _importing():
                self.for_ever.append(what)

        return note


def _importing() -> bool:
    """Returns True if a module that is being imported is on the call stack."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False
