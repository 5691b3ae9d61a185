"""What users may put in: JSON values, names, durations, instants and priorities, checked in one place.

Everything that is stored passes here first, so that both databases only ever see what both can hold and give back.
A refusal is a BadInput that names the place (`params.a[3]`); `facts["problem"]` is its text without the place.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from headway.errors import BadInput

JSON_LIMIT = 256 * 1024
MAX_DEPTH = 32
MAX_NAME = 200
MAX_SECONDS = 36_525 * 86_400.0
LARGEST = 2**63 - 1

_INT_MIN, _INT_MAX = -(2**63), LARGEST
_ABSURD = 4  # how many times the limit a value may be before its size is no longer worth measuring
_NESTED = f"is nested more than {MAX_DEPTH} levels deep: flatten it"
_ELSEWHERE = "store the data elsewhere and pass a reference"

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")
_TASK_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_NAME}}}")

_DIGITS = re.compile(r"[0-9]{1,20}")  # as many as 64 bits may take, and one more
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_AMOUNT = r"(?:([0-9]+(?:\.[0-9]+)?)\s*{}\s*)?"
_DURATION = re.compile("".join(_AMOUNT.format(unit) for unit in ("d", "h", "m", "s", "ms")))
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_LIKE = "write it like 10s, 5m or 1h30m"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, all that RFC 3339 can write
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
)


def refuse(field: str, problem: str) -> NoReturn:
    raise BadInput(f"{field} {problem}", field=field, problem=problem)


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was most likely meant to be, if any comes near."""
    found = difflib.get_close_matches(name[:MAX_NAME], list(candidates), n=1)
    return found[0] if found else None


def step(key: str) -> str:
    """One step of a place: `params` + `.topic`, or `["odd key"]`."""
    return f".{key}" if _WORD.fullmatch(key) else f"[{_quoted(key)}]"


# --- JSON ---------------------------------------------------------------------------------------------------------


class _Problem(Exception):
    """A refusal on its way up; every container it passes adds its step, so that a path costs nothing until needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[str] = []


class _TooLarge(Exception):
    pass


class _Repeated:
    """Stands for an object with a key given twice, until the walk meets it and knows its place."""

    def __init__(self, key: str) -> None:
        self.key = key


def _encoder() -> Callable[[object], str]:
    # Circles and NaN are found by the walk, which comes first.
    usual = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    try:
        # `usual` would make this one anew for every text, which takes far longer than the text of some params.
        pieces = make(None, usual.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    except TypeError:  # a Python that has none, or another one
        return usual.encode
    return lambda value: "".join(pieces(value, 0))


encode = _encoder()  # for what was checked already, or needs no check


def to_json(value: object, *, field: str, limit: int = JSON_LIMIT) -> str:
    """The JSON text of a plain value (subclasses such as StrEnum or OrderedDict count as what they are made of)."""
    _check_value(value, field, limit)
    text = encode(value)
    _check_size(text, field, limit)
    return text


def from_json(text: str | bytes, *, field: str, limit: int = JSON_LIMIT) -> object:
    """The value of a JSON text, under the same rules as `to_json`, and no key twice in one object."""
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
    """Check a value and all below it. `room` is what is left of the size; the rest of it is returned.

    Counting while walking bounds the work: a few lists that share their items can stand for gigabytes.
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
    if len(text) * 4 <= limit:  # no character takes more than four bytes
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        refuse(field, _too_large(field, _size_text(size), limit))


def _too_large(field: str, size: str, limit: int) -> str:
    return f"{'are' if field.endswith('s') else 'is'} {size}, the limit is {_size_text(limit)}: {_ELSEWHERE}"


def _size_text(size: int) -> str:
    # Rounded up: one byte over 256 KiB must not read as 256 KiB.
    return f"{size} bytes" if size < 1024 else f"{math.ceil(size / 102.4) / 10:.10g} KiB"


def _object(pairs: list[tuple[str, object]]) -> object:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    return _Repeated(Counter(key for key, _ in pairs).most_common(1)[0][0])


def _integer(digits: str) -> int:
    # Python refuses to read more than 4300 digits; any number past 64 bits will do for the walk to find it.
    return int(digits) if len(digits) <= 20 else _INT_MAX + 1


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


# --- names and priorities -----------------------------------------------------------------------------------------


def check_name(text: object, *, field: str) -> str:
    """The name of a target, resource, tenant or key: compared byte by byte, so nothing is trimmed or folded."""
    if not isinstance(text, str):
        refuse(field, f"must be text, not {type(text).__name__}")
    if not 1 <= len(text) <= MAX_NAME:
        refuse(field, f"must have 1 to {MAX_NAME} characters, not {len(text)}")
    if _CONTROL.search(text):
        refuse(field, "must not contain control characters")
    return text


def check_note(text: str | None, *, field: str = "note") -> str | None:
    """A word of explanation from a person."""
    if text is not None:
        _check_value(text, field, JSON_LIMIT)
    return text


def check_resources(names: object, *, field: str = "resources") -> tuple[str, ...]:
    """The names of resources, each once."""
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
    """A whole number that somebody wrote in digits. `isdigit` would let `²` and `٣` pass, and `int` reads `1_000` and
    gives up at 5,000 digits."""
    digits = text.strip()
    number = int(digits) if _DIGITS.fullmatch(digits) else -1
    if number < 0 or not least <= number <= most:
        within = f"from {least} to {most}" if most < LARGEST else f"of at least {least}" if least else ""
        shown = digits if len(digits) <= 40 else digits[:40] + "…"
        refuse(field, " ".join(filter(None, ("must be a whole number", within))) + f", not {shown!r}")
    return number


def check_budget(budget: Mapping[str, float], *, field: str = "budget") -> tuple[tuple[str, float], ...]:
    """Caps by meter, sorted. Everything that compares what was spent with them relies on this."""
    if not isinstance(budget, Mapping):
        refuse(field, f'must be a dict of meters and caps, like {{"tokens": 500_000}}, not {type(budget).__name__}')
    for meter, cap in budget.items():
        check_name(meter, field=field)
        if type(cap) not in (int, float) or not 0 <= cap < 1e300:
            refuse(f"{field}.{meter}", f"must be a number that is not negative, not {cap!r}")
    return tuple(sorted(budget.items()))


# --- durations ----------------------------------------------------------------------------------------------------


def seconds(value: object, *, field: str) -> float:
    """A duration in seconds, from a number, a timedelta, or text such as `10s`, `1h30m`, `250ms` or `2d`."""
    amount = _amount(value, field)
    if amount != amount:  # NaN; math.isnan cannot take an int of any size
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
    """A duration for people, to the microsecond: `1h30m`, `1.5s`, `250ms`. `seconds()` reads it back."""
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
    """Microseconds since 1970 UTC, from an aware datetime or RFC 3339 text. Digits past the microsecond are dropped."""
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
    """RFC 3339 in UTC, with microseconds when there are any: `2026-03-01T09:00:00Z`."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
