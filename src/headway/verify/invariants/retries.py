"""I-12: retries form chains, with the number and delay of the policy.

The transaction of a failure creates the retry.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.clock import micros
from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.rows import Event, JobHistory, JobRow, Parent, facts
from headway.verify.transitions import FAILED, FIRST_TERMINAL, QUEUED, word

NEVER_RETRIED = ("BAD_PARAMS", "BUDGET")
# Only an exception can set its own delay. Other failures wait as long as the policy says.
OWN_DELAY = "EXCEPTION"
FREE = "INTERRUPTED"
# The reason of a job whose user code never began. It is retried under every policy.
NEVER_BEGAN = "never began"


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    if job.row is None or not job.events:
        return
    texts = [*_followed(job, job.row)]
    if job.row.retry_of is not None:
        texts += _linked(job, job.row)
    for text in texts:
        yield about_job("I-12", job.id, text)


def _followed(job: JobHistory, row: JobRow) -> Iterator[str]:
    """Checks that a failed job has one automatic retry, or is exhausted."""
    if job.automatic > 1:
        yield f"it has {job.automatic} automatic retries"
    if row.status == FAILED and not row.exhausted and not job.automatic and not job.manual:
        yield "it FAILED, has no retry, and its chain is not marked exhausted"
    if row.exhausted and job.automatic:
        yield "its chain is marked exhausted and has an automatic retry"


def _linked(job: JobHistory, row: JobRow) -> Iterator[str]:
    parent = job.parent
    if parent is None or parent.id is None:
        yield f"it retries job {row.retry_of}, which does not exist"
        return
    if parent.id >= row.id:
        yield f"it retries job {parent.id}, which is not older: the links do not form a chain"
        return
    if parent.status < FIRST_TERMINAL:
        yield f"it retries job {parent.id}, which is still {word(parent.status)}"
    if (row.task, row.key) != (parent.task, parent.key):
        yield f"task or key differ from those of job {parent.id}, which it retries"
    if row.retry_auto:
        yield from _automatic(job, row, parent)


def _automatic(job: JobHistory, row: JobRow, parent: Parent) -> Iterator[str]:
    if parent.status != FAILED:
        yield f"it is the automatic retry of job {parent.id}, which is {word(parent.status)}"
    if parent.status != FAILED or parent.ended_at is None:
        return
    if not _changed(job) and not _same_place(row, parent):
        yield f"it did not take the place of job {parent.id}: priority, position, target or params differ"
    if not job.together:
        times = f"failed at {parent.ended_at}, its retry was created at {job.events[0].at}"
        yield f"job {parent.id} {times}: two transactions"
    yield from _paid(job, parent)
    yield from _waited(job, parent, parent.ended_at)


def _changed(job: JobHistory) -> bool:
    """Returns True if the job was edited, moved or brought forward."""
    return any(map(_is_change, job.events))


def _is_change(event: Event) -> bool:
    return event.kind in ("job.edited", "job.moved") or (event.kind == "job.promoted" and event.data is not None)


def _same_place(row: JobRow, parent: Parent) -> bool:
    place = (row.priority, row.position, row.target_id)
    return bool(parent.same_params) and place == (parent.priority, parent.position, parent.target_id)


def _policy(parent: Parent) -> tuple[int, float, float | None]:
    policy = facts(parent.options).get("retry", {})
    return policy.get("max_attempts", 3), policy.get("base_delay", 10.0), policy.get("max_delay")


def _paid(job: JobHistory, parent: Parent) -> Iterator[str]:
    most, _, _ = _policy(parent)
    unpaid = parent.failure_kind == FREE and facts(parent.end_data).get("reason") == NEVER_BEGAN
    if job.paid > most or (most == 0 and not unpaid):
        yield f"it is automatic retry number {job.paid} that used up an attempt, and {most} are allowed"
    if parent.failure_kind in NEVER_RETRIED:
        yield f"job {parent.id} failed with {parent.failure_kind}, which is never retried"


def _waited(job: JobHistory, parent: Parent, ended_at: int) -> Iterator[str]:
    start = next((event for event in job.events if event.status == QUEUED), None)
    if start is None or any(_is_change(event) for event in job.events if event.version <= start.version):
        return
    wait = _wait(job, parent)
    waited = start.at - min(ended_at, job.events[0].at)
    if waited < micros(wait):
        yield f"it had to wait {wait:g} s and entered the queue after {waited / 1e6:g} s ({start.where})"


def _wait(job: JobHistory, parent: Parent) -> float:
    """Returns the least seconds between the failure and the queue.

    This is the delay that the failure set, and at least the policy's backoff unless an exception set it.
    """
    recorded = facts(parent.end_data).get("retry_in")
    if parent.failure_kind == FREE:
        return float(recorded or 0.0)
    if parent.failure_kind == OWN_DELAY and recorded is not None:
        return float(recorded)
    _, base, most = _policy(parent)
    backoff = base * 2.0 ** min(max(job.paid - 1, 0), 64)
    return max(float(recorded or 0.0), backoff if most is None else min(backoff, most))
