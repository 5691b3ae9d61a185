"""Groups, executions, schedules and templates over HTTP.

The server addresses schedules and templates by number, so a name is looked up first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from headway.cli.backend.connection import Link, given
from headway.cli.backend.http_errors import missing_name
from headway.cli.output import Json
from headway.errors import NotFound
from headway.model.schedules.definition import Definition
from headway.model.values.times import instant_text
from headway.store.paging import check_limit

SCHEDULES, TEMPLATES = "/api/schedules", "/api/job-templates"
PATHS = {"group": "/api/job-groups", "execution": "/api/schedule-executions"}


def found(link: Link, path: str, which: int | str) -> Json:
    """Fetches a schedule or template by its number or its name."""
    if isinstance(which, int):
        return link.get(f"{path}/{which}")
    try:
        one: Json = link.get(path, name=which)["items"][0]
    except NotFound as error:
        raise missing_name(error, "schedule" if path == SCHEDULES else "template", which) from None
    return one


class HttpGroups:
    """Groups or executions over HTTP."""

    def __init__(self, link: Link, kind: str) -> None:
        self.link = link
        self.path = PATHS[kind]

    def page(self, limit: int, cursor: str | None, *, status: str | None, schedule_id: int | None = None) -> Json:
        asked = {"status": status, "schedule_id": schedule_id, "limit": check_limit(limit), "cursor": cursor}
        page = self.link.get(self.path, **asked)
        for group in page["items"]:
            group.pop("steps", None)  # a list on a database has no steps either
        return page

    def get(self, number: int) -> Json:
        return self.link.get(f"{self.path}/{number}")

    def shown(self, number: int) -> Json:
        return {**self.get(number), "events": self.link.events(f"{self.path}/{number}")}

    def create(self, body: Json) -> Json:
        return self.link.create(self.path, body)[0]

    def cancel(self, number: int) -> Json:
        return self.link.post(f"{self.path}/{number}/cancel")

    def retry(self, number: int) -> Json:
        return self.link.create(f"{self.path}/{number}/retry")[0]


class HttpSchedules:
    """Schedules over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def _path(self, which: int | str) -> str:
        return f"{SCHEDULES}/{which if isinstance(which, int) else self.get(which)['schedule_id']}"

    def page(self, limit: int, cursor: str | None, *, deleted: bool = False) -> Json:
        return self.link.get(SCHEDULES, deleted=deleted or None, limit=check_limit(limit), cursor=cursor)

    def get(self, which: int | str) -> Json:
        return found(self.link, SCHEDULES, which)

    def named(self, name: str) -> Json | None:
        with suppress(NotFound):
            return self.get(name)
        return None

    def shown(self, which: int | str) -> Json:
        schedule = self.get(which)
        number = schedule["schedule_id"]
        recent = HttpGroups(self.link, "execution").page(5, None, status=None, schedule_id=number)
        return {**schedule, "executions": recent["items"], "events": self.link.events(f"{SCHEDULES}/{number}")}

    def zones(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns the time zones of the schedules that still exist."""
        known: dict[int, str] = {}
        for number in sorted(set(numbers)):
            with suppress(NotFound):
                known[number] = self.get(number)["timezone"]
        return known

    def decided_ahead(self, number: int) -> str | None:
        """Always None: a server does not say up to when a schedule is decided."""
        return None

    def check(self, definition: Mapping[str, object]) -> Definition:
        """Checks a definition as far as possible here; the server checks the rest when it creates the schedule."""
        return Definition.parse(definition)

    def create(self, name: str, definition: Mapping[str, object], *, enabled: bool) -> Json:
        body = {"name": name, "enabled": enabled, **_definition_body(definition)}
        return self.link.create(SCHEDULES, body)[0]

    def edit(self, which: int | str, changes: Mapping[str, object]) -> Json:
        return self.link.patch(self._path(which), _definition_body(changes))

    def enable(self, which: int | str) -> Json:
        return self.link.post(f"{self._path(which)}/enable")

    def disable(self, which: int | str, *, reason: str | None) -> Json:
        return self.link.post(f"{self._path(which)}/disable", given(reason=reason))

    def reset(self, which: int | str) -> Json:
        return self.link.post(f"{self._path(which)}/reset")

    def see(self, which: int | str) -> Json:
        return self.link.post(f"{self._path(which)}/seen")

    def delete(self, which: int | str) -> Json:
        return self.link.delete(self._path(which))

    def run(self, which: int | str, *, force: bool, params: Mapping[str, object]) -> Json:
        body = {"force": force, **({"params": dict(params)} if params else {})}
        return self.link.create(f"{self._path(which)}/run", body)[0]

    def backfill(self, which: int | str, since: int, until: int, *, dry_run: bool) -> Json:
        body = {"since": instant_text(since), "until": instant_text(until), "dry_run": dry_run}
        made, _ = self.link.create(f"{self._path(which)}/backfill", body)
        return {"times": made["times"], "executions": [execution["execution_id"] for execution in made["items"]]}

    def next_times(self, which: int | str, count: int) -> Json:
        return self.link.get(f"{self._path(which)}/next", count=count)

    def ticks(self, which: int | str, limit: int, cursor: str | None) -> Json:
        return self.link.get(f"{self._path(which)}/ticks", limit=limit, cursor=cursor)


def _definition_body(definition: Mapping[str, Any]) -> Json:
    """Returns a definition as a request body, in which a template given by number is `template_id`."""
    body = _by_number(definition)
    return body if body.get("steps") is None else {**body, "steps": [_by_number(step) for step in body["steps"]]}


def _by_number(fields: Mapping[str, Any]) -> Json:
    numbered = isinstance(fields.get("template"), int)
    return {"template_id" if numbered and name == "template" else name: value for name, value in fields.items()}


class HttpTemplates:
    """Templates over HTTP."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def page(self, limit: int, cursor: str | None, *, archived: bool) -> Json:
        return self.link.get(TEMPLATES, archived=archived, limit=check_limit(limit), cursor=cursor)

    def get(self, which: int | str) -> Json:
        return found(self.link, TEMPLATES, which)

    def shown(self, which: int | str) -> Json:
        template = self.get(which)
        return {**template, "events": self.link.events(f"{TEMPLATES}/{template['template_id']}")}

    def create(self, name: str, task: str, **fields: Any) -> Json:
        return self.link.create(TEMPLATES, {"name": name, "task": task, **fields})[0]

    def edit(self, number: int, *, if_version: int, **changes: Any) -> Json:
        return self.link.patch(f"{TEMPLATES}/{number}", changes, if_version=if_version)

    def archive(self, which: int | str) -> Json:
        return self.link.delete(f"{TEMPLATES}/{which if isinstance(which, int) else self.get(which)['template_id']}")
