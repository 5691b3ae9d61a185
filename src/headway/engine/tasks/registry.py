"""The registry of tasks that this process knows, by name."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from headway.engine.tasks.loader import MAIN_MODULE
from headway.engine.tasks.signature import Signature
from headway.errors import BadInput, NotFound
from headway.model.jobs.job import Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.values.names import check_task_name
from headway.model.values.state_names import step_kind
from headway.model.values.suggestions import closest

ISOLATIONS = ("async", "process", "thread")
_PROGRAMS = ("__main__", MAIN_MODULE)
_PROMPTS = ("<stdin>", "<python-input", "<ipython-input")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_OURS = frozenset(("api", "jobs", "targets", "healthz", "readyz", "metrics", "ui"))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A declared task: its function, its isolation, its defaults."""

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
            raise BadInput(f"there are two tasks named {spec.name}", hint="give one of them another name", field="task")
        for known in self.specs.values():
            if spec.direct is not None and known.direct == spec.direct and known.name != spec.name:
                text = f"the tasks {known.name} and {spec.name} have the same path {spec.direct}"
                raise BadInput(text, hint="give one of them another", field="direct")
        self.specs[spec.name] = spec

    def get(self, name: str) -> TaskSpec:
        if name not in self.specs:
            raise NotFound(unknown_text(name, self.specs), code="unknown_task")
        return self.specs[name]

    def facts(self, name: str) -> tuple[int, str]:
        """Returns a task's priority and options as text, for processes without its code.

        The retry policy is included only if the task has one of its own.
        """
        spec = self.get(name)
        options = json.loads(spec.options.text())
        if spec.retry is None:
            del options["retry"]
        return spec.priority, json.dumps(options)

    def __iter__(self) -> Iterator[TaskSpec]:
        return iter(self.specs.values())

    def matching(self, patterns: Sequence[str] | None) -> frozenset[str]:
        """Returns the task names that a worker serves: all, or those that match a pattern."""
        return frozenset(n for n in self.specs if patterns is None or any(fnmatchcase(n, p) for p in patterns))


def unknown_text(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    if (here := step_kind(name)) is not None:
        return f"no task is named {name!r}: what an older system calls {name} is {here}"
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
    """Checks a declaration, and refuses one that could not work at run time."""
    name = check_task_name(name or f"{str(function.__module__).rpartition('.')[2]}.{function.__name__}")
    is_async = inspect.iscoroutinefunction(function)
    isolation = isolation or ("async" if is_async else "process")
    if isolation not in ISOLATIONS:
        raise BadInput(f"{name}: isolation must be thread or process, not {isolation!r}", field="isolation")
    if is_async != (isolation == "async"):
        raise BadInput(
            f"{name}: `async def` tasks run in the worker's event loop; only plain functions can be isolated"
        )
    where = _where(function)
    if isolation == "process":
        _check_importable(name, function, where)
    signature = Signature(function, task=name)
    if direct is not None:
        _check_path(direct)
    return TaskSpec(name, function, isolation, where, signature, options, priority, retry, direct)


def _check_path(direct: str) -> None:
    """Refuses a direct path that Headway uses itself."""
    if not _PATH.fullmatch(direct):
        raise BadInput(f"direct must be a path like /story/generate, not {direct!r}", field="direct")
    first = direct.split("/")[1]
    if first in _OURS:
        raise BadInput(f"direct: Headway itself uses /{first}; choose another path than {direct}", field="direct")


def _where(function: Callable[..., Any]) -> str:
    """Returns the module name, or the file of a program, that a child process imports."""
    module: str | None = function.__module__
    if module not in _PROGRAMS:
        return module or "builtins"  # exec() with its own globals
    main = sys.modules[module]
    spec = getattr(main, "__spec__", None)
    if module == "__main__" and spec is not None and spec.name != module:  # python -m shop.jobs
        return str(spec.name)
    return str(getattr(main, "__file__", None) or module)


def _check_importable(name: str, function: Callable[..., Any], where: str) -> None:
    """Refuses a function that a child process cannot import.

    The error appears at the declaration, not at every run.
    """
    text = f"{name}: a plain function runs in a child process, which has to import it"
    otherwise = 'make it `async def`, or pass isolation="thread": such tasks run in the process of the worker'
    if "<locals>" in function.__qualname__:
        raise BadInput(text, hint=f"define it at the top of its module, {otherwise}")
    if _was_typed(function, where) or (function.__module__ not in _PROGRAMS and not _is_module(where)):
        raise BadInput(
            f"{text}; this one is in no file: it comes from an interactive session, a notebook, `python -c`, standard"
            f" input or exec(). Put it into a module and import it from there, {otherwise}"
        )


def _was_typed(function: Callable[..., Any], where: str) -> bool:
    """True if the function belongs to the program but is not in the program's file."""
    if function.__module__ not in _PROGRAMS:
        return False
    code = getattr(inspect.unwrap(function), "__code__", None)
    typed = code is not None and code.co_filename.startswith(_PROMPTS)  # `python -i` has both a file and a prompt
    return typed or not (_is_module(where) or os.path.isfile(where))


def _is_module(name: str) -> bool:
    """True if a module of this name is imported, is being imported, or can be found."""
    if name in _PROGRAMS or name == "builtins":
        return False
    if name in sys.modules:
        return sys.modules[name].__spec__ is not None
    import importlib.util  # costs milliseconds, and is rarely needed

    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
