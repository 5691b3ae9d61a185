"""Facets for the state of the standard library and the table of modules."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from headway.engine.execution.facet import Facet

_Logger = tuple[int, bool, bool, list[Any], list[Any]]
_NEW_LOGGER: _Logger = (logging.NOTSET, True, False, [], [])


def facets() -> Iterator[Facet]:
    yield _attributes()
    for name, values in _LISTS:
        yield _list(name, values())
    yield _filters()
    yield _Modules().facet()
    yield _Loggers().facet()
    yield Facet("the locale", _locale, _set_locale)
    yield Facet("the event loop", _event_loop, _set_event_loop)
    yield Facet("the tracing of memory", _traces_memory, _trace_memory)


# --- attributes of modules ----------------------------------------------------------------------------------------


def _none(_: ModuleType) -> None:
    return None


# Settings that are module attributes, and the value each has right after its module is imported.
_LAZY: dict[tuple[str, str], Callable[[ModuleType], object]] = {
    ("asyncio.events", "_event_loop_policy"): _none,
    ("tempfile", "tempdir"): _none,
    ("urllib.request", "_opener"): _none,
    ("ssl", "_create_default_https_context"): lambda ssl: ssl.create_default_context,
    ("multiprocessing.context", "_default_context._actual_context"): _none,
}
_EAGER = (
    *(("sys", name) for name in ("stdin", "stdout", "stderr", "__stdout__", "__stderr__", "path", "argv", "modules")),
    *(("sys", name) for name in ("excepthook", "displayhook", "unraisablehook", "breakpointhook", "meta_path")),
    *(("sys", name) for name in ("path_hooks", "dont_write_bytecode", "tracebacklimit")),
    ("os", "environ"),
    ("threading", "excepthook"),
    *(("warnings", name) for name in ("filters", "showwarning", "formatwarning", "defaultaction")),
    *(("logging", name) for name in ("_warnings_showwarning", "raiseExceptions", "lastResort", "_loggerClass")),
    ("logging", "_logRecordFactory"),
    *(("socket", name) for name in ("socket", "getaddrinfo", "create_connection")),
    *(("time", name) for name in ("time", "sleep", "monotonic")),
)


def _attributes() -> Facet:
    eager = [(vars(sys.modules[module]), name) for module, name in _EAGER if module in sys.modules]
    lazy = [(module, *name.rpartition(".")[::2], fresh) for (module, name), fresh in _LAZY.items()]

    def holder(module: str, path: str) -> Any:
        loaded = sys.modules.get(module)
        return getattr(loaded, path) if loaded is not None and path else loaded

    def read() -> list[object]:
        now = [names.get(name) for names, name in eager]
        for module, path, name, fresh in lazy:
            if module in sys.modules:
                now.append(getattr(holder(module, path), name, None))
            else:
                now.append(fresh)
        return now

    def restore(before: list[Any]) -> None:
        for (names, name), value in zip(eager, before, strict=False):
            if value is None and name == "tracebacklimit":  # absent unless user code sets it
                names.pop(name, None)
            else:
                names[name] = value
        for place, (module, path, name, fresh) in enumerate(lazy, len(eager)):
            if module in sys.modules:
                if before[place] is fresh:  # imported since
                    before[place] = fresh(sys.modules[module])
                setattr(holder(module, path), name, before[place])

    return Facet("a setting of the library", read, restore)


# --- lists --------------------------------------------------------------------------------------------------------


def _callbacks() -> list[Any]:
    import gc

    return gc.callbacks


_LISTS: tuple[tuple[str, Callable[[], list[Any]]], ...] = (
    ("the search path of modules", lambda: sys.path),
    ("the finders of modules", lambda: sys.meta_path),
    ("the finders of modules", lambda: sys.path_hooks),
    ("the arguments of the program", lambda: sys.argv),
    ("the callbacks of the garbage collector", _callbacks),
)


def _list(name: str, values: list[Any]) -> Facet:
    def restore(before: list[Any]) -> None:
        values[:] = before

    return Facet(name, lambda: values, restore, before=list(values))


def _filters() -> Facet:
    filters: list[Any] = warnings.filters  # type: ignore[assignment]

    def restore(before: list[Any]) -> None:
        warnings.resetwarnings()  # also clears Python's cache of the filters
        filters[:] = before

    return Facet("the filters of warnings", lambda: filters, restore, before=list(filters))


# --- modules ------------------------------------------------------------------------------------------------------


class _Modules:
    """The table of modules.

    A module that a job imported stays if a new process would find the same.
    """

    def __init__(self) -> None:
        self._before = dict(sys.modules)

    def facet(self) -> Facet:
        return Facet("the table of modules", lambda: sys.modules, self._restore, before=self._before)

    def _restore(self, _: object) -> None:
        fresh = {name: module for name, module in sys.modules.items() if name not in self._before}
        tops = {name.partition(".")[0] for name in fresh} - self._before.keys()
        dropped = {top for top in tops if not _findable(top, fresh.get(top))}
        for name, module in fresh.items():
            if name.partition(".")[0] in dropped:
                del sys.modules[name]
            else:
                self._before[name] = module
        sys.modules.update(self._before)


def _findable(name: str, module: ModuleType | None) -> bool:
    """Returns True if an import would find the same file again.

    The search path is restored already.
    """
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return "cython" in name  # a module without a file that Cython's extension modules share
    for finder in sys.meta_path:
        current = finder.find_spec(name, None)
        if current is not None:
            return bool(current.origin == spec.origin)
    return False


# --- logging ------------------------------------------------------------------------------------------------------


class _Loggers:
    """Levels and handlers of all loggers.

    A logger of a module that a job imported keeps its state.
    """

    def __init__(self) -> None:
        self._disabled = logging.root.manager.disable
        self._before = {
            logger: (*state[:3], list(state[3]), list(state[4])) for logger, state in _read_loggers().items()
        }

    def facet(self) -> Facet:
        return Facet("a logger", self._read, self._restore, before=(self._disabled, self._before))

    def _read(self) -> object:
        return logging.root.manager.disable, _read_loggers()

    def _restore(self, _: object) -> None:
        logging.disable(self._disabled)
        for logger, now in _read_loggers().items():
            before = self._before.get(logger)
            if before is None:
                before = now if logger.name in sys.modules else _NEW_LOGGER
                self._before[logger] = (*before[:3], list(before[3]), list(before[4]))
            if now != before:
                _set_logger(logger, before)


def _read_loggers() -> dict[logging.Logger, _Logger]:
    known = logging.root.manager.loggerDict.values()
    loggers = [logging.root, *(logger for logger in known if isinstance(logger, logging.Logger))]
    return {
        logger: (logger.level, logger.propagate, logger.disabled, logger.handlers, logger.filters) for logger in loggers
    }


def _set_logger(logger: logging.Logger, state: _Logger) -> None:
    level, propagate, disabled, handlers, filters = state
    for handler in list(logger.handlers):
        if handler not in handlers:
            logger.removeHandler(handler)
            handler.close()
    logger.handlers[:] = handlers
    logger.filters[:] = filters
    logger.propagate, logger.disabled = propagate, disabled
    logger.setLevel(level)


# --- others -------------------------------------------------------------------------------------------------------


def _locale() -> str | None:
    locale = sys.modules.get("locale")
    return locale.setlocale(locale.LC_ALL) if locale is not None else None


def _set_locale(before: str | None) -> None:
    import locale

    # The module was not imported then, so the locale was the one that Python sets at its start.
    if before is None:
        locale.setlocale(locale.LC_ALL, "C")
    locale.setlocale(locale.LC_ALL if before is not None else locale.LC_CTYPE, before or "")


def _event_loop() -> object:
    events = sys.modules.get("asyncio.events")
    policy = getattr(events, "_event_loop_policy", None)
    return getattr(getattr(policy, "_local", None), "_loop", None)


def _set_event_loop(before: Any) -> None:
    import asyncio

    asyncio.set_event_loop(before)


def _traces_memory() -> bool:
    tracemalloc = sys.modules.get("tracemalloc")
    return tracemalloc is not None and tracemalloc.is_tracing()


def _trace_memory(before: bool) -> None:
    import tracemalloc

    (tracemalloc.start if before else tracemalloc.stop)()


def reseed() -> None:
    """Seeds the random number generators anew.

    The seed of one job must not affect the next job.
    """
    for name in ("random", "numpy.random"):
        if (module := sys.modules.get(name)) is not None:
            module.seed()
