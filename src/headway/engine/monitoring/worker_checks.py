"""Checks of workers: their state, what they left behind, and the tasks that they serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.clock import micros
from headway.engine.client.limits import lives, living
from headway.engine.execution import process_tree
from headway.engine.monitoring.check import Scope
from headway.model.checks import OVERDUE, Answer, Finding, broken, look, ok, skipped
from headway.model.explain.forecast import span
from headway.store import worker_views
from headway.store.worker_views import WorkerView
from headway.store.workers import worker_name
from headway.text import findings
from headway.text.findings import some
from headway.text.workers import WorkerStatus, standing

HALTED = "A signal stopped its process: it does nothing, and loses its jobs when its lease ends."


# --- workers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """The workers that were not given up, each with its status.

    `jobs_wait` means that no worker is at work and that jobs are ready to start.
    """

    workers: Sequence[tuple[WorkerView, WorkerStatus]]
    jobs_wait: bool = False

    @property
    def at_work(self) -> list[WorkerView]:
        return [worker for worker, status in self.workers if status.word in ("live", "draining")]


def read_workers(scope: Scope) -> WorkersSeen:
    seen = WorkersSeen([(worker, _status(worker)) for worker in worker_views.workers(scope.tx, within=0.0)])
    return seen if seen.at_work else replace(seen, jobs_wait=bool(scope.tx.run("filled_buckets")))


def _status(worker: WorkerView) -> WorkerStatus:
    """Returns the status of a worker; `halted` if a signal stopped its process on this host."""
    alive = worker.has_lease and lives(worker)
    status = standing(worker.shown_state, left=False, has_lease=worker.has_lease, process=alive, note=worker.note)
    here = (worker.host, worker.boot) == (process_tree.host(), process_tree.boot_id())
    if status.word == "live" and here and process_tree.halted(worker.pid):
        return replace(status, word="halted", tone="bad", text=HALTED)
    return status


def judge_workers(seen: WorkersSeen) -> Answer:
    at_work = seen.at_work
    slots = sum(worker.slots for worker in at_work)
    detail = f"{len(at_work)} at work with {slots} slots" if at_work else "no worker is at work"
    detail += ", and jobs wait" if seen.jobs_wait else ""
    found = tuple(_findings(seen))
    for word, remedy in findings.WORKER.items():
        if bad := [_named(worker) for worker, status in seen.workers if status.word == word]:
            judge = look if at_work else broken
            return judge(f"{detail}; {word}: {some(bad)}", remedy.line, found)
    if not at_work:
        judge = broken if seen.jobs_wait else look
        return judge(detail, findings.NO_WORKER.remedy.line, found)
    leaving = sum(worker.state == "draining" for worker in at_work)
    return replace(ok(f"{detail}{f', {leaving} of them ending' if leaving else ''}"), findings=found)


def _findings(seen: WorkersSeen) -> list[Finding]:
    """Returns the findings about all workers together, then one for each worker that needs a person."""
    found: list[Finding] = []
    if not any(status.word in ("live", "paused", "halted") for _, status in seen.workers):
        found.append(findings.NO_WORKER)
    if silent := sum(status.word == "silent" for _, status in seen.workers):
        found.append(findings.silent(silent))
    bad = ((worker, status) for worker, status in seen.workers if status.word in findings.WORKER)
    return [*found, *(findings.worker(status, worker_name(w.id), w.host, w.pid) for w, status in bad)]


def _named(worker: WorkerView) -> str:
    why = f" ({worker.note})" if worker.note is not None else ""
    return f"{worker_name(worker.id)[:8]} on {worker.host} pid {worker.pid}{why}"


# --- recovery -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unrecovered:
    """Workers and jobs that recovery should have ended, and the number of jobs that the next recovery will end."""

    late: Sequence[str]
    jobs: Sequence[str]
    left: int
    any_alive: bool


def read_unrecovered(scope: Scope) -> Unrecovered:
    """Reads lost workers and lost claims.

    Every process recovers a silent worker once it has watched it for a lease.
    """
    late: list[str] = []
    left = 0
    allowed = micros(2 * scope.expected.recovery_interval + OVERDUE)
    for worker in worker_views.workers(scope.tx, within=0.0):
        lease = max(0, worker.lease_until - worker.beat_at)
        if worker.now - worker.lease_until > lease + allowed:
            silence = span(worker.now - worker.beat_at)
            late.append(f"worker {worker_name(worker.id)[:8]} on {worker.host} (silent for {silence})")
        elif not lives(worker):
            left += len(worker.running)
    orphans = scope.tx.run("orphans", worker_id=-1, slot=-1, limit=200)
    return Unrecovered(late, [f"job {job_id}" for job_id, *_ in orphans], left, bool(living(scope.tx)))


def judge_unrecovered(seen: Unrecovered) -> Answer:
    if seen.late or seen.jobs:
        return broken(f"not recovered: {some([*seen.late, *seen.jobs])}", findings.RECOVERY.line)
    if seen.left:
        text = f"{seen.left} job{' waits' if seen.left == 1 else 's wait'} for the next recovery"
        return ok(text) if seen.any_alive else look(text, findings.RECOVERY.line)
    return ok("nothing is left to recover")


# --- machines and tasks -------------------------------------------------------------------------------------------


def read_machines(scope: Scope) -> list[str]:
    """Returns the names of the machines with a live worker.

    Containers have different host names and share one boot id.
    """
    alive = [worker for worker in worker_views.workers(scope.tx, within=0.0) if worker.has_lease]
    machines = {worker.boot.partition("/")[0]: worker.host for worker in alive}
    return sorted(set(machines.values()))


def judge_machines(machines: Sequence[str]) -> Answer:
    if len(machines) > 1:
        text = f"workers of several machines use this file: {some(machines)}"
        return broken(text, "stop all but one of them, run `headway db check`, and use PostgreSQL for several machines")
    return ok("all workers are on one machine")


@dataclass(frozen=True, slots=True)
class TasksSeen:
    """The tasks of live workers, and of jobs that are ready to start.

    `unserved` are tasks of tenants that no worker with the task serves.
    """

    served: frozenset[str]
    waiting: frozenset[str]
    unserved: frozenset[str] = frozenset()


def read_tasks(scope: Scope) -> TasksSeen:
    alive = living(scope.tx)
    served = frozenset(task for worker in alive for task in worker.tasks)
    filled = {number for (number,) in scope.tx.run("filled_buckets")}
    waiting = {(task, owner) for number, owner, task, *_ in scope.tx.run("all_buckets") if number in filled}
    unserved = {task for task, owner in waiting if not any(worker.claims(task, owner) for worker in alive)}
    return TasksSeen(served, frozenset(task for task, _ in waiting), frozenset(unserved & served))


def judge_tasks(seen: TasksSeen) -> Answer:
    if not seen.served:
        return skipped("no worker is at work")
    if missing := sorted(seen.waiting - seen.served):
        text = f"jobs wait for {some(missing)}, which no worker serves"
        return look(text, "start a worker with that task: `headway work --app module:app`")
    if seen.unserved:
        text = f"jobs wait for {some(sorted(seen.unserved))}, and the workers with that task serve other tenants only"
        return look(text, "start a worker for their tenant: `headway work --tenant NAME`")
    return ok("every task that jobs wait for is served" if seen.waiting else "no job is ready to start")
