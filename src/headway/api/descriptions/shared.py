"""Fields that mean the same in every class that has them."""

from __future__ import annotations

from headway.api.descriptions.field import Fields

AT = "2026-03-01T09:00:00Z"

SHARED: Fields = {
    # --- numbers and names ---
    "job_id": ("The number of the job.", 17),
    "run_id": ("The number of the run. A run has the number of its job.", 17),
    "group_id": ("The number of the group that the job belongs to; null if it belongs to none.", 3),
    "execution_id": ("The number of the execution that the job belongs to; null if it belongs to none.", 8),
    "schedule_id": ("The number of the schedule; null if no schedule is involved.", 2),
    "template_id": ("The number of the template; null if no template is involved.", 4),
    "task": (
        "The name of the task: a declared function, or `command`, `powershell`, `http` or `sql`.",
        "story.generate",
    ),
    "name": ("The name, unique among things of this kind that exist.", "nightly"),
    "version": ("Rises by one with each change. The `ETag` of the thing is this number.", 3),
    "target": ("The target that the work touches: one job at a time. null means no target.", "desk-1"),
    "resources": ("The resources that the work needs, all of them or none.", ["ollama"]),
    "params": ("The arguments of the task, as a JSON object.", {"topic": "fog"}),
    "result": ("The value that the task returned, as JSON; null if there is none.", {"title": "Fog"}),
    "description": ("A text for people; null if there is none.", "Short stories for the newsletter"),
    "note": ("A note for people; null if there is none.", "waiting for the new graphics card"),
    "detail": (
        "A sentence for people that says what happened and what to do. It may change between versions.",
        "it is on hold",
    ),
    "items": ("The things of this page.", None),
    "next": ("The cursor of the next page: pass it as `cursor`. null on the last page.", "MTc"),
    "steps": ("The steps in their order.", None),
    "events": ("The kinds of event that the webhook receives; empty means all of them.", ["job.run.failed"]),
    # --- times ---
    "at": ("When it happened, or when the numbers were read.", AT),
    "deleted_at": ("When it was deleted, archived or revoked; null if it was not.", None),
    "deleted_by": ("The actor that deleted, archived or revoked it; null if it was not, or if it is not known.", None),
    "created_at": ("When it was created.", AT),
    "started_at": ("When the work began; null if it has not begun.", AT),
    "finished_at": ("When it ended; null while it has not ended.", AT),
    "queued_at": ("When the job became QUEUED for the first time; null before.", AT),
    "not_before": ("The job does not start before this instant; null means at once.", AT),
    "expires_at": (
        "The instant at which it expires; null means never. A job that has not started by then becomes SKIPPED.",
        AT,
    ),
    "since": ("The beginning of the time span; null if it is open.", AT),
    "until": ("The end of the time span; null if it is open.", AT),
    "window": ("How far back catch-up looks, in seconds or as a text like `24h`.", 86_400.0),
    # --- people ---
    "created_by": ("The actor that created it.", None),
    "cancelled_by": ("The actor that cancelled it; null if it was not cancelled.", None),
    # --- options of work ---
    "priority": ("0 to 100; higher goes first. null means the default of the template or task.", 5),
    "timeout": (
        "The longest running time, summed over all claims: seconds or a text like `30m`. null means none.",
        "30m",
    ),
    "retry_policy": ("The rule for automatic retries; null means the rule of the task.", {"max_attempts": 3}),
    "budget": ("The upper limit of each meter. A job that exceeds one of them is stopped.", {"tokens": 500_000}),
    "on_lost": (
        "What a lost worker leads to: `retry`, `hold` (ERROR, a person decides) or `fail`. null means the rule "
        "of the task.",
        "retry",
    ),
    "on_error": (
        "What the last failure on a target leads to: `hold` (ERROR, the job holds the target) or `fail` (FAILED). "
        "null means the rule of the task.",
        "hold",
    ),
    "on_shutdown": (
        "What the end of the shutdown grace leads to: `retry`, `pause` or `resume`. null means the usual rule: "
        "PAUSED on a "
        "target or without automatic retries, otherwise a retry.",
        "resume",
    ),
    "on_failure": (
        "What a failed step means for later stages: `stop`, `continue`, `skip`, or a policy of the app.",
        "stop",
    ),
    "continue_on_failure": ("Whether the plan continues although this step failed.", False),
    "attempt": ("How many jobs of the chain came before this one, plus one.", 1),
    # --- totals ---
    "counts": ("The number of jobs in each state.", {"QUEUED": 4, "RUNNING": 1}),
    "waiting": ("How many jobs wait.", 4),
    "waiting_at_least": ("True if counting stopped early: at least so many wait.", False),
    "counts_at_least": ("True if counting stopped early: the numbers are lower bounds.", False),
    "finished_since": ("Ended jobs are counted from this instant on.", AT),
    "dry_run": ("True: show what would happen and change nothing.", True),
}
