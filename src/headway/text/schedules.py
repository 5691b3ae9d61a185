"""Sentences about a schedule: its settings, its next tick, and why a tick did not fire. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from headway.model.checks import OVERDUE
from headway.model.explain.forecast import span
from headway.model.manifest import differences
from headway.model.schedules.definition import Definition, steps_that_pause
from headway.model.schedules.schedule import Schedule, Tick
from headway.model.schedules.ticks import INACTIVE, LIMITED, OUTSIDE, OVERLAP
from headway.model.values.times import duration_text, instant_text

OVERLAP_WORDS = {
    "skip": "A time that comes while an execution has not ended is skipped.",
    "queue": "A time that comes while an execution has not ended waits for its end; further ones are skipped.",
    "allow": "Every time fires, also beside executions that have not ended.",
    "cancel_running": "A time that comes while an execution has not ended cancels it, and runs when it has stopped.",
}
FAILURE_WORDS = {
    "stop": "A step that fails ends the execution: later stages are cancelled.",
    "continue": "Later stages run all the same when a step fails.",
    "skip": "Later stages are skipped when a step fails.",
}
ORIGIN_WORDS = {
    "code": "code: an app declares it",
    "file": "file: it came with headway apply",
    "api": "made here, over the API or with a command",
}
SHUTDOWN_WORDS = {
    "retry": "Steps that a shutdown stops fail and are retried at once.",
    "pause": "Steps that a shutdown stops are PAUSED until a person resumes them.",
    "resume": "Steps that a shutdown stops are queued again in their old place, with their checkpoint.",
}
_OVERWRITTEN = {
    "code": (
        "Code declares this schedule. An edit made here lasts until a scheduler with that code starts: it restores the"
        " declared definition, and creates the schedule again if it was deleted or renamed. Change it in the code."
        " Disabling it here lasts."
    ),
    "file": (
        "This schedule came from a file. An edit made here lasts until that file is applied again (headway apply)."
        " Change it in the file."
    ),
}


# --- settings -----------------------------------------------------------------------------------------------------


def catch_up_words(definition: Definition) -> str:
    match definition.catch_up:
        case "none":
            return "Times that came while no scheduler was at work are not made up for."
        case "all":
            most = "one" if definition.cap == 1 else f"{definition.cap}"
            return (
                f"Times of the last {duration_text(definition.window)} that came while no scheduler was at work are"
                f" made up for one after another, the last {most} of them."
            )
    return "If times came while no scheduler was at work, the last of them runs once for all."


def jitter_words(definition: Definition) -> str:
    if not definition.jitter:
        return "Each time fires when it comes."
    return (
        f"Each time fires up to {duration_text(definition.jitter)} late, always by the same amount for the same time."
    )


def failure_words(on_failure: str) -> str:
    return FAILURE_WORDS.get(on_failure, f"The policy {on_failure} decides what becomes of later stages.")


def shutdown_words(definition: Definition) -> str | None:
    """Describes the effect of a shutdown on the steps that run; None if no step is treated in its own way."""
    paused = [step.name for step in steps_that_pause(definition)]
    if not paused:
        return SHUTDOWN_WORDS.get(definition.on_shutdown or "")
    named = f"The step {paused[0]} is" if len(paused) == 1 else f"The steps {', '.join(paused)} are"
    then = {
        "skip": ", and every tick is SKIPPED until a person resumes it",
        "queue": ", and the next execution waits until a person resumes it",
    }
    return (
        f"{named} PAUSED if its worker is shut down, for example by a deploy{then.get(definition.overlap, '')}."
        ' With on_shutdown = "resume" it is queued again by itself.'
    )


def overwritten(origin: str) -> str | None:
    """Returns why an edit may not last; None if it lasts."""
    return _OVERWRITTEN.get(origin)


# --- status -------------------------------------------------------------------------------------------------------


def outlook(schedule: Schedule, now: int, *, active: bool) -> tuple[str, str]:
    """Returns a tone and what happens next. `active` means that it has an unfinished execution."""
    if not schedule.readable:
        return "bad", "Another version of Headway made it, and this one cannot read it: it can only be switched off."
    if not schedule.enabled:
        return "held", "It is disabled and does not fire. It can be run by hand."
    if schedule.ahead(now):
        until = instant_text(schedule.decided_until)
        return "bad", (
            f"It is silent: a clock that was ahead decided its times up to {until}. Put it right: headway schedules"
            f" reset {shlex.quote(schedule.name)}."
        )
    if schedule.next_at is None:
        return "quiet", "It fires no more: its times are over."
    late = now - schedule.next_at
    if late > OVERDUE * 1_000_000:
        return "bad", f"It was due {span(late)} ago: no scheduler is at work. Start one: headway up."
    if late >= 0:
        return "runs", "It is due now."
    return "good", f"It fires in {span(-late)}{_unless(schedule.parsed.overlap) if active else ''}."


def _unless(overlap: str) -> str:
    match overlap:
        case "skip":
            return ", unless an execution is still under way then"
        case "queue":
            return "; if an execution is still under way then, it waits for its end"
        case "cancel_running":
            return "; if an execution is still under way then, that is cancelled first"
    return ""


def tick_words(tick: Tick) -> str:
    """Returns why a tick fired or did not."""
    match tick.outcome, tick.reason:
        case "FIRED", _:
            return "It ran."
        case "COALESCED", _:
            return "No scheduler was at work; a later time ran for it."
        case "MISSED", _:
            return "No scheduler was at work, and it is not made up for."
        case _, str() as reason if reason == OVERLAP:
            return "An earlier execution had not ended (overlap)."
        case _, str() as reason if reason == OUTSIDE:
            return "It is before its start or after its end."
        case _, str() as reason if reason == INACTIVE:
            return "The tenant was inactive."
        case _, str() as reason if reason == LIMITED:
            return "The tenant had as many jobs waiting as it may have."
    return f"It could not run: {tick.reason}" if tick.reason else "It did not run."


def missed_words(name: str, count: int) -> str:
    """Returns how many ticks of a schedule were missed."""
    return f"{count_words(count)} of {name} {'was' if count == 1 else 'were'} missed while no scheduler ran"


def skipped_words(nominal_at: int, count: int, reason: str | None) -> str:
    """Returns which ticks were skipped, and why."""
    since = f"the tick of {instant_text(nominal_at)} was"
    if count > 1:
        since = f"{count_words(count)} from {instant_text(nominal_at)} on were"
    return f"{since} SKIPPED: {reason or 'it did not run'}"


def count_words(count: int) -> str:
    return f"{count} tick{'' if count == 1 else 's'}"


def change_words(kind: str, before: Mapping[str, object] | None, after: Mapping[str, object]) -> list[str]:
    """Describes what an event changed in a schedule, from its facts before and after."""
    if before is None or kind == "schedule.deleted":
        return []
    return differences(_fields(before), _fields(after))


def _fields(facts: Mapping[str, object]) -> dict[str, object]:
    definition = facts.get("definition")
    fields = dict(definition) if isinstance(definition, Mapping) else {}
    return {"name": facts.get("name"), **fields}
