"""The context of a running task (`ctx`), built from a `WorkItem` and a `Sink`."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

from headway.engine.execution.output import clean, shorten
from headway.errors import BadInput, Stopped
from headway.model.values.json import from_json, to_json

CHECKPOINT_LIMIT = 64 * 1024
LABEL_LIMIT = 200


T = TypeVar("T")
P = ParamSpec("P")
J = TypeVar("J", covariant=True)

_MOST = sys.float_info.max
_LEVELS = (
    (logging.CRITICAL, "CRITICAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARNING"),
    (logging.INFO, "INFO"),
)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The part of a claim that a runner needs.

    `spent` is the total of the retry chain before this run. `connection` is the address behind the connection name of
    the built-in task `sql`.
    """

    job_id: int
    task: str
    fence: int
    attempt: int
    params: dict[str, Any]
    last_checkpoint: object | None = None
    budget: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    module: str | None = None
    connection: str | None = None
    traceparent: str | None = None

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def to_json(self) -> str:
        return json.dumps(self.fields())

    @classmethod
    def from_json(cls, text: str) -> WorkItem:
        return cls(**json.loads(text))


class Sink(Protocol):
    """Takes the reports of running work.

    Each method may raise LeaseLost; then the work is stopped.
    """

    def progress(self, done: float, total: float | None, label: str) -> None: ...

    def log(self, level: str, message: str, at: int) -> None: ...

    def spend(self, amounts: dict[str, float]) -> None: ...

    def checkpoint(self, text: str) -> None:
        """Stores a checkpoint; returns after the commit."""

    def attach(self, path: str, name: str) -> None:
        """Stores a copy of a file; returns after the commit."""


class Enqueues(Protocol[P, J]):
    """A task, or anything else that enqueues jobs."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> J: ...


class StopFlag:
    """The stop request of one piece of work.

    Its runner sets it; every stop point reads it.
    """

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False

    def check(self) -> None:
        if self.asked:
            raise Stopped("the job was asked to stop")


class BudgetExceeded(BaseException):
    """Ends work that is over its budget.

    Not an `Exception`, so that the task does not swallow it.
    """

    def __init__(self, meter: str, total: float, cap: float) -> None:
        super().__init__(f"budget for {meter} used up: {total:.15g} of {cap:.15g}")
        self.meter = meter
        self.total = total
        self.cap = cap


class Context:
    """The first argument of a task.

    Expensive parts are created when they are first used.
    """

    __slots__ = ("_lock", "_log", "_own", "_sink", "_stop", "_stored", "_work")

    def __init__(self, work: WorkItem, sink: Sink, stop: StopFlag | None = None) -> None:
        self._work = work
        self._sink = sink
        self._stop = stop or StopFlag()
        self._log: logging.Logger | None = None
        self._own: dict[str, float] = {}
        self._stored: str | None = None
        self._lock = threading.Lock()

    @property
    def job_id(self) -> int:
        return self._work.job_id

    @property
    def task(self) -> str:
        return self._work.task

    @property
    def attempt(self) -> int:
        return self._work.attempt

    @property
    def fence(self) -> int:
        """A number that rises with every claim of the job.

        Pass it to other systems, so that they can refuse writes with a lower fence.
        """
        return self._work.fence

    @property
    def traceparent(self) -> str | None:
        """The trace context of this run (W3C Trace Context).

        Pass it to the services that the task calls.
        """
        return self._work.traceparent

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of earlier steps, by name."""
        return self._work.results

    @property
    def stopping(self) -> bool:
        """True if the job was asked to stop."""
        return self._stop.asked

    def check(self) -> None:
        """Raises `Stopped` if the job was asked to stop. This is a stop point."""
        self._stop.check()

    def progress(
        self, iterable: Iterable[T], label: str = "", total: float | None = None, start: float = 0
    ) -> Iterator[T]:
        """Yields the items of `iterable`, with a report and a stop point for each.

        `start`: the items done earlier, for example by an earlier attempt. They count as done, and are added to the
        length of `iterable` if no `total` is given.
        """
        done = _amount(start, "start")
        if total is None and isinstance(iterable, Sized):
            total = done + len(iterable)
        self.report(done, total, label)
        for item in iterable:
            yield item
            done += 1
            self.report(done, total, label)

    def report(self, done: float, total: float | None = None, label: str = "") -> None:
        """Reports the progress of the job. This is a stop point."""
        self.check()
        of = None if total is None else _amount(total, "total")
        self._sink.progress(_amount(done, "done"), of, clean(label[:LABEL_LIMIT]))

    @property
    def log(self) -> logging.Logger:
        """The job's own logger. Its lines are shown live and stored with the run."""
        if self._log is None:
            self._log = _logger(self._sink)
        return self._log

    def spend(self, **meters: float) -> None:
        """Adds amounts to the job's meters. The job ends here if it is over its budget."""
        amounts = {meter: _amount(amount, meter) for meter, amount in meters.items()}
        with self._lock:
            for meter, amount in amounts.items():
                self._own[meter] = self._own.get(meter, 0) + amount
        self._sink.spend(amounts)
        for meter in amounts:
            self._check_budget(meter)

    def _check_budget(self, meter: str) -> None:
        total = self._work.spent.get(meter, 0) + self._own[meter]
        cap = self._work.budget.get(meter, math.inf)
        if total > cap:
            raise BudgetExceeded(meter, total, cap)

    def checkpoint(self, value: object) -> None:
        """Stores a checkpoint, up to 64 KiB of JSON.

        This is a stop point, after the commit.
        """
        text = to_json(value, field="checkpoint", limit=CHECKPOINT_LIMIT)
        self._sink.checkpoint(text)
        self._stored = text
        self.check()

    @property
    def last_checkpoint(self) -> Any:
        """The newest checkpoint of this job or the jobs it retries, or None."""
        if self._stored is not None:
            return from_json(self._stored, field="checkpoint")
        return self._work.last_checkpoint

    def enqueue(self, task: Enqueues[P, J], /, *args: P.args, **params: P.kwargs) -> J:
        """Enqueues a job of a task, or of `task.using(…)`, and returns at once.

        The new job may have to wait for the end of this one, so do not wait for its result. This is a stop point: a job
        that was asked to stop enqueues no more jobs.
        """
        self.check()
        return task.enqueue(*args, **params)

    def attach(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Stores a copy of a file with the run."""
        whole = os.path.abspath(path)
        if not os.path.lexists(whole):
            raise BadInput(f"there is no file {whole} to attach", field="path")
        self._sink.attach(whole, name or os.path.basename(whole))


def _amount(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise BadInput(f"{field} must be a number of at least 0, not {value!r:.100}", field=field)
    return value


# --- log ----------------------------------------------------------------------------------------------------------


def _logger(sink: Sink) -> logging.Logger:
    # A logger from getLogger would stay registered for ever, and the next job would inherit its handlers.
    logger = logging.Logger("headway.job", logging.DEBUG)
    logger.propagate = False
    logger.addHandler(_ToSink(sink))
    return logger


class _ToSink(logging.Handler):
    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        at = round(record.created * 1_000_000)
        self._sink.log(_level(record.levelno), shorten(clean(self._text(record))), at)

    def _text(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except (TypeError, ValueError, KeyError):  # wrong arguments for the format must not end the job
            return f"{record.msg} {record.args}"


def _level(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "DEBUG")
