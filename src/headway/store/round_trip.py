"""Results of statements that are sent ahead of their round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.store.db import Call, Row, Tx

T = TypeVar("T")
U = TypeVar("U")


class Pending(Generic[T]):
    """A value that is known after a round trip, which `result` completes if needed."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch

    def result(self) -> T:
        return self._fetch()

    def map(self, function: Callable[[T], U]) -> Pending[U]:
        """Returns the value of `function`, which runs when it is asked for."""
        result = self.result
        return Pending(lambda: function(result()))

    @staticmethod
    def done(value: U) -> Pending[U]:
        """Returns a value that needs no round trip."""
        return Pending(lambda: value)


class SentStatement(Pending["list[Row]"]):
    """The rows of a statement sent ahead.

    The round trip that carries the statement fills in `rows`. The commit refuses a transaction with an unread one.
    """

    __slots__ = ("call", "read", "rows", "tx")

    def __init__(self, tx: Tx, call: Call, rows: list[Row] | None = None) -> None:
        self.tx = tx
        self.call = call
        self.rows = rows
        self.read = False

    def result(self) -> list[Row]:
        """Returns the rows. Raises after a round trip or a commit that failed."""
        if self.rows is None:
            self.tx.complete(self)
            if self.rows is None:
                raise HeadwayError(f"the round trip of {self.call[0]} failed")
        if not self.read:
            self.read = True
            self.tx.unread -= 1
        return self.rows
