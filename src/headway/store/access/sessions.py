"""Stores browser sessions (hash, token and expiry), and the key that signs cookies."""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection

from headway.clock import micros
from headway.model.access.permissions import Token, fingerprint
from headway.store import rows
from headway.store.db import Tx

LASTS = micros(12 * 3600)
BATCH = 500
# Sessions of a token. The oldest one ends when there are more, so that logins without end store no rows without end.
MOST = 100


def insert(tx: Tx, token: Token, hash: str) -> None:
    tx.run("add_session", hash=hash, token_id=token.id, lasts=LASTS)
    tx.run("drop_sessions", token_id=token.id, limit=BATCH, most=MOST)


def find(tx: Tx, plain: str) -> Token | None:
    """Returns the live token of a session; None if it is unknown or has ended.

    The session's hash is compared in constant time, as a token's is.
    """
    hash = fingerprint(plain)
    for *row, stored in tx.run("token_by_session", hash=hash):
        if hmac.compare_digest(hash, stored):
            return rows.token(tuple(row))
    return None


def live_among(tx: Tx, hashes: Collection[str]) -> frozenset[str]:
    rows = json.dumps([[hash] for hash in hashes])
    return frozenset(hash for (hash,) in tx.run("live_sessions", rows=rows)) if hashes else frozenset()


def end(tx: Tx, hash: str) -> None:
    tx.run("end_session", hash=hash)


def prune(tx: Tx) -> int:
    """Deletes a batch of ended sessions and returns how many."""
    return len(tx.run("prune_sessions", limit=BATCH))


# --- the key that signs cookies -----------------------------------------------------------------------------------


def cookie_key(tx: Tx) -> str | None:
    """Returns the stored key in hexadecimal digits; None if there is none yet."""
    return next((secret for (secret,) in tx.run("cookie_key")), None)


def make_cookie_key(tx: Tx, secret: str) -> str:
    """Stores a key unless there is one; returns the stored one."""
    tx.run("add_cookie_key", secret=secret)
    ((stored,),) = tx.run("cookie_key")
    return str(stored)
