"""The storage seam: a Database gives transactions, a Tx runs named statements from the `.sql` files.

One SQL text serves both databases; where they differ a fragment in braces stands for both, and a statement
that cannot be shared is redefined by name in `sqlite.sql` or `postgres.sql`.
"""

from __future__ import annotations

import json
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any, TypeVar

from headway.clock import Clock, SystemClock
from headway.errors import BadInput, HeadwayError, Unreachable
from headway.faults import point

T = TypeVar("T")
Row = tuple[Any, ...]
Call = tuple[str, Mapping[str, object]]
Answer = Callable[[], list[Row]]


class Conflict(HeadwayError):
    """Two transactions got in each other's way and this one was undone: run it again from its beginning."""

    code = "conflict"


class LockTaken(Unreachable):
    """Somebody has a lock that was waited for only so long; nothing was changed."""


class Tx(ABC):
    """One transaction. Store functions take it as their first argument."""

    def __init__(self, database: Database, label: str) -> None:
        self.database = database
        self.label = label
        self.wakes = False
        # Jobs that were let go here and not taken: others are woken for them.
        self.released: set[int] = set()
        self.committed = False
        self.touched: set[int] = set()
        self.made_bucket = False

    @abstractmethod
    def run(self, name: str, /, **params: object) -> list[Row]:
        """Runs one named statement and returns its rows."""

    def send(self, name: str, /, **params: object) -> Answer:
        """Runs one that need not be waited for: it goes with the next round trip, before what is run then. Its rows are
        there from then on; asked for earlier, they are fetched."""
        rows = self.run(name, **params)
        return lambda: rows

    def run_beyond(self, name: str, /, **params: object) -> list[Row]:
        """Runs one without the wall around a tenant, in the same snapshot: for a statement that gives numbers only, and
        would walk past the rows of all others without an end where it cannot see them."""
        return self.run(name, **params)

    def run_all(self, *calls: Call, commit: bool = False) -> list[list[Row]]:
        """Runs statements that do not need each other's answers, in one round trip where the database can."""
        answers = [self.run(name, **params) for name, params in calls]
        if commit:
            self.commit()
        return answers

    def touch(self, target_id: int | None) -> None:
        """A job of this target changed: its first job is chosen anew before the next claim."""
        if target_id is not None:
            self.touched.add(target_id)

    def commit(self) -> None:
        if self.touched:
            self.run("touch", ids=json.dumps(sorted(self.touched)))
        point(f"{self.label}.before_commit")
        self._commit()
        self.committed = True

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    def wake(self) -> None:
        """When this transaction has committed, whoever waits for work looks again."""
        self.wakes = True


