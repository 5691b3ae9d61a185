"""Who is at work in an SQLite file without being a worker: what is reserved, and what is being sent."""

from __future__ import annotations

import json
from typing import NamedTuple

from headway.store import sealing
from headway.store.db import Tx
from headway.store.workers_reading import WorkerView


class Held(NamedTuple):
    """An active reservation: it lives until `expires_at`, or for as long as its `caller`."""

    id: int
    expires_at: int | None
    caller: WorkerView | None


def held(tx: Tx, now: int) -> list[Held]:
    found: list[Held] = []
    for number, expires_at, *facts in sealing.run(tx, "callers"):
        caller = None
        if facts[0] is not None:
            caller = WorkerView(*(*facts[:6], tuple(json.loads(facts[6])), *facts[7:], now))
        found.append(Held(number, expires_at, caller))
    return found


def being_sent(tx: Tx, now: int) -> list[int]:
    """Deliveries that somebody has taken, and whose outcome is not written yet."""
    return [number for (number,) in sealing.run(tx, "being_sent", now=now)]
