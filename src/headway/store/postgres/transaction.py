"""A transaction on PostgreSQL: statements sent ahead, one round trip for many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from headway.errors import CommitUnknown, HeadwayError, Unreachable
from headway.fault_points import point
from headway.store.db import Call, Row, Tx, TxStage
from headway.store.postgres import session
from headway.store.postgres.errors import translated, was_answered
from headway.store.postgres.pipeline import round_trip
from headway.store.postgres.row_security import ROLE
from headway.store.postgres.session import Session
from headway.store.round_trip import Pending, SentStatement

if TYPE_CHECKING:
    from headway.store.postgres.database import PostgresDatabase

_SET_TENANT = "select set_config('role', %(role)s, true), set_config('headway.tenant_id', %(tenant)s, true)"


class PostgresTx(Tx):
    database: PostgresDatabase
    connection: Session
    pool: ConnectionPool[Session]

    def __init__(self, database: PostgresDatabase, label: str) -> None:
        super().__init__(database, label)
        self.texts = self.plain_texts = database.texts
        self.behind: int | None = None
        self.pinned: dict[str, object] = {"now": database.clock.now()} if database.frozen else {}
        self.unsent: list[SentStatement] = []

    def run(self, name: str, /, **params: object) -> list[Row]:
        if self.unsent:
            return self._together(((name, params),))[0]
        with translated():
            return self._fetch([self._send(text, params) for text in self.texts[name]])

    def send(self, name: str, /, **params: object) -> Pending[list[Row]]:
        sent = SentStatement(self, (name, params))
        self.unsent.append(sent)
        self.unread += 1
        return sent

    def prepend(self, name: str, /, **params: object) -> None:
        self.unsent.append(SentStatement(self, (name, params)))

    def complete(self, sent: SentStatement) -> None:
        if sent in self.unsent and self.stage is TxStage.HELD:
            self._together(())

    def run_all(self, *calls: Call, commit: bool = False) -> list[list[Row]]:
        if commit:
            if self.unread:
                self._refuse_unread()
            if self.touched:
                calls = (*calls, ("touch", {"ids": json.dumps(sorted(self.touched))}))
            point(self.label, "before_commit")
        answers = self._together(calls, commit=commit)
        self.committed = self.committed or commit
        return answers

    def _together(self, calls: Sequence[Call], *, commit: bool = False) -> list[list[Row]]:
        """Runs the statements sent earlier and these in one round trip.

        The end of a pipeline waits for all answers; fetching them before would be a second round trip.
        """
        ahead, self.unsent = self.unsent, []
        every = [*(statement.call for statement in ahead), *calls]
        with self._committing() if commit else translated(), round_trip(self.connection):
            sent = [[self._send(text, params) for text in self.texts[name]] for name, params in every]
            if commit:
                self.connection.execute("commit")
        answers = [self._fetch(cursors) for cursors in sent]
        for statement, answer in zip(ahead, answers, strict=False):
            statement.rows = answer
        return answers[len(ahead) :]

    def run_beyond(self, name: str, /, **params: object) -> list[Row]:
        """Runs a statement without row-level security, in one round trip.

        If the statement fails, the transaction has failed too, so the role need not be restored.
        """
        if self.behind is None:
            return self.run(name, **params)
        assert not self.unsent
        with translated(), round_trip(self.connection):
            self.connection.execute(_SET_TENANT, {"role": "none", "tenant": ""})
            sent = [self._send(text, params) for text in self.plain_texts[name]]
            self.connection.execute(_SET_TENANT, {"role": ROLE, "tenant": str(self.behind)})
        return self._fetch(sent)

    def _send(self, text: str, params: dict[str, object] | Any) -> psycopg.Cursor[Any]:
        return self.connection.execute(text, {**params, **self.pinned} if self.pinned else params)

    @staticmethod
    def _fetch(cursors: list[psycopg.Cursor[Any]]) -> list[Row]:
        """Returns the rows of all cursors.

        Avoids `cursor.description`, which builds an object for every column.
        """
        return [row for cursor in cursors if (found := cursor.pgresult) and found.nfields for row in cursor.fetchall()]

    def _commit(self) -> None:
        if self.unsent:
            self._together((), commit=True)
            return
        with self._committing():
            self.connection.execute("commit")

    @contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            with translated():
                yield
        except Unreachable as error:
            if was_answered(error):
                raise  # the server answered, so nothing was stored
            raise CommitUnknown(
                "the connection to PostgreSQL broke during a commit: whether it was stored is not known"
            ) from error

    def run_alone(self, name: str, params: Mapping[str, object]) -> list[Row]:
        """Runs a single-statement transaction in one round trip, on a shared session."""
        assert self.database.session_facts is not None
        try:
            with self._committing(), round_trip(self.connection):
                self.connection.execute("begin isolation level read committed read write")
                if self.database.session_facts.hurried:
                    self.connection.execute("set local statement_timeout = 0")
                self.connection.execute(*session.local_call(self.database.session_facts))
                sent = [self._send(text, params) for text in self.texts[name]]
                self.connection.execute("commit")
        except HeadwayError:
            with suppress(psycopg.Error):  # the connection is gone
                self.rollback()
            raise
        return self._fetch(sent)

    def rollback(self) -> None:
        """Rolls back what was not committed.

        A snapshot is committed instead, because at a rollback the driver drops its prepared statements.
        """
        status = self.connection.pgconn.transaction_status
        if not self.connection.closed and status != TransactionStatus.IDLE:
            reading = self.label == "read" and status == TransactionStatus.INTRANS
            self.connection.execute("commit" if reading else "rollback")
