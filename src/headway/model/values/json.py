"""Checks of user input: JSON values, names, durations, instants and priorities.

All stored values pass these checks, so that both databases receive only values that both can store and return.
A refusal is a BadInput that names the place (`params.a[3]`); `facts["problem"]` is its text without the place.
"""

from __future__ import annotations

import difflib
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, NoReturn

from headway.errors import BadInput

JSON_LIMIT = 256 * 1024
MAX_DEPTH = 32
MAX_NAME = 200
MAX_SECONDS = 36_525 * 86_400.0
LARGEST = 2**63 - 1

_INT_MIN, _INT_MAX = -(2**63), LARGEST
_ABSURD = 4  # beyond this multiple of the limit, the exact size of a value is not measured
_NESTED = f"is nested more than {MAX_DEPTH} levels deep: flatten it"
_ELSEWHERE = "store the data elsewhere and pass a reference"

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")
_TASK_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_NAME}}}")

_DIGITS = re.compile(r"[0-9]{1,20}")  # one digit more than a 64-bit integer has
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_AMOUNT = r"(?:([0-9]+(?:\.[0-9]+)?)\s*{}\s*)?"
_DURATION = re.compile("".join(_AMOUNT.format(unit) for unit in ("d", "h", "m", "s", "ms")))
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_LIKE = "write it like 10s, 5m or 1h30m"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, the range of RFC 3339
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
)


def refuse(field: str, problem: str) -> NoReturn:
    raise BadInput(f"{field} {problem}", field=field, problem=problem)


# Bounds of a suggestion. A comparison takes time with the product of both lengths, and callers choose the names.
MOST_CANDIDATES, MOST_COMPARED, LONGEST_COMPARED = 1_000, 8, 64


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate most similar to `name`; None if none is similar."""
    found = similar(name, candidates, most=1)
    return found[0] if found else None


def similar(name: str, candidates: Iterable[str], *, most: int, cutoff: float = 0.6) -> list[str]:
    """Returns the candidates most similar to `name`, the best first.

    Only those that share most characters and pairs of characters with it are compared. Long names are left out: to
    compare 1,000 of them would take seconds.
    """
    if len(name) > LONGEST_COMPARED:
        return []
    own = _pieces(name)
    short = [other for other in islice(candidates, MOST_CANDIDATES) if len(other) <= LONGEST_COMPARED]
    likely = heapq.nlargest(MOST_COMPARED, short, key=lambda other: _overlap(own, _pieces(other)))
    return difflib.get_close_matches(name, likely, n=most, cutoff=cutoff)


def _pieces(text: str) -> set[str]:
    return {*text, *map("".join, pairwise(text))}


def _overlap(these: set[str], those: set[str]) -> float:
    return len(these & those) / (len(these | those) or 1)


def step(key: str) -> str:
    """Returns one step of a place: `params` + `.topic`, or `["odd key"]`."""
    return f".{key}" if _WORD.fullmatch(key) else f"[{_quoted(key)}]"


# --- JSON ---------------------------------------------------------------------------------------------------------


class _Problem(Exception):
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
    except _Problem as problem:
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
            raise _Problem("is an integer outside 64 bits: pass it as text")
        return room - 1
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Problem("is NaN or infinite, which JSON cannot hold: use null")
        return room - 3
    return _walk_container(value, depth + 1, room)


def _walk_container(value: object, depth: int, room: int) -> int:
    if depth > MAX_DEPTH:
        raise _Problem(_NESTED)
    if room < 0:
        raise _TooLarge
    if isinstance(value, dict):
        return _walk_dict(value, depth, room)
    if isinstance(value, (list, tuple)):
        return _walk_list(value, depth, room)
    if isinstance(value, _Repeated):
        raise _Problem(f"has the key {_quoted(value.key)} twice")
    raise _Problem(f"is of type {type(value).__name__}, which JSON cannot hold: {_remedy(value)}")


def _walk_dict(value: Mapping[object, object], depth: int, room: int) -> int:
    room -= 2
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Problem(f"has a key of type {type(key).__name__}: JSON keys are text")
        try:
            _check_text(key)
            room = _walk(item, depth, room - len(key) - 4)
        except _Problem as problem:
            problem.steps.append(step(key))
            raise
    return room


def _walk_list(value: Iterable[object], depth: int, room: int) -> int:
    room -= 2
    for index, item in enumerate(value):
        try:
            room = _walk(item, depth, room - 1)
        except _Problem as problem:
            problem.steps.append(f"[{index}]")
            raise
    return room


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise _Problem("contains a NUL character: remove it, or encode binary data as base64")
    if not text.isascii() and _SURROGATE.search(text):
        raise _Problem("contains half of a surrogate pair, which is not valid Unicode")


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


# --- names and priorities -----------------------------------------------------------------------------------------


def check_name(text: object, *, field: str) -> str:
    """Returns a valid name, or refuses it. Names are compared byte by byte, so nothing is trimmed."""
    if not isinstance(text, str):
        refuse(field, f"must be text, not {type(text).__name__}")
    if not 1 <= len(text) <= MAX_NAME:
        refuse(field, f"must have 1 to {MAX_NAME} characters, not {len(text)}")
    if _CONTROL.search(text):
        refuse(field, "must not contain control characters")
    return text


def check_note(text: str | None, *, field: str = "note") -> str | None:
    """Returns a valid note, or refuses it; None means no note."""
    if text is not None:
        _check_value(text, field, JSON_LIMIT)
    return text


def check_resources(names: object, *, field: str = "resources") -> tuple[str, ...]:
    """Returns valid names of resources, sorted and without repetition."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadInput(f"{field} must be a list of names, not {names!r}", field=field)
    return tuple(sorted({check_name(name, field=field) for name in names}))


