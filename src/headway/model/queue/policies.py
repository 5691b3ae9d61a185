"""Concurrency policies: each maps a task to the lanes it needs, when a job is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from headway.errors import BadInput
from headway.model.values.names import check_name

GLOBAL = "global"
BUILT_IN = ("global", "per_task", "per_resource")
# Two names that a policy is asked about to see if its lanes depend on the task.
SOME_TASKS = ("headway.hold", "other.task")


class ConcurrencyPolicy(Protocol):
    """Maps a task and its resources to the names of its lanes.

    `global` is the one lane of the whole installation; every other name is a lane of the tenant. The lanes of resources
    and of the target are added to the policy's lanes.
    """

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]: ...


class Global:
    """One lane for all jobs."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return (GLOBAL,)


class PerTask:
    """One lane per task."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return (f"task:{task}",)


class PerResource:
    """The lanes of a job's resources; the global lane if it names none."""

    def lanes(self, task: str, resources: Sequence[str]) -> Sequence[str]:
        return () if resources else (GLOBAL,)


_MADE: dict[str, Callable[[], ConcurrencyPolicy]] = {
    "global": Global,
    "per_task": PerTask,
    "per_resource": PerResource,
}


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The concurrency settings that are stored in the database.

    `limit` is the default limit of a policy's lane (None means no limit), `limits` those of single lanes, by the name
    of the lane or its task. With `targets` "global", jobs on a target take the policy's lanes too; with "own" only
    their target's lane. `aging` is in seconds.
    """

    policy: str = "global"
    targets: str = "own"
    limit: int | None = 1
    limits: tuple[tuple[str, int], ...] = ()
    aging: float | None = None

    def capacity(self, lane: str) -> int | None:
        limits = dict(self.limits)
        return limits.get(lane, limits.get(lane.removeprefix("task:"), self.limit))

    def lanes(self, task: str, resources: Sequence[str], *, on_target: bool) -> tuple[str, ...]:
        """Returns the policy's lanes for a task and its resources."""
        if on_target and self.targets != "global":
            return ()
        return _ask(self.policy, task, tuple(resources))

    def shared_lanes(self) -> tuple[str, ...]:
        """Returns the lanes that the policy gives to any task without resources.

        Refuses a policy that gives each task its own, or none.
        """
        remedy = "name a resource or a target to reserve"
        try:
            found, other = (_ask(self.policy, task, ()) for task in SOME_TASKS)
        except BadInput as error:
            text = f"the policy {self.policy} has no lane for a reservation without a task: {error}"
            raise BadInput(text, hint=remedy, code="no_shared_lane", field="resources") from error
        if not found or set(found) != set(other):
            text = f"under the policy {self.policy}, no lane is shared by all tasks"
            raise BadInput(text, hint=remedy, code="no_shared_lane", field="resources")
        return found


def _ask(policy: str, task: str, resources: Sequence[str]) -> tuple[str, ...]:
    """Calls the policy and checks its answer; returns each lane once."""
    place = f"concurrency.policy: {policy} for the task {task}"
    try:
        answer: object = find(policy).lanes(task, resources)
    except BadInput:
        raise
    except Exception as error:  # a custom policy is user code
        problem = f"{type(error).__name__}: {error}"
        raise BadInput(
            f"{place} failed with {problem}", hint="correct the policy", field="concurrency.policy"
        ) from error
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise BadInput(f"{place} must return a list of lanes, not {answer!r}", field="concurrency.policy")
    return tuple(dict.fromkeys(check_name(lane, field=f"{place} returns a lane that") for lane in answer))


_FOUND: dict[str, ConcurrencyPolicy] = {}


def find(name: str) -> ConcurrencyPolicy:
    """Returns a built-in policy, or imports a custom one by its dotted name: `shop.policies.ByCustomer`."""
    if name not in _FOUND:
        _FOUND[name] = _MADE[name]() if name in _MADE else _own(name)
    return _FOUND[name]


def _own(name: str) -> ConcurrencyPolicy:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        made: Any = getattr(import_module(module), attribute) if module else None
        made = made() if isinstance(made, type) else made
    except Exception as error:  # a custom policy is user code
        raise BadInput(
            f"concurrency.policy: {name} cannot be imported: {type(error).__name__}: {error}",
            hint="correct it, or run headway where the module is installed",
            field="concurrency.policy",
        ) from error
    if made is None or not callable(getattr(made, "lanes", None)):
        choices = ", ".join(BUILT_IN)
        raise BadInput(
            f"concurrency.policy: {name} is not a policy",
            hint=f"use one of {choices}, or a class with a method `lanes(task, resources)`, by its dotted name",
            field="concurrency.policy",
        )
    policy: ConcurrencyPolicy = made
    return policy
