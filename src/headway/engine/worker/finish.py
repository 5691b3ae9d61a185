"""Ends RUNNING jobs: decides, fences, records and retries in one transaction.

Recovery ends lost jobs here too, so no other code moves a job out of RUNNING.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.clock import micros
from headway.dice import dice
from headway.model.groups.group import Group
from headway.model.jobs import actions
from headway.model.jobs.finish import FinishInputs, decide
from headway.model.jobs.job import Actor, Claim, JobRecord, Options
from headway.model.jobs.outcome import NEVER_BEGAN, Completed, Failed, FailureKind, NeverBegan, Outcome
from headway.model.jobs.retry import paid
from headway.model.jobs.states import NOT_STOPPING, State
from headway.model.values.times import duration_text
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.queue import claims
from headway.store.round_trip import Pending


class Ended(NamedTuple):
    """A claim whose work is over, and its outcome. `attached`: the run lists files."""

    claim: Claim
    outcome: Outcome
    attached: bool = False

    @property
    def plain(self) -> bool:
        """True if the job becomes COMPLETED and has only a result and an exit code to record.

        One statement ends many plain jobs: their decision does not depend on the row.
        """
        # A claim that carries state may resume a run that attached files under an earlier claim.
        left_files = self.attached or self.claim.carries
        return isinstance(self.outcome, Completed) and not left_files


def lock_groups(tx: Tx, ended: Sequence[Ended]) -> Pending[dict[int, Group]]:
    """Locks the groups of these claims. Call it before any job is locked."""
    return groups.lock_to_end(tx, _of_groups(ended))


def _of_groups(ended: Sequence[Ended]) -> set[int]:
    return {e.claim.group_id for e in ended if e.claim.group_id is not None}


def finish(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended]) -> list[Ended]:
    """Ends these claims and advances their groups.

    Returns the claims with a stale fence; nothing was changed for them.
    """
    return send_ends(tx, worker_id, actor, ended, lock_groups(tx, ended)).result()


def send_ends(
    tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended], locked: Pending[dict[int, Group]]
) -> Pending[list[Ended]]:
    """Does the work of `finish` without waiting for the result of its last statement.

    The result is the claims with a stale fence; the commit refuses a transaction that has not read it.
    """
    plain: list[Ended] = []
    others: list[Ended] = []
    for end in ended:
        (plain if end.plain else others).append(end)
    late = _complete(tx, worker_id, actor, plain) if plain else Pending.done([])
    others.sort(key=lambda e: e.claim.job_id)
    stale = [e for e in others if not _settle_claim(tx, worker_id, actor, e, locked.result())]
    if of_groups := _of_groups(ended):
        groups.advance_all(tx, of_groups, locked, actor)
    return late.map(lambda found: found + stale) if stale else late


def _complete(tx: Tx, worker_id: int, actor: Actor, ended: Sequence[Ended]) -> Pending[list[Ended]]:
    fences: dict[int, int] = {}
    results: dict[int, str] = {}
    codes: dict[int, int] = {}
    for claim, outcome, _ in ended:
        fences[claim.job_id] = claim.fence
        if isinstance(outcome, Completed) and outcome.result != "null":
            results[claim.job_id] = outcome.result
        if isinstance(outcome, Completed) and outcome.exit_code is not None:
            codes[claim.job_id] = outcome.exit_code
        if claim.target_id is not None:
            tx.touch(claim.target_id)

    def stale(landed: set[int]) -> list[Ended]:
        return [] if len(landed) == len(fences) else [e for e in ended if e.claim.job_id not in landed]

    return claims.complete(tx, worker_id, actor, fences, results, codes).map(stale)


def _settle_claim(tx: Tx, worker_id: int, actor: Actor, ended: Ended, locked: Mapping[int, Group]) -> bool:
    job = jobs.lock_all(tx, [ended.claim.job_id]).get(ended.claim.job_id)  # None: recovery ended it, then it was pruned
    if job is None or job.fence != ended.claim.fence or job.worker_id != worker_id or job.status is not State.RUNNING:
        return False
    settle(tx, job, ended.outcome, actor, locked.get(job.group_id or 0))
    return True


class Settled(NamedTuple):
    """The state of a job whose claim ended, and the number of its automatic retry; None if it has none."""

    state: State
    retry_id: int | None = None


def settle(tx: Tx, job: JobRecord, outcome: Outcome, actor: Actor, group: Group | None = None) -> Settled:
    """Ends a locked RUNNING job; the decision reads its row inside this transaction.

    The caller has locked the group of the job, and advances it afterwards.
    """
    standing = _standing(tx, job, group)
    change = decide(standing, outcome, dice.random)
    state, retry_id = change.job.status, None
    version = jobs.apply(tx, change, actor)
    if change.retry is not None:
        retry_id = jobs.insert_retry(tx, job, actor, delay=change.retry, auto=True)
        tx.wake()
    if group is not None and state in (State.PAUSED, State.ERROR) and not change.then_resume:
        groups.hold(tx, job, actor)
    if change.then_resume:
        paused = jobs.lock(tx, job.id)
        assert paused.version == version
        jobs.apply(tx, actions.resume(paused, now=standing.now, spent={}, budget=None), actor)
        tx.wake()
    return Settled(state, retry_id)


def _standing(tx: Tx, job: JobRecord, group: Group | None) -> FinishInputs:
    options, now = Options.parse(job.options), tx.now()
    return FinishInputs(
        job,
        options,
        now,
        retries_used=paid(jobs.chain_failures(tx, job.id)) if job.retry_auto else 0,
        over_budget=actions.over_budget(options, jobs.spent(tx, job.id)) if options.budget else None,
        group_cancelled=group is not None and group.cancelled_by is not None,
        too_long=_too_long(job, options, now) if job.reason == NOT_STOPPING else None,
    )


def _too_long(job: JobRecord, options: Options, now: int) -> str | None:
    """Returns the error of a run that did not stop at its timeout.

    Returns None if the run is within its timeout.
    """
    if options.timeout is None or job.ran + now - (job.claimed_at or now) < micros(options.timeout):
        return None
    return f"ran longer than {duration_text(options.timeout)}"


def decide_left_over(tx: Tx, job: JobRecord, actor: Actor, group: Group | None = None) -> int | None:
    """Inserts the missing retry of a FAILED job and returns its number, or marks its chain exhausted."""
    run = jobs.run_of(tx, job.id)
    error = (run.error if run else None) or "failed"
    failure: Outcome = Failed(job.failure_kind or FailureKind.EXCEPTION, error)
    if job.failure_kind is FailureKind.INTERRUPTED and job.reason == NEVER_BEGAN:
        failure = NeverBegan(error)
    retry = decide(_standing(tx, job, group), failure, dice.random).retry
    if retry is not None:
        in_group = groups.is_open(tx, job)
        retry_id = jobs.insert_retry(tx, job, actor, delay=retry, auto=True, in_group=in_group)
        tx.wake()
        return retry_id
    jobs.apply(tx, actions.Change(replace(job, exhausted=1), "job.exhausted"), actor)
    return None
