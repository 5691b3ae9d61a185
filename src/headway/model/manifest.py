"""Reads and compares a file of templates, schedules, targets and webhooks (`headway apply`). Pure.

The problems of a file are reported together. Things that the file does not name stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from headway.errors import BadInput
from headway.model import templates as templates
from headway.model.schedules.definition import FIELDS, WHAT, WHEN, Definition, RequestedStep
from headway.model.values import toml
from headway.model.values.json import check_note
from headway.model.values.names import check_name, check_task_name
from headway.model.values.suggestions import closest
from headway.model.webhooks.webhook import check_description, check_events, check_tries, check_url

TABLES = ("templates", "schedules", "targets", "webhooks")
# Problems that one answer lists. The search for more of them ends here, as each can take a parse of its own.
MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    place: str
    name: str
    task: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A schedule in the file. `enabled` None means that the file does not set it, so the stored value stays."""

    place: str
    name: str
    definition: Definition
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class TargetEntry:
    place: str
    name: str
    paused: bool | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class WebhookEntry:
    """A webhook in the file, identified by its URL.

    Fields that the file leaves out get their defaults, except `enabled`, which keeps its stored value.
    """

    place: str
    url: str
    events: tuple[str, ...] = ()
    description: str | None = None
    max_tries: int | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a file, in the order of creation: schedules refer to templates."""

    templates: tuple[TemplateEntry, ...] = ()
    schedules: tuple[ScheduleEntry, ...] = ()
    targets: tuple[TargetEntry, ...] = ()
    webhooks: tuple[WebhookEntry, ...] = ()

    def standing_alone(self, definition: Definition) -> Definition:
        """Returns the definition with this file's templates expanded, as they may not be stored yet."""
        known = {entry.name: entry for entry in self.templates}
        steps = definition.steps
        if isinstance(definition.template, str) and definition.template in known:
            steps = (RequestedStep(0, definition.template, template=definition.template),)
        elif definition.template is not None:
            return definition
        return replace(definition, template=None, steps=tuple(_alone(step, known, definition) for step in steps))


def _alone(step: RequestedStep, known: Mapping[str, TemplateEntry], definition: Definition) -> RequestedStep:
    if not isinstance(step.template, str) or step.template not in known:
        return step
    entry = known[step.template]
    options = {name: value for name, value in entry.fields.items() if name in templates.OPTIONS}
    params = {**entry.fields.get("params", {}), **definition.params, **step.params}
    return RequestedStep(step.index, step.name, entry.task, None, params, {**options, **step.options})


