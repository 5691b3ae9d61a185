"""Server-sent events: one message each, of at most 64 KiB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.api.schemas.jobs import line_json
from headway.store.jobs.views import LogLine

MESSAGE_LIMIT = 64 * 1024
# Bytes for the fields `id` and `event` of a message.
_FRAME = 200
ROOM = MESSAGE_LIMIT - _FRAME


def message(kind: str, data: Any, number: int | None = None) -> bytes:
    """Returns a message. Its data must fit."""
    return _message(kind, _text(data), number)


def shortened(kind: str, data: Mapping[str, Any], number: int | None = None) -> bytes:
    """Returns a message of an object, without its longest fields if the object is too long.

    A field that is left out is null and named in `omitted`: `data`, `params`, `run.result`.
    """
    text = _text(data)
    return _message(kind, text if len(text) <= ROOM else _text(_without_longest(data, len(text))), number)


def _without_longest(data: Mapping[str, Any], size: int) -> dict[str, Any]:
    left = {**data, "run": dict(data["run"])} if data.get("run") else dict(data)
    omitted: list[str] = []
    for length, path in sorted(_lengths(left), reverse=True):
        if size <= ROOM:
            break
        holder, _, name = path.rpartition(".")
        (left[holder] if holder else left)[name] = None
        size += len(path) + len('"null",') - length
        omitted.append(path)
    return {**left, "omitted": omitted}


def _lengths(data: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yields the length and the path of each field; of a run those of its fields."""
    for name, value in data.items():
        if name == "run" and value:
            yield from ((len(_text(inner)), f"{name}.{field}") for field, inner in value.items())
        else:
            yield len(_text(value)), name


def line_messages(lines: Sequence[LogLine]) -> Iterator[bytes]:
    """Yields messages of log lines. The number of a message is the last chunk that is complete with it."""
    texts: list[bytes] = []
    size, complete = 0, None
    for n, line in enumerate(lines):
        text = _text(line_json(line))
        if texts and size + len(text) + 1 > ROOM:
            yield _message("lines", b"[" + b",".join(texts) + b"]", complete)
            texts, size, complete = [], 0, None
        texts.append(text)
        size += len(text) + 1
        if n + 1 == len(lines) or lines[n + 1].chunk != line.chunk:
            complete = line.chunk
    if texts:
        yield _message("lines", b"[" + b",".join(texts) + b"]", complete)


def _text(data: Any) -> bytes:
    """Returns JSON without line breaks."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _message(kind: str, text: bytes, number: int | None) -> bytes:
    head = f"event: {kind}\ndata: " if number is None else f"id: {number}\nevent: {kind}\ndata: "
    return head.encode() + text + b"\n\n"
