"""Schedules and templates over HTTP. The server addresses them by number, so a name is looked up first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.api.schemas.jobs import Json
from headway.api.schemas.parse_groups import definition_json, preview_of, schedule_of, template_of, tick_of
from headway.api.schemas.parse_jobs import at
from headway.cli.backend.connection import Link, given
from headway.cli.backend.http_errors import missing_name
from headway.engine.client.schedules import Preview
from headway.errors import NotFound
from headway.model.schedules.definition import Definition, Schedule, Tick
from headway.model.templates import Template
from headway.model.values.json import instant_text
from headway.store.paging import Page, make_cursor

SCHEDULES, TEMPLATES = "/api/schedules", "/api/job-templates"


def found(link: Link, path: str, which: int | str) -> Json:
    """Fetches a schedule or template by its number or its name."""
    if isinstance(which, int):
        return link.get(f"{path}/{which}")
    try:
        one: Json = link.get(path, name=which)["items"][0]
    except NotFound as error:
        raise missing_name(error, "schedule" if path == SCHEDULES else "template", which) from None
    return one


class HttpSchedules:
    """Schedules over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def get(self, which: int | str) -> Schedule:
        return schedule_of(found(self.link, SCHEDULES, which))

    def _number(self, which: int | str) -> int:
        return which if isinstance(which, int) else self.get(which).id

    def check(self, definition: Mapping[str, object] | Definition) -> Definition:
        """Checks a definition as far as possible here; the server checks the rest when it creates the schedule."""
        return definition if isinstance(definition, Definition) else Definition.parse(definition)

    def create(self, name: str, definition: Mapping[str, object], *, enabled: bool = True) -> Schedule:
        body = {"name": name, "enabled": enabled, **definition_json(definition)}
        return schedule_of(self.link.create(SCHEDULES, body)[0])

    def enable(self, which: int | str) -> Schedule:
        return schedule_of(self.link.post(f"{SCHEDULES}/{self._number(which)}/enable"))

    def disable(self, which: int | str, *, reason: str | None = None) -> Schedule:
        return schedule_of(self.link.post(f"{SCHEDULES}/{self._number(which)}/disable", given(reason=reason)))

    def reset(self, which: int | str) -> Schedule:
        return schedule_of(self.link.post(f"{SCHEDULES}/{self._number(which)}/reset"))

    def delete(self, which: int | str) -> Schedule:
        return schedule_of(self.link.delete(f"{SCHEDULES}/{self._number(which)}"))

    def run(self, which: int | str, force: bool = False, params: Mapping[str, object] | None = None) -> int:
        body = {"force": force, **({"params": dict(params)} if params else {})}
        made, _ = self.link.create(f"{SCHEDULES}/{self._number(which)}/run", body)
        return int(made["execution_id"])

    def backfill(self, which: int | str, since: int, until: int, dry_run: bool = False) -> list[int]:
        """Creates executions for past times; returns their numbers, or the times of a dry run."""
        body = {"since": instant_text(since), "until": instant_text(until), "dry_run": dry_run}
        made, _ = self.link.create(f"{SCHEDULES}/{self._number(which)}/backfill", body)
        return [at(one) for one in made["times"]] if dry_run else [one["execution_id"] for one in made["items"]]

    def preview(self, which: int | str, count: int = 5) -> list[Preview]:
        answer = self.link.get(f"{SCHEDULES}/{self._number(which)}/next", count=count)
        return [preview_of(one) for one in answer["items"]]

    def ticks(self, which: int | str, *, limit: int = 50, cursor: str | None = None) -> Page[Tick]:
        page = self.link.get(f"{SCHEDULES}/{self._number(which)}/ticks", limit=limit, cursor=cursor)
        return Page([tick_of(one) for one in page["items"]], page["next"])


class HttpTemplates:
    """Templates over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def get(self, which: int | str) -> Template:
        return template_of(found(self.link, TEMPLATES, which))

    def _number(self, which: int | str) -> int:
        return which if isinstance(which, int) else self.get(which).id

    def list(self, *, after: int = 0, archived: bool = False, limit: int = 200) -> list[Template]:
        begin = {"cursor": make_cursor(after)} if after else {}
        return [template_of(one) for one in self.link.pages(TEMPLATES, limit, archived=archived, **begin)]

    def create(self, name: str, task: str, **fields: Any) -> Template:
        return template_of(self.link.create(TEMPLATES, {"name": name, "task": task, **fields})[0])

    def edit(self, which: int | str, *, if_version: int | None = None, **changes: Any) -> Template:
        return template_of(self.link.patch(f"{TEMPLATES}/{self._number(which)}", changes, if_version=if_version))

    def archive(self, which: int | str) -> Template:
        return template_of(self.link.delete(f"{TEMPLATES}/{self._number(which)}"))
