"""Wakeup: an exception at any bytecode of `set` or `wait` leaves it usable for every thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from headway import wakeup
from headway.wakeup import Wakeup
from tests.support.waiting import PATIENCE, until


class _InterruptHere(Exception):
    pass


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Makes the call, with an exception at its so manieth bytecode; False if it has fewer."""
    left = [place]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != wakeup.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise _InterruptHere
        return trace

    sys.settrace(trace)
    try:
        call()
    except _InterruptHere:
        return True
    finally:
        sys.settrace(None)
    return False


def waiting(event: Wakeup) -> threading.Thread:
    thread = threading.Thread(target=event.wait, args=(PATIENCE,), daemon=True)
    thread.start()
    until(lambda: event._gates)
    return thread


def test_an_interrupt_in_set_leaves_it_usable() -> None:
    place, again = 0, True
    while again:
        event = Wakeup()
        thread = waiting(event)
        again = interrupted_at(place, event.set)
        event.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert event.wait(0.0)
        place += 1
    assert place > 10


def test_an_interrupt_in_wait_leaves_it_usable() -> None:
    place, again = 0, True
    while again:
        event = Wakeup()
        again = interrupted_at(place, lambda: event.wait(0.0))  # noqa: B023 - called in this round
        thread = waiting(event)
        event.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        place += 1
    assert place > 10


def test_it_waits_until_it_is_set_or_the_time_is_over() -> None:
    event = Wakeup()
    assert not event.wait(0.0)
    assert not event.wait(0.01)
    event.set()
    assert event.wait(PATIENCE)
    assert event.is_set()
    event.clear()
    assert not event.wait(0.0)
