"""Stores claims that wait for another job's end, with the lanes they hold."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headway.model.explain.deadlock import LaneKey, Limit, Wait, WaitKey
from headway.model.jobs.job import Options
from headway.model.jobs.states import State
from headway.model.queue.place import stage_of
from headway.store.db import Tx


class WaitRow(NamedTuple):
    """A row of `claims_that_wait`: a claim with its lanes, and the job it waits for."""

    job_id: int
    fence: int
    worker_id: int
    tenant_id: int
    target_id: int | None
    group_id: int | None
    stage: int | None
    lanes: str
    options: str
    awaited_id: int
    awaited_status: int
    awaited_tenant_id: int
    awaited_target_id: int | None
    awaited_lanes: str
    joins: bool | int

    @property
    def ends_by_itself(self) -> bool:
        """Returns True if a timeout limits its running time."""
        return '"timeout"' in self.options and Options.parse(self.options).timeout is not None

    @property
    def holds(self) -> frozenset[LaneKey]:
        # A direct call does not count as a running job of its tenant.
        return _lanes(self.lanes, self.target_id, self.tenant_id if self.job_id else None)

    def needs(self, limits: Mapping[LaneKey, Limit]) -> frozenset[LaneKey] | None:
        if self.awaited_status == State.RUNNING:
            return None
        found = _lanes(self.awaited_lanes, self.awaited_target_id, self.awaited_tenant_id)
        return frozenset(lane for lane in found if not (self.joins and lane in limits and limits[lane].staged))


def record(tx: Tx, claim: WaitKey, awaited_id: int) -> bool:
    """Records a wait. Returns False if the claim has ended."""
    return bool(tx.run("record_wait", job_id=claim[0], fence=claim[1], awaited_id=awaited_id))


def forget(tx: Tx, claim: WaitKey) -> None:
    tx.run("forget_wait", job_id=claim[0], fence=claim[1])


def jobs(tx: Tx) -> set[int]:
    """Returns the running jobs that wait for another."""
    return {job_id for (job_id,) in tx.run("waiting_jobs")}


def read(tx: Tx, living: Collection[int]) -> tuple[list[Wait], dict[LaneKey, Limit]]:
    """Returns the waiting claims, and the limits of the lanes they wait for.

    Only jobs of `living` workers count. A claim with a timeout ends by itself and is left out.
    """
    rows = [WaitRow(*row) for row in tx.run("claims_that_wait")]
    found = [row for row in rows if not row.ends_by_itself and (not row.job_id or row.worker_id in living)]
    limits = _limits(tx, found)
    return [_wait(row, limits) for row in found], limits


def _wait(row: WaitRow, limits: Mapping[LaneKey, Limit]) -> Wait:
    stage = stage_of(row.group_id, row.stage)
    return Wait((row.job_id, row.fence), row.tenant_id, row.holds, row.awaited_id, row.needs(limits), stage)


def _lanes(lanes: str, target_id: int | None, tenant_id: int | None) -> frozenset[LaneKey]:
    own = [("target", target_id), ("tenant", tenant_id)]
    return frozenset([*(("lane", n) for n in json.loads(lanes)), *((kind, n) for kind, n in own if n is not None)])


def _limits(tx: Tx, found: Sequence[WaitRow]) -> dict[LaneKey, Limit]:
    """Returns the limits of the lanes and targets that the awaited jobs need.

    A target takes one job. A lane with capacity 0 is a person's decision and has no limit here.
    """
    lanes = sorted({number for row in found for number in json.loads(row.awaited_lanes)})
    limits = {(kind, n): Limit(most, word == "policy") for kind, n, most, word in _limited(tx, lanes) if most > 0}
    targets = {row.awaited_target_id for row in found if row.awaited_target_id is not None}
    return {**limits, **{("target", number): Limit(1) for number in targets}}


def _limited(tx: Tx, lanes: Sequence[int]) -> list[tuple[str, int, int, str]]:
    return tx.run("wait_limits", ids=json.dumps(lanes))
