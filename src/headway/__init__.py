"""Headway: a durable job scheduler for long, expensive, exclusive jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["App", "Context", "Fail", "Job", "Retry", "Skip", "Stopped", "Task", "errors"]

if TYPE_CHECKING:
    from headway import errors
    from headway.app import App
    from headway.engine.context import Context
    from headway.engine.handle import Job
    from headway.engine.task import Task
    from headway.errors import Fail, Retry, Skip, Stopped

_HOMES = {
    "App": "headway.app",
    "Context": "headway.engine.context",
    "Fail": "headway.errors",
    "Job": "headway.engine.handle",
    "Retry": "headway.errors",
    "Skip": "headway.errors",
    "Stopped": "headway.errors",
    "Task": "headway.engine.task",
}


def __getattr__(name: str) -> Any:
    # Looked up when first used: the small processes of a worker import this package and need none of it.
    from importlib import import_module

    if name == "errors":
        return import_module("headway.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
