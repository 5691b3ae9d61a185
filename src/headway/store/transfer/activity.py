"""Finds activity in an SQLite file besides workers: reservations and deliveries."""

from __future__ import annotations

import json
from typing import NamedTuple

from headway.store.db import Tx
from headway.store.transfer import seal
from headway.store.worker_views import WorkerView


class ActiveReservationRow(NamedTuple):
    """An active reservation: it lives until `expires_at`, or as long as its `caller`."""

    id: int
    expires_at: int | None
    caller: WorkerView | None


def held(tx: Tx, now: int) -> list[ActiveReservationRow]:
    found: list[ActiveReservationRow] = []
    for number, expires_at, *facts in seal.run(tx, "callers"):
        caller = None
        if facts[0] is not None:
            caller = WorkerView(*(*facts[:6], tuple(json.loads(facts[6])), *facts[7:], now))
        found.append(ActiveReservationRow(number, expires_at, caller))
    return found


def being_sent(tx: Tx, now: int) -> list[int]:
    """Returns deliveries that are leased and have no recorded outcome."""
    return [number for (number,) in seal.run(tx, "being_sent", now=now)]
