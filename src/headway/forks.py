"""Calls every open handle before a fork, and afterwards in parent and child (docs/decisions/0025).

Signal handlers that belong to this process alone are replaced by the default ones in the child.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Protocol
from weakref import WeakSet


class Handle(Protocol):
    """An object with locks, threads or connections, which a forked child cannot share with its parent."""

    def before_fork(self) -> None:
        """Brings the handle to rest as far as possible without a long wait."""

    def after_fork_in_parent(self) -> None:
        """Continues in the parent."""

    def after_fork_in_child(self) -> None:
        """Drops the parent's threads and connections without closing them."""


_handles: WeakSet[Handle] = WeakSet()
# The handles that were called before the current fork. The same handles are called after it.
_called: list[Handle] = []
# Device and inode of the files that SQLite cannot use in this process (`SqliteDatabase.after_fork_in_child`).
torn_files: set[tuple[int, int]] = set()
# One fork at a time: a second thread that forks would share the list above. A fork whose wait times out goes on alone.
_forking = threading.RLock()
_FORKING_SECONDS = 10.0
# The process whose handles were called after its fork.
_child = 0

SignalHandler = Callable[[int, FrameType | None], object]
_own_handlers: dict[int, SignalHandler] = {}


class _SignalMask(threading.local):
    """The signals that a forking thread had blocked before the fork, or None outside a fork."""

    before: set[int] | None = None


_mask = _SignalMask()


def follow(handle: Handle) -> None:
    """Registers a handle for calls around every fork."""
    _handles.add(handle)


def own_signal(number: int, handler: SignalHandler) -> None:
    """Sets and unblocks a signal handler of this process, which a forked child does not inherit.

    Without this, `Pool.terminate` of `multiprocessing` would wait for ever for a child that runs our handler.
    """
    _own_handlers[number] = handler
    signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _hold_signals() -> None:
    """Blocks the signals with handlers of ours: the child must not handle one before its handlers are replaced.

    Python drops a signal that arrives in the child at that moment; a blocked signal stays pending.
    """
    if _own_handlers:
        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, _own_handlers)


def _release_signals() -> None:
    if (before := _mask.before) is not None:
        _mask.before = None
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _drop_own_signals() -> None:
    for number, handler in _own_handlers.items():
        if signal.getsignal(number) == handler:  # otherwise user code has set its own, which the child inherits
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    _own_handlers.clear()


def within(frame: FrameType | None) -> bool:
    """Returns True in a hook of this module: Python drops an exception there."""
    while frame is not None:
        if frame.f_code in _HOOKS:
            return True
        frame = frame.f_back
    return False


def end_copy(pid: int, *, failed: bool = False) -> None:
    """Ends this process if user code forked it from process `pid`: a copy must not go on with Headway's own work."""
    if os.getpid() != pid:
        os._exit(1 if failed else 0)


def never_free(thing: object) -> None:
    """Keeps an object of the parent alive until the process ends.

    Its destructor would use connections that belong to the parent.
    """
    import ctypes  # only a forked child needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _before() -> None:
    _forking.acquire(timeout=_FORKING_SECONDS)
    _called[:] = list(_handles)
    for handle in _called:
        handle.before_fork()
    _hold_signals()


def _after_in_parent() -> None:
    _release_signals()
    for handle in _called:
        handle.after_fork_in_parent()
    _called.clear()
    with suppress(RuntimeError):  # released already, or never acquired
        _forking.release()


def _after_in_child() -> None:
    global _child, _forking
    if _child == os.getpid():
        return
    _drop_own_signals()
    _release_signals()
    # A C extension can fork without the call of `_before`, and then every handle is called here.
    for handle in _called or list(_handles):
        handle.after_fork_in_child()
    _called.clear()
    _forking = threading.RLock()
    _child = os.getpid()


_HOOKS = frozenset(hook.__code__ for hook in (_before, _after_in_parent, _after_in_child))
os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
# Twice, because Python reports an exception of a signal handler in a hook and goes on with the next hook.
os.register_at_fork(after_in_parent=_after_in_parent, after_in_child=_after_in_child)
