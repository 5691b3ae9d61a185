"""Callers that enqueue at the same time share one commit (docs/decisions/0009): the first one leads and stores what
has come until then; the others' jobs go with the next, which one of them leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headway.errors import CommitUnknown, HeadwayError, Unreachable
from headway.model.job import NewJob

INTERRUPTED = "the thread that stored this job with others was interrupted: whether it was stored is not known"

Answer = tuple[int, bool]
Store = Callable[[list[NewJob]], list[Answer]]


class Wish:
    """One caller's job on its way into a shared transaction. Its caller sleeps at the gate."""

    __slots__ = ("answer", "error", "gate", "job", "leads")

    def __init__(self, job: NewJob) -> None:
        self.job = job
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class SharedCommits:
    """Those who wait for a commit of one client's, and who leads. `store` keeps all the jobs it is given, or none."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wishes: list[Wish] = []
        self.collecting = threading.Lock()
        self.led = False

    def enqueue(self, job: NewJob) -> Answer:
        wish = Wish(job)
        try:
            self._join(wish)
        except BaseException:  # Ctrl-C, wherever it comes: nobody may wait for a leader that is gone
            self._leave(wish)
            raise
        if wish.error is not None:
            raise wish.error
        assert wish.answer is not None
        return wish.answer

    def _join(self, wish: Wish) -> None:
        with self.collecting:
            self.wishes.append(wish)
            if not self.led:
                self.led = wish.leads = True
        if not wish.leads:
            wish.gate.acquire()
        if wish.leads:
            self._lead(wish)

    def _lead(self, leader: Wish) -> None:
        """Stores everybody's jobs, then hands the lead to somebody who came meanwhile."""
        batch: list[Wish] = []
        try:
            with self.collecting:
                batch, self.wishes = self.wishes, []
            self._store(batch)
        except BaseException as error:
            for wish in batch:
                if wish.answer is None and wish.error is None:
                    wish.error = error if isinstance(error, Exception) else CommitUnknown(INTERRUPTED)
            raise
        finally:
            with self.collecting:
                leader.leads = False
                successor = self.choose_leader()
            for wish in successor + batch:
                wish.gate.release()

    def _store(self, batch: list[Wish]) -> None:
        try:
            for wish, answer in zip(batch, self.store([wish.job for wish in batch]), strict=True):
                wish.answer = answer
        except HeadwayError as error:
            if len(batch) == 1 or isinstance(error, Unreachable):
                raise
            for wish in batch:  # one of them is refused, and none was stored: it concerns that one alone
                self._store_alone(wish)

    def _store_alone(self, wish: Wish) -> None:
        try:
            (wish.answer,) = self.store([wish.job])
        except HeadwayError as error:
            wish.error = error

    def choose_leader(self) -> list[Wish]:
        """Who leads next, if anybody waits. `collecting` must be held."""
        successor = self.wishes[:1]
        self.led = bool(successor)
        for wish in successor:
            wish.leads = True
        return successor

    def _leave(self, wish: Wish) -> None:
        with self.collecting:
            if wish in self.wishes:  # otherwise it is being stored already, or was
                self.wishes.remove(wish)
            successor = self.choose_leader() if wish.leads else []
            wish.leads = False
        for other in successor:
            other.gate.release()
