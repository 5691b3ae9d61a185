"""Renders templates as a table and a page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.output import Json, styled, table
from headway.cli.tables.pages import created, deleted, pairs
from headway.cli.tables.times import when
from headway.model.templates import OPTIONS

if TYPE_CHECKING:
    from rich.table import Table


def template_table(templates: Iterable[Json]) -> Table:
    made = table("ID", "NAME", "TASK", "VERSION", "ABOUT", flexible=("NAME", "TASK", "ABOUT"))
    for template in templates:
        archived = "archived" if template["archived_at"] is not None else ""
        about = styled("; ".join(part for part in (archived, template["description"]) if part))
        name, task = styled(template["name"]), styled(template["task"])
        made.add_row(str(template["template_id"]), name, task, str(template["version"]), about)
    return made


def template_page(template: Json, now: int) -> Table:
    options = [(name, template[name]) for name in OPTIONS if template[name] is not None]
    return pairs(
        [
            ("template", str(template["template_id"])),
            ("name", template["name"]),
            ("task", template["task"]),
            ("description", template["description"]),
            ("params", json.dumps(template["params"], ensure_ascii=False)),
            *((name.replace("_", " "), _fact(value)) for name, value in options),
            ("open params", ", ".join(template["open_params"])),
            ("version", str(template["version"])),
            ("created", created(template, now)),
            ("deleted", deleted(template, now)),
            ("archived", when(template["archived_at"], now)),
        ]
    )


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
