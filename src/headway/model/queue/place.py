"""The place of a job in the queue. Places compare in the order in which jobs are claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

# A group and one of its stages. The running jobs of a stage count as one in the lanes of the policy.
Stage = tuple[int, int]


class Place(NamedTuple):
    """A place in the order of the queue. A higher priority comes first, so it is stored negated."""

    minus_priority: int
    position: int
    created_at: int
    job_id: int
    group_id: int | None = None
    stage: int | None = None


class AgedPlace(NamedTuple):
    """A place within one priority, where jobs compete by how long they have been queued."""

    position: int
    created_at: int
    job_id: int
    queued_at: int
    group_id: int | None = None
    stage: int | None = None


# Like `_make`, in a third of its time. Every claim makes a place for each job that it reads.
place_of: Callable[[Sequence[Any]], Place] = partial(tuple.__new__, Place)
aged_place_of: Callable[[Sequence[Any]], AgedPlace] = partial(tuple.__new__, AgedPlace)


def stage_of(group_id: int | None, stage: int | None) -> Stage | None:
    """Returns the stage that a job belongs to; None for a job outside a group."""
    return None if group_id is None or stage is None else (group_id, stage)
