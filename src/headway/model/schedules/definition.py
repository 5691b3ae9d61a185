"""The definition of a schedule: when it fires, what it runs, and its overlap and catch-up rules. Pure.

A definition is parsed from user input and stored as JSON. A refusal names the wrong place. The module `ticks` computes
its nominal times and decides which of them fire.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from headway.errors import BadInput
from headway.model.groups.group import failure_policy, unique_names
from headway.model.jobs.job import ON_SHUTDOWN
from headway.model.schedules import cron
from headway.model.values.json import check_note, from_json, to_json
from headway.model.values.names import check_name, check_task_name
from headway.model.values.refuse import refuse
from headway.model.values.state_names import step_kind
from headway.model.values.suggestions import closest
from headway.model.values.times import duration_text, instant, instant_text, seconds

OVERLAPS = ("skip", "queue", "allow", "cancel_running")
CATCH_UPS = ("last", "none", "all")
ORIGINS = ("code", "file", "api")
# A definition has exactly one of each tuple: when it fires, and what it runs.
WHEN = ("cron", "interval", "times")
WHAT = ("template", "steps")
LONGEST_JITTER = 86_400.0
MOST_CAUGHT_UP = 100
MOST_STEPS = 200
MOST_TIMES = 1_000
# Options that a step may set for its job, with the names of `using(...)`.
OPTIONS = (
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
class RequestedStep:
    """One step: a task or a template, with params and options. Steps with the same index run in parallel."""

    index: int
    name: str
    task: str | None = None
    template: str | int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, object]:
        what = {"task": self.task} if self.task is not None else {"template": self.template}
        params = {"params": dict(self.params)} if self.params else {}
        return {"index": self.index, "name": self.name, **what, **params, **self.options}


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule's definition. Instants are microseconds, durations seconds; `text()` is the stored form."""

    cron: str | None = None
    interval: float | None = None
    times: tuple[int, ...] = ()
    timezone: str = "UTC"
    params: Mapping[str, Any] = field(default_factory=dict)
    template: str | int | None = None
    steps: tuple[RequestedStep, ...] = ()
    on_failure: str = "stop"
    on_shutdown: str | None = None
    overlap: str = "skip"
    catch_up: str = "last"
    window: float = 86_400.0
    cap: int = 10
    jitter: float = 0.0
    start: int | None = None
    end: int | None = None
    note: str | None = None

    def facts(self) -> dict[str, object]:
        """Returns the definition as a user writes it; leaves out empty fields."""
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
        """Returns the definition with changes applied.

        A new `cron`, `interval` or `times` replaces the other two, and `template` and `steps` replace each other.
        """
        kept = self.facts()
        for alternatives in (WHEN, WHAT):
            if any(changes.get(name) is not None for name in alternatives):
                kept = {name: value for name, value in kept.items() if name not in alternatives}
        return Definition.parse({**kept, **changes})

    @staticmethod
    def parse(given: Mapping[str, object]) -> Definition:
        """Parses a definition; refuses unknown fields, no time, no step, and times that never come."""
        fields = {name: value for name, value in given.items() if value is not None}
        _refuse_unknown(fields, FIELDS, "a schedule")
        _exactly_one(fields, WHEN, "give one of cron, interval or times")
        _exactly_one(fields, WHAT, "give a template or steps")
        made = Definition(**{name: _PARSERS[name](value) for name, value in fields.items()})  # type: ignore[arg-type]
        _check_together(made)
        return made

    @staticmethod
    def read(text: str) -> Definition:
        """Parses a stored definition."""
        return _read(text)


FIELDS = tuple(attribute.name for attribute in dataclasses.fields(Definition))


def steps_of(definition: Definition) -> tuple[RequestedStep, ...]:
    """Returns the steps of a definition; one that names a template instead has one step."""
    if definition.template is None:
        return definition.steps
    return (RequestedStep(0, str(definition.template), template=definition.template),)


def steps_that_pause(definition: Definition) -> list[RequestedStep]:
    """Returns the steps that a shutdown leaves PAUSED, as far as the definition itself says so."""
    return [step for step in definition.steps if _pauses(step, definition.on_shutdown)]


def _pauses(step: RequestedStep, usual: str | None) -> bool:
    option = step.options.get("on_shutdown", usual)
    if option in ("pause", "resume"):
        return bool(option == "pause")
    return "target" in step.options or (step.options.get("retry_policy") or {}).get("max_attempts") == 0


@lru_cache(maxsize=4096)
def _read(text: str) -> Definition:
    return Definition.parse(json.loads(text))


# --- single fields ------------------------------------------------------------------------------------------------


def _refuse_unknown(given: Mapping[str, object], known: Sequence[str], what: str, place: str = "") -> None:
    for name in given:
        if name not in known:
            near = closest(str(name), known)
            hint = f": did you mean {near}?" if near else f": it has {', '.join(known)}"
            raise BadInput(f"{place}{name}: {what} has no such field{hint}", field=f"{place}{name}")


def _exactly_one(given: Mapping[str, object], names: Sequence[str], remedy: str) -> None:
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise BadInput(f"{found[1]}: cannot be combined with {found[0]}", hint=remedy, field=found[1])
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
    return tuple(sorted({_moment(time, f"times[{n}]") for n, time in enumerate(value)}))


