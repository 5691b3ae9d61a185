"""Checks names, priorities, budgets and whole numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headway.errors import BadInput
from headway.model.values.json import LARGEST
from headway.model.values.refuse import refuse

MAX_NAME = 200
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TASK_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_NAME}}}")
_DIGITS = re.compile(r"[0-9]{1,20}")  # one digit more than a 64-bit integer has


def check_name(text: object, *, field: str) -> str:
    """Returns a valid name, or refuses it. Names are compared byte by byte, so nothing is trimmed."""
    if not isinstance(text, str):
        refuse(field, f"must be text, not {type(text).__name__}")
    if not 1 <= len(text) <= MAX_NAME:
        refuse(field, f"must have 1 to {MAX_NAME} characters, not {len(text)}")
    if _CONTROL.search(text):
        refuse(field, "must not contain control characters")
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
