"""Headway: a durable job scheduler for long, expensive, exclusive jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["App", "Context", "Fail", "Job", "Retry", "Skip", "Stopped", "Task", "errors"]

if TYPE_CHECKING:
    from headway import errors
    from headway.app import App
    from headway.engine.execution.context import Context
    from headway.engine.tasks.job_handle import Job
    from headway.engine.tasks.task import Task
    from headway.errors import Fail, Retry, Skip, Stopped

_HOMES = {
    "App": "headway.app",
    "Context": "headway.engine.execution.context",
    "Fail": "headway.errors",
    "Job": "headway.engine.tasks.job_handle",
    "Retry": "headway.errors",
    "Skip": "headway.errors",
    "Stopped": "headway.errors",
    "Task": "headway.engine.tasks.task",
}


def __getattr__(name: str) -> Any:
    # Names are imported on first use, because a worker's child processes import this package and need none of them.
    from importlib import import_module

    if name == "errors":
        return import_module("headway.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
