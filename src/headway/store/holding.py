"""What waits for a person: PAUSED and ERROR jobs, the targets they keep, and how many jobs wait behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.model.states import State
from headway.store import reading
from headway.store.db import Tx
from headway.store.pages import BUDGET, Filters
from headway.store.reading import JobView

HELD = frozenset({State.PAUSED, State.ERROR})


@dataclass(frozen=True, slots=True)
class Held:
    """A held job, since when, and how many jobs wait for its target. `at_least`: more than were counted."""

    view: JobView
    since: int | None = None
    waiting: int = 0
    at_least: bool = False


def held(tx: Tx, tenant_id: int, limit: int = 50) -> list[Held]:
    """The newest first."""
    found = reading.list_jobs(tx, tenant_id, Filters(HELD), limit).items
    if not found:
        return []
    since: dict[int, int] = dict(tx.run("held_since", ids=json.dumps([one.job.id for one in found])))
    targets = sorted({one.job.target_id for one in found if one.job.target_id is not None})
    most = BUDGET // max(1, len(targets))
    waiting: dict[int, int] = dict(tx.run("waiting_on_targets", ids=json.dumps(targets), most=most)) if targets else {}
    return [_held(one, since, waiting.get(one.job.target_id or 0, 0), most) for one in found]


def _held(view: JobView, since: dict[int, int], waiting: int, most: int) -> Held:
    return Held(view, since.get(view.job.id), waiting, waiting >= most)
