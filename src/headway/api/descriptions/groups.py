"""Fields of groups, executions and their steps."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_MEMBERS: Fields = {
    "held_by": ("The steps that wait for a person: PAUSED or ERROR. The plan waits for them.", None),
    "failed": ("The failed steps, at most the first few.", None),
    "counts": (
        "The number of steps in each state, each judged by the last job of its chain.",
        {"COMPLETED": 2, "QUEUED": 1},
    ),
    "retry_of": ("The group or execution that this one retries; null if it retries none.", None),
    "started_at": ("When the first of its jobs began; null if none has.", AT),
    "stages": ("How many stages there are.", 4),
}
_GROUP: Fields = {
    **_MEMBERS,
    "group_id": ("The number of the group.", 3),
    "name": ("The name of the group.", "newsletter"),
    "mode": ("`sequential`: one step per stage. `parallel`: all in stage 0. `staged`: as given.", "sequential"),
    "status": (
        "RUNNING until every chain of jobs has ended; then COMPLETED (all succeeded or skipped themselves), "
        "CANCELLED (a person "
        "cancelled the group) or PARTIAL.",
        "RUNNING",
    ),
    "stage": ("The stage that is open, counted from 0.", 1),
}

GROUPS: dict[str, Fields] = {
    "Group": _GROUP,
    "GroupWithSteps": _GROUP,
    "Execution": {
        **_MEMBERS,
        "execution_id": ("The number of the execution.", 8),
        "schedule_id": ("The schedule that it belongs to; null if the schedule is gone.", 2),
        "name": ("The name of the schedule.", "nightly"),
        "kind": ("What started it: `tick` (its time came), `manual`, `backfill` or `retry`.", "tick"),
        "nominal_at": ("The time of the schedule that it stands for; null for a manual run.", AT),
        "status": (
            "IN_PROGRESS until it ends; FAILED if a step failed that may not fail, CANCELLED if a person "
            "cancelled it, otherwise "
            "COMPLETED.",
            "IN_PROGRESS",
        ),
        "current_stage": ("The stage that is open, counted from 0; -1 while it waits for another execution.", 0),
        "error": ("The step that failed, and why; null if none did.", None),
        "after": ("The execution that must end before this one starts; null if there is none.", None),
    },
    "Step-Output": {
        "step": ("The name of the step.", "export"),
        "stage": ("The stage of the step, counted from 0. Steps of one stage run in parallel.", 2),
        "job_id": ("The last job of the step's chain.", 17),
        "status": ("The state of that job.", "RUNNING"),
        "reason": ("Why the job is in its state; null if there is nothing to say.", None),
        "error": ("What went wrong; null if nothing did.", None),
        "linked": ("True for a step that succeeded in the retried group or execution and does not run again.", False),
    },
    "Backfilled": {
        "times": ("The nominal times in the range that had not fired.", [AT]),
        "items": ("Their executions; empty for a dry run.", None),
        "next": ("Always null: everything is in this answer.", None),
    },
}
