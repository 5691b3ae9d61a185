"""Finds the function of a task in the module, or the program's file, that declares it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType

from headway import errors

MAIN_MODULE = "__headway_main__"


def load_task(module: str, name: str) -> Callable[..., object]:
    """The function of a task. `module` is a dotted name, or the path of a program's own file."""
    found = _tasks_in(_import(module))
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise errors.NotFound(f"{module} has no task named {name!r} (tasks there: {known})")
    return found[name]


def _import(module: str) -> ModuleType:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    loaded = sys.modules.get(MAIN_MODULE)
    if loaded is not None and loaded.__file__ == module:
        return loaded
    return _import_file(module)


def _import_file(path: str) -> ModuleType:
    import importlib.util  # takes milliseconds, and most tasks live in modules

    # Under a name of its own, so that `if __name__ == "__main__"` does not start the program again.
    spec = importlib.util.spec_from_file_location(MAIN_MODULE, path)
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
    # Looked at statically first: a module may hold proxies that raise, or connect somewhere, when they are touched.
    if isinstance(thing, type | ModuleType) or inspect.getattr_static(thing, name, None) is None:
        return None
    return getattr(thing, name, None)
