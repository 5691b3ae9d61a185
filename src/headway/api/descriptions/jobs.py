"""Fields of jobs, runs, events, log lines and explanations."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

JOB: Fields = {
    "params": (
        "The arguments of the task. They may change until the first claim and never after it (409 "
        "`Cannot modify params after dispatch`).",
        {"topic": "fog"},
    ),
    "status": (
        "The state. WAITING: not released (on hold, or its stage is not open). SCHEDULED: waits for a time. "
        "QUEUED: may be "
        "claimed. RUNNING: exactly one worker holds it. PAUSED: interrupted on purpose. ERROR: a person must decide. "
        "COMPLETED, FAILED, SKIPPED and CANCELLED are final.",
        "QUEUED",
    ),
    "queue_status": (
        "The state for clients that know three of them. QUEUED: the job does not run and has not ended. RUNNING: "
        "it runs. "
        "CANCELLED: it was cancelled. null: it ended otherwise, and `outcome` says how.",
        "QUEUED",
    ),
    "outcome": (
        "The status of the closed run: COMPLETED, FAILED or SKIPPED. SKIPPED also for a job that never ran. null "
        "while the run is "
        "open, and for a job that was cancelled before it ran.",
        None,
    ),
    "priority": ("0 to 100; higher goes first.", 5),
    "position": (
        "The place within the priority; lower goes first. Positions are not unique and have gaps.",
        17_825_792,
    ),
    "rank": (
        "The place among all jobs of the tenant that may be claimed, counted from 1; null if the job is not QUEUED.",
        1,
    ),
    "stage": ("The stage of the group or execution, counted from 0; null outside of both.", 0),
    "step": ("The name of the step in its group or execution; null outside of both.", "write"),
    "retry_of": ("The job that this one retries; null for the first of a chain.", 12),
    "retries_remaining": ("How many automatic retries may still follow. 0 once the job has ended.", 3),
    "exhausted": ("True for the last job of a chain: it failed, and no automatic retry follows.", False),
    "key": ("The uniqueness key: within a task, at most one unfinished chain of jobs has it.", "fog:1"),
    "reason": ("Why the job is in its state, in a few words; null if there is nothing to say.", "hold"),
    "stop_requested": (
        "The stop request that has not been carried out yet: `cancel` or `interrupt`; null if there is none.",
        None,
    ),
    "progress": ("The last progress that the work reported; null if it reported none.", None),
    "meters": ("What the chain of jobs has used of each meter.", {"tokens": 1200}),
    "budget": ("The upper limit of each meter, over the whole chain of retries.", {"tokens": 500_000}),
    "failure_kind": ("Why the last run failed or was stopped; null if it did not fail.", None),
    "lease_owner": ("The worker that holds the job: host, process and incarnation; null if no worker holds it.", None),
    "lease_expires_at": ("The end of the lease of that worker; null if no worker holds the job.", None),
    "run": ("The record of the execution; null if the job was never claimed.", None),
    "blockers": ("The reasons why the job waits, the first one first.", None),
}

OPTIONS: Fields = {
    "params": ("The arguments of the task; they are checked against its signature.", {"topic": "fog"}),
    "template_id": ("The template that gives the defaults. Give either `task` or `template_id`.", None),
    "delay": ("How long the job waits before it may start: seconds or a text like `10m`.", "10m"),
    "key": (
        "A uniqueness key of your choice. If an unfinished job of the task has it, the answer is 200 with that job.",
        "fog:1",
    ),
    "hold": ("True: the job waits until a person resumes it.", False),
    "webhook_url": (
        "An address that receives the events of this job, besides the webhooks.",
        "https://example.org/hooks",
    ),
    "webhook_events": ("The kinds of event for `webhook_url`; null means all of them.", ["job.run.completed"]),
    "name": ("The name of the step; needs a mode. null means the name of the task.", "write"),
    "stage": ("The stage of the job, counted from 0; needs the mode `staged`.", 0),
    "continue_on_failure": ("True: the plan continues although this job failed; needs a mode.", False),
}

_GROUP: Fields = {
    "jobs": ("The jobs, at most 1,000. All of them are created, or none.", None),
    "mode": (
        "`sequential`: one job after the other. `parallel`: all at once. `staged`: by their `stage`. null: "
        "independent jobs, no group.",
        "sequential",
    ),
    "name": ("The name of the group; null means a name made from its tasks.", "newsletter"),
    "on_failure": ("What a failed job means for later stages: `stop` (default), `continue` or `skip`.", "stop"),
}

JOBS: dict[str, Fields] = {
    "Job": JOB,
    "QueuedJob": JOB,
    "ChainedJob": {
        **JOB,
        "asked": ("True for the job whose chain was asked for.", True),
        "automatic": ("True for an automatic retry; false for the first job and for a retry by hand.", False),
    },
    "NewJob": OPTIONS,
    "Member": OPTIONS,
    "NewBatch": _GROUP,
    "NewGroup": _GROUP,
    "Run-Output": {
        "status": ("How the run ended: COMPLETED, FAILED or SKIPPED; null while it is open.", "COMPLETED"),
        "params_snapshot": ("The params with which the run began. They never change.", {"topic": "fog"}),
        "exit_code": ("The exit code of the program; null if the work was no program, or has not ended.", 0),
        "error": ("What went wrong, for people: the traceback or the last lines of stderr. null if nothing did.", None),
        "failure_kind": ("Why the run failed; null if it did not fail.", None),
        "artifacts": (
            "The files that the run attached: name, size and SHA-256.",
            [
                {
                    "name": "story.md",
                    "size": 4096,
                    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                }
            ],
        ),
    },
    "Progress": {
        "done": ("How much is done, in the unit of `total`.", 2.0),
        "total": ("How much there is to do; null if the work does not know.", 3.0),
        "label": ("What is counted.", "chapter"),
        "at": ("When the work reported it.", AT),
    },
    "Blocker": {
        "kind": (
            "What is in the way: `status`, `not_before`, `lane`, `target_held`, `target_busy`, `resource`, "
            "`reservation`, "
            "`stage`, `paused`, `no_worker` or `behind`.",
            "lane",
        ),
        "detail": ("The reason as a sentence for people.", "the global lane is full: 1 of 1 is running"),
        "by": ("The numbers of the jobs or reservations that are in the way, or their names.", [16]),
        "since": ("Since when it has been in the way; null if that is unknown.", AT),
        "until": ("When it ends by itself; null if it does not.", None),
    },
    "Explanation": {
        "status": ("The state of the job.", "QUEUED"),
        "rank": ("The place among all jobs that may be claimed, counted from 1; null if the job is not QUEUED.", 1),
        "blockers": ("The reasons why the job waits, the first one first; empty if a worker may claim it now.", None),
        "start_estimate": ("When the job is likely to start; null if history does not allow an estimate.", None),
    },
    "StartEstimate": {
        "p50": ("Half of all such jobs would have started by this instant.", AT),
        "p90": ("Nine of ten such jobs would have started by this instant.", "2026-03-01T09:40:00Z"),
    },
    "Event": {
        "event_id": ("The number of the event.", 205),
        "kind": ("What happened, as `thing.verb`.", "job.claimed"),
        "thing": ("The kind of thing that it happened to.", "job"),
        "thing_id": ("The number of that thing.", 17),
        "version": ("The version of the thing after the event; without gaps for each thing.", 3),
        "status": ("The state of the job after the event; null for other things.", "RUNNING"),
        "actor": ("The author of the event.", None),
        "fence": ("The fence of the claim under which it happened; null outside of a claim.", 1),
        "data": ("What else belongs to the event; its fields depend on the kind.", {"slot": 0}),
    },
    "Line": {
        "at": ("When the line was written.", AT),
        "level": ("The level: debug, info, warning, error or critical; `stdout` and `stderr` for output.", "info"),
        "message": ("The text of the line.", "writing chapter 2"),
    },
    "Batch": {
        "group_id": ("The number of the group; null without a mode.", 3),
        "items": ("The created jobs in the given order.", None),
    },
    "RefusedJob": {
        "code": ("The stable code of the problem.", "wrong_state"),
        "detail": ("Why the job was left as it is.", "job 17 is COMPLETED: cannot cancel it; it has already ended"),
    },
    "Bulk-Input": {
        "filter": ("Which jobs to change.", None),
        "action": ("What to do with each of them: `cancel`, `interrupt`, `resume`, `release` or `retry`.", "cancel"),
        "expected_count": ("How many jobs must match; otherwise the request is refused with 409 `count_mismatch`.", 12),
    },
    "Bulk-Output": {
        "matched": ("How many jobs matched the filter.", 12),
        "changed": ("The numbers of the changed jobs.", [17, 18]),
        "refused": ("The jobs that were left as they are, with the reason.", None),
    },
    "RetryPolicy": {
        "max_attempts": ("The number of automatic retries; 3 means that an always-failing job runs four times.", 3),
        "base_delay": ("The wait before the first retry; each further one waits twice as long.", "10s"),
        "max_delay": ("The longest wait before a retry; null means no limit.", "1h"),
        "jitter": ("Up to this share of each wait is added at random, from 0 to 1.", 0.1),
    },
    "JobEdit": {
        "params": ("New params, until the first claim only.", {"topic": "rain"}),
        "priority": ("The new priority; the job takes the end of it.", 5),
        "not_before": ("The new earliest start; null removes it.", AT),
        "expires_at": ("The new expiry; null removes it.", AT),
    },
    "Retry": {
        "params": ("Other params for the retry; null keeps those of the run.", {"topic": "rain"}),
        "priority": ("Another priority; null keeps priority and place.", 5),
        "budget": ("Another budget; null keeps it.", {"tokens": 900_000}),
        "again": ("True: retry although a retry exists already.", True),
    },
    "Resume": {"budget": ("A larger budget, for a job that exceeded its own; null keeps it.", {"tokens": 900_000})},
    "Resolve": {"result": ("The result that the job is completed with.", {"title": "Fog"})},
    "Move": {
        "to": ("`top` or `bottom` of the job's priority, or `front`: before all others.", "top"),
        "before": ("The job that shall come right after this one.", 17),
        "after": ("The job that shall come right before this one.", 12),
        "rank": ("The new place among the jobs that may be claimed, counted from 1.", 1),
    },
    "JobFilter": {
        "exhausted": ("True: only jobs that failed without an automatic retry. False: only the others.", True),
        "status": ("States; a job matches if it is in one of them.", ["QUEUED"]),
        "task": ("The name of the task.", "story.generate"),
        "target": ("The name of the target.", "desk-1"),
        "group_id": ("The group or execution.", 3),
        "key": ("The uniqueness key.", "fog:1"),
        "failure_kind": ("The failure kind.", "TIMEOUT"),
        "created_by": ("The name of the actor that created the job.", "ada"),
        "since": ("Jobs created at this instant or later.", AT),
        "until": ("Jobs created before this instant.", "2026-03-02T09:00:00Z"),
        "q": ("A text that the task, step, key or target contains.", "fog"),
    },
}
