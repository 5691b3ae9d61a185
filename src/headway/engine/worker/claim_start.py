"""Starts the work of new claims.

Reads the state that they start with, gives each a sink for its reports, and hands it to the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headway.engine.execution.running import NOTHING, Running
from headway.engine.execution.secrets import Vault
from headway.engine.tasks.registry import Registry
from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.job_inputs import carried_by
from headway.engine.worker.lease import Lease
from headway.engine.worker.report_buffer import ReportBuffer
from headway.engine.worker.sink import ReportSink
from headway.engine.worker.stale_claims import StaleClaims
from headway.model.jobs.job import Claim


class StartTerms(Protocol):
    """The settings that work starts with."""

    @property
    def artifacts(self) -> Path: ...
    @property
    def vault(self) -> Vault: ...


class ClaimStart:
    """Turns claims into running work. Only the worker's thread starts."""

    def __init__(
        self,
        lease: Lease,
        registry: Registry,
        pool: ExecutionPool,
        notes: ReportBuffer,
        stale: StaleClaims,
        terms: StartTerms,
    ) -> None:
        self.database = lease.database
        self.worker_id = lease.who.id
        self.registry = registry
        self.pool = pool
        self.notes = notes
        self.stale = stale
        self.terms = terms

    def start(self, fresh: Sequence[Claim]) -> None:
        carried = carried_by(self.database, self.registry, fresh)
        batch: list[Running] = []
        pool, vault = self.pool, self.terms.vault
        running_jobs, at_work, sink_of = pool.running, pool.at_work, self.sink_of
        for claim in fresh:
            spec, before = self.registry.get(claim.task), carried.get(claim.job_id, NOTHING)
            running = Running(claim, spec, sink_of(claim), before, vault=vault)
            running_jobs[claim.job_id] = running
            at_work.add(claim.job_id)
            if claim.carries:
                self.notes.begin(claim.job_id, running.carried.spent)
            if running.spec.isolation == "async":
                batch.append(running)
            else:
                pool.start_in_slot(running)
        if batch:
            pool.start_in_loop(batch)

    def sink_of(self, claim: Claim) -> ReportSink:
        return ReportSink(
            self.database,
            self.worker_id,
            claim,
            self.notes,
            self.stale.reject,
            pool=self.pool,
            artifacts=self.terms.artifacts,
        )
