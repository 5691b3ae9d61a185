"""The storage interface: a Database opens transactions, a Tx runs statements.

The statements are named blocks in the `.sql` files, and one text serves both databases. A fragment in braces stands for
a difference between the dialects. A statement that cannot be shared is redefined by name in `sqlite.sql` or
`postgres.sql`.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar, TypeVarTuple

from headway import forks
from headway.clock import Clock, SystemClock
from headway.dice import dice
from headway.errors import BadInput, CommitUnknown, HeadwayError, Unreachable
from headway.fault_points import point
from headway.store.round_trip import Pending, SentStatement

T = TypeVar("T")
Args = TypeVarTuple("Args")
# How often `repeat` runs its work again after the answer to a commit was lost.
LOST_TRIES = 3
Row = tuple[Any, ...]
Call = tuple[str, Mapping[str, object]]


class Conflict(HeadwayError):
    """A conflict rolled this transaction back: run it again from the start."""

    code = "conflict"


class ServerUnreachable(Unreachable):
    """The database server gives no connection; `cause` quotes its driver."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(f"{message}: {cause}")
        self.cause = cause


class FileUnusable(Unreachable):
    """The database file cannot be opened, read or written; `cause` quotes SQLite."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(f"{message}: {cause}")


class LockTaken(Unreachable):
    """Another transaction held a lock beyond the timeout; nothing was changed."""


class TxStage(Enum):
    """How far a transaction has got in borrowing its connection and giving it back.

    A signal handler may raise between any two bytecodes. After an interrupt in TAKING or GIVING it is unknown whether
    the connection was borrowed or returned.
    """

    NEW = "new"
    TAKING = "taking"
    HELD = "held"
    GIVING = "giving"
    GIVEN = "given"


class Tx(ABC):
    """A transaction. Store functions take it as their first argument."""

    # Class attributes, because the finaliser also runs for a transaction whose __init__ was interrupted.
    stage = TxStage.NEW
    # True after an exception that is not Headway's own, such as an interrupt, which may have stopped the driver
    # halfway.
    doubtful = False

    def __init__(self, database: Database, label: str) -> None:
        self.database = database
        self.label = label
        self.wakes = False
        # Jobs that this transaction released and did not claim: the commit wakes other workers for them.
        self.released: set[int] = set()
        self.committed = False
        self.touched: set[int] = set()
        self.made_bucket = False
        # Statements sent ahead whose results were not asked for.
        self.unread = 0

    @abstractmethod
    def run(self, name: str, /, **params: object) -> list[Row]:
        """Runs a named statement and returns its rows."""

    def now(self) -> int:
        """Returns the database's time in microseconds."""
        ((now,),) = self.run("time")
        return int(now)

    def send(self, name: str, /, **params: object) -> Pending[list[Row]]:
        """Runs a statement whose result is needed before the commit, but not yet.

        The statement goes with the next round trip, ahead of the statements of that round trip. Asking for the result
        before then makes a round trip.
        """
        sent = SentStatement(self, (name, params), self.run(name, **params))
        self.unread += 1
        return sent

    def prepend(self, name: str, /, **params: object) -> None:
        """Runs a statement ahead of the next round trip; its result does not matter."""
        self.run(name, **params)

    def complete(self, sent: SentStatement) -> None:
        """Makes the round trip of a statement that was sent ahead, if it is still to be made."""
        return

    def _refuse_unread(self) -> None:
        """Refuses to commit before every statement sent ahead was judged by its result."""
        raise HeadwayError(f"{self.label}: the result of a statement was not read before the commit")

    def run_beyond(self, name: str, /, **params: object) -> list[Row]:
        """Runs a statement without row-level security, in the same snapshot.

        Only for statements that return ids: under row-level security, finding the next id would scan every other
        tenant's rows.
        """
        return self.run(name, **params)

    def run_all(self, *calls: Call, commit: bool = False) -> list[list[Row]]:
        """Runs independent statements, in one round trip on PostgreSQL."""
        answers = [self.run(name, **params) for name, params in calls]
        if commit:
            self.commit()
        return answers

    def touch(self, target_id: int | None) -> None:
        """Marks a target whose jobs changed: the next claim chooses its first job anew."""
        if target_id is not None:
            self.touched.add(target_id)

    def commit(self) -> None:
        if self.unread:
            self._refuse_unread()
        if self.touched:
            self.run("touch", ids=json.dumps(sorted(self.touched)))
        point(self.label, "before_commit")
        self._commit()
        self.committed = True

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    def wake(self) -> None:
        """Wakes the waiters for work once this transaction has committed."""
        self.wakes = True

    def doubt(self, error: BaseException) -> None:
        """Records the exception that ended this transaction.

        A HeadwayError leaves the driver in a known state; any other exception makes the transaction doubtful.
        """
        self.doubtful = True
        if isinstance(error, HeadwayError):
            self.doubtful = False

    def __del__(self) -> None:
        """Ends a transaction that an interrupt left open where no `finally` covers it.

        One such place is the entry of an `__exit__`.
        """
        if self.stage is not TxStage.GIVEN and self.stage is not TxStage.NEW:
            self.doubtful = True
            self.database.end(self)


