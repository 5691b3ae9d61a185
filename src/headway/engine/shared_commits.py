"""Callers that enqueue at the same time share one commit (docs/decisions/0009): the first one leads and stores what
has come until then; the others' jobs go with the next, which one of them leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headway.errors import CommitUnknown
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
        with self.collecting:
            self.wishes.append(wish)
            leads, self.led = not self.led, True
        if not leads:
            try:
                wish.gate.acquire()
            except BaseException:  # Ctrl-C: nobody may wait for a leader that is gone
                self._withdraw(wish)
                raise
        if wish.answer is None and wish.error is None:
            self._lead()
        if wish.error is not None:
            raise wish.error
        assert wish.answer is not None
        return wish.answer

    def _lead(self) -> None:
        """Stores everybody's jobs, then hands the lead to somebody who came meanwhile."""
        with self.collecting:
            batch, self.wishes = self.wishes, []
        try:
            answers = self.store([wish.job for wish in batch])
            for wish, answer in zip(batch, answers, strict=True):
                wish.answer = answer
        except BaseException as error:
            for wish in batch:
                wish.error = error if isinstance(error, Exception) else CommitUnknown(INTERRUPTED)
            raise
        finally:
            with self.collecting:
                successor = self.choose_leader()
            for wish in successor + batch:
                wish.gate.release()

    def choose_leader(self) -> list[Wish]:
        """Who leads next, if anybody waits. `collecting` must be held."""
        successor = self.wishes[:1]
        self.led = bool(successor)
        for wish in successor:
            wish.leads = True
        return successor

    def _withdraw(self, wish: Wish) -> None:
        with self.collecting:
            if wish not in self.wishes:
                return  # it is being stored already
            self.wishes.remove(wish)
            successor = self.choose_leader() if wish.leads else []
        for other in successor:
            other.gate.release()
