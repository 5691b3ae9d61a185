"""Code that the built-in tasks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from headway.errors import BadInput


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A task that is part of Headway."""

    name: str
    function: Callable[..., object]


def bad(field: str, problem: str) -> NoReturn:
    """Raises BadInput for a param. The job fails with BAD_PARAMS and is not retried."""
    raise BadInput(f"params.{field} {problem}", code="bad_params", field=f"params.{field}")


def check(field: str, problem: str | None) -> None:
    """Raises BadInput if there is a problem with a param.

    Params are checked again when the job runs, because results of steps and secrets are filled in after the enqueue.
    """
    if problem:
        bad(field, problem)