def check_task_name(text: object, *, field: str = "task") -> str:
    name = check_name(text, field=field)
    if not _TASK_NAME.fullmatch(name):
        refuse(field, "must consist of letters (a-z, A-Z), digits and . _ - : only, like story.generate")
    return name


def check_priority(value: object, *, field: str = "priority") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        refuse(field, "must be a whole number from 0 to 100 (higher goes first)")
    return value


def whole(text: str, *, field: str, least: int = 0, most: int = LARGEST) -> int:
    """Parses a whole number in ASCII digits, within limits.

    `isdigit` accepts `²` and `٣`, and `int` accepts `1_000` and fails at 5,000 digits.
    """
    digits = text.strip()
    number = int(digits) if _DIGITS.fullmatch(digits) else -1
    if number < 0 or not least <= number <= most:
        within = f"from {least} to {most}" if most < LARGEST else f"of at least {least}" if least else ""
        shown = digits if len(digits) <= 40 else digits[:40] + "…"
        refuse(field, " ".join(filter(None, ("must be a whole number", within))) + f", not {shown!r}")
    return number


def check_budget(budget: Mapping[str, float], *, field: str = "budget") -> tuple[tuple[str, float], ...]:
    """Returns valid caps by meter, sorted."""
    if not isinstance(budget, Mapping):
        refuse(field, f'must be a dict of meters and caps, like {{"tokens": 500_000}}, not {type(budget).__name__}')
    for meter, cap in budget.items():
        check_name(meter, field=field)
        if type(cap) not in (int, float) or not 0 <= cap < 1e300:
            refuse(f"{field}.{meter}", f"must be a number that is not negative, not {cap!r}")
    return tuple(sorted(budget.items()))


# --- durations ----------------------------------------------------------------------------------------------------


def seconds(value: object, *, field: str) -> float:
    """Returns a duration in seconds from a number, a timedelta or text: `10s`, `1h30m`, `250ms`, `2d`."""
    amount = _amount(value, field)
    if amount != amount:  # NaN; math.isnan fails for a very large int
        refuse(field, f"is not a duration: {_LIKE}")
    if amount < 0:
        refuse(field, f"must not be negative: {_LIKE}")
    if amount > MAX_SECONDS:
        refuse(field, f"is longer than 100 years: {_LIKE}")
    return float(amount)


def _amount(value: object, field: str) -> float:
    match value:
        case bool():
            pass
        case int() | float():
            return value
        case timedelta():
            return value.total_seconds()
        case str():
            return _parse_duration(value, field)
    refuse(field, f"must be a duration, not {type(value).__name__}: {_LIKE}")


def _parse_duration(text: str, field: str) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    bare = text.removeprefix("-")
    match = _DURATION.fullmatch(bare)
    if not bare or match is None:
        refuse(field, f"is not a duration: {_LIKE}")
    amount = sum(float(amount) * unit for amount, unit in zip(match.groups(), _UNITS, strict=True) if amount)
    return amount if bare == text else -amount


def duration_text(seconds: float) -> str:
    """Formats a duration to the microsecond: `1h30m`, `1.5s`, `250ms`. `seconds()` parses it."""
    micros = round(abs(seconds) * 1_000_000)
    if not micros:
        return "0s"
    text = f"{_decimal(micros, 3)}ms" if micros < 1_000_000 else _long_duration(micros)
    return f"-{text}" if seconds < 0 else text


def _long_duration(micros: int) -> str:
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    whole = "".join(f"{amount}{unit}" for amount, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if amount)
    return whole + (f"{_decimal(micros, 6)}s" if micros else "")


def _decimal(amount: int, places: int) -> str:
    whole, rest = divmod(amount, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


# --- instants -----------------------------------------------------------------------------------------------------


def instant(value: object, *, field: str) -> int:
    """Returns microseconds since 1970 UTC, from an aware datetime or RFC 3339 text.

    Digits past the microsecond are dropped.
    """
    moment = _parse_instant(value, field) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        refuse(field, f"must be a time, not {type(value).__name__}: write it like 2026-03-01T09:00:00Z")
    if moment.utcoffset() is None:
        refuse(field, "has no time zone: write datetime.now(timezone.utc), or datetime(…, tzinfo=ZoneInfo(…))")
    micros = (moment - _EPOCH) // _MICROSECOND
    if not _FIRST <= micros <= _LAST:
        refuse(field, "is outside the years 1 to 9999 UTC")
    return micros


def _parse_instant(text: str, field: str) -> datetime:
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        refuse(field, "is not an RFC 3339 time: write it like 2026-03-01T09:00:00Z or 2026-03-01T10:00:00+01:00")
    day, time, fraction, zone = match.groups()
    if zone is None:
        refuse(field, "has no time zone: add Z for UTC, or an offset such as +01:00")
    try:
        return datetime.fromisoformat(f"{day}T{time}{fraction or ''}{zone.upper()}")
    except ValueError as error:
        refuse(field, f"is not a time that exists: {error}")


def instant_text(us: int) -> str:
    """Formats an instant as RFC 3339 in UTC, with microseconds if there are any: `2026-03-01T09:00:00Z`."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
