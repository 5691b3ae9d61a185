"""Webhooks, deliveries and tries for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.api.wire.hooks import state
from headway.cli.out import styled, table
from headway.cli.tables import age, pairs, when
from headway.model.job import Actor
from headway.model.values import duration_text
from headway.model.webhooks import Delivery, Endpoint, Try

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

STYLES = {"open": "bold red", "disabled": "yellow", "DELIVERED": "green", "FAILED": "red"}
# What a person reads: the breaker of one that works is closed.
WORDS = {"closed": "ok", "open": "failing"}


def _word(text: str) -> Text:
    return styled(WORDS.get(text, text), STYLES.get(text, ""))


def _events(one: Endpoint) -> str:
    return ", ".join(json.loads(one.events)) or "all"


def endpoint_table(found: Iterable[Endpoint]) -> Table:
    made = table("ID", "STATE", "URL", "EVENTS", "ABOUT", flexible=("URL", "EVENTS", "ABOUT"))
    for one in found:
        about = one.reason or one.description or ""
        made.add_row(str(one.id), _word(state(one)), styled(one.url), styled(_events(one)), styled(about))
    return made


def endpoint_page(one: Endpoint, now: int) -> Table:
    return pairs(
        [
            ("webhook", str(one.id)),
            ("url", one.url),
            ("state", _word(state(one))),
            ("reason", one.reason),
            ("events", _events(one)),
            ("description", one.description),
            ("max tries", str(one.max_tries)),
            ("failed in a row", str(one.failures) if one.failures else None),
            ("failing since", when(one.opened_at, now)),
            ("next probe", when(one.probe_at, now)),
            ("old secret until", when(one.old_until, now)),
            ("version", str(one.version)),
            ("created", f"{when(one.created_at, now)} by {Actor.parse(one.created_by).shown}"),
        ]
    )


def delivery_table(found: Iterable[Delivery], now: int) -> Table:
    made = table("ID", "STATUS", "EVENT", "JOB", "TRIES", "AGE", "WHY", flexible=("WHY",))
    for one in found:
        job = "" if one.job_id is None else str(one.job_id)
        tries = f"{one.tries}/{one.max_tries}"
        why = styled(one.last_error or "")
        made.add_row(str(one.id), _word(one.status), styled(one.event), job, tries, age(one.created_at, now), why)
    return made


def delivery_page(one: Delivery, now: int) -> Table:
    return pairs(
        [
            ("delivery", str(one.id)),
            ("event", one.event),
            ("job", None if one.job_id is None else str(one.job_id)),
            ("to", f"webhook {one.endpoint_id}" if one.endpoint_id else one.url),
            ("status", _word(one.status)),
            ("tries", f"{one.tries} of {one.max_tries}"),
            ("next try", when(one.next_try_at, now) if one.lease_by is None else "now"),
            ("message id", one.message_id),
            ("repeats", None if one.replay_of is None else f"delivery {one.replay_of}"),
            ("error", one.last_error),
            ("created", when(one.created_at, now)),
            ("delivered", when(one.delivered_at, now)),
        ]
    )


def try_table(found: Iterable[Try], now: int) -> Table:
    made = table("TRY", "AGE", "TOOK", "STATUS", "ADDRESS", "ANSWER", flexible=("ANSWER",))
    for one in found:
        said = json.loads(one.response)["body"] if one.response else ""
        came = said or one.error or ""
        status = "" if one.status_code is None else str(one.status_code)
        took = duration_text(round(one.took / 1e6, 3))
        made.add_row(str(one.number), age(one.at, now), took, status, one.address or "", styled(came))
    return made
