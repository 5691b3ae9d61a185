"""Concurrency policies: which lanes a kind of work needs. A policy is asked when a job is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from headway.errors import BadInput
from headway.model.values import check_name

GLOBAL = "global"
BUILT_IN = ("global", "per_task", "per_resource")


class ConcurrencyPolicy(Protocol):
    """Maps a kind of work to the names of its lanes. `global` is the one lane of the whole installation; every other
    name is a lane of the tenant. Resources and the target of a job are not the policy's business: their lanes come on
    top of what it says."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]: ...


class Global:
    """One lane for all."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return (GLOBAL,)


class PerTask:
    """One lane per task."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return (f"task:{task}",)


class PerResource:
    """The lanes of the resources it names; the one for all if it names none."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return () if resources else (GLOBAL,)


_MADE: dict[str, Callable[[], ConcurrencyPolicy]] = {
    "global": Global,
    "per_task": PerTask,
    "per_resource": PerResource,
}


@dataclass(frozen=True, slots=True)
class Concurrency:
    """What the database says about concurrency. `limit` is the usual limit of a policy's lane (None: none), `limits`
    those of single lanes, by the name of the lane or of its task; `targets`: whether jobs on a target take the
    policy's lanes too (`global`) or their target's only (`own`); `aging` in seconds."""

    policy: str = "global"
    targets: str = "own"
    limit: int | None = 1
    limits: tuple[tuple[str, int], ...] = ()
    aging: float | None = None

    def capacity(self, lane: str) -> int | None:
        limits = dict(self.limits)
        return limits.get(lane, limits.get(lane.removeprefix("task:"), self.limit))

    def lanes(self, task: str, resources: Sequence[str], *, on_target: bool) -> tuple[str, ...]:
        """The policy's lanes of a kind of work."""
        if on_target and self.targets != "global":
            return ()
        return _ask(self.policy, task, tuple(resources))


def _ask(policy: str, task: str, resources: Sequence[str]) -> tuple[str, ...]:
    """What a policy answers, each lane once."""
    place = f"concurrency.policy: {policy} for the task {task}"
    try:
        answer: object = find(policy).lanes(task, resources)
    except BadInput:
        raise
    except Exception as error:  # it is the user's code that runs here
        problem = f"{type(error).__name__}: {error}"
        raise BadInput(f"{place} failed with {problem}: correct it", field="concurrency.policy") from error
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise BadInput(f"{place} must answer a list of lanes, not {answer!r}", field="concurrency.policy")
    return tuple(dict.fromkeys(check_name(lane, field=f"{place} answers a lane that") for lane in answer))


_FOUND: dict[str, ConcurrencyPolicy] = {}


def find(name: str) -> ConcurrencyPolicy:
    """A built-in policy, or a user's own by its dotted name: `shop.policies.ByCustomer`."""
    if name not in _FOUND:
        _FOUND[name] = _MADE[name]() if name in _MADE else _own(name)
    return _FOUND[name]


def _own(name: str) -> ConcurrencyPolicy:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        made: Any = getattr(import_module(module), attribute) if module else None
        made = made() if isinstance(made, type) else made
    except Exception as error:  # it is the user's code that runs here
        raise BadInput(
            f"concurrency.policy: {name} cannot be imported: {type(error).__name__}: {error}: correct it, or run"
            " headway where it can be",
            field="concurrency.policy",
        ) from error
    if made is None or not callable(getattr(made, "lanes", None)):
        choices = ", ".join(BUILT_IN)
        raise BadInput(
            f"concurrency.policy: {name} is not a policy: take one of {choices}, or a class with a method"
            " `lanes(task, resources)`, by its dotted name",
            field="concurrency.policy",
        )
    policy: ConcurrencyPolicy = made
    return policy
