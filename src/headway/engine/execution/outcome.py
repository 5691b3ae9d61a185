"""Calls user code and turns its result or exception into an Outcome.

Catches every exception.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import headway
from headway import errors
from headway.engine.execution.context import BudgetExceeded
from headway.engine.execution.exhausted import NoRoom
from headway.engine.execution.output import clean
from headway.engine.tasks.signature import Signature
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    NeverBegan,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.model.values.json import to_json
from headway.model.values.times import seconds

ERROR_LIMIT = 16 * 1024
_HEAD_LIMIT = 4 * 1024
_OWN_FILES = os.path.dirname(os.path.abspath(headway.__file__)) + os.sep


class CommandFailed(Exception):
    """Raised when a command ends with an exit code that means failure.

    `tail` is the end of its stderr.
    """

    def __init__(self, exit_code: int, tail: str = "") -> None:
        super().__init__(exit_code, tail)
        self.exit_code = exit_code
        self.tail = tail

    def __str__(self) -> str:
        return f"the command {ending(self.exit_code)}" + (f"\n{self.tail}" if self.tail else "")


class CommandEnded(dict[str, int]):
    """The result of a command that ended with one of its accepted exit codes, which its run records."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code=exit_code)


def ending(exit_code: int) -> str:
    """Describes how a process ended. A negative code is a signal."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was killed by {signal_name(-exit_code)}"


def signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@lru_cache(maxsize=1024)
def wants_context(function: Callable[..., object]) -> bool:
    return Signature(function, task=getattr(function, "__name__", "task")).takes_context


# --- from what happened to an outcome -----------------------------------------------------------------------------


def outcome_of(call: Callable[[], object]) -> Outcome:
    try:
        return completed(call())
    except BaseException as exc:  # noqa: BLE001 (user code may raise anything, and all of it is an outcome)
        return failure_of(exc)


_WITHOUT_RESULT = Completed()


def completed(value: object) -> Outcome:
    if value is None:
        return _WITHOUT_RESULT
    try:
        return Completed(to_json(value, field="result"), value["exit_code"] if type(value) is CommandEnded else None)
    except errors.BadInput as exc:
        return Failed(FailureKind.EXCEPTION, str(exc), final=True)


def failure_of(exc: BaseException) -> Outcome:
    match exc:
        case errors.Stopped():
            return StoppedByRequest(exc.args[0] if exc.args and isinstance(exc.args[0], int) else None)
        case errors.Skip():
            return Skipped(_text(exc) or "nothing to do")
        case errors.Retry():
            return _asked_for_retry(exc)
        case errors.WaitsForItself():
            return Failed(FailureKind.EXCEPTION, describe(exc), final=True)  # a retry would wait for itself again
        case errors.Fail():
            return Failed(FailureKind.EXCEPTION, _text(exc) or "the task failed", final=True)
        case BudgetExceeded():
            return Failed(FailureKind.BUDGET, str(exc))
        case CommandFailed():
            return Failed(FailureKind.EXIT_CODE, _text(exc), exit_code=exc.exit_code)
        case errors.BadInput(code="bad_params"):
            return Failed(FailureKind.BAD_PARAMS, _text(exc))
        case SystemExit():
            return _exited(exc)
        case NoRoom():
            return NeverBegan(_text(exc))
    if _is_cancellation(exc):
        return StoppedByRequest()
    kind = FailureKind.BAD_PARAMS if _never_began(exc) else FailureKind.EXCEPTION
    return Failed(kind, describe(exc))


def _asked_for_retry(exc: errors.Retry) -> Failed:
    if exc.after is None:
        return Failed(FailureKind.EXCEPTION, _text(exc))
    try:
        return Failed(FailureKind.EXCEPTION, _text(exc), retry_after=seconds(exc.after, field="Retry.after"))
    except errors.BadInput as problem:
        return Failed(FailureKind.EXCEPTION, f"{_text(exc)} ({problem})")


def _exited(exc: SystemExit) -> Outcome:
    match exc.code:
        case None | 0:
            return Completed()
        case int(code):
            return Failed(FailureKind.EXIT_CODE, f"the task exited with code {code}", exit_code=code)
    return Failed(FailureKind.EXIT_CODE, _text(exc), exit_code=1)  # Python itself exits with 1 for a text


def _is_cancellation(exc: BaseException) -> bool:
    # Code that raised a CancelledError has imported asyncio. Other jobs need not pay for the import.
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(exc, asyncio.CancelledError)


def _never_began(exc: BaseException) -> bool:
    """Returns True for a TypeError of the call itself, before any user code ran.

    The function's signature has changed since the job was enqueued.
    """
    return isinstance(exc, TypeError) and not any(
        _is_theirs(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(exc.__traceback__)
    )


# --- in words -----------------------------------------------------------------------------------------------------


def describe(exc: BaseException) -> str:
    """Returns `Type: message` and the traceback without Headway's frames.

    A long traceback loses its beginning.
    """
    head = "".join(traceback.format_exception_only(exc)).strip()[:_HEAD_LIMIT]
    trace = traceback.TracebackException.from_exception(exc)
    _hide_own_frames(trace)
    body = "".join(trace.format()).strip() if trace.stack or trace.__cause__ or trace.__context__ else ""
    room = ERROR_LIMIT - len(head.encode("utf-8", "replace")) - 8
    return clean(f"{head}\n\n{_end_of(body, room)}" if body else head)


def _text(exc: BaseException) -> str:
    return clean(str(exc))[:_HEAD_LIMIT]


def _end_of(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else "…" + data[-limit:].decode("utf-8", "ignore")


def _hide_own_frames(trace: traceback.TracebackException | None) -> None:
    if trace is None:
        return
    trace.stack = traceback.StackSummary.from_list([frame for frame in trace.stack if _is_theirs(frame.filename)])
    for inner in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        _hide_own_frames(inner)


def _is_theirs(filename: str) -> bool:
    return not filename.startswith(_OWN_FILES)


def ran_their_module(exc: BaseException) -> bool:
    """Returns True if the code of a module that is not Headway's had begun to run."""
    codes = (frame.f_code for frame, _ in traceback.walk_tb(exc.__traceback__))
    return any(code.co_name == "<module>" and _is_theirs(code.co_filename) for code in codes)


# --- on the wire --------------------------------------------------------------------------------------------------

_OUTCOMES: dict[str, Callable[..., Outcome]] = {
    kind.__name__: kind for kind in (Completed, Failed, Skipped, StoppedByRequest, Interrupted, NeverBegan, Lost)
}


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": type(outcome).__name__, **{name: getattr(outcome, name) for name in outcome.__slots__}}


def outcome_from_dict(facts: dict[str, Any]) -> Outcome:
    rest = {name: FailureKind(fact) if name == "kind" else fact for name, fact in facts.items() if name != "outcome"}
    return _OUTCOMES[facts["outcome"]](**rest)
