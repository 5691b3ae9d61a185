"""Fields of tasks, workers, statistics, logs, artifacts, health, applied files and problems."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_SPREAD = {"count": 40, "mean": 61.5, "p50": 58.0, "p90": 80.0, "p99": 120.0}
_COUNTS: Fields = {
    "oldest_wait": ("The queued job that has waited longest; null if none is queued.", None),
    "waits": ("How long jobs waited, in seconds.", _SPREAD),
    "durations": ("How long jobs ran, in seconds.", _SPREAD),
}

SYSTEM: dict[str, Fields] = {
    "Param": {
        "name": ("The name of the parameter.", "topic"),
        "type": ("Its type as it is written in code; null if it has none.", "str"),
        "required": ("Whether a job must give it.", True),
        "default": ("Its default as JSON; null if it has none.", None),
    },
    "Task": {
        "description": (
            "The first line of the task's docstring; null if it has none, or only other processes have the task.",
            None,
        ),
        "priority": ("The priority of its jobs unless they give another.", 0),
        "timeout": ("The longest running time in seconds; null means none.", 1800.0),
        "params": ("Its parameters; null if only other processes have the task.", None),
        "open": ("Whether it takes params that it does not name; null if only other processes have the task.", False),
        "direct": ("Its own path for direct calls; null if it has none.", "/story/generate"),
        "admin_only": ("Whether only admins may create its jobs, templates and schedules.", False),
        "seen_at": ("When a worker last reported the task; null if none did.", AT),
    },
    "RunningJob": {
        "job_id": ("The running job; null if it belongs to another tenant.", 17),
        "task": ("Its task; null if it belongs to another tenant.", "story.generate"),
        "slot": ("The slot that it occupies, counted from 0.", 0),
        "since": ("When it was claimed.", AT),
    },
    "Worker": {
        "worker_id": ("The random id of this start of the worker.", "6f1c2a90b7d34e51"),
        "host": ("The host that the worker runs on.", "desk"),
        "pid": ("Its process number.", 4711),
        "beat_at": ("When it last renewed its lease.", AT),
        "slots": ("How many jobs it runs at once.", 1),
        "running": ("The jobs that it runs.", None),
        "tasks": ("The tasks that it knows.", ["story.generate"]),
        "tenants": ("The tenants whose jobs it runs; null means all.", ["shop"]),
        "state": (
            "`live`; `draining`: takes no more jobs; `paused`: cannot start work now; `stuck`: its work does not "
            "stop; `silent` or "
            "`gone`: it does not renew its lease, or has left.",
            "live",
        ),
        "note": ("Why the worker is paused, stuck or gone; null otherwise.", None),
    },
    "OldestWait": {"queued_at": ("Since when it has been queued.", AT)},
    "Span": {
        "since": ("The beginning of the five minutes.", AT),
        "completed": ("How many jobs completed in them.", 12),
        "failed": ("How many jobs failed in them.", 1),
        "other": ("How many jobs ended otherwise in them.", 0),
    },
    "Spread": {
        "count": ("How many values there are.", 40),
        "mean": ("The mean in seconds; null without values.", 61.5),
        "p50": ("Half of the values are at most so many seconds.", 58.0),
        "p90": ("Nine of ten values are at most so many seconds.", 80.0),
        "p99": ("99 of 100 values are at most so many seconds.", 120.0),
    },
    "Stats": {
        **_COUNTS,
        "throughput": ("The last hour in spans of five minutes.", None),
        "complete_since": ("Spans before this instant are counted in part.", AT),
    },
    "Overview": {
        **_COUNTS,
        "queue": ("The pause of the queue.", None),
        "blocked_targets": ("Held and paused targets.", None),
        "missed_ticks": ("Schedules with missed ticks that no person has marked as seen.", None),
        "workers": ("The workers.", None),
        "running": ("The running jobs.", None),
        "waiting": ("The first waiting jobs in the order in which they will start.", None),
    },
    "Log": {
        "items": ("The lines, the oldest first.", None),
        "position": ("Where to continue later: pass it as `cursor`.", 12),
    },
    "Artifact": {
        "name": ("The name of the file.", "story.md"),
        "size": ("Its size in bytes.", 4096),
        "sha256": ("The SHA-256 of its content.", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
        "at": ("When the job attached it.", AT),
    },
    "Alive": {"status": ("Always `alive`.", "alive")},
    "Readiness": {
        "ready": ("Whether the process can do its work.", True),
        "reasons": ("The codes of the reasons why it cannot.", []),
        "warnings": ("What needs attention although the process is ready.", []),
    },
    "AppliedChange": {
        "change": ("`+` created, `~` changed, `=` unchanged.", "~"),
        "thing": ("The kind of thing.", "schedule"),
        "differences": ("What changed, field by field.", ["cron: 30 2 * * * -> 0 3 * * *"]),
    },
    "Applied": {
        "items": ("The changes, one for each thing in the file.", None),
        "applied": ("False for a dry run.", True),
        "left": ("Things that an earlier file created and this one does not name. They stay.", []),
        "next": ("Always null: everything is in this answer.", None),
        "secrets": ("The secrets of created webhooks by name; shown in this answer only.", {"ops": "whsec_…"}),
    },
    "Apply": {
        "text": ("The text of the TOML file.", "[[targets]]\nname = 'desk-1'\n"),
        "file": ("The name of the file in error messages.", "headway-jobs.toml"),
    },
    "FieldProblem": {
        "field": ("The path of the field.", "steps.0.task"),
        "problem": ("What is wrong with it.", "is missing"),
    },
    "Problem": {
        "type": ("The address that identifies the kind of problem.", "urn:headway:problem:wrong_state"),
        "title": ("The kind of problem, in words.", "Wrong state"),
        "status": ("The HTTP status.", 409),
        "detail": (
            "What happened and what to do, for people.",
            "job 1 is CANCELLED: cannot cancel it; it has already ended",
        ),
        "code": ("The stable code of the problem, for programs.", "wrong_state"),
        "errors": ("Each field that is wrong.", None),
        "state": ("The state that the thing is in, where the problem is its state.", "CANCELLED"),
        "job_id": ("The job that the problem is about, where it is about one.", 1),
        "failure_kind": ("Why the direct call failed, where it did.", "TIMEOUT"),
    },
}
