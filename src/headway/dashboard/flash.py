"""Flash messages: the result of an action, shown once on the next page.

A message travels in a cookie. The key of the installation signs it for one session and one minute, so that no page on
another port of the host can forge one or show an old one again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.clock import SECOND
from headway.model.access.cookies import CookieKey

# Browsers limit a cookie to 4 KiB, including its name and attributes.
MOST = 3_600
SIZES = (800, 400, 200, 100)
DONE = "done"
SECONDS = 60


@dataclass(frozen=True, slots=True)
class FlashMessage:
    """A message.

    `kind` is `done` or an error code. `undo` is a path and the fields to send.
    """

    text: str
    kind: str = DONE
    undo: tuple[str, Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class FlashSigner:
    """Packs and unpacks the messages of one session."""

    key: CookieKey
    session: str
    now: int

    def pack(self, message: FlashMessage) -> str:
        """Packs a message into a cookie value.

        Shortens the text before it drops the undo form.
        """
        tries = (
            replace(message, text=_cut(message.text, size), undo=undo)
            for undo in (message.undo, None)
            for size in SIZES
        )
        return next(packed for attempt in tries if len(packed := self._pack(attempt)) <= MOST)

    def unpack(self, packed: str) -> FlashMessage | None:
        """Unpacks a message; returns None if it is not of this session, or too old."""
        body, _, signature = packed.rpartition(".")
        if not self.key.signed(signature, "flash", self.session, body):
            return None
        made, text, kind, undo = json.loads(base64.urlsafe_b64decode(f"{body}=="))
        if abs(self.now - made) > SECONDS * SECOND:
            return None
        return FlashMessage(text, kind, (undo[0], undo[1]) if undo else None)

    def _pack(self, message: FlashMessage) -> str:
        facts = [self.now, message.text, message.kind, message.undo]
        plain = json.dumps(facts, ensure_ascii=False, separators=(",", ":"), default=str)
        body = base64.urlsafe_b64encode(plain.encode("utf-8", "replace")).decode().rstrip("=")
        return f"{body}.{self.key.signature('flash', self.session, body)}"


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