class Waiter(ABC):
    """A place to sleep until somebody may have made work; hints only, polling is the truth."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Whether somebody may have; else the time is over."""

    @abstractmethod
    def nudge(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Database(ABC):
    """One of the two databases."""

    dialect: str
    tries = 20
    one_writer = False

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self.frozen = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.waiters: list[Waiter] = []
        self.watchers: list[Waiter] = []

    @abstractmethod
    def begin(self, label: str) -> Tx:
        """A transaction that may write."""

    @abstractmethod
    def begin_read(self) -> Tx:
        """A snapshot to read from."""

    @abstractmethod
    def end(self, tx: Tx) -> None:
        """Gives back what `begin` took, rolling back what was not committed."""

    @abstractmethod
    def once(self, name: str, /, **params: object) -> list[Row]:
        """One statement in a transaction of its own, as cheaply as the database allows."""

    def run_on(self, connection: Any, name: str, params: Mapping[str, object]) -> list[Row]:
        """One statement on a connection, and in a transaction, of the caller's own."""
        raise BadInput("connection= needs PostgreSQL: SQLite has one writer, and it is ours", field="connection")

    @abstractmethod
    def waiter(self) -> Waiter: ...

    @abstractmethod
    def execute_script(self, tx: Tx, text: str) -> None:
        """Schema text with several statements, inside a migration's transaction."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def check(self) -> list[str]:
        """Asks the database to check itself; what it finds, in words."""

    def beyond(self) -> Database:
        """The same database without the wall around a tenant, for what has to see them all."""
        return self

    def announce(self, besides: Waiter | None = None) -> None:
        """Work was made: tells the waiters of this process (and of others, where that needs telling), `besides` one
        that has looked already."""
        for waiter in tuple(self.waiters):  # another thread may close one meanwhile
            if waiter is not besides:
                waiter.nudge()

    @contextmanager
    def transaction(self, label: str) -> Iterator[Tx]:
        """One try. Use `transact` unless a conflict has to be seen."""
        tx = self.begin(label)
        try:
            point(f"{label}.begun")
            yield tx
            self._settle(tx)
        finally:
            self.end(tx)
        self._settled(tx)

    @staticmethod
    def _settle(tx: Tx) -> None:
        if not tx.committed:
            tx.commit()

    def _settled(self, tx: Tx, by: Waiter | None = None) -> None:
        point(f"{tx.label}.committed")
        if tx.wakes or tx.released:
            self.announce(by)
        elif self.watchers:
            for watcher in self.watchers:
                watcher.nudge()

    def watch(self, waiter: Waiter) -> None:
        """This waiter is nudged by every commit of this process, not only by those that make work."""
        self.watchers = [*self.watchers, waiter]

    def unwatch(self, waiter: Waiter) -> None:
        self.watchers = [one for one in self.watchers if one is not waiter]

    def transact(self, label: str, work: Callable[[Tx], T], *, by: Waiter | None = None) -> T:
        """Runs `work` in a transaction, again from its beginning when it got in another one's way. `by`: who waits
        there has seen in it whatever work it makes."""
        for _ in range(self.tries):
            try:
                return self._try(label, work, by)
            except Conflict:
                self.pause_after_conflict()
        return self._try(label, work, by)

    def _try(self, label: str, work: Callable[[Tx], T], by: Waiter | None) -> T:
        # The same as `with self.transaction(label)`, without the cost of a generator: every job comes through here.
        tx = self.begin(label)
        try:
            point(f"{label}.begun")
            answer = work(tx)
            self._settle(tx)
        finally:
            self.end(tx)
        self._settled(tx, by)
        return answer

    def pause_after_conflict(self) -> None:
        """Waits a moment, so that the other transaction gets through."""
        time.sleep(random.uniform(0.001, 0.01))

    @contextmanager
    def read(self) -> Iterator[Tx]:
        tx = self.begin_read()
        try:
            yield tx
        finally:
            self.end(tx)


_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)(?:\(([^)]*)\))?\}")


def sql_text(*path: str) -> str:
    return resources.files("headway.store").joinpath("sql", *path).read_text("utf-8")


def sql_files(*path: str) -> list[str]:
    folder = resources.files("headway.store").joinpath("sql", *path)
    names = [item.name for item in folder.iterdir() if item.name.endswith(".sql")]
    # A shared file comes before its dialect files: `0001_x.sql`, then `0001_x.sqlite.sql`.
    return sorted(names, key=lambda name: (name.split(".")[0], name.count(".")))


def blocks(text: str) -> dict[str, str]:
    """The named statements of one file."""
    parts = _NAME.split(text)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def load_statements(dialect: str) -> dict[str, str]:
    """All named statements: the shared ones, then what this dialect redefines."""
    named: dict[str, str] = {}
    for file in sql_files():
        if file not in ("sqlite.sql", "postgres.sql"):
            fresh = blocks(sql_text(file))
            twice = named.keys() & fresh.keys()
            if twice:
                raise HeadwayError(f"{file} names a statement twice: {sorted(twice)}")
            named.update(fresh)
    named.update(blocks(sql_text(f"{dialect}.sql")))
    return named


def render(text: str, fragments: Mapping[str, str | Callable[[str], str]]) -> str:
    """Replaces `{name}` and `{name(arguments)}` by the dialect's text."""

    def one(match: re.Match[str]) -> str:
        fragment = fragments[match[1]]
        return fragment if isinstance(fragment, str) else fragment(match[2] or "")

    return _FRAGMENT.sub(one, text)


def statements_of(text: str) -> list[str]:
    """The statements of a named block; comments go, so that the text is the same for every caller."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [part.strip() for part in bare.split(";\n") if part.strip().rstrip(";")]


def open_database(url: str, *, clock: Clock | None = None, listen: str | None = None) -> Database:
    """The database behind a URL: `postgresql://…`, or the path of a SQLite file."""
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from headway.store.postgres import PostgresDatabase
        except ImportError as error:
            raise HeadwayError(
                "PostgreSQL needs its driver: install headway[postgres]", code="missing_driver"
            ) from error
        return PostgresDatabase(url, clock=clock, listen=listen)
    from headway.store.sqlite import SqliteDatabase

    return SqliteDatabase(url.removeprefix("sqlite:///"), clock=clock)
