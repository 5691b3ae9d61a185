"""Idempotency keys: what a request made, and what was answered, for a day. A `Keyed` database puts the key into the
transaction that makes the thing, so that neither is ever there without the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headway.clock import micros
from headway.errors import BadInput, WrongState
from headway.store.db import Database, Row, Tx, Waiter

T = TypeVar("T")
KEPT = micros(86_400.0)
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key: whose, for which route, and a digest of what was asked with it."""

    tenant_id: int
    route: str
    key: str
    digest: str

    @property
    def place(self) -> dict[str, object]:
        return {"tenant_id": self.tenant_id, "route": self.route, "key": self.key}


class Replayed(Exception):
    """The key was used before: this was the answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__("this request was answered before")
        self.status = status
        self.headers = dict(headers)
        self.body = body


@dataclass(frozen=True, slots=True)
class Making:
    """How what a transaction made is kept as JSON, and found again."""

    pack: Callable[[Any], object]
    unpack: Callable[[Tx, Any], Any]


def take(tx: Tx, key: Key) -> str | None:
    """Takes the key; None: it is ours. If it was used before, what was made with it."""
    if tx.run("take_key", **key.place, digest=key.digest, kept=KEPT):
        return None
    made = look(tx, key, kept=2 * KEPT)  # it was young enough a moment ago
    assert made is not None, "a key that is taken has a row, and our look at it holds that"
    return made


def look(tx: Tx, key: Key, *, kept: int = KEPT) -> str | None:
    """What was made with a key, if it was used; `Replayed` if that was answered too."""
    for digest, made, status, headers, body in tx.run("answer", **key.place, kept=kept):
        if digest != key.digest:
            text = f"Idempotency-Key: {key.key!r} was used here for another request: take a new key for each request"
            raise BadInput(text, code="key_reused", field="Idempotency-Key")
        if status is not None:
            raise Replayed(status, json.loads(headers), body)
        return str(made)
    return None


def in_progress(key: Key) -> WrongState:
    text = (
        f"a request with the Idempotency-Key {key.key!r} began, and its answer is not known: it is under way, or broke"
    )
    return WrongState(f"{text} off in between; look at what it did before you ask with a new key", code="in_progress")


def completed(key: Key, status: int, headers: Mapping[str, str], body: str) -> dict[str, object]:
    """The parameters of `complete_answer`."""
    return {**key.place, "digest": key.digest, "status": status, "headers": json.dumps(dict(headers)), "body": body}


def prune(tx: Tx) -> int:
    return len(tx.run("prune_answers", kept=KEPT, limit=BATCH))


class Keyed(Database):
    """A database for one request: its first transaction takes the key before it works, and keeps what it made.

    Used again while the answer is not known (the first request is on its way, or its process died), the transaction
    makes nothing and returns what the first one did, so that the caller goes on as if it had just been made.
    """

    def __init__(self, inner: Database, key: Key, making: Making, kept: str | None = None) -> None:
        self.inner = inner
        self.key = key
        self.making = making
        # What was made with this key before the request came.
        self.kept = kept
        self.made: object = None
        self.replayed = False
        self.landed = False
        self.dialect, self.one_writer, self.tries = inner.dialect, inner.one_writer, inner.tries
        self.url, self.frozen, self.clock = inner.url, inner.frozen, inner.clock
        self.waiters, self.watchers = inner.waiters, inner.watchers

    def transact(self, label: str, work: Callable[[Tx], T], *, by: Waiter | None = None) -> T:
        if self.landed:
            return self.inner.transact(label, work, by=by)
        made = self.inner.transact(label, lambda tx: self._once(tx, work), by=by)
        self.made, self.landed = made, True
        return made

    def _once(self, tx: Tx, work: Callable[[Tx], T]) -> T:
        # First of all, before any other lock: whoever waits for a key holds nothing.
        kept = take(tx, self.key)
        self.replayed = kept is not None
        if kept is not None:
            found: T = self.making.unpack(tx, json.loads(kept))
            return found
        made = work(tx)
        tx.run("save_made", **self.key.place, made=json.dumps(self.making.pack(made)))
        return made

    def recall(self) -> Any:
        """The number that was made with this key; None: nothing was."""
        if self.kept is None:
            return None
        self.made, self.landed, self.replayed = json.loads(self.kept), True, True
        return self.made

    def once(self, name: str, /, **params: object) -> list[Row]:
        return self.transact(name, lambda tx: tx.run(name, **params))

    def beyond(self) -> Database:
        self.inner = self.inner.beyond()  # this request has one transaction with a key, on whichever side
        return self

    # --- as it is ---

    def begin(self, label: str) -> Tx:
        return self.inner.begin(label)

    def begin_read(self) -> Tx:
        return self.inner.begin_read()

    def end(self, tx: Tx) -> None:
        self.inner.end(tx)

    def run_on(self, connection: Any, name: str, params: Mapping[str, object]) -> list[Row]:
        return self.inner.run_on(connection, name, params)

    def waiter(self) -> Waiter:
        return self.inner.waiter()

    def execute_script(self, tx: Tx, text: str) -> None:
        self.inner.execute_script(tx, text)

    def announce(self, besides: Waiter | None = None) -> None:
        self.inner.announce(besides)

    def watch(self, waiter: Waiter) -> None:
        self.inner.watch(waiter)

    def unwatch(self, waiter: Waiter) -> None:
        self.inner.unwatch(waiter)

    def close(self) -> None:
        self.inner.close()

    def check(self) -> list[str]:
        return self.inner.check()


class Begun(Keyed):
    """A database for one request of several transactions: before the first of them its key is taken, in one of its own.

    They cannot be done again as one: while the answer is not known, nobody else does anything with this key.
    """

    def transact(self, label: str, work: Callable[[Tx], T], *, by: Waiter | None = None) -> T:
        self.begin_request()
        return self.inner.transact(label, work, by=by)

    def begin_request(self) -> None:
        if not self.landed:
            self.inner.transact("begin_request", self._take)
            self.landed = True

    def _take(self, tx: Tx) -> None:
        if take(tx, self.key) is not None:
            raise in_progress(self.key)
