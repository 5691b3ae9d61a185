"""Idempotency keys: stores for a day what a request made and what was answered.

`run_once` writes the key in the transaction that makes the thing, so that neither exists without the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headway.clock import micros
from headway.errors import BadInput, WrongState
from headway.store.db import Tx

T = TypeVar("T")
KEPT = micros(86_400.0)
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key of a tenant for one route, with a digest of the request."""

    tenant_id: int
    route: str
    key: str
    digest: str

    @property
    def place(self) -> dict[str, object]:
        return {"tenant_id": self.tenant_id, "route": self.route, "key": self.key}


class Replayed(Exception):
    """The request was answered before under this key; carries that answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__("this request was answered before")
        self.status = status
        self.headers = dict(headers)
        self.body = body


@dataclass(frozen=True, slots=True)
class Making:
    """How a transaction's result is stored as JSON and read back."""

    pack: Callable[[Any], object]
    unpack: Callable[[Tx, Any], Any]


def take(tx: Tx, key: Key) -> str | None:
    """Takes the key. Returns None if it was free, otherwise what was made under it."""
    if tx.run("take_key", **key.place, digest=key.digest, kept=KEPT):
        return None
    made = look(tx, key, kept=2 * KEPT)  # the row was within KEPT when `take_key` saw it
    assert made is not None, "a key that was taken has a row"
    return made


def look(tx: Tx, key: Key, *, kept: int = KEPT) -> str | None:
    """Returns what was made under a key; None if the key is unused.

    Raises `Replayed` if the request was also answered.
    """
    for digest, made, status, headers, body in tx.run("answer", **key.place, kept=kept):
        if digest != key.digest:
            text = f"Idempotency-Key: {key.key!r} was used here for another request: use a new key for each request"
            raise BadInput(text, code="key_reused", field="Idempotency-Key")
        if status is not None:
            raise Replayed(status, json.loads(headers), body)
        return str(made)
    return None


def run_once(tx: Tx, key: Key, making: Making, work: Callable[[Tx], T]) -> tuple[T, bool]:
    """Runs `work` once per key. Returns what it made, and True if an earlier transaction made it.

    The key is taken before any other lock, so a transaction that waits for a key holds no lock.
    """
    kept = take(tx, key)
    if kept is not None:
        found: T = making.unpack(tx, json.loads(kept))
        return found, True
    made = work(tx)
    tx.run("save_made", **key.place, made=json.dumps(making.pack(made)))
    return made, False


def in_progress(key: Key) -> WrongState:
    text = f"the request with the Idempotency-Key {key.key!r} has no recorded answer: it is still running, or was"
    return WrongState(f"{text} interrupted; check what it did before you use a new key", code="in_progress")


def completed(key: Key, status: int, headers: Mapping[str, str], body: str) -> dict[str, object]:
    """Returns the parameters of `complete_answer`."""
    return {**key.place, "digest": key.digest, "status": status, "headers": json.dumps(dict(headers)), "body": body}


def prune(tx: Tx) -> int:
    return len(tx.run("prune_answers", kept=KEPT, limit=BATCH))
