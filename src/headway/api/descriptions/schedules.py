"""Fields of templates, schedules, their steps and ticks."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_TEMPLATE: Fields = {
    "template_id": ("The number of the template.", 4),
    "name": ("The name of the template; unique among those in use.", "fog story"),
    "params": ("The params that jobs get unless they give others.", {"topic": "fog"}),
    "open_params": ("The params that operators may give although the task is an admin's.", ["day"]),
    "archived_at": ("When the template was archived; null if it is in use.", None),
}
_DEFINITION: Fields = {
    "name": ("The name of the schedule; unique among those that exist.", "nightly"),
    "enabled": ("Whether the schedule fires. Disabled time has no ticks.", True),
    "cron": (
        "When to fire, as five cron fields or a word like `@daily`. Give one of `cron`, `interval` and `times`.",
        "30 2 * * mon-fri",
    ),
    "interval": ("The time between two ticks: seconds, or a text in requests.", 3600.0),
    "times": ("The instants at which to fire.", [AT]),
    "timezone": ("The IANA time zone in which `cron` is read.", "Europe/Berlin"),
    "params": ("The params of every step, unless the step gives others.", {"region": "north"}),
    "template": (
        "The template that runs, by name or number; bound to its number when the schedule is saved.",
        "fog story",
    ),
    "template_id": ("The number of the template that runs; null if there are steps.", 4),
    "steps": ("The steps; steps with the same index run in parallel.", None),
    "overlap": (
        "What a tick does while an execution is active: `skip` it, `queue` one, `allow` both, or `cancel_running`.",
        "skip",
    ),
    "catch_up": (
        "Which missed ticks run after a downtime: the `last`, `none`, or `all` within window and cap.",
        "last",
    ),
    "cap": ("At most so many ticks are caught up.", 10),
    "jitter": ("Each tick is delayed by up to so many seconds, always the same for the same tick.", 0.0),
    "start": ("No tick before this instant; null means none.", None),
    "end": ("No tick after this instant; null means none.", None),
    "note": ("A note for people; null if there is none.", "after the backup"),
}
_STEP: Fields = {
    "index": ("The stage of the step. Steps with the same index run in parallel; stages run in their order.", 0),
    "name": ("The name of the step; null means the name of its task.", "export"),
    "template": (
        "The template of the step, by name. Give exactly one of `task`, `template_id` and `template`.",
        "fog story",
    ),
    "template_id": ("The template of the step, by number.", 4),
}

SCHEDULES: dict[str, Fields] = {
    "Template": _TEMPLATE,
    "NewTemplate": _TEMPLATE,
    "TemplateEdit": _TEMPLATE,
    "Schedule": {
        **_DEFINITION,
        "schedule_id": ("The number of the schedule.", 2),
        "origin": ("Where the definition comes from: `code`, an applied `file`, or the `api`.", "api"),
        "last_run_at": ("When the schedule last fired; null if it never did.", AT),
        "missed_seen_at": ("When a person last marked its missed ticks as seen; null if none did.", AT),
        "next_run_at": ("When it fires next; null if it does not.", AT),
        "sentence": ("When it fires, in words.", "at 02:30 on Monday to Friday (Europe/Berlin)"),
    },
    "WholeSchedule": _DEFINITION,
    "ScheduleEdit": _DEFINITION,
    "Step-Input": _STEP,
    "StepWish": _STEP,
    "Disable": {"reason": ("Why the schedule is disabled; kept as its note.", "the server moves")},
    "Run-Input": {
        "params": ("Params that override those of the schedule.", {"region": "south"}),
        "force": ("True: run although an execution is active.", False),
    },
    "Backfill": {
        "since": ("The first instant of the range.", AT),
        "until": ("The last instant of the range.", "2026-03-08T09:00:00Z"),
    },
    "MissedTicks": {
        "schedule_id": ("The number of the schedule.", 2),
        "name": ("The name of the schedule.", "nightly"),
        "count": ("How many of its ticks were missed and have not been seen.", 2),
        "first": ("The time of the first of them.", AT),
        "last": ("The time of the last of them.", AT),
    },
    "Tick": {
        "schedule_id": ("The number of the schedule.", 2),
        "nominal_at": ("The time of the tick; of the first one if the row covers several.", AT),
        "until": ("The time of the last tick of the row.", AT),
        "count": ("How many ticks the row covers.", 1),
        "outcome": (
            "FIRED: an execution was created. SKIPPED: a rule left it out. MISSED: no scheduler ran. COALESCED: "
            "a later tick of "
            "the same downtime ran instead.",
            "FIRED",
        ),
        "reason": ("Why it did not fire; null if it did.", None),
        "execution_id": ("The execution that it created; null if it created none.", 8),
        "decided_at": ("When it was decided.", AT),
    },
    "Preview": {
        "at": ("The instant of the tick, in UTC.", AT),
        "local": ("The same instant on the clock of the schedule's time zone.", "2026-03-01T10:00:00+01:00"),
        "note": ("The effect of a clock change on this tick; null if there is none.", None),
    },
    "Times": {
        "timezone": ("The time zone of the schedule.", "Europe/Berlin"),
        "sentence": ("When the schedule fires, in words.", "at 02:30 on Monday to Friday (Europe/Berlin)"),
        "items": ("The next ticks, the earliest first.", None),
        "next": ("Always null: ask for more with `limit`.", None),
    },
}
