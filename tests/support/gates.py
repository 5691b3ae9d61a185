"""PostgreSQL with gates: something can be done, or waited for, just before a named statement of a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headway.store.db import Call, Row, Tx
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.transaction import PostgresTx
from headway.store.round_trip import Pending
from tests.support.waiting import PATIENCE

Action = Callable[[], object]


class Gate:
    """A place where a transaction stands until it is let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE), "nobody opened the gate"


class GatedTx(PostgresTx):
    def run(self, name: str, /, **params: object) -> list[Row]:
        self._pass(name)
        return super().run(name, **params)

    def send(self, name: str, /, **params: object) -> Pending[list[Row]]:
        return Tx.send(self, name, **params)  # at once: who stands at a gate has done all that comes before it

    def prepend(self, name: str, /, **params: object) -> None:
        Tx.prepend(self, name, **params)

    def run_all(self, *calls: Call, commit: bool = False) -> list[list[Row]]:
        for name, _ in calls:
            self._pass(name)
        if commit:
            self._pass("commit")
        return super().run_all(*calls, commit=commit)

    def _commit(self) -> None:
        self._pass("commit")
        super()._commit()

    def _pass(self, name: str) -> None:
        database = self.database
        assert isinstance(database, Gated)
        database.act(name)
        database.act(f"{self.label}:{name}")


class Gated(PostgresDatabase):
    """Each action happens once, in the thread of the first transaction that comes by."""

    def __init__(self, url: str, **more: Any) -> None:
        super().__init__(url, **more)
        self.guard = threading.Lock()
        self.actions: dict[str, Action] = {}
        self.conflicts = 0

    def before(self, statement: str, action: Action) -> None:
        """`statement` is a name, `label:name`, or `commit`."""
        self.actions[statement] = action

    def act(self, statement: str) -> None:
        with self.guard:
            action = self.actions.pop(statement, None)
        if action is not None:
            action()

    def pause_after_conflict(self) -> None:
        self.conflicts += 1
        super().pause_after_conflict()

    def gate(self, statement: str) -> Gate:
        gate = Gate()
        self.before(statement, gate)
        return gate

    def begin(self, label: str, more: str = "") -> PostgresTx:
        tx = super().begin(label, more)
        tx.__class__ = GatedTx
        return tx
