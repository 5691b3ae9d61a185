"""Sentences about webhooks: status, next step, and why a delivery cannot be replayed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.model.explain.forecast import span
from headway.model.webhooks.webhook import DELIVERED, FAILED, LONGEST_WAIT, PENDING, SECOND, Delivery, Endpoint


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """The status of a receiver: a word, the tone of its colour, and an explanation."""

    word: str
    tone: str
    text: str


def standing(one: Endpoint, now: int) -> ReceiverStatus:
    if one.deleted_at is not None:
        return ReceiverStatus("deleted", "quiet", "Nothing more is sent to it.")
    if not one.enabled:
        why = f" {one.reason}." if one.reason else ""
        return ReceiverStatus("disabled", "quiet", f"Nothing is sent to it.{_sentence(why)} Enable it to continue.")
    if one.opened_at is not None and one.probe_at is not None:
        probe = f"in {span(one.probe_at - now)}" if one.probe_at > now else "now"
        return ReceiverStatus(
            "failing",
            "bad",
            f"It failed {_times(one.failures)} in a row{_why(one)}. Its oldest delivery is tried again {probe}; the"
            f" others wait for that, at most {span(round(LONGEST_WAIT * SECOND))}.",
        )
    if one.failures:
        return ReceiverStatus(
            "unsteady", "held", f"It failed {_times(one.failures)} in a row and is tried again{_why(one)}."
        )
    return ReceiverStatus("ok", "good", "Events are sent to it at once.")


def _sentence(text: str) -> str:
    """Capitalises the text after its leading blank."""
    return f" {text[1].upper()}{text[2:]}" if len(text) > 1 else ""


def _why(one: Endpoint) -> str:
    """Returns the reason of the last failed try, after a colon; empty if there is none."""
    return f": {one.reason}" if one.reason else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def not_again(one: Delivery, endpoint: Endpoint | None) -> tuple[str, str] | None:
    """Returns why a delivery cannot be replayed, as a word and a sentence; None if it can.

    `endpoint` None means that the delivery goes to its job's own URL.
    """
    if endpoint is not None and not endpoint.usable:
        word = "deleted" if endpoint.deleted_at is not None else "disabled"
        return word, f"webhook {endpoint.id} is {word}: delivery {one.id} has no receiver"
    if one.status == PENDING:
        return one.status, f"delivery {one.id} is still on its way: wait until it has ended"
    return None


def came_of_test(one: Delivery) -> str:
    """Describes the outcome of a test delivery."""
    if one.status == DELIVERED:
        return f"The test arrived: it answered {one.last_status_code} (delivery {one.id})."
    if one.last_error is not None:
        again = " It is tried again." if one.status == PENDING else ""
        return f"The test did not arrive: {one.last_error} (delivery {one.id}).{again}"
    if one.next_try_at is None:
        return f"The test was sent, and there is no answer yet (delivery {one.id})."
    return f"The test is not sent yet (delivery {one.id}): a process with the role scheduler sends it."


def what_next(one: Delivery, endpoint: Endpoint | None, now: int) -> str:
    """Describes what happens next to a delivery."""
    if one.status == FAILED:
        return "It is given up. It can be sent once more, with the same id and the same bytes."
    if one.status != PENDING:
        return "The receiver has it."
    if one.lease_by is not None:
        return "It is being sent right now."
    if endpoint is not None and not endpoint.usable:
        return "It will be given up: its webhook is not used any more."
    if endpoint is not None and endpoint.opened_at is not None and one.due_at != 0:
        return "It waits until its receiver answers again."
    left = one.max_tries - one.tries
    due = f"in {span(one.due_at - now)}" if one.due_at is not None and one.due_at > now else "at any moment"
    return f"It is sent {'again ' if one.tries else ''}{due}; {left} {'try' if left == 1 else 'tries'} left."
