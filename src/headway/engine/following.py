"""The log of one job as it grows, for those who watch it: look by look, from any number of a chunk on."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import NotFound
from headway.model.states import State
from headway.store import jobs, reading
from headway.store.db import Database, Tx
from headway.store.reading import Line

# A worker gathers lines for half a second: looking more often would find nothing more.
PACE, IDLE_PACE = 0.5, 1.0
PAGE = 100


@dataclass(frozen=True, slots=True)
class Lines:
    """New lines, the number to go on from, whether they are all there will ever be, and seconds until the next look."""

    lines: list[Line]
    position: int
    ended: bool
    wait: float


class LogFollower:
    """The lines of a job after a chunk. They are stored in order: whoever writes them holds the row of the job."""

    def __init__(self, database: Database, tenant_id: int, job_id: int, *, after: int = 0) -> None:
        self.database = database
        self.tenant_id = tenant_id
        self.job_id = job_id
        self.position = after
        self.found = False

    def look(self) -> Lines:
        """Raises NotFound at the first look, when there is no such job; one that is pruned later has ended."""
        with self.database.read() as tx:
            return self.look_in(tx)

    def look_in(self, tx: Tx) -> Lines:
        """The same in a transaction of the caller's own."""
        try:
            state, lines = self._read(tx)
        except NotFound:
            if not self.found:
                raise
            return Lines([], self.position, True, 0.0)
        self.found = True
        more = len({line.chunk for line in lines}) == PAGE
        self.position = lines[-1].chunk if lines else self.position
        pace = PACE if state is State.RUNNING else IDLE_PACE
        return Lines(lines, self.position, state.terminal and not more, 0.0 if more else pace)

    def _read(self, tx: Tx) -> tuple[State, list[Line]]:
        # One snapshot: lines are stored before the end of their job is, or with it.
        state = jobs.find(tx, self.job_id, self.tenant_id).status
        return state, reading.log_lines(tx, self.job_id, after=self.position, limit=PAGE)
