"""The one way out of RUNNING: decide, fence, record, retry, in one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.model import verbs
from headway.model.job import Actor, Claim, Job, Options
from headway.model.outcome import Completed, Failed, FailureKind, Outcome
from headway.model.plan import Group
from headway.model.retry import paid
from headway.model.states import Standing, State, decide
from headway.store import claims, groups, jobs
from headway.store.db import Tx
from headway.store.groups import Locked


class Ended(NamedTuple):
    """A claim whose work is over, and how. `attached`: it left files, which its run names."""

    claim: Claim
    outcome: Outcome
    attached: bool = False

    @property
    def plain(self) -> bool:
        """COMPLETED whatever the row says, and nothing but a result to record: many of these end in one statement."""
        # A claim that carries something may be of a run that left files under an earlier one.
        left_files = self.attached or self.claim.carries
        return isinstance(self.outcome, Completed) and self.outcome.exit_code is None and not left_files


Stale = Callable[[], list[Ended]]


def lock_groups(tx: Tx, ended: Sequence[Ended]) -> Locked:
    """The groups of these claims: locked before any job is."""
    of_groups = _of_groups(ended)
    return groups.lock_to_end(tx, of_groups) if of_groups else dict


def _of_groups(ended: Sequence[Ended]) -> set[int]:
    return {e.claim.group_id for e in ended if e.claim.group_id is not None}


def finish(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended]) -> list[Ended]:
    """Ends these claims, and advances the groups they belong to. Returns the ones whose fence was stale: nothing was
    changed for them."""
    return send_ends(tx, worker_id, actor, ended, lock_groups(tx, ended))()


def send_ends(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended], locked: Locked) -> Stale:
    """The same for one who goes on: it may be under way until another answer is waited for. To be asked, before the
    commit, for the stale ones."""
    plain: list[Ended] = []
    others: list[Ended] = []
    for one in ended:
        (plain if one.plain else others).append(one)
    late = _complete(tx, worker_id, actor, plain) if plain else list
    others.sort(key=lambda e: e.claim.job_id)
    stale = [e for e in others if not _settle_claim(tx, worker_id, actor, e, locked())]
    if of_groups := _of_groups(ended):
        groups.advance_all(tx, of_groups, locked, actor)
    return lambda: late() + stale


def _complete(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended]) -> Stale:
    fences: dict[int, int] = {}
    results: dict[int, str] = {}
    for claim, outcome, _ in ended:
        fences[claim.job_id] = claim.fence
        if isinstance(outcome, Completed) and outcome.result != "null":
            results[claim.job_id] = outcome.result
        if claim.target_id is not None:
            tx.touch(claim.target_id)
    complete = claims.complete(tx, worker_id, actor, fences, results)

    def stale() -> list[Ended]:
        landed = complete()
        return [] if len(landed) == len(fences) else [e for e in ended if e.claim.job_id not in landed]

    return stale


def _settle_claim(tx: Tx, worker_id: int, actor: Actor, ended: Ended, locked: Mapping[int, Group]) -> bool:
    job = jobs.lock_all(tx, [ended.claim.job_id]).get(ended.claim.job_id)  # none: ended by others and pruned since
    if job is None or job.fence != ended.claim.fence or job.worker_id != worker_id or job.status is not State.RUNNING:
        return False
    settle(tx, job, ended.outcome, actor, locked.get(job.group_id or 0))
    return True


def settle(tx: Tx, job: Job, outcome: Outcome, actor: Actor, group: Group | None = None) -> State:
    """Ends a locked RUNNING job: the decision reads the row inside this transaction. Its group is locked, and whoever
    locked it advances it."""
    now = _now(tx)
    transition = decide(_standing(tx, job, group), outcome, random.random)
    change = verbs.finish(job, transition, now)
    version = jobs.apply(tx, change, actor)
    if change.retry is not None:
        jobs.insert_retry(tx, job, actor, delay=change.retry, auto=True)
        tx.wake()
    if group is not None and transition.state in (State.PAUSED, State.ERROR) and not change.then_resume:
        groups.hold(tx, job, actor)
    if change.then_resume:
        paused = jobs.lock(tx, job.id)
        assert paused.version == version
        jobs.apply(tx, verbs.resume(paused, now=now, spent={}, budget=None), actor)
        tx.wake()
    return transition.state


def _standing(tx: Tx, job: Job, group: Group | None) -> Standing:
    options = Options.parse(job.options)
    return Standing(
        policy=options.retry,
        retries_used=paid(jobs.chain_failures(tx, job.id)) if job.retry_auto else 0,
        stop=job.stop,
        stop_by=Actor.parse(job.stop_by).shown if job.stop_by else "user",
        on_target=job.target_id is not None,
        on_lost=options.on_lost,
        on_error=options.on_error,
        on_shutdown=options.on_shutdown,
        over_budget=verbs.over_budget(options, jobs.spent(tx, job.id)) if options.budget else None,
        group_cancelled=group is not None and group.cancelled_by is not None,
    )


def _now(tx: Tx) -> int:
    ((now,),) = tx.run("time")
    return int(now)


def decide_left_over(tx: Tx, job: Job, actor: Actor, group: Group | None = None) -> None:
    """A FAILED job that has neither a retry nor the word that there is none gets one of the two."""
    run = jobs.run_of(tx, job.id)
    error = (run.error if run else None) or "failed"
    failure = Failed(job.failure_kind or FailureKind.EXCEPTION, error)
    transition = decide(_standing(tx, job, group), failure, random.random)
    if transition.retry is not None:
        in_group = groups.is_open(tx, job)
        jobs.insert_retry(tx, job, actor, delay=transition.retry, auto=True, in_group=in_group)
        tx.wake()
    else:
        jobs.apply(tx, verbs.Change(replace(job, exhausted=1), "job.exhausted"), actor)
