"""Sessions of browsers in the database: their hashes, of which token, until when. Functions of a transaction."""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection

from headway.clock import micros
from headway.model.access import Token, fingerprint
from headway.store import tokens
from headway.store.db import Tx

LASTS = micros(12 * 3600)
BATCH = 500


def insert(tx: Tx, token: Token, hash: str) -> None:
    tx.run("add_session", hash=hash, token_id=token.id, lasts=LASTS)


def find(tx: Tx, plain: str) -> Token | None:
    """The live token whose session this is. Found and compared like a token itself."""
    hash = fingerprint(plain)
    for *row, stored in tx.run("token_by_session", hash=hash):
        if hmac.compare_digest(hash, stored):
            return tokens.token_of(tuple(row))
    return None


def live_among(tx: Tx, hashes: Collection[str]) -> frozenset[str]:
    rows = json.dumps([[hash] for hash in hashes])
    return frozenset(hash for (hash,) in tx.run("live_sessions", rows=rows)) if hashes else frozenset()


def end(tx: Tx, hash: str) -> None:
    tx.run("end_session", hash=hash)


def prune(tx: Tx) -> int:
    """Forgets some that have ended; how many."""
    return len(tx.run("prune_sessions", limit=BATCH))
