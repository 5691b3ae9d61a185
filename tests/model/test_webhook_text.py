"""How webhooks stand, and what becomes of deliveries, in words."""

from __future__ import annotations

from dataclasses import replace

from headway.model.webhooks.webhook import DELIVERED, FAILED, PENDING, SECOND, Delivery, Endpoint
from headway.text.webhooks import not_again, standing, what_next

NOW = 1_000 * SECOND
HOOK = Endpoint(
    3, 1, "https://a.example", "[]", None, "whsec_", None, None, 4, 1, None, 0, None, None, 1, "{}", None, 1
)
SENT = Delivery(
    *(7, 1, 3, 1, "job.run.failed", 5, None, None, None, PENDING, 0, 0, 4, NOW, None, 0, None, None, None, 1),
    *(None, None, 0),
)


def test_how_a_webhook_stands() -> None:
    assert (standing(HOOK, NOW).word, standing(HOOK, NOW).tone) == ("ok", "good")
    assert standing(replace(HOOK, failures=1), NOW).text == "It failed once in a row and is tried again."
    why = replace(HOOK, failures=1, reason="it answered 500")
    assert standing(why, NOW).text == "It failed once in a row and is tried again: it answered 500."
    failing = standing(replace(HOOK, failures=7, opened_at=NOW, probe_at=NOW + 30 * SECOND), NOW)
    assert (failing.word, failing.tone) == ("failing", "bad")
    assert failing.text.startswith("It failed 7 times in a row. Its oldest delivery is tried again in 30 s;")
    assert "tried again now" in standing(replace(HOOK, failures=7, opened_at=NOW, probe_at=NOW), NOW).text
    gone = standing(replace(HOOK, enabled=0, reason="it answered 410 Gone"), NOW)
    assert (gone.word, gone.text) == (
        "disabled",
        "Nothing is sent to it. It answered 410 Gone. Enable it to continue.",
    )
    assert standing(replace(HOOK, enabled=0), NOW).text == "Nothing is sent to it. Enable it to continue."
    assert standing(replace(HOOK, enabled=0, deleted_at=NOW), NOW).word == "deleted"


def test_why_a_delivery_is_not_sent_once_more() -> None:
    ended = replace(SENT, status=FAILED, due_at=None)
    assert not_again(ended, HOOK) is None
    assert not_again(ended, None) is None
    assert not_again(SENT, HOOK) == (PENDING, "delivery 7 is still on its way: wait until it has ended")
    assert not_again(ended, replace(HOOK, enabled=0)) == (
        "disabled",
        "webhook 3 is disabled: delivery 7 has no receiver",
    )
    assert (not_again(ended, replace(HOOK, enabled=0, deleted_at=1)) or ("", ""))[0] == "deleted"


def test_the_next_state_of_a_delivery() -> None:
    assert what_next(SENT, HOOK, NOW) == "It is sent at any moment; 4 tries left."
    later = replace(SENT, tries=3, due_at=NOW + 8 * SECOND)
    assert what_next(later, HOOK, NOW) == what_next(later, None, NOW) == "It is sent again in 8 s; 1 try left."
    assert what_next(replace(SENT, lease_by="me"), HOOK, NOW) == "It is being sent right now."
    assert "given up" in what_next(SENT, replace(HOOK, enabled=0), NOW)
    assert "answers again" in what_next(SENT, replace(HOOK, opened_at=1, probe_at=1), NOW)
    assert what_next(replace(SENT, status=DELIVERED), HOOK, NOW) == "The receiver has it."
    assert "once more" in what_next(replace(SENT, status=FAILED), HOOK, NOW)
