"""What a schedule says: when it fires, what it runs, and what becomes of times that meet trouble. Pure.

A definition is parsed from what people write, refused with the place that is wrong, and stored as JSON. Its nominal
times, and which of them fire, are in `ticks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from typing import Any

from headway.errors import BadInput
from headway.model import cron
from headway.model.plan import failure_policy, unique_names
from headway.model.values import (
    check_name,
    check_note,
    check_task_name,
    closest,
    duration_text,
    from_json,
    instant,
    instant_text,
    refuse,
    seconds,
    to_json,
)

OVERLAPS = ("skip", "queue", "allow", "cancel_running")
CATCH_UPS = ("last", "none", "all")
ORIGINS = ("code", "file", "api")
# Exactly one of each: when it fires, and what it runs.
WHEN = ("cron", "interval", "times")
WHAT = ("template", "steps")
LONGEST_JITTER = 86_400.0
MOST_CAUGHT_UP = 100
MOST_STEPS = 200
MOST_TIMES = 1_000
# What a step may say about its job, with the names of `using(...)`.
WISHES = (
    "target",
    "resources",
    "timeout",
    "retry_policy",
    "continue_on_failure",
    "priority",
    "budget",
    "on_lost",
    "on_error",
    "on_shutdown",
)


@dataclass(frozen=True, slots=True)
class StepWish:
    """One step: a task or a template, and what it wants otherwise. Steps with the same index run side by side."""

    index: int
    name: str
    task: str | None = None
    template: str | int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    wishes: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, object]:
        what = {"task": self.task} if self.task is not None else {"template": self.template}
        params = {"params": dict(self.params)} if self.params else {}
        return {"index": self.index, "name": self.name, **what, **params, **self.wishes}


@dataclass(frozen=True, slots=True)
class Definition:
    """When and what. Instants are microseconds, durations seconds; `text()` is how it is stored."""

    cron: str | None = None
    interval: float | None = None
    times: tuple[int, ...] = ()
    timezone: str = "UTC"
    params: Mapping[str, Any] = field(default_factory=dict)
    template: str | int | None = None
    steps: tuple[StepWish, ...] = ()
    on_failure: str = "stop"
    overlap: str = "skip"
    catch_up: str = "last"
    window: float = 86_400.0
    cap: int = 10
    jitter: float = 0.0
    start: int | None = None
    end: int | None = None
    note: str | None = None

    def facts(self) -> dict[str, object]:
        """As it is written: what has no default is left out when it was not given."""
        found: dict[str, object] = {}
        for name in FIELDS:
            value = getattr(self, name)
            if value is None or value == () or (name == "params" and not value):
                continue
            match name:
                case "times":
                    value = [instant_text(time) for time in value]
                case "steps":
                    value = [step.facts() for step in value]
                case "start" | "end":
                    value = instant_text(value)
                case "interval" | "window" | "jitter":
                    value = int(value) if value == int(value) else value
            found[name] = dict(value) if name == "params" else value
        return found

    def text(self) -> str:
        return to_json(self.facts(), field="definition")

    def changed(self, changes: Mapping[str, object]) -> Definition:
        """With some fields otherwise. Another way to say when, or what, takes the place of the one before."""
        kept = self.facts()
        for alternatives in (WHEN, WHAT):
            if any(changes.get(name) is not None for name in alternatives):
                kept = {name: value for name, value in kept.items() if name not in alternatives}
        return Definition.parse({**kept, **changes})

    @staticmethod
    def parse(given: Mapping[str, object]) -> Definition:
        """Refuses what cannot be: unknown fields, no time, no step, times that never come."""
        wishes = {name: value for name, value in given.items() if value is not None}
        _refuse_unknown(wishes, FIELDS, "a schedule")
        _exactly_one(wishes, WHEN, "say when it fires: cron, interval or times")
        _exactly_one(wishes, WHAT, "say what it runs: a template or steps")
        made = Definition(**{name: _PARSERS[name](value) for name, value in wishes.items()})  # type: ignore[arg-type]
        _check_together(made)
        return made

    @staticmethod
    def read(text: str) -> Definition:
        """A stored one."""
        return _read(text)


FIELDS = tuple(one.name for one in fields(Definition))


@lru_cache(maxsize=4096)
def _read(text: str) -> Definition:
    return Definition.parse(json.loads(text))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored. Every tick up to `decided_until` is decided; `definition` is JSON."""

    id: int
    tenant_id: int
    name: str
    definition: str
    enabled: int
    origin: str
    decided_until: int
    next_at: int | None
    last_run_at: int | None
    created_at: int
    created_by: str
    deleted_at: int | None
    version: int

    @property
    def parsed(self) -> Definition:
        return Definition.read(self.definition)

    @property
    def readable(self) -> bool:
        """Not one that only another version of Headway, or of the time zones, can read."""
        try:
            return bool(self.parsed)
        except BadInput:
            return False

    @property
    def anchor(self) -> int:
        """Where intervals are counted from."""
        return anchor_of(self.parsed, self.created_at)


