"""Refuses a value, with the place where it stands."""

from __future__ import annotations

from typing import NoReturn

from headway.errors import BadInput


def refuse(field: str, problem: str) -> NoReturn:
    raise BadInput(f"{field} {problem}", field=field, problem=problem)
