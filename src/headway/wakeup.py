"""An event that survives an exception between any two bytecodes, such as one from a signal handler.

`threading.Event` does not: it takes its lock in Python code, and an exception there leaves the lock taken for ever.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """A flag that threads wait for.

    An interrupted `set` may leave threads asleep until their time runs out or the next `set`.
    """

    __slots__ = ("_gates", "_up")

    def __init__(self) -> None:
        self._up = False
        # One gate for each waiting thread. Every step below is one operation of a dict or of a queue made in C.
        self._gates: dict[int, SimpleQueue[None]] = {}

    def is_set(self) -> bool:
        return self._up

    def set(self) -> None:
        self._up = True
        for gate in list(self._gates.values()):
            gate.put(None)

    def clear(self) -> None:
        self._up = False

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the flag is set; returns False if the time ran out first."""
        gate: SimpleQueue[None] = SimpleQueue()
        self._gates[id(gate)] = gate
        try:
            if not self._up:  # looked at after the gate is there, so that no `set` is missed
                gate.get(timeout=seconds)
        except Empty:
            pass
        finally:
            self._gates.pop(id(gate), None)
        return self._up
