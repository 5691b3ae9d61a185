"""Checks of the queue: pauses, held jobs, paused targets, limits, and the owners of secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.engine.client.client import KNOWN_FOR
from headway.engine.client.limits import differences, living
from headway.engine.monitoring.check import LISTED, READ, Scope
from headway.model.access.secrets import OwnedSecret
from headway.model.access.tenants import EVERYBODY
from headway.model.checks import Answer, look, ok
from headway.model.jobs.states import State
from headway.model.queue.target import TargetState, TargetView
from headway.store import stats
from headway.store.db import Row, Tx
from headway.store.jobs.held import HeldJob, held
from headway.store.queue import targets
from headway.text import findings
from headway.text.findings import some

# --- pauses -------------------------------------------------------------------------------------------------------


def read_pauses(scope: Scope) -> list[Row]:
    return scope.tx.run("pauses_of_all", limit=READ)


def judge_pauses(found: Sequence[Row]) -> Answer:
    """Judges paused queues as (tenant id, tenant, until, note); id 0 stands for all tenants."""
    if not found:
        return ok("open")
    names = [
        f"{'all tenants' if not number else f'tenant {name}'}{f' ({note})' if note else ''}"
        for number, name, _, note in found
    ]
    command = "headway queue resume --all" if not found[0][0] else "headway queue resume"
    return look(f"paused for {some(names)}", f"resume it with `{command}`")


# --- held jobs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldSeen:
    """The number of held jobs by state, and those that hold a target as (job, state, target).

    `jobs` are the first held jobs of the tenant; they are not read for all tenants.
    """

    now: int
    counts: Mapping[str, int]
    holders: Sequence[Row]
    jobs: Sequence[HeldJob] = ()


def read_held(scope: Scope) -> HeldSeen:
    if scope.tenant_id is None:
        return HeldSeen(scope.now, stats.held_jobs(scope.tx), scope.tx.run("holders_of_all", limit=READ))
    jobs = held(scope.tx, scope.tenant_id, LISTED)
    names = [job.view.job.status.name for job in jobs]
    views = [job.view for job in jobs if job.view.target is not None]
    holders: list[Row] = [(view.job.id, view.job.status, view.target) for view in views]
    return HeldSeen(scope.now, {name: names.count(name) for name in sorted(set(names))}, holders, jobs)


def judge_held(seen: HeldSeen) -> Answer:
    if not any(seen.counts.values()):
        return ok("no job waits for a person")
    counts = ", ".join(f"{count} {name}" for name, count in seen.counts.items() if count)
    holders = [f"{target} (job {job_id}, {State(status).name})" for job_id, status, target in seen.holders]
    kept = f"; targets held: {some(holders)}" if holders else ""
    found = [
        findings.job_held(job.view.job, seen.now, since=job.since, target=job.view.target, behind=_behind(job))
        for job in seen.jobs
    ]
    remedy = f"{findings.HELD}; see them with `headway jobs ls --status PAUSED,ERROR`"
    return look(f"{counts} wait for a person{kept}", remedy, found)


def _behind(job: HeldJob) -> str:
    if not job.waiting:
        return ""
    return f", {job.waiting:,}{'+' if job.at_least else ''} {'job' if job.waiting == 1 else 'jobs'} behind it"


# --- targets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PausedTargets:
    now: int
    targets: Sequence[TargetView]


def read_targets(scope: Scope) -> PausedTargets:
    if scope.tenant_id is not None:
        return PausedTargets(scope.now, targets.paused(scope.tx, scope.tenant_id, LISTED)[0])
    rows = scope.tx.run("paused_targets_of_all", limit=READ)
    return PausedTargets(scope.now, [TargetView(0, name, TargetState.PAUSED, note=note) for name, _, note in rows])


def judge_targets(seen: PausedTargets) -> Answer:
    if not seen.targets:
        return ok("no target is paused")
    names = [f"{target.name}{f' ({target.note})' if target.note else ''}" for target in seen.targets]
    found = [findings.target_paused(target, seen.now) for target in seen.targets]
    return look(f"paused: {some(names)}", found[0].remedy.line, found)


# --- limits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitsSeen:
    """The limits that differ from the settings. A living worker keeps the next one from changing them."""

    differences: Sequence[str]
    any_alive: bool


def read_limits(scope: Scope) -> LimitsSeen:
    found = differences(scope.tx, scope.expected.concurrency, scope.expected.resources)
    return LimitsSeen([str(difference) for difference in found], bool(living(scope.tx)))


def judge_limits(seen: LimitsSeen) -> Answer:
    if not seen.differences:
        return ok("the limits match the settings")
    if not seen.any_alive:
        return ok(f"the next worker to start applies the settings; in force now: {some(seen.differences)}")
    text = "apply the settings with `headway up --adopt-settings`; `headway limits ls` shows the limits in force"
    return look(f"the limits in force differ from the settings: {some(seen.differences)}", text)


# --- owners of secrets --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnersSeen:
    """The number of secrets, and what their owners lack."""

    secrets: int
    problems: Sequence[str]


def read_owners(scope: Scope) -> OwnersSeen:
    """Reads whether the owners of each secret exist. Only workers of the last days tell which tasks there are."""
    secrets = scope.expected.secrets
    if not secrets:
        return OwnersSeen(0, [])
    tasks = [task for task, *_ in scope.tx.run("known_tasks", within=micros(KNOWN_FOR))]
    problems = list(_without_tenant(scope.tx, secrets))
    if tasks:
        unused = {name: secret.unused_patterns(tasks) for name, secret in secrets.items()}
        problems += [
            f"{name} is for the task {some(found)}, which no worker has" for name, found in unused.items() if found
        ]
    return OwnersSeen(len(secrets), problems)


def judge_owners(seen: OwnersSeen) -> Answer:
    if not seen.secrets:
        return ok("the settings name no secrets")
    if seen.problems:
        return look("; ".join(seen.problems), "correct `tenants` and `tasks` in `secrets`, or create the tenant")
    return ok("every secret has owners that exist")


def _without_tenant(tx: Tx, secrets: Mapping[str, OwnedSecret]) -> Iterator[str]:
    wanted = {tenant for secret in secrets.values() for tenant in secret.tenants} - {EVERYBODY}
    missing = {tenant for tenant in wanted if not tx.run("tenant_named", name=tenant)}
    for name, secret in secrets.items():
        if found := [tenant for tenant in secret.tenants if tenant in missing]:
            yield f"{name} is for the tenant {some(found)}, which does not exist"