def _moment(value: object, field: str) -> int:
    moment = instant(value, field=field)
    if moment > cron.LATEST:
        refuse(field, f"is after {instant_text(cron.LATEST)[:10]}, the last day of a schedule")
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
        refuse("window", "must be at least 1s: use catch_up none to catch up nothing")
    return window


def _jitter(value: object) -> float:
    jitter = seconds(value, field="jitter")
    if jitter > LONGEST_JITTER:
        refuse("jitter", "must be at most 1d")
    return jitter


def _on_failure(value: object) -> str:
    """Checks the failure policy. A custom one is imported when the schedule fires, as it may be missing here."""
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


def _steps(value: object) -> tuple[RequestedStep, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        refuse("steps", f"must be a list of steps, not {type(value).__name__}")
    if not value:
        refuse("steps", "must have at least one step: each is a task or a template")
    if len(value) > MOST_STEPS:
        refuse("steps", f"has {len(value)} steps, the limit is {MOST_STEPS}: let one task do more")
    steps: list[RequestedStep] = []
    for n, given in enumerate(value):
        steps.append(_step(given, f"steps[{n}]", steps[-1].index + 1 if steps else 0))
    return _named(value, steps)


def _step(given: object, place: str, usual_index: int) -> RequestedStep:
    if not isinstance(given, Mapping):
        refuse(place, f'must be a step, like {{"task": "story.generate"}}, not {type(given).__name__}')
    fields = {name: value for name, value in given.items() if value is not None}
    for old in ("type", "kind"):
        if (here := step_kind(fields.get(old))) is not None:
            refuse(f"{place}.{old}", f"is no field of a step: what an older system calls {fields[old]} is {here}")
    _refuse_unknown(fields, ("index", "name", "task", "template", "params", *OPTIONS), "a step", f"{place}.")
    if ("task" in fields) == ("template" in fields):
        raise BadInput(f"{place}.task: give a task or a template, not both", field=f"{place}.task")
    index = fields.get("index", usual_index)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= 1_000_000:
        refuse(
            f"{place}.index", f"must be a whole number from 0, not {index!r}: steps with the same index run together"
        )
    task = check_task_name(fields["task"], field=f"{place}.task") if "task" in fields else None
    template = _template(fields["template"], f"{place}.template") if "template" in fields else None
    name = check_name(fields["name"], field=f"{place}.name") if "name" in fields else str(task or template)
    if not isinstance(fields.get("continue_on_failure", False), bool):
        refuse(f"{place}.continue_on_failure", "must be true or false")
    options = _params({name: fields[name] for name in OPTIONS if name in fields}, place)
    return RequestedStep(index, name, task, template, _params(fields.get("params", {}), f"{place}.params"), options)


def _named(given: Sequence[Any], steps: Sequence[RequestedStep]) -> tuple[RequestedStep, ...]:
    """Returns the steps with unique names.

    Given names must be unique. A step without a name gets its task's name, with a number if that is taken.
    """
    names = [step.get("name") for step in given]
    for n, name in enumerate(names):
        if name is not None and name in names[:n]:
            refuse(f"steps[{n}].name", f"is {name!r}, as is that of steps[{names.index(name)}]: rename one of them")
    own = [step.name for step, name in zip(steps, names, strict=True) if name is not None]
    others = unique_names([*own, *(step.name for step, name in zip(steps, names, strict=True) if name is None)])
    rest = iter(others[len(own) :])
    return tuple(
        step if name is not None else _renamed(step, next(rest)) for step, name in zip(steps, names, strict=True)
    )


def _renamed(step: RequestedStep, name: str) -> RequestedStep:
    return RequestedStep(step.index, name, step.task, step.template, step.params, step.options)


def stages_of(steps: Sequence[RequestedStep]) -> list[int]:
    """Returns the stage of each step: the rank of its index."""
    order = sorted({step.index for step in steps})
    return [order.index(step.index) for step in steps]


# --- combinations of fields ---------------------------------------------------------------------------------------


def _check_together(made: Definition) -> None:
    if made.start is not None and made.end is not None and made.end < made.start:
        refuse("end", "is before start: nothing would ever fire")
    gap = _shortest_gap(made) if made.jitter else None
    if gap is not None and made.jitter >= gap:
        refuse("jitter", f"must be shorter than the shortest time between two ticks, which is {duration_text(gap)}")


def _shortest_gap(made: Definition) -> float | None:
    """Returns the fewest seconds between two ticks; None for a single time.

    A tick whose jitter moved it past the next one would delay that tick, and both would fire together.
    """
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
    "on_shutdown": lambda value: _choice(value, ON_SHUTDOWN, "on_shutdown"),
    "overlap": lambda value: _choice(value, OVERLAPS, "overlap"),
    "catch_up": lambda value: _choice(value, CATCH_UPS, "catch_up"),
    "window": _window,
    "cap": _cap,
    "jitter": _jitter,
    "start": lambda value: _moment(value, "start"),
    "end": lambda value: instant(value, field="end"),
    "note": _note,
}
