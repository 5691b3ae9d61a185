"""Idempotency keys of forms: a form that is sent twice creates one thing.

Each form carries a random text, `PageRequest.once`. A double click or the back button sends it again; the answer then
leads to the thing that the first submission created.
"""

from __future__ import annotations

import hashlib
import json

from headway.dashboard.page import PageRequest
from headway.engine.client.client import Client

FIELD = "once"


def already(client: Client) -> str:
    """Returns a text if an earlier submission created the thing, else ""."""
    return " already: the form was sent twice" if client.replayed else ""


def made_before(client: Client) -> int | None:
    """Returns the id of the thing that an earlier submission created, or None.

    The repeated submission is not checked again, because the rules may have changed since.
    """
    kept = client.recall()
    return None if kept is None else int(next(iter(kept.values())))


def keyed(page: PageRequest) -> Client:
    """Returns the client with the form's idempotency key.

    Afterwards `replayed` is True if the form was submitted before.

    The key covers all fields, so that a form with other values counts as a new one.
    """
    if not page.form.get(FIELD):
        return page.client
    digest = hashlib.sha256(json.dumps(page.form.fields).encode()).hexdigest()
    return page.client.keyed(f"ui {page.request.url.path}", digest, digest)
