"""Groups, executions, schedules and templates in the local database, as the API's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.api.schemas.groups import execution_json, group_json
from headway.api.schemas.jobs import event_json
from headway.api.schemas.schedules import in_words, preview_json, schedule_json, template_json, tick_json
from headway.cli.backend.base import after, cut
from headway.cli.output import Json
from headway.model.schedules.definition import Definition
from headway.model.schedules.schedule import Schedule
from headway.model.templates import Template
from headway.model.values.times import instant_text
from headway.store import audit_views, templates
from headway.store.db import Tx
from headway.store.groups import views as group_views
from headway.store.jobs import views as job_views
from headway.store.paging import check_limit
from headway.store.schedules import schedules

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend


class LocalGroups:
    """Groups or executions in the local database."""

    def __init__(self, backend: LocalBackend, kind: str) -> None:
        self.backend = backend
        self.kind = kind
        self.write = execution_json if kind == "execution" else group_json

    def page(self, limit: int, cursor: str | None, *, status: str | None, schedule_id: int | None = None) -> Json:
        with self.backend.read() as tx:
            page = group_views.groups_page(
                tx,
                self.backend.tenant_id,
                kind=self.kind,
                status=status,
                schedule_id=schedule_id,
                limit=limit,
                cursor=cursor,
            )
        return {"items": [self.write(view) for view in page.items], "next": page.next}

    def get(self, number: int) -> Json:
        with self.backend.read() as tx:
            return self.write(group_views.group_view(tx, self.backend.tenant_id, number, self.kind), steps=True)

    def shown(self, number: int) -> Json:
        with self.backend.read() as tx:
            view = group_views.group_view(tx, self.backend.tenant_id, number, self.kind)
            events = job_views.history(tx, self.kind, number)
        return {**self.write(view, steps=True), "events": [event_json(event) for event in events]}

    def create(self, body: Json) -> Json:
        from headway.cli.backend.local_batch import create_group

        return self.get(create_group(self.backend.client, body))

    def cancel(self, number: int) -> Json:
        self.backend.client.groups.cancel(number, self.kind)
        return self.get(number)

    def retry(self, number: int) -> Json:
        return self.get(self.backend.client.groups.retry(number, self.kind))


class LocalSchedules:
    """Schedules in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self.verbs = backend.client.schedules

    def _json(self, schedule: Schedule) -> Json:
        with self.backend.read() as tx:
            return _in_json(tx, self.backend.tenant_id, [schedule])[0]

    def page(self, limit: int, cursor: str | None, *, deleted: bool = False) -> Json:
        read = schedules.deleted if deleted else schedules.listed
        with self.backend.read() as tx:
            page = read(tx, self.backend.tenant_id, limit=limit, cursor=cursor)
            return {"items": _in_json(tx, self.backend.tenant_id, page.items), "next": page.next}

    def get(self, which: int | str) -> Json:
        return self._json(self.verbs.get(which))

    def named(self, name: str) -> Json | None:
        with self.backend.read() as tx:
            found = schedules.find_named(tx, self.backend.tenant_id, name)
        return None if found is None else self._json(found)

    def shown(self, which: int | str) -> Json:
        tenant_id = self.backend.tenant_id
        with self.backend.read() as tx:
            kept = isinstance(which, int)
            schedule = schedules.find_kept(tx, tenant_id, int(which)) if kept else schedules.find(tx, tenant_id, which)
            recent = group_views.groups_page(tx, tenant_id, kind="execution", schedule_id=schedule.id, limit=5).items
            (shown,) = _in_json(tx, tenant_id, [schedule])
            events = job_views.history(tx, "schedule", schedule.id)
        executions = [execution_json(view) for view in recent]
        more = {"executions": executions, "events": [event_json(event) for event in events]}
        return {**shown, **more}

    def zones(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns the current time zones of the schedules that this version can read, deleted ones included."""
        with self.backend.read() as tx:
            known = schedules.kept(tx, self.backend.tenant_id, set(numbers))
        return {number: schedule.parsed.timezone for number, schedule in known.items() if schedule.readable}

    def decided_ahead(self, number: int) -> str | None:
        schedule = self.verbs.get(number)
        return instant_text(schedule.decided_until) if schedule.ahead(self.backend.now()) else None

    def check(self, definition: Mapping[str, object]) -> Definition:
        return self.verbs.check(definition)

    def create(self, name: str, definition: Mapping[str, object], *, enabled: bool) -> Json:
        return self._json(self.verbs.create(name, definition, enabled=enabled))

    def edit(self, which: int | str, changes: Mapping[str, object]) -> Json:
        return self._json(self.verbs.edit(which, changes))

    def enable(self, which: int | str) -> Json:
        return self._json(self.verbs.enable(which))

    def disable(self, which: int | str, *, reason: str | None) -> Json:
        return self._json(self.verbs.disable(which, reason=reason))

    def reset(self, which: int | str) -> Json:
        return self._json(self.verbs.reset(which))

    def see(self, which: int | str) -> Json:
        return self._json(self.verbs.see(which))

    def delete(self, which: int | str) -> Json:
        return self._json(self.verbs.delete(which))

    def run(self, which: int | str, *, force: bool, params: Mapping[str, object]) -> Json:
        return self.backend.executions.get(self.verbs.run(which, force, params))

    def backfill(self, which: int | str, since: int, until: int, *, dry_run: bool) -> Json:
        times = self.verbs.backfill(which, since, until, dry_run=True)
        made = [] if dry_run else self.verbs.backfill(which, since, until)
        return {"times": [instant_text(at) for at in times], "executions": made}

    def next_times(self, which: int | str, count: int) -> Json:
        times, schedule = self.verbs.preview(which, count), self.verbs.get(which)
        return times_json(schedule.parsed, [preview_json(time) for time in times], schedule_id=schedule.id)

    def ticks(self, which: int | str, limit: int, cursor: str | None) -> Json:
        page = self.verbs.ticks(which, limit=limit, cursor=cursor)
        return {"items": [tick_json(tick) for tick in page.items], "next": page.next}


def _in_json(tx: Tx, tenant_id: int, found: Sequence[Schedule]) -> list[Json]:
    """Returns schedules with the actors that deleted them."""
    numbers = templates.numbers(tx, tenant_id, found)
    by = audit_views.deleted_by(tx, "schedule", [one.id for one in found if one.deleted_at is not None])
    return [schedule_json(schedule, numbers, by.get(schedule.id)) for schedule in found]


def times_json(definition: Definition, items: list[Json], **about: object) -> Json:
    """Returns the next times of a definition, with its time zone and its sentence."""
    return {**about, "timezone": definition.timezone, "sentence": in_words(definition), "items": items, "next": None}


class LocalTemplates:
    """Templates in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self.verbs = backend.client.templates

    def _json(self, template: Template) -> Json:
        with self.backend.read() as tx:
            gone = [template.id] if template.archived_at is not None else []
            by = audit_views.deleted_by(tx, "template", gone)
        return template_json(template, by.get(template.id))

    def page(self, limit: int, cursor: str | None, *, archived: bool) -> Json:
        found = self.verbs.list(after=after(cursor), archived=archived, limit=check_limit(limit) + 1)
        return cut([self._json(template) for template in found], limit, "template_id")

    def get(self, which: int | str) -> Json:
        return self._json(self.verbs.get(which))

    def shown(self, which: int | str) -> Json:
        with self.backend.read() as tx:
            template = templates.find(tx, self.backend.tenant_id, which)
            events = job_views.history(tx, "template", template.id)
        return {**self._json(template), "events": [event_json(event) for event in events]}

    def create(self, name: str, task: str, **fields: Any) -> Json:
        return template_json(self.verbs.create(name, task, **fields))

    def edit(self, number: int, *, if_version: int, **changes: Any) -> Json:
        return template_json(self.verbs.edit(number, if_version=if_version, **changes))

    def archive(self, which: int | str) -> Json:
        return self._json(self.verbs.archive(which))
