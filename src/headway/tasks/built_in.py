"""What the built-in tasks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from headway.errors import BadInput


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A task that comes with Headway."""

    name: str
    function: Callable[..., object]


def bad(field: str, problem: str) -> NoReturn:
    """Fails the job for good: its params cannot work."""
    raise BadInput(f"params.{field} {problem}", code="bad_params", field=f"params.{field}")


def check(field: str, problem: str | None) -> None:
    """Once more, when it runs: what a step or a secret filled in was not there at enqueue."""
    if problem:
        bad(field, problem)
