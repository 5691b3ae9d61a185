"""Checks the run of one job.

It exists exactly if the job was claimed, and ends as the job did (I-04). It is frozen (I-10).
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.rows import JobHistory, JobRow
from headway.verify.transitions import CANCELLED, COMPLETED, FAILED, FIRST_TERMINAL, SKIPPED, word

# The end of a run, by the end of its job.
RUN_ENDS = {COMPLETED: COMPLETED, FAILED: FAILED, CANCELLED: FAILED, SKIPPED: SKIPPED}


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    row = job.row
    if row is None or not job.events:
        return
    claim = next((event for event in job.events if event.kind == "job.claimed"), None)
    if row.has_run:
        history.counted["runs"] += 1
    if row.has_run != (claim is not None):
        had = (
            "it was never claimed and has a run" if claim is None else f"it was claimed ({claim.where}) and has no run"
        )
        yield about_job("I-04", job.id, had)
    elif claim is not None:
        yield from _end(row)
        yield from _frozen(row, claim.at)


def _end(row: JobRow) -> Iterator[Finding]:
    ended = row.status >= FIRST_TERMINAL
    if not ended and row.run_status is not None:
        yield about_job("I-04", row.id, f"its run is closed {word(row.run_status)} while the job is {word(row.status)}")
    elif ended and row.run_status is None:
        yield about_job("I-04", row.id, f"the job ended {word(row.status)} and its run is still open")
    elif ended and row.run_status != RUN_ENDS[row.status]:
        yield about_job("I-04", row.id, f"the job ended {word(row.status)}, its run {word(row.run_status)}")


def _frozen(row: JobRow, claimed_at: int) -> Iterator[Finding]:
    if not row.run_has_params:
        yield about_job("I-10", row.id, "the params of the job and of its run differ")
    if row.run_task != row.task:
        yield about_job("I-10", row.id, f"the job's task is {row.task!r}, its run's {row.run_task!r}")
    if not row.run_started == row.started_at == claimed_at:
        yield about_job(
            "I-10",
            row.id,
            f"first claimed at {claimed_at}, but the run says {row.run_started}, the job {row.started_at}",
        )


def check_loose(history: History) -> Iterator[Finding]:
    """Yields runs that belong to no job."""
    for (job_id,) in history.tx.run("verify_loose_runs"):
        yield Finding("I-04", f"run {job_id}", "there is no job with this number")