def anchor_of(definition: Definition, created_at: int) -> int:
    return created_at if definition.start is None else definition.start


@dataclass(frozen=True, slots=True)
class Tick:
    """A decision as it is stored: one nominal time, or neighbours with the same decision (first, last, count)."""

    id: int
    tenant_id: int
    schedule_id: int
    nominal_at: int
    until: int
    count: int
    outcome: str
    reason: str | None
    execution_id: int | None
    decided_at: int


# --- one field ----------------------------------------------------------------------------------------------------


def _refuse_unknown(given: Mapping[str, object], known: Sequence[str], what: str, place: str = "") -> None:
    for name in given:
        if name not in known:
            near = closest(str(name), known)
            hint = f": did you mean {near}?" if near else f": it has {', '.join(known)}"
            raise BadInput(f"{place}{name}: {what} has no such field{hint}", field=f"{place}{name}")


def _exactly_one(given: Mapping[str, object], names: Sequence[str], remedy: str) -> None:
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise BadInput(f"{found[1]}: not together with {found[0]}: {remedy}", field=found[1])
    if not found:
        raise BadInput(f"{names[-1]}: {remedy}", field=names[-1])


def _choice(value: object, choices: Sequence[str], field: str) -> str:
    if not isinstance(value, str) or value not in choices:
        near = closest(value, choices) if isinstance(value, str) else None
        hint = f": did you mean {near}?" if near else ""
        refuse(field, f"must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}{hint}")
    return value


def _cron(value: object) -> str:
    if not isinstance(value, str):
        refuse("cron", f"must be text like '30 2 * * mon-fri', not {type(value).__name__}")
    return cron.parse(value).text


def _interval(value: object) -> float:
    interval = seconds(value, field="interval")
    if interval < 1:
        refuse("interval", "must be at least 1s")
    return interval


