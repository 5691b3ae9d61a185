"""Reads the state that new claims start with.

This is the checkpoint and meters of earlier claims and of earlier jobs in the chain, the results of earlier steps, and
the tenant of a job that names a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headway.engine.execution.running import NOTHING
from headway.engine.tasks.registry import Registry
from headway.model.access.secrets import REFERENCE
from headway.model.jobs.job import Carried, Claim
from headway.store.db import Database, Tx
from headway.store.groups import advance as groups
from headway.store.queue import claims


def carried_by(database: Database, registry: Registry, fresh: Sequence[Claim]) -> dict[int, Carried]:
    """Returns the carried state by job id. Most claims carry none, and cost no query."""
    ids = [claim.job_id for claim in fresh if claim.carries]
    steps = [claim for claim in fresh if claim.stage and registry.get(claim.task).signature.takes_context]
    secret = [claim.job_id for claim in fresh if REFERENCE in claim.params]
    if not ids and not steps and not secret:
        return {}
    with database.read() as tx:
        carried = claims.carried(tx, ids) if ids else {}
        carried |= _with_results(tx, steps, carried)
        tenants = claims.tenants_of(tx, secret) if secret else {}
    return carried | {job: replace(carried.get(job, NOTHING), tenant=name) for job, name in tenants.items()}


def _with_results(tx: Tx, steps: Sequence[Claim], carried: dict[int, Carried]) -> dict[int, Carried]:
    """Adds the results of earlier steps, read once per stage."""
    stages = {(claim.group_id or 0, claim.stage or 0) for claim in steps}
    results = {stage: groups.earlier_results(tx, *stage) for stage in stages}
    return {
        claim.job_id: replace(
            carried.get(claim.job_id, NOTHING), results=results[claim.group_id or 0, claim.stage or 0]
        )
        for claim in steps
    }
