"""Fields of the old addresses."""

from __future__ import annotations

from headway.api.descriptions.field import Fields

_OLD = "The state in the words of the old system: queued, running, succeeded, failed, cancelled or skipped."

LEGACY: dict[str, Fields] = {
    "OldMember": {"type": ("`story` or `research`.", "research")},
    "NewOldBatch": {"jobs": ("The jobs; they run one after another.", None)},
    "Triggered": {
        "job_id": ("The number of the job, as text.", "17"),
        "type": ("`story` or `research`.", "story"),
        "status": (_OLD, "queued"),
        "message": ("What happened, for people.", "story job 17 was queued"),
    },
    "OldJob": {
        "job_id": ("The number of the job, as text.", "17"),
        "type": ("`story` or `research`.", "story"),
        "status": (_OLD, "running"),
        "pid": ("The process of the worker; null if the job does not run.", 4711),
        "log_path": ("The address of the job's log.", "/api/jobs/17/logs"),
        "artifacts": ("The files that the job attached.", []),
        "exit_code": ("The exit code of the program; null if there is none.", 0),
        "error": ("What went wrong; null if nothing did.", None),
    },
    "OldJobs": {"jobs": ("The jobs, the newest first.", None), "total": ("How many jobs the answer has.", 1)},
    "OldBatch": {
        "batch_id": ("The number of the batch, as text.", "3"),
        "job_ids": ("The numbers of its jobs, as text. They never change.", ["17", "18"]),
        "job_count": ("How many jobs it has.", 2),
        "status": ("The state of its busiest job, or of its worst once all have ended.", "running"),
        "message": ("How far it is, for people.", "1 of 2 jobs have ended"),
    },
    "TargetJob": {
        "job_id": ("The number of the job, as text.", "17"),
        "target_id": ("The name of the target.", "desk-1"),
        "status": ("PENDING, QUEUED, RUNNING, PAUSED, ERROR, SUCCESS or CANCELED.", "PAUSED"),
        "lease_owner": ("The worker that holds the job; null if none does.", None),
        "lease_expires_at": ("The end of its lease; null if no worker holds the job.", None),
        "cancel_requested": ("Whether a stop request waits.", False),
        "message": ("Why the job is in its state; null if there is nothing to say.", "Job was interrupted by user"),
    },
    "TargetJobs": {"jobs": ("The jobs, the newest first.", None)},
}
