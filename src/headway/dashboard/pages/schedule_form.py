"""Converts between the fields of the schedule editor and a definition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from headway.dashboard.form_fields import NUMBER, duration_of, json_text, names_of, names_text, retry_of, retry_text
from headway.dashboard.page import Form
from headway.errors import HeadwayError
from headway.model.schedules.definition import Definition
from headway.model.schedules.schedule import Schedule
from headway.model.schedules.timezones import check_zone
from headway.model.values.json import from_json
from headway.model.values.refuse import refuse
from headway.model.values.times import duration_text, instant, instant_text

TIMING = ("when", "cron", "interval", "times", "timezone", "start", "end")
FIELDS = (
    *("name", *TIMING, "overlap", "catch_up", "window", "cap", "jitter", "on_failure", "on_shutdown", "note", "params"),
    *("what", "template", "enabled"),
)
STEP_FIELDS = (
    *("stage", "name", "task", "template", "params", "target", "resources", "timeout", "retry", "continue", "more"),
)
# Options of a step that have no form field of their own.
MORE = ("priority", "budget", "on_lost", "on_error", "on_shutdown")
# Options of a step that are folded while they are empty.
FOLDED = ("target", "resources", "timeout", "retry", "continue", "more")
_ADDED = re.compile(r"(after|beside)-([0-9]{1,4})")
_STEP = re.compile(r"step-([0-9]{1,4})-[a-z]+")
_PLACE = re.compile(r"steps\[([0-9]+)\](?:\.([a-z_]+))?")
_SPOTS = {"index": "stage", "retry_policy": "retry", "continue_on_failure": "continue", **dict.fromkeys(MORE, "more")}
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
_OFFSET = re.compile(r":[0-9]{2}(\.[0-9]+)?[+-][0-9]{2}:[0-9]{2}$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

StepForm = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScheduleDraft:
    """A schedule as it stands in the form. Steps without a word in them are left out, also by their numbers. `added` is
    the one that was asked for last."""

    fields: Mapping[str, str]
    steps: Sequence[StepForm] = ()
    empty: int = 1
    added: int | None = None

    @property
    def name(self) -> str:
        return self.fields.get("name", "")

    @property
    def rows(self) -> list[StepForm]:
        """The steps, and those that are there to be filled in."""
        return [*self.steps, *([_empty()] * self.empty)]

    @property
    def unusual(self) -> bool:
        """True if overlap, catch-up, window, cap, jitter or on_shutdown differ from the defaults."""
        return any(self.fields.get(name) not in (None, "", usual) for name, usual in _USUAL.items())

    def arranged(self, form: Form) -> ScheduleDraft | None:
        """With a step more or less, or as it is to be looked ahead.

        None if it is to be saved.
        """
        if NUMBER.fullmatch(form.get("remove")):
            return self  # `of` left the step out
        if form.get("do") == "add":
            return replace(self, empty=2, added=len(self.steps))
        if (asked := _ADDED.fullmatch(form.get("add"))) is not None:
            kept = [n for n, _ in _filled(form)]
            place = kept.index(int(asked[2])) if int(asked[2]) in kept else len(kept) - 1
            return self._with_step(place, beside=asked[1] == "beside") if kept else replace(self, added=0)
        return self if form.get("do") == "preview" else None

    def _with_step(self, place: int, *, beside: bool) -> ScheduleDraft:
        """An empty step in the stage of this one, or in a stage of its own after it."""
        stages = _stages(self.steps)
        if stages is None:  # a stage is not a number, so the order is unknown
            return replace(self, added=len(self.steps))
        at = stages[place]
        shifted = stages if beside else [stage + (stage > at) for stage in stages]
        steps = [{**step, "stage": str(stage)} for step, stage in zip(self.steps, shifted, strict=True)]
        last = place if beside else max(n for n, stage in enumerate(stages) if stage == at)
        fresh = {**_empty(), "stage": str(at if beside else at + 1)}
        return replace(self, steps=[*steps[: last + 1], fresh, *steps[last + 1 :]], empty=0, added=last + 1)

    # --- what it means ---

    def definition(self) -> dict[str, object]:
        """As `Definition.parse` takes it; what cannot be read at all is refused here."""
        entered = self.fields
        found = {
            **self.timing(),
            **{name: entered[name] for name in ("overlap", "catch_up") if entered.get(name)},
        }
        found |= {
            name: entered[name]
            for name in ("window", "jitter", "on_failure", "on_shutdown", "note")
            if entered.get(name)
        }
        if cap := entered.get("cap"):
            found["cap"] = int(cap) if NUMBER.fullmatch(cap) else cap
        if params := entered.get("params"):
            found["params"] = from_json(params, field="params")
        if entered.get("what") == "template":
            found["template"] = _template(entered.get("template", ""))
        else:
            found["steps"] = [_step_facts(step, f"steps[{n}]") for n, step in enumerate(self.steps)]
        return found

    def timing(self) -> dict[str, object]:
        """When it fires."""
        entered, zone = self.fields, check_zone(self.fields.get("timezone") or "UTC")
        found: dict[str, object] = {"timezone": zone}
        match entered.get("when"):
            case "interval":
                found["interval"] = entered.get("interval", "")
            case "times":
                lines = [line.strip() for line in entered.get("times", "").splitlines() if line.strip()]
                found["times"] = [moment(line, zone, field=f"times[{n}]") for n, line in enumerate(lines)]
            case _:
                found["cron"] = entered.get("cron", "")
        for name in ("start", "end"):
            if entered.get(name):
                found[name] = moment(entered[name], zone, field=name)
        return found

    # --- where it comes from ---

    @staticmethod
    def of(form: Form) -> ScheduleDraft:
        """Reads the submitted form, without the step to remove."""
        fields = {name: _text(form.get(name)) for name in FIELDS}
        return ScheduleDraft(fields, [step for _, step in _filled(form)])

    @staticmethod
    def new(zone: str) -> ScheduleDraft:
        usual = {"when": "cron", "cron": "30 2 * * *", "timezone": zone, "what": "steps", "enabled": "1"}
        return ScheduleDraft({**dict.fromkeys(FIELDS, ""), **_settings(Definition()), **usual})

    @staticmethod
    def showing(schedule: Schedule) -> ScheduleDraft:
        """One that exists, as it is."""
        made = schedule.parsed
        zone = made.timezone
        when = "cron" if made.cron is not None else "interval" if made.interval is not None else "times"
        fields = {
            "name": schedule.name,
            "when": when,
            "cron": made.cron or "",
            "interval": duration_text(made.interval) if made.interval is not None else "",
            "times": "\n".join(clock(time, zone) for time in made.times),
            "timezone": zone,
            "start": "" if made.start is None else clock(made.start, zone),
            "end": "" if made.end is None else clock(made.end, zone),
            "note": made.note or "",
            "params": json_text(made.params) if made.params else "",
            "what": "steps" if made.steps else "template",
            "template": _template_text(made.template),
            "enabled": "1" if schedule.enabled else "",
            **_settings(made),
        }
        return ScheduleDraft(fields, [_shown_step(step.facts()) for step in made.steps])


def _filled(form: Form) -> list[tuple[int, StepForm]]:
    """The steps that say something, each with the number of its row."""
    numbers = sorted({int(found[1]) for key, _ in form.fields if (found := _STEP.fullmatch(key))})
    kept = [n for n in numbers if str(n) != form.get("remove")]
    steps = [(n, {name: _text(form.get(f"step-{n}-{name}")) for name in STEP_FIELDS}) for n in kept]
    return [(n, step) for n, step in steps if any(step[name] for name in STEP_FIELDS if name != "stage")]


def _empty() -> StepForm:
    return dict.fromkeys(STEP_FIELDS, "")


def _stages(steps: Sequence[StepForm]) -> list[int] | None:
    """The stage of each step; one that names none comes after the step before it."""
    found: list[int] = []
    for step in steps:
        text = step["stage"] or str(found[-1] + 1 if found else 1)
        if not NUMBER.fullmatch(text):
            return None
        found.append(int(text))
    return found


def _text(given: str) -> str:
    """Browsers end lines as they did in 1993."""
    return given.replace("\r\n", "\n")


def _settings(made: Definition) -> dict[str, str]:
    return {
        "overlap": made.overlap,
        "catch_up": made.catch_up,
        "window": duration_text(made.window),
        "cap": str(made.cap),
        "jitter": duration_text(made.jitter) if made.jitter else "",
        "on_failure": made.on_failure,
        "on_shutdown": made.on_shutdown or "",
    }


_USUAL = {name: usual for name, usual in _settings(Definition()).items() if name != "on_failure"}


# --- times --------------------------------------------------------------------------------------------------------


def moment(text: str, zone: str, *, field: str) -> str:
    """RFC 3339 of a time; one that names no zone is meant by the clocks of this one."""
    if not _LOCAL.fullmatch(text):
        return text  # with its zone, or refused later
    try:
        local = datetime.fromisoformat(text.upper().replace(" ", "T"))
        return instant_text(instant(local.replace(tzinfo=ZoneInfo(zone)), field=field))
    except (ValueError, OverflowError):
        refuse(field, "is not a valid time: write it like 2026-03-01 09:00")


def clock(at: int, zone: str) -> str:
    """An instant by the clocks of a zone, exactly: `2026-03-01 09:00:00+01:00`."""
    try:
        text = (_EPOCH + timedelta(microseconds=at)).astimezone(ZoneInfo(zone)).isoformat(" ")
    except OverflowError:
        return instant_text(at)
    # Offsets of long ago have seconds, which RFC 3339 cannot say.
    return text if _OFFSET.search(text) else instant_text(at)


# --- steps --------------------------------------------------------------------------------------------------------


def _step_facts(step: StepForm, place: str) -> dict[str, object]:
    found: dict[str, object] = {}
    if step["more"]:
        more = from_json(step["more"], field=f"{place}.more")
        if not isinstance(more, dict) or any(name not in MORE for name in more):
            refuse(f"{place}.more", f"must be an object with some of {', '.join(MORE)}")
        found |= more
    if step["stage"]:
        found["index"] = _stage(step["stage"], f"{place}.index")
    found |= {name: step[name] for name in ("name", "task", "target") if step[name]}
    if step["template"]:
        found["template"] = _template(step["template"])
    if step["params"]:
        found["params"] = from_json(step["params"], field=f"{place}.params")
    if step["resources"]:
        found["resources"] = names_of(step["resources"], f"{place}.resources")
    if step["timeout"]:
        found["timeout"] = duration_of(step["timeout"])
    if step["retry"]:
        found["retry_policy"] = retry_of(step["retry"], f"{place}.retry_policy")
    return {**found, "continue_on_failure": True} if step["continue"] else found


def _stage(text: str, place: str) -> int:
    if not NUMBER.fullmatch(text) or int(text) < 1:
        refuse(place, f"is the stage, a whole number from 1, not {text!r}: steps of the same stage run together")
    return int(text) - 1


def _template(text: str) -> str | int:
    """A name, or `#` and a number."""
    return int(text[1:]) if text.startswith("#") and NUMBER.fullmatch(text[1:]) else text


def _template_text(template: object) -> str:
    return "" if template is None else f"#{template}" if isinstance(template, int) else str(template)


def _shown_step(facts: Mapping[str, object]) -> StepForm:
    resources, retry = facts.get("resources"), facts.get("retry_policy")
    more = {name: facts[name] for name in MORE if name in facts}
    timeout = facts.get("timeout", "")
    index = facts["index"]
    assert isinstance(index, int)
    return {
        "stage": str(index + 1),
        "name": str(facts["name"]),
        "task": str(facts.get("task", "")),
        "template": _template_text(facts.get("template")),
        "params": json_text(facts["params"]) if facts.get("params") else "",
        "target": str(facts.get("target", "")),
        "resources": "" if resources is None else names_text(resources),  # type: ignore[arg-type]
        "timeout": str(timeout),
        "retry": "" if retry is None else retry_text(retry),
        "continue": "1" if facts.get("continue_on_failure") else "",
        "more": json_text(more) if more else "",
    }


# --- what is wrong, and where --------------------------------------------------------------------------------------


def spot(error: HeadwayError | None) -> str:
    """The field of the form that an error speaks of; empty if it is none."""
    named = error.field if error is not None else None
    if named is None:
        return ""
    if (found := _PLACE.match(named)) is not None:
        part = found[2] or "task"
        return f"step-{found[1]}-{_SPOTS.get(part, part)}"
    if named == "steps":
        return "step-0-task"
    return re.split(r"[.\[]", named)[0]
