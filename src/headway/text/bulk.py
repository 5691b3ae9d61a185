"""Sentences for bulk verbs: the offer, the number of jobs, and the outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.model.jobs.states import MOVES, State, Verb

_QUOTED = 3  # the number of refusals that are quoted
_LABELS = {
    Verb.CANCEL: "Cancel",
    Verb.INTERRUPT: "Interrupt",
    Verb.RESUME: "Resume",
    Verb.RELEASE: "Release",
    Verb.RETRY: "Retry",
}
_EFFECTS = {
    Verb.CANCEL: "Waiting jobs become CANCELLED at once, running jobs are asked to stop. No job is retried.",
    Verb.INTERRUPT: "Running jobs stop and become PAUSED, waiting jobs are put on hold. A resume continues them.",
    Verb.RESUME: "Held jobs return to their old place in the queue, jobs on hold are released.",
    Verb.RELEASE: "Held jobs become FAILED without a retry, and their targets are free.",
    Verb.RETRY: "Each job is retried as a new job; held jobs become FAILED first.",
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
    """A verb for `count` jobs in these states. `label` and `question` contain the number."""

    action: str
    count: int
    statuses: tuple[State, ...]
    label: str
    question: str


def offers(counts: Mapping[State, int]) -> list[Offer]:
    """Returns the verbs that apply to jobs with these counts per state."""
    fitting = (
        {state: counts[state] for state in State if _fits(verb, state, counts) and counts.get(state)}
        for verb in _LABELS
    )
    return [_offer(verb, those) for verb, those in zip(_LABELS, fitting, strict=True) if those]


def _fits(verb: Verb, state: State, counts: Mapping[State, int]) -> bool:
    """Returns True if the verb applies to jobs in this state.

    Only WAITING jobs on hold can be resumed, and the counts do not show them separately. So a resume is offered only
    if the filter selects neither QUEUED nor SCHEDULED jobs.
    """
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


def outcome_text(action: str, changed: int, refused: Sequence[tuple[int, str]], left: int = 0) -> str:
    """Describes the outcome of a bulk verb, quotes the first refusals, and counts the jobs still `left`."""
    asked = changed + len(refused)
    rest = f" {left:,} of {asked + left:,} are left: continue?" if left else ""
    return f"{_outcome(action, changed, refused)}{rest}"


def _outcome(action: str, changed: int, refused: Sequence[tuple[int, str]]) -> str:
    verb = "was" if changed == 1 else "were"
    text = f"{_jobs(changed)} {verb} {_DONE[action]}."
    if not refused:
        return text
    quoted = "; ".join(reason for _, reason in refused[:_QUOTED])
    more = f"; and {len(refused) - _QUOTED:,} more" if len(refused) > _QUOTED else ""
    return f"{text} {_jobs(len(refused))} {'was' if len(refused) == 1 else 'were'} not: {quoted}{more}."
