"""Forms that make something make it once. Each carries a random text, `Page.once`; sent once more, as by a double click
or by going back, it leads to what it made the first time."""

from __future__ import annotations

import hashlib
import json

from headway.dashboard.pages import Page
from headway.engine.client import Client

FIELD = "once"


def already(client: Client) -> str:
    """What is said of something that the form made when it was sent before."""
    return " already: the form was sent twice" if client.replayed else ""


def made_before(client: Client) -> int | None:
    """The number of what the form made when it was sent before: that is not judged again by what has changed since."""
    kept = client.recall()
    return None if kept is None else int(next(iter(kept.values())))


def keyed(page: Page) -> Client:
    """The verbs for the form that was sent. `replayed` says afterwards whether it was sent before.

    Filled in otherwise it is another wish: everything in the form is part of its key.
    """
    if not page.form.get(FIELD):
        return page.client
    digest = hashlib.sha256(json.dumps(page.form.fields).encode()).hexdigest()
    return page.client.keyed(f"ui {page.request.url.path}", digest, digest)
