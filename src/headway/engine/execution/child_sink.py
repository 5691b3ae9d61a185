"""Sends the reports of work in a child process to the parent, which stores them."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import AbstractContextManager

from headway import errors
from headway.engine.execution.channel import Channel, ChannelMessage

_GATHER = 0.1  # progress and spending are buffered for this long
_REFUSALS: dict[str, type[errors.HeadwayError]] = {
    kind.code: kind for kind in (errors.LeaseLost, errors.Unreachable, errors.CommitUnknown, errors.Refused)
}


class ParentSink:
    """The sink of one job. Every report becomes a message to the parent."""

    def __init__(self, channel: Channel, gate: AbstractContextManager[None]) -> None:
        self._channel = channel
        self._gate = gate
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._progress: ChannelMessage | None = None
        self._spent: dict[str, float] = {}
        self._flushed = 0.0
        self._timer: threading.Timer | None = None
        self._open = True

    def progress(self, done: float, total: float | None, label: str) -> None:
        with self._gate:
            self._check_open()
            with self._lock:
                self._progress = {"kind": "progress", "done": done, "total": total, "label": label}
                self._flush_soon()

    def spend(self, amounts: dict[str, float]) -> None:
        with self._gate:
            self._check_open()
            with self._lock:
                for meter, amount in amounts.items():
                    self._spent[meter] = self._spent.get(meter, 0) + amount
                self._flush_soon()

    def log(self, level: str, message: str, at: int) -> None:
        with self._gate:
            if os.getpid() != self._pid:
                print(message, file=sys.stderr)
            elif self._open:
                self._channel.send({"kind": "log", "level": level, "message": message, "at": at})

    def checkpoint(self, text: str) -> None:
        self._ask({"kind": "checkpoint", "text": text})

    def attach(self, path: str, name: str) -> None:
        self._ask({"kind": "attach", "path": path, "name": name})

    def settings(self) -> dict[str, str]:
        """Asks for the variables of settings that this process did not inherit."""
        return dict(self._ask({"kind": "settings"})["variables"])

    def close(self) -> None:
        """Sends the buffered reports and refuses later ones.

        Waits first for a checkpoint or a file that another thread is storing.
        """
        with self._asking:
            self._open = False
        self.flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def _flush_soon(self) -> None:
        if self._timer is not None:
            return
        if time.monotonic() - self._flushed >= _GATHER:
            self._flush()
            return
        self._timer = threading.Timer(_GATHER, self.flush)
        self._timer.daemon = True
        self._timer.start()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._progress is not None:
            self._channel.send(self._progress)
            self._progress = None
        if self._spent:
            self._channel.send({"kind": "spend", "amounts": self._spent})
            self._spent = {}

    def _ask(self, message: ChannelMessage) -> ChannelMessage:
        with self._gate:
            self._check_open()
            with self._asking:
                self._check_open()
                self._channel.send(message)
                return _checked(self._answer())

    def _answer(self) -> ChannelMessage | None:
        while not (messages := self._channel.receive()):
            if messages is None:
                return None
        return messages[0]

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise errors.Refused("the context belongs to the process of the task, not to one it forked")
        if not self._open:
            raise errors.Refused("the job of this context has ended")


def _checked(message: ChannelMessage | None) -> ChannelMessage:
    match message:
        case {"kind": "stored" | "settings"} if message is not None:
            return message
        case {"kind": "refused", "code": code, "message": text, "field": field}:
            raise _REFUSALS.get(code, errors.BadInput)(text, code=code, field=field)
    raise errors.LeaseLost("the worker is gone")
