"""Checks, parses and writes JSON values.

All stored values pass these checks, so that both databases receive only values that both can store and return.
A refusal is a BadInput that names the place (`params.a[3]`); `facts["problem"]` is its text without the place.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from headway.model.values.refuse import refuse

JSON_LIMIT = 256 * 1024
MAX_DEPTH = 32
LARGEST = 2**63 - 1
_INT_MIN, _INT_MAX = -(2**63), LARGEST
_ABSURD = 4  # beyond this multiple of the limit, the exact size of a value is not measured
_NESTED = f"is nested more than {MAX_DEPTH} levels deep: flatten it"
_ELSEWHERE = "store the data elsewhere and pass a reference"
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


def step(key: str) -> str:
    """Returns one step of a place: `params` + `.topic`, or `["odd key"]`."""
    return f".{key}" if _WORD.fullmatch(key) else f"[{_quoted(key)}]"


class _ValueProblem(Exception):
    """A refusal without its place. Each container it passes adds a step, so a path costs nothing until needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[str] = []


class _TooLarge(Exception):
    pass


class _Repeated:
    """Stands for an object with a repeated key until the walk reaches it and knows its place."""

    def __init__(self, key: str) -> None:
        self.key = key


def _encoder() -> Callable[[object], str]:
    # The walk runs before the encoder and finds cycles and NaN.
    usual = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    try:
        # `usual.encode` builds such an encoder for every call, which takes longer than encoding small params.
        pieces = make(None, usual.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    except TypeError:  # this Python has no C encoder, or one with another signature
        return usual.encode
    return lambda value: "".join(pieces(value, 0))


encode = _encoder()  # for values that are checked already, or need no check


def to_json(value: object, *, field: str, limit: int = JSON_LIMIT) -> str:
    """Returns the JSON text of a plain value, or refuses it.

    Subclasses such as StrEnum or OrderedDict count as their base type.
    """
    _check_value(value, field, limit)
    text = encode(value)
    _check_size(text, field, limit)
    return text


def from_json(text: str | bytes, *, field: str, limit: int = JSON_LIMIT) -> object:
    """Parses a JSON text under the same rules as `to_json`; also refuses a repeated key."""
    if isinstance(text, bytes):
        text = _decode_utf8(text, field)
    _check_size(text, field, limit)
    try:
        value: object = _decoder.decode(text)
    except json.JSONDecodeError as error:
        refuse(field, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except RecursionError:
        refuse(field, _NESTED)
    _check_value(value, field, limit)
    return value


def _check_value(value: object, field: str, limit: int) -> None:
    try:
        _walk(value, 0, limit * _ABSURD)
    except _ValueProblem as problem:
        refuse(field + "".join(reversed(problem.steps)), problem.text)
    except _TooLarge:
        refuse(field, _too_large(field, f"over {_size_text(limit * _ABSURD)}", limit))


def _walk(value: object, depth: int, room: int) -> int:
    """Checks a value and everything inside it; returns how much of `room` (characters) is left.

    Counting during the walk bounds the work: a few lists that share their items can stand for gigabytes.
    """
    if isinstance(value, str):
        if len(value) > room:
            raise _TooLarge
        if "\x00" in value or not value.isascii():
            _check_text(value)
        return room - len(value) - 2
    if value is None or value is True or value is False:
        return room - 4
    if isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            raise _ValueProblem("is an integer outside 64 bits: pass it as text")
        return room - 1
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _ValueProblem("is NaN or infinite, which JSON cannot hold: use null")
        return room - 3
    return _walk_container(value, depth + 1, room)


def _walk_container(value: object, depth: int, room: int) -> int:
    if depth > MAX_DEPTH:
        raise _ValueProblem(_NESTED)
    if room < 0:
        raise _TooLarge
    if isinstance(value, dict):
        return _walk_dict(value, depth, room)
    if isinstance(value, (list, tuple)):
        return _walk_list(value, depth, room)
    if isinstance(value, _Repeated):
        raise _ValueProblem(f"has the key {_quoted(value.key)} twice")
    raise _ValueProblem(f"is of type {type(value).__name__}, which JSON cannot hold: {_remedy(value)}")


def _walk_dict(value: Mapping[object, object], depth: int, room: int) -> int:
    room -= 2
    for key, item in value.items():
        if not isinstance(key, str):
            raise _ValueProblem(f"has a key of type {type(key).__name__}: JSON keys are text")
        try:
            _check_text(key)
            room = _walk(item, depth, room - len(key) - 4)
        except _ValueProblem as problem:
            problem.steps.append(step(key))
            raise
    return room


def _walk_list(value: Iterable[object], depth: int, room: int) -> int:
    room -= 2
    for index, item in enumerate(value):
        try:
            room = _walk(item, depth, room - 1)
        except _ValueProblem as problem:
            problem.steps.append(f"[{index}]")
            raise
    return room


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise _ValueProblem("contains a NUL character: remove it, or encode binary data as base64")
    if not text.isascii() and _SURROGATE.search(text):
        raise _ValueProblem("contains half of a surrogate pair, which is not valid Unicode")


def _quoted(key: str) -> str:
    return json.dumps(key if len(key) <= 60 else key[:60] + "…")


def _remedy(value: object) -> str:
    match value:
        case datetime():
            return "pass value.isoformat()"
        case bytes() | bytearray() | memoryview():
            return "pass base64 text or a file's path"
        case set() | frozenset():
            return "pass a list"
    return "pass text, numbers, true, false, null, lists or dicts"


def _decode_utf8(data: bytes, field: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(field, f"is not UTF-8 text (byte {error.start})")


def _check_size(text: str, field: str, limit: int) -> None:
    if len(text) * 4 <= limit:  # a character takes at most four bytes
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        refuse(field, _too_large(field, _size_text(size), limit))


def _too_large(field: str, size: str, limit: int) -> str:
    return f"{'are' if field.endswith('s') else 'is'} {size}, the limit is {_size_text(limit)}: {_ELSEWHERE}"


def _size_text(size: int) -> str:
    # Rounded up, so that one byte over 256 KiB does not read as 256 KiB.
    return f"{size} bytes" if size < 1024 else f"{math.ceil(size / 102.4) / 10:.10g} KiB"


def _object(pairs: list[tuple[str, object]]) -> object:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    return _Repeated(Counter(key for key, _ in pairs).most_common(1)[0][0])


def _integer(digits: str) -> int:
    # Python refuses to parse more than 4300 digits, so a longer number becomes one that the walk refuses.
    return int(digits) if len(digits) <= 20 else _INT_MAX + 1


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def check_note(text: str | None, *, field: str = "note") -> str | None:
    """Returns a valid note, or refuses it; None means no note."""
    if text is not None:
        _check_value(text, field, JSON_LIMIT)
    return text