# --- reading ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ManifestReader:
    file: str
    text: str
    problems: list[str] = field(default_factory=list)

    def tables(
        self, tree: Mapping[str, Any], table: str, key: str = "name"
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yields each table with its place and its name. Names are unique; a webhook's name is its URL."""
        found = tree.get(table, [])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            self.problems.append(f"{self.file}: {table} must be tables: write [[{table}]] above each")
            return
        lines, names = self._lines(table, len(found)), set[str]()
        for n, entry in enumerate(found):
            self.refuse_many()
            given = dict(entry)
            place = f"{self.file}{lines[n]}: {table}[{n}]"
            try:
                known = given.pop(key, None) or ""
                name = check_url(known) if key == "url" else check_name(known, field="name")
            except BadInput as error:
                self.problems.append(f"{place}: {error}")
                continue
            if name in names:
                self.problems.append(f"{place}: the name {name!r} is used twice in this file: rename one of them")
            names.add(name)
            yield f"{place} {name}", name, given

    def refuse_many(self) -> None:
        if len(self.problems) > MOST_PROBLEMS:
            refuse(self.file, self.problems)

    def _lines(self, table: str, count: int) -> list[str]:
        """Returns the lines of the tables' headings, which tomllib does not report; else empty texts."""
        lines: list[str] = []
        number, seen = 1, 0
        for heading in re.finditer(rf"^[ \t]*\[\[[ \t]*{table}[ \t]*\]\]", self.text, re.MULTILINE) if count else ():
            number, seen = number + self.text.count("\n", seen, heading.start()), heading.start()
            lines.append(f":{number}")
        return lines if len(lines) == count else [""] * count

    def template(self, place: str, name: str, given: dict[str, Any]) -> TemplateEntry | None:
        before, task = len(self.problems), given.pop("task", None)
        try:
            check_task_name(task)
        except BadInput as error:
            self.problems.append(f"{place}: {error}")
        try:
            templates.check_fields(given)
        except BadInput as error:
            self.problems.append(f"{place}: {error}")
        return None if len(self.problems) > before else TemplateEntry(place, name, str(task), given)

    def schedule(self, place: str, name: str, given: dict[str, Any]) -> ScheduleEntry | None:
        before, enabled = len(self.problems), given.pop("enabled", None)
        if enabled is not None and not isinstance(enabled, bool):
            self.problems.append(f"{place}: enabled must be true or false")
        found = islice(_definition_problems(given), MOST_PROBLEMS)
        self.problems += [f"{place}: {problem}" for problem in found]
        return None if len(self.problems) > before else ScheduleEntry(place, name, Definition.parse(given), enabled)

    def target(self, place: str, name: str, given: dict[str, Any]) -> TargetEntry | None:
        before = len(self.problems)
        paused, note = given.pop("paused", None), given.pop("note", None)
        for unknown in given:
            self.problems.append(f"{place}: {unknown}: a target has no such field: it has name, paused, note")
        if paused is not None and not isinstance(paused, bool):
            self.problems.append(f"{place}: paused must be true or false")
        if note is not None and (not isinstance(note, str) or paused is not True):
            self.problems.append(f"{place}: note is the reason of a pause: write it as text, with paused = true")
        try:
            check_note(note if isinstance(note, str) else None)
        except BadInput as error:
            self.problems.append(f"{place}: {error}")
        return None if len(self.problems) > before else TargetEntry(place, name, paused, note)

    def webhook(self, place: str, url: str, given: dict[str, Any]) -> WebhookEntry | None:
        before = len(self.problems)
        checks: dict[str, Callable[[Any], Any]] = {
            "events": check_events,
            "description": check_description,
            "max_tries": check_tries,
            "enabled": _check_switch,
        }
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name == "secret":
                self.problems.append(f"{place}: secret: remove it from the file: Headway creates it and shows it once")
            elif name not in checks:
                self.problems.append(f"{place}: {name}: a webhook has no such field: it has url, {', '.join(checks)}")
            else:
                try:
                    checked[name] = checks[name](value)
                except BadInput as error:
                    self.problems.append(f"{place}: {error}")
        return None if len(self.problems) > before else WebhookEntry(place, url, **checked)


def _check_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput("enabled must be true or false", field="enabled")
    return value


def read(text: str, file: str) -> Manifest:
    """Parses a file, or raises one BadInput with its problems."""
    reader = _ManifestReader(file, text)
    tree = toml.loads(text, file=file)
    for name in tree:
        reader.refuse_many()
        if name not in TABLES:
            near = closest(name, TABLES)
            hint = f"did you mean [[{near}]]?" if near else f"it has {', '.join(f'[[{one}]]' for one in TABLES)}"
            reader.problems.append(f"{file}: {name}: there is no such table: {hint}")
    found = Manifest(
        tuple(filter(None, [reader.template(*table) for table in reader.tables(tree, "templates")])),
        tuple(filter(None, [reader.schedule(*table) for table in reader.tables(tree, "schedules")])),
        tuple(filter(None, [reader.target(*table) for table in reader.tables(tree, "targets")])),
        tuple(filter(None, [reader.webhook(*table) for table in reader.tables(tree, "webhooks", "url")])),
    )
    refuse(file, reader.problems)
    return found


def refuse(file: str, problems: Sequence[str]) -> None:
    """Raises one BadInput with all problems, or with the first ones if there are very many."""
    shown = list(problems[:MOST_PROBLEMS])
    if len(shown) < len(problems):
        shown.append(f"{file}: there are more problems: mend these {MOST_PROBLEMS} first")
    if shown:
        raise BadInput("\n".join(shown), code="bad_file", problems=shown, subject=file)


def _definition_problems(given: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problem of every wrong field: parses, replaces the wrong field, and parses again."""
    # More than these cannot all be fields of a schedule, so that the first ones have problems enough.
    rest = dict(islice(given.items(), MOST_PROBLEMS + len(FIELDS)))
    for _ in range(len(rest) + len(WHEN) + len(WHAT)):
        try:
            Definition.parse(rest)
            return
        except BadInput as error:
            yield str(error)
            wrong = re.split(r"[.\[]", error.field or "")[0]
        others = next((names for names in (WHEN, WHAT) if wrong in names), (wrong,))
        right = {"cron": "@daily"} if wrong in WHEN else {"steps": [{"task": "any"}]} if wrong in WHAT else {}
        rest = {name: value for name, value in rest.items() if name not in others} | right


# --- comparing ----------------------------------------------------------------------------------------------------


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describes each change: `cron 30 2 * * * → 0 3 * * *`."""
    words: list[str] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name == "steps" and old is not None and new is not None:
            words += _step_differences(old, new)
        else:
            words.append(f"{name} {_shown(old)} → {_shown(new)}")
    return words


def _step_differences(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    old, new = ({step["name"]: step for step in steps} for steps in (before, after))
    words = [f"without step {name}" for name in old if name not in new]
    words += [f"with step {name}" for name in new if name not in old]
    for name in old.keys() & new.keys():
        words += [f"step {name}: {change}" for change in differences(old[name], new[name])]
    return words or ["steps in another order"]


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
