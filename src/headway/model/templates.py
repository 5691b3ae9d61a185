"""A template: stored defaults for a task. Pure. A job copies them when it is created and keeps its copy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import BadInput
from headway.model.values.json import check_note, to_json
from headway.model.values.names import check_name
from headway.model.values.refuse import refuse
from headway.model.values.suggestions import closest

# Options that a template sets for its jobs, with the names of `using(...)`.
OPTIONS = (
    *("priority", "target", "resources", "timeout", "retry_policy", "budget"),
    *("on_lost", "on_error", "on_shutdown"),
)
FIELDS = ("params", *OPTIONS, "description", "open_params")


@dataclass(frozen=True, slots=True)
class Template:
    """A template as it is stored. `definition` is JSON: params, options, description, open_params."""

    id: int
    tenant_id: int
    name: str
    task: str
    definition: str
    created_at: int
    created_by: str
    archived_at: int | None
    version: int
    defined_by: str | None = None

    @property
    def author(self) -> str:
        """Returns the actor that made or last changed it."""
        return self.defined_by or self.created_by

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.definition)
        return found

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.fields.get("params", {}))

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in self.fields.items() if name in OPTIONS}

    @property
    def description(self) -> str | None:
        return self.fields.get("description")

    @property
    def open_params(self) -> tuple[str, ...]:
        """Returns the params that an operator may set although only an admin may make this template."""
        return tuple(self.fields.get("open_params", ()))


def check_fields(given: Mapping[str, object]) -> str:
    """Returns the fields as stored JSON; the params themselves are checked later, with the task."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in FIELDS:
            near = closest(name, FIELDS)
            hint = f": did you mean {near}?" if near else f": it has {', '.join(FIELDS)}"
            raise BadInput(f"{name}: a template has no such field{hint}", field=name)
    if not isinstance(options.get("params", {}), Mapping):
        refuse("params", "must be a dict of names and values")
    description = options.get("description")
    if description is not None and not isinstance(description, str):
        refuse("description", "must be text")
    check_note(description, field="description")
    _check_open(options.get("open_params", ()))
    return to_json(options, field="template")


def _check_open(names: object) -> None:
    if isinstance(names, str) or not isinstance(names, list | tuple):
        refuse("open_params", "must be a list of names of params")
    for n, name in enumerate(names):
        check_name(name, field=f"open_params[{n}]")


def changed(template: Template, changes: Mapping[str, object]) -> str:
    """Returns the stored fields with changes applied; null removes a field."""
    return check_fields({**template.fields, **changes})
