"""The tasks a process knows, by name."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from headway.engine.loading import MAIN_MODULE
from headway.engine.signature import Signature
from headway.errors import BadInput, NotFound
from headway.model.job import Options
from headway.model.retry import RetryPolicy
from headway.model.values import check_task_name, closest

ISOLATIONS = ("async", "process", "thread")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_OURS = frozenset(("api", "jobs", "targets", "healthz", "readyz", "metrics", "ui"))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What is known of a task: its function, where it runs, its defaults."""

    name: str
    function: Callable[..., Any]
    isolation: str
    module: str
    signature: Signature
    options: Options
    priority: int = 0
    retry: RetryPolicy | Mapping[str, Any] | int | None = None
    direct: str | None = None


class Registry:
    """The tasks of one app."""

    def __init__(self) -> None:
        self.specs: dict[str, TaskSpec] = {}

    def add(self, spec: TaskSpec) -> None:
        other = self.specs.get(spec.name)
        if other is not None and other.function is not spec.function:
            raise BadInput(f"there are two tasks named {spec.name}: give one of them another name", field="task")
        for one in self.specs.values():
            if spec.direct is not None and one.direct == spec.direct and one.name != spec.name:
                text = f"the tasks {one.name} and {spec.name} have the same path {spec.direct}"
                raise BadInput(f"{text}: give one of them another", field="direct")
        self.specs[spec.name] = spec

    def get(self, name: str) -> TaskSpec:
        if name not in self.specs:
            raise NotFound(unknown_text(name, self.specs), code="unknown_task")
        return self.specs[name]

    def told(self, name: str) -> tuple[int, str]:
        """A task's priority and options as text, for those who know its name only; retries only if it has its own."""
        spec = self.get(name)
        wishes = json.loads(spec.options.text())
        if spec.retry is None:
            del wishes["retry"]
        return spec.priority, json.dumps(wishes)

    def __iter__(self) -> Iterator[TaskSpec]:
        return iter(self.specs.values())

    def matching(self, patterns: Sequence[str] | None) -> frozenset[str]:
        """The names a worker serves: all, or those that fit one of the patterns."""
        return frozenset(n for n in self.specs if patterns is None or any(fnmatchcase(n, p) for p in patterns))


def unknown_text(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    near = closest(name, known)
    hint = f": did you mean {near}?" if near else "; start a worker that has it once, or check the spelling"
    return f"no task is named {name!r}{hint}"


def make_spec(
    function: Callable[..., Any],
    *,
    name: str | None,
    isolation: str | None,
    options: Options,
    priority: int,
    retry: RetryPolicy | Mapping[str, Any] | int | None = None,
    direct: str | None = None,
) -> TaskSpec:
    """Checks a declaration. What cannot work at run time is refused here."""
    name = check_task_name(name or f"{function.__module__.rpartition('.')[2]}.{function.__name__}")
    is_async = inspect.iscoroutinefunction(function)
    isolation = isolation or ("async" if is_async else "process")
    if isolation not in ISOLATIONS:
        raise BadInput(f"{name}: isolation must be thread or process, not {isolation!r}", field="isolation")
    if is_async != (isolation == "async"):
        raise BadInput(
            f"{name}: `async def` tasks run in the worker's event loop; only plain functions can be isolated"
        )
    if isolation == "process" and "<locals>" in function.__qualname__:
        raise BadInput(
            f"{name}: a plain function runs in a child process, which has to import it: define it at the top of its"
            ' module, make it `async def`, or pass isolation="thread"'
        )
    signature = Signature(function, task=name)
    if direct is not None:
        _check_path(direct)
    return TaskSpec(name, function, isolation, _where(function), signature, options, priority, retry, direct)


def _check_path(direct: str) -> None:
    """A task's own address must not be one of Headway's."""
    if not _PATH.fullmatch(direct):
        raise BadInput(f"direct must be a path like /story/generate, not {direct!r}", field="direct")
    first = direct.split("/")[1]
    if first in _OURS:
        raise BadInput(f"direct: /{first} is Headway's own: take another path than {direct}", field="direct")


def _where(function: Callable[..., Any]) -> str:
    """How a child process imports the function's module: by name, or by file when it is the program itself."""
    module = function.__module__
    if module in ("__main__", MAIN_MODULE):
        return str(getattr(sys.modules[module], "__file__", None) or module)
    return module
