"""Sentences about a target: what a person must do before it opens, and the effect of a resume. Pure."""

from __future__ import annotations

from headway.model.queue.target import TargetState, TargetView


def remedy(one: TargetView) -> str | None:
    """Returns what a person must do before the target opens; None if it opens by itself."""
    held = one.held_by is not None and not one.resumed
    if one.state is TargetState.PAUSED:
        more = f"; job {one.held_by} also holds it" if held else ""
        return f"Resume the target when it is safe to use{more}."
    if not held:
        return None
    text = f"Resume job {one.held_by} to continue it, or resolve it with a result"
    return f"{text}; retry, release or cancel it to let the next job start."


def resumed(one: TargetView) -> str:
    """Describes the effect of a resume, from the target's new state."""
    todo = remedy(one)
    if todo is None:
        return f"Jobs start on the target {one.name} again."
    if one.state is TargetState.PAUSED:
        return f"The target {one.name} was resumed, and then paused again."
    return f"The target {one.name} is no longer paused, but job {one.held_by} holds it. {todo}"
