"""What became of the last action, told once on the next page. It travels in a cookie, sealed with the session: nobody
else can put words, or a form, on somebody's page."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.model.access import seal

# A browser keeps four kilobytes of a cookie, its name and its terms among them.
MOST = 3_600
SIZES = (800, 400, 200, 100)
DONE = "done"


@dataclass(frozen=True, slots=True)
class Said:
    """`kind` is `done`, or the code of what was refused. `undo` is an address and the fields to send."""

    text: str
    kind: str = DONE
    undo: tuple[str, Mapping[str, object]] | None = None


def pack(said: Said, session: str) -> str:
    """Words are cut before the way back is lost."""
    tries = (replace(said, text=_cut(said.text, size), undo=undo) for undo in (said.undo, None) for size in SIZES)
    return next(packed for one in tries if len(packed := _pack(one, session)) <= MOST)


def unpack(packed: str, session: str) -> Said | None:
    """None: it is not one of ours, or of another session."""
    body, _, sealed = packed.rpartition(".")
    if not hmac.compare_digest(sealed.encode("utf-8", "replace"), seal(session, body).encode()):
        return None
    text, kind, undo = json.loads(base64.urlsafe_b64decode(f"{body}=="))
    return Said(text, kind, (undo[0], undo[1]) if undo else None)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _pack(said: Said, session: str) -> str:
    plain = json.dumps([said.text, said.kind, said.undo], ensure_ascii=False, separators=(",", ":"), default=str)
    body = base64.urlsafe_b64encode(plain.encode("utf-8", "replace")).decode().rstrip("=")
    return f"{body}.{seal(session, body)}"