class Waiter(ABC):
    """Sleeps until there may be new work; a wake-up is a hint, polling is the truth."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Waits for a wake-up. Returns False if the time ran out first."""

    @abstractmethod
    def wake(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Database(ABC):
    """A SQLite or a PostgreSQL database."""

    dialect: str
    tries = 20
    one_writer = False

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self.frozen = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.waiters: list[Waiter] = []
        self.watchers: list[Waiter] = []

    # --- forks (headway.forks) ---

    def before_fork(self) -> None:
        """Prepares for a fork. Does nothing by default."""
        return

    def after_fork_in_parent(self) -> None:
        """Continues in the parent after a fork. Does nothing by default."""
        return

    def after_fork_in_child(self) -> None:
        self._forget_waiters()

    def _forget_waiters(self) -> None:
        """Drops the waiters in a forked child: their threads are the parent's."""
        for waiter in (*self.waiters, *self.watchers):
            forks.never_free(waiter)
        self.waiters.clear()
        self.watchers.clear()

    # --- transactions ---

    @abstractmethod
    def begin(self, label: str) -> Tx:
        """Begins a transaction that may write."""

    @abstractmethod
    def begin_read(self) -> Tx:
        """Begins a read-only snapshot."""

    @abstractmethod
    def end(self, tx: Tx) -> None:
        """Rolls back a transaction that did not commit and returns its connection.

        May be called several times.
        """

    @abstractmethod
    def once(self, name: str, /, **params: object) -> list[Row]:
        """Runs a statement in a transaction of its own, as cheaply as possible."""

    def run_on(self, connection: Any, name: str, params: Mapping[str, object]) -> list[Row]:
        """Runs a statement in the caller's own transaction, on the caller's connection."""
        raise BadInput(
            "connection= needs PostgreSQL: on SQLite only Headway's own connection writes", field="connection"
        )

    @abstractmethod
    def waiter(self) -> Waiter: ...

    @abstractmethod
    def execute_script(self, tx: Tx, text: str) -> None:
        """Runs schema text with several statements inside a migration's transaction."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def check(self) -> list[str]:
        """Runs the database's own integrity check and returns the problems it reports."""

    def beyond(self) -> Database:
        """Returns the database without row-level security, for work across tenants."""
        return self

    def announce(self, besides: Waiter | None = None) -> None:
        """Wakes the waiters for work, in this process and, on PostgreSQL, in all others.

        `besides` is a waiter that has polled already and is not woken.
        """
        for waiter in tuple(self.waiters):  # a copy, because another thread may close a waiter meanwhile
            if waiter is not besides:
                waiter.wake()

    def transaction(self, label: str) -> Transaction:
        """Opens a transaction without retries, for callers that handle conflicts."""
        return Transaction(self, label)

    @staticmethod
    def _settle(tx: Tx) -> None:
        if not tx.committed:
            tx.commit()

    def _settled(self, tx: Tx, by: Waiter | None = None) -> None:
        point(tx.label, "committed")
        if tx.wakes or tx.released:
            self.announce(by)
        elif self.watchers:
            for watcher in self.watchers:
                watcher.wake()

    def watch(self, waiter: Waiter) -> None:
        """Wakes this waiter at every commit of this process, with new work or not."""
        self.watchers = [*self.watchers, waiter]

    def unwatch(self, waiter: Waiter) -> None:
        self.watchers = [watcher for watcher in self.watchers if watcher is not waiter]

    def transact(self, label: str, work: Callable[[Tx, *Args], T], *args: *Args, by: Waiter | None = None) -> T:
        """Runs `work` with these arguments in a transaction, and again from its start after a conflict.

        `by` is the caller's own waiter, which is not woken: the caller has seen the work that the transaction makes.
        """
        for _ in range(self.tries):
            try:
                return self._try(label, work, args, by)
            except Conflict:
                self.pause_after_conflict()
            except LockTaken as error:
                self.judge_lock(error)
        return self._try(label, work, args, by)

    def _try(self, label: str, work: Callable[[Tx, *Args], T], args: tuple[*Args], by: Waiter | None) -> T:
        """Does the same as `with self.transaction(label)`, at less cost for every job.

        The second `end` covers an interrupt between the work and the first `end`.
        """
        tx = self.begin(label)
        try:
            try:
                point(label, "begun")
                answer = work(tx, *args)
                self._settle(tx)
            except HeadwayError:
                raise
            except BaseException:
                tx.doubtful = True
                raise
            finally:
                self.end(tx)
        except BaseException:
            self.end(tx)
            raise
        self._settled(tx, by)
        return answer

    def judge_lock(self, error: LockTaken) -> None:
        """Decides about a lock timeout.

        Returns if the lock's holder was stalled and has been ended; the caller then runs its transaction again.
        Otherwise raises an error that names the holder.
        """
        raise error

    def repeat(self, label: str, work: Callable[[Tx, *Args], T], *args: *Args, by: Waiter | None = None) -> T:
        """Runs idempotent `work`, and again when the answer to its commit is lost."""
        for _ in range(LOST_TRIES):
            try:
                return self.transact(label, work, *args, by=by)
            except CommitUnknown:
                self.pause_after_conflict()
        return self.transact(label, work, *args, by=by)

    def pause_after_conflict(self) -> None:
        """Sleeps briefly, so that the other transaction can finish."""
        time.sleep(dice.uniform(0.001, 0.01))

    def read(self) -> Reading:
        """Opens a snapshot for a `with` statement."""
        return Reading(self)


class Reading:
    """The context manager of a snapshot.

    Not a generator, because an interrupted generator stays alive in its traceback.
    """

    __slots__ = ("database", "tx")

    def __init__(self, database: Database) -> None:
        self.database = database

    def __enter__(self) -> Tx:
        self.tx = self.database.begin_read()
        return self.tx

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tx = self.tx
        try:
            try:
                if error is not None:
                    tx.doubt(error)
            finally:
                self.database.end(tx)
        except BaseException:
            self.database.end(tx)
            raise


class Transaction:
    """The context manager of a transaction without retries."""

    __slots__ = ("database", "label", "tx")

    def __init__(self, database: Database, label: str) -> None:
        self.database = database
        self.label = label

    def __enter__(self) -> Tx:
        tx = self.tx = self.database.begin(self.label)
        try:
            point(self.label, "begun")
        except BaseException:
            self.database.end(tx)
            raise
        return tx

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tx, database = self.tx, self.database
        try:
            try:
                if error is None:
                    database._settle(tx)
                else:
                    tx.doubt(error)
            except HeadwayError:
                raise
            except BaseException:
                tx.doubtful = True
                raise
            finally:
                database.end(tx)
        except BaseException:
            database.end(tx)
            raise
        if error is None:
            database._settled(tx)


def open_database(url: str, *, clock: Clock | None = None, listen: str | None = None) -> Database:
    """Opens the database of a URL: `postgresql://…`, or the path of an SQLite file."""
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from headway.store.postgres.database import PostgresDatabase
        except ImportError as error:
            raise HeadwayError(
                "PostgreSQL needs its driver", hint="install headway[postgres]", code="missing_driver"
            ) from error
        return PostgresDatabase(url, clock=clock, listen=listen)
    from headway.store.sqlite.database import SqliteDatabase

    return SqliteDatabase(url.removeprefix("sqlite:///"), clock=clock)
