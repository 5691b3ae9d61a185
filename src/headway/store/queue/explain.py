"""Reads what explains a tenant's waiting jobs and estimates their starts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from headway.clock import micros
from headway.model.explain.forecast import (
    Estimate,
    ForecastInput,
    Occupant,
    PastDurations,
    TaskKey,
    estimates,
)
from headway.model.explain.snapshot import (
    ActiveReservation,
    Inactive,
    LaneLoad,
    Pause,
    QueuedJob,
    QueueSnapshot,
    Runner,
    TargetLoad,
    WorkerSlots,
    queued,
    queued_job,
)
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket
from headway.model.queue.place import stage_of
from headway.model.queue.target import TargetHolder
from headway.store.db import Tx
from headway.store.queue.claim_dry_run import ClaimDryRun
from headway.store.queue.reservations import holders

# Jobs further back have no rank, because counting costs as much as the queue is long.
RANKED = 1_000
# Number of latest finished jobs from which durations come.
REMEMBERED = 2_000


def _targets(line: Sequence[QueuedJob]) -> set[int]:
    return {job.target_id for job in line if job.target_id is not None}


class RunningClaim(NamedTuple):
    id: int
    tenant_id: int
    bucket_id: int
    worker_id: int
    slot: int
    task: str
    claimed_at: int
    target_id: int | None
    ran: int
    group_id: int | None
    stage: int | None


class ExplainInputs:
    """Everything that explains a set of jobs, read once.

    `all_slots` are the live workers by number. `known` are the workers whose running jobs are expected to end normally.
    `first`: the jobs are the beginning of the queue itself.
    """

    def __init__(
        self,
        tx: Tx,
        tenant_id: int,
        asked: Sequence[JobRecord],
        all_slots: Mapping[int, WorkerSlots],
        known: Collection[int],
        *,
        first: bool = False,
    ) -> None:
        self.tx, self.tenant_id, self.asked = tx, tenant_id, asked
        self.workers, self.known = list(all_slots), known
        # Jobs further back cannot delay the beginning of the queue.
        self.line = [queued_job(job) for job in asked] if first else self._line(tenant_id)
        self.targets = sorted({job.target_id for job in asked if job.target_id is not None})
        self.dry_run = ClaimDryRun(tx, list(all_slots.values()), targets={*self.targets, *_targets(self.line)})
        self.capacity, self.picks = self.dry_run.play()
        self.now = self.dry_run.view.now
        self.running = [RunningClaim(*row) for row in tx.run("running_jobs")]
        self.reservations = self._reservations()
        wanted = {job.bucket_id for job in asked} | {one.bucket_id for one in self.line}
        self.buckets = self.dry_run.buckets(wanted)
        self.snapshot = self._snapshot()

    def _reservations(self) -> tuple[ActiveReservation, ...]:
        """Returns the reservations that a claim would find active."""
        active = {one.id: one.granted_at is not None for one in self.dry_run.reserved}
        found = holders(self.tx) if active else []
        return tuple(one._replace(granted=active[one.id]) for one in found if one.id in active)

    def _line(self, tenant_id: int, limit: int = RANKED) -> list[QueuedJob]:
        ((found,),) = self.tx.run("line", tenant_id=tenant_id, limit=limit)
        return sorted((QueuedJob(*row) for row in json.loads(found)), key=attrgetter("place"))

    # --- why ---

    def _snapshot(self) -> QueueSnapshot:
        pauses = {owner: Pause(*facts) for owner, *facts in self.tx.run("pauses", tenant_id=self.tenant_id)}
        held = [job.id for job in self.asked if job.status in (State.PAUSED, State.ERROR)]
        own = [
            worker_slots
            for worker_slots in self.dry_run.all_slots
            if worker_slots.tenants is None or self.tenant_id in worker_slots.tenants
        ]
        return QueueSnapshot(
            self.now,
            self.tenant_id,
            pauses.get(self.tenant_id),
            pauses.get(0),
            self._lanes(),
            self._targets(),
            self.reservations,
            tuple(own),
            tuple(job._replace(open=self._is_open(job)) for job in self.line if queued(job, self.now)),
            self.buckets,
            tuple(self.picks),
            dict(self.tx.run("held_since", ids=json.dumps(held))) if held else {},
            *self._tenant(),
            elsewhere=len(self.dry_run.all_slots) - len(own),
        )

    def _tenant(self) -> tuple[LaneLoad | None, Inactive | None]:
        """Returns the tenant's own load if it has a limit, and since when it is inactive."""
        found = self.tx.run("tenant_terms", id=self.tenant_id)
        if not found:
            return None, None
        ((name, active, most, since),) = found
        own = [one for one in self.running if one.tenant_id == self.tenant_id]
        runners = tuple(Runner(one.claimed_at, one.id) for one in own)
        load = LaneLoad(name, most, runners, free=self.capacity.tenants.get(self.tenant_id))
        return None if most is None else load, None if active else Inactive(name, since)

    def _lanes(self) -> dict[int, LaneLoad]:
        running: dict[int, list[Runner]] = {}
        for one, bucket in self._running():
            for lane in bucket.lanes:
                known = one.id if one.tenant_id == self.tenant_id else None
                runner = Runner(one.claimed_at, known, stage_of(one.group_id, one.stage))
                running.setdefault(lane, []).append(runner)
        return {
            number: LaneLoad(
                lane.name,
                lane.capacity,
                tuple(running.get(number, ())),
                lane.kind == "resource",
                self.capacity.free.get(number),
                number in self.capacity.closed,
                frozenset(self.capacity.sharing.stages.get(number, ())),
            )
            for number, lane in self.dry_run.described.items()
        }

    def _running(self) -> Iterator[tuple[RunningClaim, Bucket]]:
        """Returns running jobs with the buckets under which they were claimed."""
        ids = {one.bucket_id for one in self.running}
        buckets = {bucket.id: bucket for bucket in self.dry_run.lanes.load(self.tx, ids)}
        return ((one, buckets[one.bucket_id]) for one in self.running)

    def _targets(self) -> dict[int, TargetLoad]:
        if not self.targets:
            return {}
        ids, dry_run = json.dumps(self.targets), self.dry_run
        holders = {
            target: TargetHolder(job_id, State(status), since, reason)
            for target, job_id, status, since, reason in self.tx.run("target_holders", ids=ids)
        }
        return {
            target: TargetLoad(
                name,
                None if paused_at is None else Pause(paused_at, None, note),
                holders.get(target),
                dry_run.firsts.get(target),
                target in dry_run.shut,
            )
            for target, name, paused_at, note in self.tx.run("targets_by_id", ids=ids)
        }

    def _is_open(self, job: QueuedJob) -> bool:
        if job.target_id is None:
            return True
        return self.dry_run.fronts[job.target_id] == job.id and job.id not in self.capacity.barred

    # --- when ---

    def estimates(self, wanted: Sequence[JobRecord]) -> dict[int, Estimate]:
        """Estimates the start of these jobs from the durations of past runs.

        A job without an estimate is missing from the result.
        """
        at_once = {job.id: Estimate(self.now, self.now) for job in wanted if job.id in self.snapshot.picked}
        inside = {one.id for one in self.line} - at_once.keys()
        later = {job.id for job in wanted if job.id in inside and self._comes(job)}
        return at_once | (estimates(later, self._forecast_input(), history(self.tx)) if later and self.workers else {})

    def _comes(self, job: JobRecord) -> bool:
        return job.status is State.SCHEDULED or queued(job, self.now)

    def _forecast_input(self) -> ForecastInput:
        """Returns the input of the forecast, with competing jobs of other tenants."""
        view, lanes = self.dry_run.view, self.dry_run.lanes
        line = [one for one in (*self.line, *self._others()) if one.waits(self.now)]
        buckets = self.dry_run.buckets({one.bucket_id for one in line})
        return ForecastInput(
            self.now,
            line,
            buckets,
            [self._occupant(one, bucket) for one, bucket in self._running()],
            self.dry_run.all_slots,
            view.capacity,
            self.reservations,
            view.paused,
            self._shut(_targets(line)),
            None if lanes.concurrency.aging is None else micros(lanes.concurrency.aging),
            frozenset(view.policy),
            view.limits,
            self.dry_run.stored_turns({bucket.tenant_id for bucket in buckets.values()}),
        )

    def _others(self) -> Iterator[QueuedJob]:
        """Yields the beginnings of other tenants' queues, RANKED jobs in all."""
        tenants = [tenant_id for (tenant_id,) in self.tx.run("tenants_in_line") if tenant_id != self.tenant_id]
        for tenant_id in tenants[:RANKED]:
            yield from self._line(tenant_id, max(1, RANKED // len(tenants)))

    def _occupant(self, one: RunningClaim, bucket: Bucket) -> Occupant:
        kind = (one.tenant_id, bucket.task) if one.worker_id in self.known else None
        worker_slots = self.workers.index(one.worker_id) if one.worker_id in self.workers else None
        stage = stage_of(one.group_id, one.stage)
        tenant_id = one.tenant_id
        return Occupant(
            bucket.lanes, kind, one.claimed_at, one.ran, one.target_id, worker_slots, None, stage, tenant_id
        )

    def _shut(self, targets: Collection[int]) -> frozenset[int]:
        """Returns the targets that wait for a person."""
        found = self.tx.run("target_fronts", ids=json.dumps(sorted(targets))) if targets else []
        held = (State.PAUSED, State.ERROR)
        return frozenset(target for target, paused, *_, status in found if paused is not None or status in held)


def history(tx: Tx) -> PastDurations:
    """Returns the latest durations of each kind of work."""
    found: dict[TaskKey, list[int]] = {}
    ((runs,),) = tx.run("past_runs", limit=REMEMBERED)
    for tenant_id, task, ran in json.loads(runs):
        found.setdefault((tenant_id, task), []).append(ran)
    return found
