"""Pauses claiming while claimed work cannot be started.

Only the worker's thread uses it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from headway.engine.execution.running import Running
from headway.model.jobs.outcome import NeverBegan, Outcome

log = logging.getLogger("headway")
# Pause between claims after work could not be started; it doubles each time.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# After a pause the worker claims one job. Claiming returns to normal when it ends, or has run for this long.
PROBE_SECONDS = 2.0


class StartPause:
    """The pause of claiming: its reason, its end, and the job that probes if work can be started again."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.until = 0.0
        self.pauses = 0
        self.probing = False
        # The reason that the database has.
        self.stored: str | None = None

    def unstored(self) -> tuple[str | None] | None:
        """Returns the reason to store, in a tuple; None if the database has it."""
        return None if self.why is self.stored else (self.why,)

    def judge_all(self, ended: Iterable[tuple[Running, Outcome]]) -> None:
        for running, outcome in ended:
            if type(outcome) is NeverBegan or self.probing:
                self.judge(running, outcome)

    def judge(self, running: Running, outcome: Outcome) -> None:
        """Pauses claiming if work could not be started; ends the pause otherwise."""
        if not isinstance(outcome, NeverBegan):
            self._end()
        elif running.asked_at is None and (self.probing or self.why is None):
            wait = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self.pauses)
            self.pauses, self.probing = min(self.pauses + 1, 16), False
            self.why, self.until = outcome.why, time.monotonic() + wait
            log.warning("claimed work could not be started (%s): claiming nothing for %g s", outcome.why, wait)

    def room(self) -> int:
        """Returns how many jobs may be claimed during the pause."""
        if time.monotonic() < self.until:
            return 0
        if self.probing:
            self._end()
        return 1

    def probe(self) -> None:
        """Watches the jobs that were just started."""
        self.probing, self.until = True, time.monotonic() + PROBE_SECONDS

    def _end(self) -> None:
        if self.why is not None:
            log.warning("work can be started again: the worker claims jobs again")
        self.why, self.pauses, self.probing = None, 0, False
