"""What a task sees of Headway while it runs (`ctx`), and the seam behind it: `Work` in, a `Sink` out."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headway.errors import BadInput, Stopped
from headway.model.values import from_json, to_json

CHECKPOINT_LIMIT = 64 * 1024
LINE_LIMIT = 8 * 1024
LABEL_LIMIT = 200

_READ = 65536
_MOST_READS = 16

T = TypeVar("T")

_MOST = sys.float_info.max
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LEVELS = (
    (logging.CRITICAL, "CRITICAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARNING"),
    (logging.INFO, "INFO"),
)


@dataclass(frozen=True, slots=True)
class Work:
    """One claim, as far as the one who runs it must know. `spent` is the total of the retry chain before this run,
    `connection` the address behind the name that the built-in task `sql` was given."""

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
    def from_json(cls, text: str) -> Work:
        return cls(**json.loads(text))


class Sink(Protocol):
    """Where the reports of running work go. Any of these may raise LeaseLost, and the work is stopped."""

    def progress(self, done: float, total: float | None, label: str) -> None: ...

    def log(self, level: str, message: str, at: int) -> None: ...

    def spend(self, amounts: dict[str, float]) -> None: ...

    def checkpoint(self, text: str) -> None:
        """Returns when it is stored for good."""

    def attach(self, path: str, name: str) -> None:
        """Returns when the file's content is stored."""


class Stop:
    """Whether the work was asked to stop: set by whoever runs it, read at every stop point."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False

    def check(self) -> None:
        if self.asked:
            raise Stopped("the job was asked to stop")


class BudgetExceeded(BaseException):
    """Ends the work that spent more than it may. Not an `Exception`, so that work does not swallow it."""

    def __init__(self, meter: str, total: float, cap: float) -> None:
        super().__init__(f"budget for {meter} used up: {total:.15g} of {cap:.15g}")
        self.meter = meter
        self.total = total
        self.cap = cap


class Context:
    """The first argument of a task. Cheap to make: whatever costs something is made when it is first used."""

    __slots__ = ("_lock", "_log", "_own", "_sink", "_stop", "_stored", "_work")

    def __init__(self, work: Work, sink: Sink, stop: Stop | None = None) -> None:
        self._work = work
        self._sink = sink
        self._stop = stop or Stop()
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
        """Rises with every claim of the job: pass it on to whatever must refuse a late writer."""
        return self._work.fence

    @property
    def traceparent(self) -> str | None:
        """Where this run belongs in a trace (W3C Trace Context): pass it on to whatever is called."""
        return self._work.traceparent

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of earlier steps, by name."""
        return self._work.results

    @property
    def stopping(self) -> bool:
        """True as soon as somebody asked for a stop."""
        return self._stop.asked

    def check(self) -> None:
        """A stop point: raises `Stopped` if somebody asked for a stop."""
        self._stop.check()

    def progress(
        self, iterable: Iterable[T], label: str = "", total: float | None = None, start: float = 0
    ) -> Iterator[T]:
        """The items of `iterable`, one report and one stop point for each. `start`: how many were done before, by an
        earlier try say; they count as done, and in a `total` that is not given."""
        done = _amount(start, "start")
        if total is None and isinstance(iterable, Sized):
            total = done + len(iterable)
        self.report(done, total, label)
        for item in iterable:
            yield item
            done += 1
            self.report(done, total, label)

    def report(self, done: float, total: float | None = None, label: str = "") -> None:
        """How far the work is. A stop point."""
        self.check()
        of = None if total is None else _amount(total, "total")
        self._sink.progress(_amount(done, "done"), of, clean(label[:LABEL_LIMIT]))

    @property
    def log(self) -> logging.Logger:
        """A logger of the job's own: what it is told is shown live and kept with the run."""
        if self._log is None:
            self._log = _logger(self._sink)
        return self._log

    def spend(self, **meters: float) -> None:
        """Report what was used up. Beyond a cap of the job's budget the work ends here."""
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
        """Store where the work stands, up to 64 KiB of JSON. A stop point, once it is stored."""
        text = to_json(value, field="checkpoint", limit=CHECKPOINT_LIMIT)
        self._sink.checkpoint(text)
        self._stored = text
        self.check()

    @property
    def last_checkpoint(self) -> Any:
        """The newest checkpoint of this job or of the ones it retries, None if there is none."""
        if self._stored is not None:
            return from_json(self._stored, field="checkpoint")
        return self._work.last_checkpoint

    def attach(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a copy of a file with the run."""
        whole = os.path.abspath(path)
        if not os.path.isfile(whole):
            raise BadInput(f"there is no file {whole} to attach", field="path")
        self._sink.attach(whole, name or os.path.basename(whole))


def _amount(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise BadInput(f"{field} must be a number from 0 on, not {value!r:.100}", field=field)
    return value


# --- text ---------------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text that both databases can hold: whatever is not a character becomes the replacement character."""
    return _UNSTORABLE.sub("\ufffd", text)


def shorten(text: str, limit: int = LINE_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Lines:
    """Bytes in, lines of text out, none longer than the limit."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [piece for line in whole for piece in _pieces(line)]
        if len(self._rest) > LINE_LIMIT:
            *full, self._rest = _pieces_of_bytes(_seen(self._rest))
            lines += [_decode(piece) for piece in full]
        return lines

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return _pieces(rest) if rest else []


def _seen(line: bytes) -> bytes:
    # Progress bars write one line over and over: what a terminal would show of it at the end is enough.
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(line: bytes) -> list[str]:
    return [_decode(piece) for piece in _pieces_of_bytes(_seen(line))]


def _pieces_of_bytes(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > LINE_LIMIT:
        end = LINE_LIMIT
        while end > LINE_LIMIT - 4 and line[end] & 0xC0 == 0x80:  # not in the middle of a character
            end -= 1
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


def _decode(line: bytes) -> str:
    return clean(line.decode("utf-8", "replace"))


class Pipe:
    """The read end of a process's output: every line goes to `take`. Never waits."""

    __slots__ = ("_lines", "_take", "ended", "fd")

    def __init__(self, fd: int, take: Callable[[str], None]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._take = take
        self._lines = Lines()

    def read(self) -> bool:
        """Read once; False if nothing was there."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return False
        self.ended = not data
        for line in self._lines.feed(data):
            self._take(line)
        return bool(data)

    def drain(self) -> None:
        """Read what is there: all that a pipe can hold, but not for ever."""
        for _ in range(_MOST_READS):
            if not self.read():
                return

    def end_line(self) -> None:
        """Nothing more is to come of the line that has begun."""
        for line in self._lines.end():
            self._take(line)


# --- log ----------------------------------------------------------------------------------------------------------


def _logger(sink: Sink) -> logging.Logger:
    # Not from getLogger: it would be registered for ever, and the next job would inherit its handlers.
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
        except (TypeError, ValueError, KeyError):  # a template its arguments do not fit must not end the work
            return f"{record.msg} {record.args}"


def _level(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "DEBUG")
