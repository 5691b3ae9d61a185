"""Imports the module or program file of a task and returns the task's function."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType

from headway import errors

MAIN_MODULE = "__headway_main__"


def load_task(module: str, name: str) -> Callable[..., object]:
    """Returns the function of a task.

    `module` is a dotted name, or the path of a program's own file.
    """
    found = _tasks_in(_import(module))
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise errors.NotFound(f"{module} has no task named {name!r} (tasks there: {known})")
    return found[name]


def _import(module: str) -> ModuleType:
    if not module.endswith(".py") and os.sep not in module:
        return importlib.import_module(module)
    loaded = sys.modules.get(MAIN_MODULE)
    if loaded is not None and loaded.__file__ == module:
        return loaded
    return _import_file(module)


def _import_file(path: str) -> ModuleType:
    import importlib.machinery  # costs milliseconds, and most tasks live in modules
    import importlib.util

    # The name is not `__main__`, so that `if __name__ == "__main__"` does not start the program again. The explicit
    # loader accepts a program whose file name does not end in .py.
    loader = importlib.machinery.SourceFileLoader(MAIN_MODULE, path)
    spec = importlib.util.spec_from_file_location(MAIN_MODULE, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN_MODULE]
        raise
    return module


def _tasks_in(module: ModuleType) -> dict[str, Callable[..., object]]:
    found: dict[str, Callable[..., object]] = {}
    for thing in list(vars(module).values()):
        tasks = _attribute(thing, "tasks")
        for task in (*(tasks.values() if isinstance(tasks, Mapping) else ()), thing):
            name, function = _attribute(task, "name"), _attribute(task, "function")
            if isinstance(name, str) and callable(function):
                found[name] = function
    return found


def _attribute(thing: object, name: str) -> object:
    # The static lookup comes first, because a module may hold proxies that raise or connect on attribute access.
    if isinstance(thing, type | ModuleType) or inspect.getattr_static(thing, name, None) is None:
        return None
    return getattr(thing, name, None)
