"""The storage interface on PostgreSQL, through psycopg.

A connection pool, pipelined round trips, retries of whole transactions, LISTEN/NOTIFY. Everything but LISTEN works
behind a transaction pooler: on a shared session Headway changes no setting and prepares no statement.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from headway import forks
from headway.clock import Clock
from headway.errors import CommitUnknown, HeadwayError, Unreachable
from headway.fault_points import point
from headway.store.db import Conflict, Database, LockTaken, Row, Tx, TxStage, Waiter
from headway.store.postgres import caller_connection, locks, session
from headway.store.postgres.errors import first_line, translated
from headway.store.postgres.fragments import fragments_of, texts
from headway.store.postgres.notifications import Listener, Notifier, PostgresWaiter
from headway.store.postgres.session import CONNECT_SECONDS, IDLE_SECONDS, IDLE_SNAPSHOT_SECONDS, Session, SessionFacts
from headway.store.postgres.transaction import PostgresTx
from headway.store.statements import render

# Silences the driver's own messages about lost connections; Headway logs each loss once.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
POOL_SIZE = 8
# First sessions to try on a server whose timeouts end them before they can be set.
TRIES = 10
CUT_SHORT = (pg.QueryCanceled, pg.IdleSessionTimeout, pg.IdleInTransactionSessionTimeout, pg.TransactionTimeout)
_TIMEOUTS = (
    "a timeout of the role, the database or the server is too short: run `alter role … reset statement_timeout`, and "
    "the same for idle_session_timeout and the database"
)


class PostgresDatabase(Database):
    dialect = "postgres"

    def __init__(self, url: str, *, clock: Clock | None = None, listen: str | None = None) -> None:
        super().__init__(url, clock)
        session.refuse_misread(url, field="database")
        if listen:
            session.refuse_misread(listen, field="listen")
        self.fragments = fragments_of(self.frozen)
        self.texts = texts(frozen=self.frozen)
        self.listen_url = listen or url
        # Behind a pooler each transaction may get another server connection, without the statements prepared before.
        self.prepare = None if listen else 0
        self.pool = self._new_pool()
        self.session_facts: SessionFacts | None = None
        self.opening = threading.Lock()
        self.closed = False
        self.number = secrets.token_hex(8)
        self.notifier: Notifier | None = None
        self.listener: Listener | None = None
        forks.follow(self)

    def _new_pool(self) -> ConnectionPool[Session]:
        return ConnectionPool(
            session.address(self.url),
            connection_class=Session,
            configure=self._configure,
            min_size=0,
            max_size=POOL_SIZE,
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,
            kwargs={"autocommit": True, "prepare_threshold": self.prepare, "connect_timeout": int(CONNECT_SECONDS)},
            open=False,
        )

    @property
    def mark(self) -> str:
        """Returns the mark of this process's own notifications.

        The process wakes its own waiters directly and ignores these. A forked process has a mark of its own.
        """
        return f"{self.number}.{os.getpid()}"

    @cached_property
    def walled_texts(self) -> dict[str, list[str]]:
        """Returns the statements for transactions under row-level security.

        The given ids are kept in a subquery of their own (`offset 0`): beside a column of a table with policies, a cast
        that could leak hidden rows would keep the planner from using the index. The texts also differ because plans
        belong to a role: with a shared text, a prepared statement would be planned anew at every change of role.
        """
        return texts(frozen=self.frozen, walled=True)

    def _connect(self, tx: PostgresTx) -> None:
        """Gives the transaction a connection.

        An interrupt in TAKING may lose a connection between the pool and the transaction.
        """
        if self.closed:
            raise HeadwayError("this database was closed")
        if self.pool.closed:
            self._open()
        with translated():
            self._borrow(tx)
            while session.has_died(tx.connection):
                self._discard(tx)
                self._borrow(tx)

    def _borrow(self, tx: PostgresTx) -> None:
        tx.pool = self.pool
        tx.stage = TxStage.TAKING
        try:
            tx.connection = tx.pool.getconn()
        except psycopg.Error as error:
            tx.stage = TxStage.NEW  # the pool refused: its count is right
            gone = tx.pool is not self.pool or self.pool.closed
            if self.closed or not gone or not isinstance(error, (PoolClosed, PoolTimeout)):
                raise
            self._connect(tx)  # another thread replaced the pool after an interrupt
        except RuntimeError as error:
            # An interrupt in the wait of a condition, whose lock is free then. The release of that lock fails, and its
            # error hides the interrupt.
            raise error.__context__ or error from None
        tx.stage = TxStage.HELD

    def _open(self) -> None:
        with self.opening:
            if self.pool.closed:
                self._reach()
                try:
                    self.pool.open()
                except BaseException:  # an interrupt may have left the pool without threads
                    self.pool = self._new_pool()
                    raise

    def _reach(self) -> None:
        """Opens a first connection, to report why PostgreSQL cannot be reached.

        The pool reports only that it timed out. This connection also reads the session facts for all others.
        """
        for left in reversed(range(TRIES)):
            try:
                with translated(), self.connect(self.url) as connection:
                    self._look_around(connection)
                return
            except Unreachable as error:
                if not isinstance(error.__cause__, CUT_SHORT):
                    raise
                if left == 0:
                    text = f"PostgreSQL ended the first statement of {TRIES} sessions ({first_line(error.__cause__)})"
                    raise Unreachable(text, hint=_TIMEOUTS) from error

    def _look_around(self, connection: Session) -> None:
        with session.patient(connection):
            found = session.look(connection)
            own = session.settle(connection, found)
        if own:
            found = replace(found, optional=session.can_check_clients(connection))
        self.session_facts = self.session_facts or found

    @staticmethod
    def connect(url: str) -> Session:
        """Opens a connection outside the pool."""
        given = session.address(url)
        return Session.connect(given, autocommit=True, connect_timeout=int(CONNECT_SECONDS))

    def _configure(self, connection: Session) -> None:
        """Configures a new connection of the pool, by the facts that `_reach` read."""
        assert self.session_facts is not None
        with session.patient(connection) if self.session_facts.hurried else nullcontext():
            session.settle(connection, self.session_facts)

    def begin(self, label: str, more: str = "") -> PostgresTx:
        """Begins a transaction that may write.

        `more` are settings of this transaction alone. A migration waits for earlier transactions without a timeout.
        """
        waits = "; set local lock_timeout = 0" if label == "migrate" else ""
        return self._begin(label, "begin isolation level read committed read write", IDLE_SECONDS, waits + more)

    def begin_read(self, more: str = "") -> PostgresTx:
        idle = f"; set local idle_in_transaction_session_timeout = '{IDLE_SNAPSHOT_SECONDS}s'"
        text = "begin isolation level repeatable read read only"
        return self._begin("read", text, IDLE_SNAPSHOT_SECONDS, idle + more)

    def _begin(self, label: str, text: str, idle: int, more: str) -> PostgresTx:
        """Begins a transaction, on another connection if the pooled one has died.

        Nothing was sent on the dead connection yet, so no work is lost.
        """
        tx = PostgresTx(self, label)
        try:
            for _ in range(POOL_SIZE + 1):
                self._connect(tx)
                try:
                    tx.connection.execute(f"{text}{self._local(tx.connection, idle)}{more}".encode(), prepare=False)
                except psycopg.OperationalError:
                    self._discard(tx)
                    continue
                return tx
            raise Unreachable("PostgreSQL closes every connection", hint="is it starting or shutting down?")
        except BaseException:
            tx.doubtful = True
            self.end(tx)
            raise

    def _local(self, connection: Session, idle: int) -> str:
        """Returns the settings of a transaction on a shared session."""
        return "" if connection.own or self.session_facts is None else self.session_facts.local_text(idle)

    def _discard(self, tx: PostgresTx) -> None:
        tx.connection.close()
        self._give_back(tx)

    def _give_back(self, tx: PostgresTx) -> None:
        tx.stage = TxStage.GIVING
        tx.pool.putconn(tx.connection)
        tx.stage = TxStage.GIVEN

    def end(self, tx: Tx) -> None:
        assert isinstance(tx, PostgresTx)
        if tx.stage is TxStage.HELD:
            self._end_held(tx)
        elif tx.stage is TxStage.TAKING or tx.stage is TxStage.GIVING:
            self._replace(tx)

    def _end_held(self, tx: PostgresTx) -> None:
        """Rolls back, if the driver can, and returns the connection to the pool.

        The rollback frees the locks at once. The connection of a doubtful transaction is closed: the interrupt may have
        left the driver in any state.
        """
        connection = tx.connection
        try:
            if session.at_rest(connection):
                tx.rollback()
            else:
                connection.close()
        except psycopg.Error:
            connection.close()
        finally:
            if tx.doubtful:
                connection.close()
            self._give_back(tx)

    def _replace(self, tx: PostgresTx) -> None:
        """Replaces the pool after an interrupt inside it.

        The pool may have lost a connection, so its count is wrong from now on. Borrowed connections go back to the old
        pool, which closes them.
        """
        if getattr(tx, "connection", None) is not None:
            tx.connection.close()
        if tx.pool is self.pool and not self.closed:
            self.pool = self._new_pool()
        tx.stage = TxStage.GIVEN
        # Closed in another thread, because the interrupt may also have left a lock of the pool taken.
        threading.Thread(target=tx.pool.close, args=(0.1,), name="headway-close", daemon=True).start()

    def once(self, name: str, /, **params: object) -> list[Row]:
        for _ in range(POOL_SIZE + 1):
            tx = PostgresTx(self, name)
            try:
                try:
                    return self._run_once(tx, params)
                except Conflict:
                    self.pause_after_conflict()
                except LockTaken as error:
                    self.judge_lock(error)
                except Unreachable as error:
                    if tx.stage is not TxStage.HELD or not tx.connection.closed:
                        raise  # nothing was sent, or the server answered: nothing was stored
                    if not isinstance(error.__cause__, pg.AdminShutdown):
                        raise CommitUnknown(
                            "the connection to PostgreSQL broke during a commit: whether it was stored is not known"
                        ) from error
                finally:
                    self.end(tx)
                    point(name, "committed")
            except BaseException:
                self.end(tx)
                raise
        raise Unreachable("PostgreSQL closes every connection", hint="is it starting or shutting down?")

    def _run_once(self, tx: PostgresTx, params: dict[str, object]) -> list[Row]:
        try:
            self._connect(tx)
            point(tx.label, "begun")
            return tx.run(tx.label, **params) if tx.connection.own else tx.run_alone(tx.label, params)
        except HeadwayError:
            raise
        except BaseException:
            tx.doubtful = True
            raise

    def execute_script(self, tx: Tx, text: str) -> None:
        assert isinstance(tx, PostgresTx)
        with translated():
            tx.connection.execute(render(text, self.fragments).encode(), prepare=False)

    def run_on(self, connection: Any, name: str, params: Mapping[str, object]) -> list[Row]:
        given = {**params, **({"now": self.clock.now()} if self.frozen else {})}
        return caller_connection.run(connection, self.texts[name], given, self._session_facts())

    def _session_facts(self) -> SessionFacts:
        if self.session_facts is None:
            with self.read():
                assert self.session_facts is not None
        return self.session_facts

    def judge_lock(self, error: LockTaken) -> None:
        locks.judge(self, error)

    def waiter(self) -> Waiter:
        waiter = PostgresWaiter(self)
        self.waiters.append(waiter)
        if self.listener is None:
            listener = Listener(self)
            listener.start()
            self.listener = listener
        return waiter

    def announce(self, besides: Waiter | None = None) -> None:
        super().announce(besides)
        if self.notifier is None:
            notifier = Notifier(self)
            try:
                notifier.start()
            except (RuntimeError, MemoryError):
                return  # no thread to be had; the commit stands, and the next commit notifies
            self.notifier = notifier
        self.notifier.due.set()

    def check(self) -> list[str]:
        with self.read() as tx:
            tx.run("ping")
        return []

    def close(self) -> None:
        if self.notifier is not None:
            self.notifier.stop()
        if self.listener is not None:
            self.listener.stop()
        for waiter in list(self.waiters):
            waiter.close()
        self.closed = True
        self.pool.close()

    def after_fork_in_child(self) -> None:
        """Drops the parent's sockets and threads: the parent still uses them."""
        self._forget_waiters()
        for thing in (self.pool, self.notifier, self.listener):
            forks.never_free(thing)
        self.pool = self._new_pool()
        self.opening = threading.Lock()
        self.notifier = self.listener = None
