"""Sends many statements as one message, without waits in between."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import send


class OneMessage(psycopg.Pipeline):
    """A pipeline that sends every statement and a Sync together at its end.

    psycopg's own pipeline sends each statement when it is given, and a Flush after the Sync. If the client stalls in
    between, the server is `active` and waits for it with every lock it holds. And the Flush, like any message, stops
    the clock of `idle_in_transaction_session_timeout`, which only a statement starts again: after a pipeline of
    psycopg's that timeout never fires.
    """

    def _communicate_gen(self) -> PQGen[None]:
        yield from ()

    def _exit_gen(self) -> PQGen[None]:
        self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()  # fills the driver's buffer; the Sync sends it
        yield from send(self.pgconn)
        yield from self._fetch_gen(flush=False)
        if self.result_queue:  # a statement without an answer, perhaps the commit
            raise psycopg.OperationalError("the connection was lost during a round trip")

    def _exit(self, exc: BaseException | None) -> None:
        """Leaves the mode of the pipeline.

        After an interrupt the connection is still busy. The driver's error about that must not hide the interrupt.
        """
        super()._exit(exc or sys.exception())


@contextmanager
def round_trip(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Sends the statements of this context together, and reads the answers."""
    connection._check_connection_ok()
    assert connection._pipeline is None
    pipeline = connection._pipeline = OneMessage(connection)
    try:
        with pipeline:
            yield
    finally:
        connection._pipeline = None
