"""I-10 and others: triggers and unique indexes exist and are enabled."""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.report import Finding

# Each guard with the invariant that it protects.
GUARDS = {
    "hw_run_frozen": "I-10",
    "hw_run_once": "I-10",
    "hw_run_kept": "I-10",
    "hw_event_frozen": "I-10",
    "hw_event_kept": "I-10",
    "hw_job_params_frozen": "I-10",
    "hw_job_kept": "I-01",
    "hw_job_absorbing": "I-02",
    "hw_job_fence_rises": "I-06",
    "hw_job_no_return": "I-09",
    "hw_job_slot": "I-05",
    "hw_job_target_hold": "I-05",
    "hw_job_target_head": "I-05",
    "hw_job_auto_retry": "I-12",
    "hw_job_key": "I-20",
}


def check(history: History) -> Iterator[Finding]:
    present = {name for (name,) in history.own("verify_guards")}
    for name, invariant in GUARDS.items():
        if name not in present:
            yield Finding(invariant, f"guard {name}", "it is missing from the schema or disabled")
