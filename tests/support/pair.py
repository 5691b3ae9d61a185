"""A PostgreSQL database with gates, for two transactions that are made to meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from headway.store.queue import claims
from headway.testing import FrozenClock
from tests.support.gates import Gate, Gated
from tests.support.life import Life
from tests.support.waiting import PATIENCE, until


class Pair(Life):
    """A database with gates, and a second look at it from outside."""

    def __init__(self, url: str) -> None:
        clock = FrozenClock()
        self.gated = Gated(url, clock=clock)
        super().__init__(url, database=self.gated, clock=clock)
        self.raw = psycopg.connect(url, autocommit=True)
        self.pool = ThreadPoolExecutor(8)

    def __exit__(self, *_: object) -> None:
        for action in self.gated.actions.values():
            if isinstance(action, Gate):
                action.open.set()
        self.pool.shutdown()
        self.raw.close()
        super().__exit__()

    @contextmanager
    def open_at(self, statement: str, call: Callable[[], Any]) -> Iterator[Future[Any]]:
        """Runs `call` in a thread up to a statement; it goes on when the block ends."""
        gate = self.gated.gate(statement)
        future = self.pool.submit(call)
        until(lambda: gate.reached.is_set() or future.done(), f"that somebody comes to {statement}")
        assert gate.reached.is_set(), f"nobody came to {statement}: {future.exception() or future.result()}"
        try:
            yield future
        finally:
            gate.open.set()
        future.exception(PATIENCE)

    def waiting(self, call: Callable[[], Any]) -> Future[Any]:
        """Starts `call` in a thread and returns when it waits for a lock."""
        future = self.pool.submit(call)
        until(lambda: future.done() or self.waiters(), "that it waits for a lock")
        assert not future.done(), f"it did not wait: {future.exception() or future.result()}"
        return future

    def waiters(self) -> list[int]:
        text = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return [row[0] for row in self.raw.execute(text).fetchall()]

    def set_for_all(self, setting: str, value: str) -> None:
        """For all connections from now on; those that are there are ended."""
        self.raw.execute(f'alter database "{self.raw.info.dbname}" set {setting} = {value}')
        kill(self, where="true")

    def promote(self) -> int:
        return self.database.transact("promote", lambda tx: claims.promote(tx, self.actor()))


def kill(pair: Pair, *, where: str) -> None:
    pids = [
        row[0]
        for row in pair.raw.execute(
            "select pid from pg_stat_activity where backend_type = 'client backend'"
            f" and datname = current_database() and pid <> pg_backend_pid() and {where}"
        )
    ]
    assert pids
    pair.raw.execute("select pg_terminate_backend(pid) from unnest(%s) as p(pid)", [pids])
    left = "select 1 from pg_stat_activity where pid = any(%s)"
    until(lambda: not pair.raw.execute(left, [pids]).fetchall(), "that the connections are ended")