def _times(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        refuse("times", 'must be a list of times, like ["2026-03-01T09:00:00Z"]')
    if len(value) > MOST_TIMES:
        refuse("times", f"has {len(value)} times, the limit is {MOST_TIMES}: use cron or interval")
    return tuple(sorted({_moment(one, f"times[{n}]") for n, one in enumerate(value)}))


def _moment(value: object, field: str) -> int:
    moment = instant(value, field=field)
    if moment > cron.LATEST:
        refuse(field, f"is after {instant_text(cron.LATEST)[:10]}, the last day that a schedule can have")
    return moment


def _params(value: object, field: str = "params") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        refuse(field, f"must be a dict of names and values, not {type(value).__name__}")
    copied = from_json(to_json(dict(value), field=field), field=field)
    assert isinstance(copied, dict)
    return copied


def _template(value: object, field: str = "template") -> str | int:
    return value if isinstance(value, int) and not isinstance(value, bool) else check_name(value, field=field)


def _cap(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CAUGHT_UP:
        refuse("cap", f"must be a whole number from 1 to {MOST_CAUGHT_UP}")
    return value


def _window(value: object) -> float:
    window = seconds(value, field="window")
    if window < 1:
        refuse("window", "must be at least 1s: catch_up none is the way to catch up nothing")
    return window


def _jitter(value: object) -> float:
    jitter = seconds(value, field="jitter")
    if jitter > LONGEST_JITTER:
        refuse("jitter", "must be at most 1d")
    return jitter


def _on_failure(value: object) -> str:
    """A policy of the users' own is looked for when the schedule fires: not every process has its module."""
    if not isinstance(value, str):
        refuse("on_failure", f"must be text, not {type(value).__name__}")
    if "." not in value and ":" not in value:
        failure_policy(value)
    return value


def _note(value: object) -> str | None:
    if not isinstance(value, str):
        refuse("note", f"must be text, not {type(value).__name__}")
    return check_note(value)


# --- steps --------------------------------------------------------------------------------------------------------


def _steps(value: object) -> tuple[StepWish, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        refuse("steps", f"must be a list of steps, not {type(value).__name__}")
    if not value:
        refuse("steps", "must have at least one step: each is a task or a template")
    if len(value) > MOST_STEPS:
        refuse("steps", f"has {len(value)} steps, the limit is {MOST_STEPS}: let one task do more")
    found: list[StepWish] = []
    for n, one in enumerate(value):
        found.append(_step(one, f"steps[{n}]", found[-1].index + 1 if found else 0))
    return _named(value, found)


def _step(given: object, place: str, usual_index: int) -> StepWish:
    if not isinstance(given, Mapping):
        refuse(place, f'must be a step, like {{"task": "story.generate"}}, not {type(given).__name__}')
    wishes = {name: value for name, value in given.items() if value is not None}
    _refuse_unknown(wishes, ("index", "name", "task", "template", "params", *WISHES), "a step", f"{place}.")
    if ("task" in wishes) == ("template" in wishes):
        raise BadInput(f"{place}.task: a step has a task or a template, and not both", field=f"{place}.task")
    index = wishes.get("index", usual_index)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= 1_000_000:
        refuse(
            f"{place}.index", f"must be a whole number from 0, not {index!r}: steps with the same index run together"
        )
    task = check_task_name(wishes["task"], field=f"{place}.task") if "task" in wishes else None
    template = _template(wishes["template"], f"{place}.template") if "template" in wishes else None
    name = check_name(wishes["name"], field=f"{place}.name") if "name" in wishes else str(task or template)
    if not isinstance(wishes.get("continue_on_failure", False), bool):
        refuse(f"{place}.continue_on_failure", "must be true or false")
    options = _params({name: wishes[name] for name in WISHES if name in wishes}, place)
    return StepWish(index, name, task, template, _params(wishes.get("params", {}), f"{place}.params"), options)


def _named(given: Sequence[Any], steps: Sequence[StepWish]) -> tuple[StepWish, ...]:
    """Names are said once; a step that says none is named for its task, with a number if that is taken."""
    said = [one.get("name") for one in given]
    for n, name in enumerate(said):
        if name is not None and name in said[:n]:
            refuse(f"steps[{n}].name", f"is {name!r}, and so is that of steps[{said.index(name)}]: names are unique")
    own = [step.name for step, name in zip(steps, said, strict=True) if name is not None]
    others = unique_names([*own, *(step.name for step, name in zip(steps, said, strict=True) if name is None)])
    rest = iter(others[len(own) :])
    return tuple(
        step if name is not None else _renamed(step, next(rest)) for step, name in zip(steps, said, strict=True)
    )


def _renamed(step: StepWish, name: str) -> StepWish:
    return StepWish(step.index, name, step.task, step.template, step.params, step.wishes)


def stages_of(steps: Sequence[StepWish]) -> list[int]:
    """The stage of each step: the rank of its index."""
    order = sorted({step.index for step in steps})
    return [order.index(step.index) for step in steps]


# --- fields together ----------------------------------------------------------------------------------------------


def _check_together(made: Definition) -> None:
    if made.start is not None and made.end is not None and made.end < made.start:
        refuse("end", "is before start: nothing would ever fire")
    gap = _shortest_gap(made) if made.jitter else None
    if gap is not None and made.jitter >= gap:
        refuse("jitter", f"must be shorter than the shortest time between two ticks, which is {duration_text(gap)}")


def _shortest_gap(made: Definition) -> float | None:
    """Seconds. A tick that its jitter moved beyond the next one would keep that waiting, and fire together with it."""
    if made.interval is not None:
        return made.interval
    if made.cron is not None:
        return cron.shortest_gap(cron.parse(made.cron))
    return min(((later - time) / 1_000_000 for time, later in pairwise(made.times)), default=None)


_PARSERS = {
    "cron": _cron,
    "interval": _interval,
    "times": _times,
    "timezone": lambda value: cron.check_zone(check_name(value, field="timezone")),
    "params": _params,
    "template": _template,
    "steps": _steps,
    "on_failure": _on_failure,
    "overlap": lambda value: _choice(value, OVERLAPS, "overlap"),
    "catch_up": lambda value: _choice(value, CATCH_UPS, "catch_up"),
    "window": _window,
    "cap": _cap,
    "jitter": _jitter,
    "start": lambda value: _moment(value, "start"),
    "end": lambda value: instant(value, field="end"),
    "note": _note,
}
