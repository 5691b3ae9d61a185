"""One verb for all jobs that fit a filter: what is offered, to how many, and what became of it. In words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.model.states import MOVES, State, Verb

_TOLD = 3  # refusals that are quoted
_LABELS = {
    Verb.CANCEL: "Cancel",
    Verb.INTERRUPT: "Interrupt",
    Verb.RESUME: "Resume",
    Verb.RELEASE: "Release",
    Verb.RETRY: "Retry",
}
_EFFECTS = {
    Verb.CANCEL: "What waits ends CANCELLED at once, what runs is asked to stop. Nothing of it is retried.",
    Verb.INTERRUPT: "What runs is stopped and becomes PAUSED, what waits is put on hold. A resume lets it go on.",
    Verb.RESUME: "What is held goes back to its old place in the queue, what is on hold is let go.",
    Verb.RELEASE: "What is held ends FAILED without a retry, and lets go of its target.",
    Verb.RETRY: "Each is tried again as a new job; what is held ends FAILED first.",
}
_DONE = {
    "cancel": "cancelled, or asked to stop",
    "interrupt": "interrupted, or put on hold",
    "resume": "resumed",
    "release": "released",
    "retry": "tried again",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A verb for so many jobs in these states. `label` and `question` spell the number out."""

    action: str
    count: int
    statuses: tuple[State, ...]
    label: str
    question: str


def offers(counts: Mapping[State, int]) -> list[Offer]:
    """What can be done to jobs of which so many are in each state."""
    fitting = (
        {state: counts[state] for state in State if _fits(verb, state, counts) and counts.get(state)}
        for verb in _LABELS
    )
    return [_offer(verb, those) for verb, those in zip(_LABELS, fitting, strict=True) if those]


def _fits(verb: Verb, state: State, counts: Mapping[State, int]) -> bool:
    """Of those that wait, only those on hold can be resumed, and they are not counted apart: it is offered to those who
    ask for what is WAITING."""
    if verb is Verb.RESUME and state is State.WAITING:
        return not counts.get(State.QUEUED) and not counts.get(State.SCHEDULED)
    return state in MOVES[verb]


def _offer(verb: Verb, counts: Mapping[State, int]) -> Offer:
    total = sum(counts.values())
    which = ", ".join(f"{count:,} {state.name}" for state, count in counts.items())
    return Offer(verb.value, total, tuple(counts), _label(verb, total, counts), f"{which}. {_EFFECTS[verb]}")


def _label(verb: Verb, total: int, counts: Mapping[State, int]) -> str:
    if verb is Verb.INTERRUPT and State.RUNNING not in counts:
        return f"Put {_jobs(total)} on hold"
    return f"{_LABELS[verb]} {_jobs(total)}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def told(action: str, changed: int, refused: Sequence[tuple[int, str]], left: int = 0) -> str:
    """What became of it, and how many of those that fit are `left` to be asked. The first refusals are quoted."""
    asked = changed + len(refused)
    rest = f" {left:,} of {asked + left:,} are left: go on?" if left else ""
    return f"{_told(action, changed, refused)}{rest}"


def _told(action: str, changed: int, refused: Sequence[tuple[int, str]]) -> str:
    verb = "was" if changed == 1 else "were"
    text = f"{_jobs(changed)} {verb} {_DONE[action]}."
    if not refused:
        return text
    quoted = "; ".join(reason for _, reason in refused[:_TOLD])
    more = f"; and {len(refused) - _TOLD:,} more" if len(refused) > _TOLD else ""
    return f"{text} {_jobs(len(refused))} {'was' if len(refused) == 1 else 'were'} not: {quoted}{more}."
