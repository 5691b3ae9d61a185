"""What claims begin with: what earlier claims and jobs of their chain left, and the results of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headway.engine.registry import Registry
from headway.engine.run import NOTHING
from headway.model.job import Carried, Claim
from headway.store import claims, groups
from headway.store.db import Database, Tx


def carried_by(database: Database, registry: Registry, fresh: Sequence[Claim]) -> dict[int, Carried]:
    """By job. Most bring nothing, and nothing is read for them."""
    ids = [claim.job_id for claim in fresh if claim.carries]
    steps = [claim for claim in fresh if claim.stage and registry.get(claim.task).signature.takes_context]
    if not ids and not steps:
        return {}
    with database.read() as tx:
        carried = claims.carried(tx, ids) if ids else {}
        return carried | _with_results(tx, steps, carried)


def _with_results(tx: Tx, steps: Sequence[Claim], carried: dict[int, Carried]) -> dict[int, Carried]:
    """What earlier steps left, read once for all steps of a stage."""
    stages = {(claim.group_id or 0, claim.stage or 0) for claim in steps}
    results = {stage: groups.earlier_results(tx, *stage) for stage in stages}
    return {
        claim.job_id: replace(
            carried.get(claim.job_id, NOTHING), results=results[claim.group_id or 0, claim.stage or 0]
        )
        for claim in steps
    }
