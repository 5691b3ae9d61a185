"""I-20: a uniqueness key has one chain at a time.

A chain lasts from its first job's creation to its last job's end.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.report import Finding, about_job


def check(history: History) -> Iterator[Finding]:
    for job_id, task, key, retry_of, created_at, before, before_end in history.tx.run(
        "verify_keys", settle=history.settle
    ):
        under = f"under the key {key!r} of {task}"
        if before_end is None or before_end > created_at + history.settle:
            end = "has not ended" if before_end is None else f"ended at {before_end} only"
            yield about_job("I-20", job_id, f"{under} it was created at {created_at}, but job {before} {end}")
        else:
            yield about_job(
                "I-20", job_id, f"{under} job {before} came between it and job {retry_of}, which it retries"
            )
