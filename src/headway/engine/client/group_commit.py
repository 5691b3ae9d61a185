"""Group commit: concurrent callers share one transaction (docs/decisions/0009).

The first caller commits every job queued so far. Callers that arrive meanwhile form the next batch, and one of them
commits it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headway import forks
from headway.errors import CommitUnknown, HeadwayError, Unreachable
from headway.model.jobs.job import NewJob

INTERRUPTED = "the thread that stored this job with others was interrupted: whether it was stored is not known"

LEADER = "leader"
# A caller that is not woken within this time checks if the leader is still there.
PATIENCE = 0.5

Enqueued = tuple[int, bool]
Store = Callable[[list[NewJob]], list[Enqueued]]


class PendingJob:
    """One caller's job on its way into a shared transaction.

    Its caller sleeps on `gate`.
    """

    __slots__ = ("answer", "batch", "error", "gate", "job", "over", "took")

    def __init__(self, job: NewJob) -> None:
        self.job = job
        self.answer: Enqueued | None = None
        self.error: BaseException | None = None
        # The jobs, its own included, that its caller commits as the leader.
        self.batch: list[PendingJob] = []
        self.took = False
        # Its caller was interrupted and cannot lead any more.
        self.over = False
        self.gate = threading.Lock()
        self.gate.acquire()

    @property
    def settled(self) -> bool:
        return self.answer is not None or self.error is not None

    def let_go(self) -> None:
        """Wakes the caller; does nothing if it was woken before."""
        try:  # noqa: SIM105 - `suppress` costs more than the rest of this method
            self.gate.release()
        except RuntimeError:
            pass


class SharedCommits:
    """The callers that wait for a commit of one client, and the leader among them.

    `store` stores all jobs or none. A caller may be interrupted between any two bytecodes and could keep a lock for
    ever, so every step is one operation of a dict. An open gate is only a hint: a caller that is not woken checks if
    there still is a leader.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._begin_anew()
        forks.follow(self)

    def _begin_anew(self) -> None:
        # In order of arrival.
        self.waiting: dict[PendingJob, None] = {}
        # LEADER maps to the caller that commits. `setdefault` decides between two simultaneous callers.
        self.lead: dict[str, PendingJob] = {}

    @property
    def leader(self) -> PendingJob | None:
        return self.lead.get(LEADER)

    def enqueue(self, job: NewJob) -> Enqueued:
        pending = PendingJob(job)
        try:
            try:
                self._join(pending)
            except BaseException:  # Ctrl-C at any point: no caller may wait for a vanished leader
                pending.over = True
                self._leave(pending)
                raise
        except BaseException:
            self._leave(pending)
            raise
        if pending.error is not None:
            raise pending.error
        assert pending.answer is not None
        return pending.answer

    def _join(self, pending: PendingJob) -> None:
        self.waiting[pending] = None
        leader = self.lead.setdefault(LEADER, pending)
        while leader is not pending and not pending.settled:
            if not pending.gate.acquire(timeout=PATIENCE):
                self._look_round(pending)
            leader = self.lead.get(LEADER)  # type: ignore[assignment]
        if leader is pending:
            self._lead(pending)

    def _look_round(self, pending: PendingJob) -> None:
        """Passes the lead on if the leader is gone.

        A job that the leader had already taken has an unknown outcome.
        """
        leader = self.leader
        if leader is not None and not leader.over:
            return
        if pending in self.waiting:
            self._pass_on(leader)
        elif not pending.settled:
            pending.error = CommitUnknown(INTERRUPTED)

    def _lead(self, leader: PendingJob) -> None:
        """Commits the jobs of all waiting callers, then hands the lead on."""
        try:
            leader.batch = list(self.waiting)
            for pending in leader.batch:
                self.waiting.pop(pending, None)
            leader.took = True
            self._store(leader.batch)
        except BaseException as error:
            self._fail(leader, error)
            raise
        finally:
            self._hand_over(leader)

    def _fail(self, leader: PendingJob, error: BaseException) -> None:
        """Gives the error to the jobs of the batch.

        Jobs that the leader had not taken yet wait for the next leader.
        """
        for pending in leader.batch if leader.took else ():
            if not pending.settled:
                pending.error = error if isinstance(error, Exception) else CommitUnknown(INTERRUPTED)

    def _hand_over(self, leader: PendingJob) -> None:
        if not leader.took:  # interrupted while taking jobs: they go back
            for pending in leader.batch:
                if not pending.over:
                    self.waiting.setdefault(pending)
        self._pass_on(leader)
        for pending in leader.batch:
            pending.let_go()

    def _pass_on(self, leader: PendingJob | None) -> None:
        """Makes the longest-waiting caller the leader.

        Without one, the next caller that arrives leads.
        """
        if leader is not None and self.leader is leader:
            self.lead.pop(LEADER, None)
        for pending in list(self.waiting):
            chosen = self.lead.setdefault(LEADER, pending)
            chosen.let_go()
            if not chosen.over:
                return
            self.lead.pop(LEADER, None)

    def _store(self, batch: list[PendingJob]) -> None:
        try:
            for pending, answer in zip(batch, self.store([pending.job for pending in batch]), strict=True):
                pending.answer = answer
        except HeadwayError as error:
            if len(batch) == 1 or isinstance(error, Unreachable):
                raise
            for pending in batch:  # one job is refused and none was stored: store each alone
                self._store_alone(pending)

    def _store_alone(self, pending: PendingJob) -> None:
        try:
            (pending.answer,) = self.store([pending.job])
        except HeadwayError as error:
            pending.error = error

    def _leave(self, pending: PendingJob) -> None:
        self.waiting.pop(pending, None)  # a missing job is being stored, or was stored
        if self.leader is pending:
            self._fail(pending, KeyboardInterrupt())
            self._hand_over(pending)

    # --- forks (headway.forks) ---

    def before_fork(self) -> None:
        return

    def after_fork_in_parent(self) -> None:
        return

    def after_fork_in_child(self) -> None:
        """Drops the waiting callers, which are threads of the parent."""
        self._begin_anew()
