"""Fields of the queue, lanes, limits, targets, reservations and direct calls."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_PAUSE: Fields = {
    "since": ("Since when the queue is paused; null if it is not.", AT),
    "until": ("When the pause ends by itself; null if it does not.", None),
    "note": ("Why the queue is paused, as its author wrote it.", "the GPU is being cleaned"),
}
_RULES: Fields = {
    "policy": (
        "The rule that maps a job to the lanes it needs: `global`, `per_task`, `per_resource`, or one of the app.",
        "global",
    ),
    "targets": (
        "`own`: jobs on targets need their target only. `global`: they need the lane of the policy too.",
        "own",
    ),
}

QUEUE: dict[str, Fields] = {
    "Pause": _PAUSE,
    "QueuePause": {
        **_PAUSE,
        "paused": ("Whether no job starts.", True),
        "everybody": ("The pause of all tenants' queues; null if there is none.", None),
    },
    "Queue": {
        "items": ("The waiting jobs in the order in which they will start.", None),
        "pause": ("The pause of the queue.", None),
    },
    "Reorder": {
        "job_ids": ("The jobs in their new order; they take the places that they hold together.", [17, 12, 15])
    },
    "Reordered": {"moved": ("The numbers of the jobs whose place changed.", [17, 12])},
    "Lane": {
        "name": ("The name of the lane or resource.", "ollama"),
        "kind": ("`policy`: a lane of the policy. `resource`: a named pool.", "resource"),
        "limit": ("How many places the lane has; null means no limit.", 1),
        "running": (
            "How many of them running jobs occupy. The jobs of one stage count as one on a lane of the policy.",
            1,
        ),
        "reserved": ("How many of them granted reservations occupy.", 0),
        "waiting": ("How many queued jobs need the lane.", 4),
    },
    "Limits-Output": {
        **_RULES,
        "aging": (
            "A job's priority rises by one for each interval of so many seconds that it waited; null means never.",
            None,
        ),
        "items": ("The lanes and resources.", None),
    },
    "Limits-Input": {
        **_RULES,
        "name": ("The lane or resource to change; give `limit` with it.", "ollama"),
        "limit": ("The new number of places; null means no limit.", 2),
        "limits": ("Several limits by name, instead of `name` and `limit`.", {"global": 4}),
        "aging": (
            "The interval after which a waiting job's priority rises by one; null or `none` turns aging off.",
            "1h",
        ),
    },
    "PauseQueue": {
        **_PAUSE,
        "until": ("The instant at which the pause ends by itself. Give `until` or `for`, not both.", AT),
        "for": ("How long the pause lasts: seconds or a text like `2h`.", "2h"),
        "everybody": ("Pause the queues of all tenants; needs a system token", False),
    },
    "ResumeQueue": {"everybody": ("End the pause of all tenants; needs a system token", False)},
    "PauseTarget": {"note": ("Why the target is paused.", "under repair")},
    "Target": {
        "name": ("The name of the target.", "desk-1"),
        "state": (
            "`free`: the next job may start. `busy`: a job runs. `held`: a PAUSED or ERROR job holds it until a "
            "person decides. "
            "`paused`: a person paused it.",
            "held",
        ),
        "held_by": ("The job that holds the target; null if none does.", 17),
        "resumed": ("True if the holder was resumed: it is the only job that may start.", False),
        "since": ("Since when the target has been in this state; null if it is free.", AT),
        "reason": ("Why the target is held or paused; null otherwise.", "TIMEOUT"),
        "running": ("The job that runs on the target; null if none does.", None),
        "direct": ("The reservation of the direct call that runs on the target; null if none does.", None),
        "waiting": ("How many jobs wait for the target.", 4),
        "note": ("The note of the pause.", None),
    },
    "Reservation": {
        "reservation_id": ("The number of the reservation.", 5),
        "lanes": ("The lanes and resources whose next slot is reserved.", ["ollama"]),
        "target": ("The reserved target; null if there is none.", None),
        "status": (
            "ACTIVE from its creation; RELEASED when its holder gave it back; EXPIRED when it was not renewed in time.",
            "ACTIVE",
        ),
        "holder": ("The process or client that holds it.", "desk:4711"),
        "task": ("The task of the direct call; null for a program outside.", None),
        "params": ("The params of the direct call; null for a program outside.", None),
        "granted_at": ("When all its lanes were free for it; null while it waits.", AT),
        "expires_at": ("When it expires unless it is renewed; null once it has ended.", AT),
        "outcome": (
            "How the direct call ended: COMPLETED, FAILED, SKIPPED, or ABANDONED by its caller; null otherwise.",
            None,
        ),
        "error": ("What went wrong in the direct call; null if nothing did.", None),
    },
    "NewReservation": {
        "resources": ("The resources to reserve, all at once.", ["ollama"]),
        "target": ("The target to reserve.", "desk-1"),
        "ttl": ("How long the reservation lives after its last renewal: seconds or a text, at most 10 minutes.", "2m"),
    },
    "Call": {
        "target": ("The target that the call touches.", "desk-1"),
        "resources": ("The resources that the call needs; null means those of the task.", ["ollama"]),
        "wait": (
            "How long the call may wait for its slot: seconds or a text. null means the setting `direct_wait`.",
            "30s",
        ),
    },
    "Result": {"result": ("The value that the task returned, as JSON.", {"title": "Fog"})},
}
