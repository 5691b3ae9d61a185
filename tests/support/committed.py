"""Claims as a turn of a worker makes them: the statements of the plan and the commit in one round trip."""

from __future__ import annotations

from typing import Any

from headway.model.jobs.job import Claim
from headway.store.db import Tx
from headway.store.queue import claims


def take(tx: Tx, *args: Any, **named: Any) -> list[Claim]:
    plan = claims.take(tx, *args, **named)
    return plan.claims(tx.run_all(*plan.statements, commit=True))


def claim(tx: Tx, *args: Any, **named: Any) -> list[Claim]:
    plan = claims.claim(tx, *args, **named)
    return [] if plan is None else plan.claims(tx.run_all(*plan.statements, commit=True))
