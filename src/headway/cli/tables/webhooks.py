"""Renders webhooks, deliveries and tries as tables and pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.output import Json, styled, table
from headway.cli.tables.pages import created, deleted, pairs
from headway.cli.tables.times import age, when
from headway.model.values.times import duration_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

STYLES = {"open": "bold red", "disabled": "yellow", "DELIVERED": "green", "FAILED": "red"}
# Words shown for the state of the circuit breaker, which is closed while the webhook works.
WORDS = {"closed": "ok", "open": "failing"}


def _word(text: str) -> Text:
    return styled(WORDS.get(text, text), STYLES.get(text, ""))


def _events(endpoint: Json) -> str:
    return ", ".join(endpoint["events"]) or "all"


def endpoint_table(found: Iterable[Json]) -> Table:
    made = table("ID", "STATE", "URL", "EVENTS", "ABOUT", flexible=("URL", "EVENTS", "ABOUT"))
    for endpoint in found:
        about = endpoint["reason"] or endpoint["description"] or ""
        url, events = styled(endpoint["url"]), styled(_events(endpoint))
        made.add_row(str(endpoint["webhook_id"]), _word(endpoint["state"]), url, events, styled(about))
    return made


def endpoint_page(endpoint: Json, now: int) -> Table:
    return pairs(
        [
            ("webhook", str(endpoint["webhook_id"])),
            ("url", endpoint["url"]),
            ("state", _word(endpoint["state"])),
            ("reason", endpoint["reason"]),
            ("events", _events(endpoint)),
            ("description", endpoint["description"]),
            ("max tries", str(endpoint["max_tries"])),
            ("failed in a row", endpoint["failures"] or None),
            ("failing since", when(endpoint["opened_at"], now)),
            ("next probe", when(endpoint["probe_at"], now)),
            ("old secret until", when(endpoint["old_secret_until"], now)),
            ("version", str(endpoint["version"])),
            ("created", created(endpoint, now)),
            ("deleted", deleted(endpoint, now)),
        ]
    )


def delivery_table(found: Iterable[Json], now: int) -> Table:
    made = table("ID", "STATUS", "EVENT", "JOB", "TRIES", "AGE", "WHY", flexible=("WHY",))
    for delivery in found:
        job = "" if delivery["job_id"] is None else str(delivery["job_id"])
        tries = f"{delivery['tries']}/{delivery['max_tries']}"
        since, why = age(delivery["created_at"], now), styled(delivery["last_error"] or "")
        number, status = str(delivery["delivery_id"]), _word(delivery["status"])
        made.add_row(number, status, styled(delivery["event"]), job, tries, since, why)
    return made


def delivery_page(delivery: Json, now: int) -> Table:
    next_try = delivery["next_try_at"]
    being_sent = delivery["status"] == "PENDING" and next_try is None
    return pairs(
        [
            ("delivery", str(delivery["delivery_id"])),
            ("event", delivery["event"]),
            ("job", delivery["job_id"]),
            ("to", f"webhook {delivery['webhook_id']}" if delivery["webhook_id"] else delivery["url"]),
            ("status", _word(delivery["status"])),
            ("tries", f"{delivery['tries']} of {delivery['max_tries']}"),
            ("next try", "now" if being_sent else when(next_try, now)),
            ("message id", delivery["message_id"]),
            ("repeats", None if delivery["replay_of"] is None else f"delivery {delivery['replay_of']}"),
            ("error", delivery["last_error"]),
            ("created", when(delivery["created_at"], now)),
            ("delivered", when(delivery["delivered_at"], now)),
        ]
    )


def try_table(found: Iterable[Json], now: int) -> Table:
    made = table("TRY", "AGE", "TOOK", "STATUS", "ADDRESS", "ANSWER", flexible=("ANSWER",))
    for attempt in found:
        body = attempt["response"]["body"] if attempt["response"] else ""
        answer = styled(body or attempt["error"] or "")
        status = "" if attempt["status_code"] is None else str(attempt["status_code"])
        took = duration_text(round(attempt["seconds"], 3))
        made.add_row(str(attempt["number"]), age(attempt["at"], now), took, status, attempt["address"] or "", answer)
    return made
