"""Follows the log of one job, poll by poll, from any chunk on."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import NotFound
from headway.model.jobs.states import State
from headway.store.db import Database, Tx
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views
from headway.store.jobs.views import LogLine, LogPage

# A worker buffers lines for half a second, so a faster poll would find nothing more.
PACE, IDLE_PACE = 0.5, 1.0
PAGE = 100


@dataclass(frozen=True, slots=True)
class LogLines:
    """New lines, and the position to continue from.

    `ended` is true if no more lines will come; `wait` is the delay until the next poll.
    """

    lines: list[LogLine]
    position: int
    ended: bool
    wait: float


class LogFollower:
    """The lines of a job after a chunk.

    The writer of lines holds the lock of the job's row, so chunks are committed in order.
    """

    def __init__(self, database: Database, tenant_id: int, job_id: int, *, after: int = 0) -> None:
        self.database = database
        self.tenant_id = tenant_id
        self.job_id = job_id
        self.position = after
        self.found = False

    def look(self) -> LogLines:
        """Reads new lines. The first call raises NotFound if there is no such job.

        A job that is pruned later counts as ended.
        """
        with self.database.read() as tx:
            return self.look_in(tx)

    def look_in(self, tx: Tx) -> LogLines:
        """Reads new lines in the caller's transaction."""
        try:
            state, (lines, more) = self._read(tx)
        except NotFound:
            if not self.found:
                raise
            return LogLines([], self.position, True, 0.0)
        self.found = True
        self.position = lines[-1].chunk if lines else self.position
        pace = PACE if state is State.RUNNING else IDLE_PACE
        return LogLines(lines, self.position, state.terminal and not more, 0.0 if more else pace)

    def _read(self, tx: Tx) -> tuple[State, LogPage]:
        # One snapshot, because lines are stored before the end of their job, or with it.
        state = jobs.find(tx, self.job_id, self.tenant_id).status
        return state, job_views.log_page(tx, self.job_id, after=self.position, limit=PAGE)
