"""Sentences about a target: what a person must do before it opens, and the effect of a resume. Pure."""

from __future__ import annotations

from headway.model.queue.target import TargetState, TargetView


def remedy(one: TargetView) -> str | None:
    """Returns what a person must do before the target opens; None if it opens by itself."""
    if one.state is TargetState.PAUSED:
        text = paused_remedy(one)
        return f"{text[0].upper()}{text[1:]}."
    if not _is_held(one):
        return None
    text = f"Resume job {one.held_by} to continue it, or resolve it with a result"
    return f"{text}; retry, release or cancel it to let the next job start."


def paused_remedy(one: TargetView) -> str:
    """Returns the remedy for a paused target as a clause."""
    more = f"; job {one.held_by} also holds it" if _is_held(one) else ""
    return f"resume the target when it is safe to use{more}"


def _is_held(one: TargetView) -> bool:
    return one.held_by is not None and not one.resumed


def resumed(one: TargetView) -> str:
    """Describes the effect of a resume, from the target's new state."""
    todo = remedy(one)
    if todo is None:
        return f"Jobs start on the target {one.name} again."
    if one.state is TargetState.PAUSED:
        return f"The target {one.name} was resumed, and then paused again."
    return f"The target {one.name} is no longer paused, but job {one.held_by} holds it. {todo}"
