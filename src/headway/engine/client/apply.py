"""Compares a manifest file with the database, and applies the differences.

The file holds templates, schedules, targets and webhooks, and all of it is checked before anything is stored. Templates
go first, because schedules name them. Each change is a transaction of its own; after a crash, planning the same file
again lists the remaining changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.engine.client.templates import check_template
from headway.engine.webhooks.url_policy import refuse_closed
from headway.errors import BadInput, HeadwayError, NotFound
from headway.model.manifest import (
    Manifest,
    ScheduleEntry,
    TargetEntry,
    TemplateEntry,
    WebhookEntry,
    differences,
    refuse,
)
from headway.model.schedules.schedule import Schedule
from headway.model.templates import Template
from headway.model.webhooks.webhook import MAX_TRIES, Endpoint
from headway.store import templates
from headway.store.db import Tx
from headway.store.queue import targets

if TYPE_CHECKING:
    from headway.engine.client.client import Client


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """One entry of the file and its change: `+` create, `~` edit, `=` unchanged."""

    sign: str
    thing: str
    name: str
    words: tuple[str, ...] = ()
    do: Callable[[], object] | None = None

    def __str__(self) -> str:
        words = "; ".join(self.words) or ("unchanged" if self.sign == "=" else "")
        return f"{self.sign} {self.thing} {self.name}" + (f": {words}" if words else "")


@dataclass(frozen=True, slots=True)
class Applying:
    """The planned changes of one file.

    `left` names the schedules that came from a file and that this file does not name.
    """

    changes: tuple[ManifestChange, ...]
    left: tuple[str, ...]

    @property
    def due(self) -> list[ManifestChange]:
        return [change for change in self.changes if change.do is not None]

    def run(self) -> dict[str, str]:
        """Makes the changes. Returns the secrets of the created webhooks, by URL.

        A secret is shown only once. If a change fails, earlier changes stay, and the error carries their secrets in
        `facts["secrets"]`.
        """
        secrets: dict[str, str] = {}
        for change in self.due:
            assert change.do is not None
            try:
                made = change.do()
            except HeadwayError as error:
                error.facts.update({"secrets": secrets} if secrets else {})
                raise
            if isinstance(made, Endpoint) and change.sign == "+":
                secrets[made.url] = made.secret
        return secrets


def plan(client: Client, manifest: Manifest, file: str) -> Applying:
    """Plans the changes of a manifest.

    Refuses it, with every problem, unless all of it can be stored.
    """
    stored = _stored(client)
    refuse(file, _problems(client, manifest, stored))
    changes = [_template(client, entry) for entry in manifest.templates]
    changes += [_schedule(client, entry, stored.get(entry.name)) for entry in manifest.schedules]
    changes += [_target(client, entry) for entry in manifest.targets]
    changes += [_webhook(client, entry) for entry in manifest.webhooks]
    named = {entry.name for entry in manifest.schedules}
    left = [name for name, schedule in stored.items() if schedule.origin == "file" and name not in named]
    return Applying(tuple(changes), tuple(left))


def _stored(client: Client) -> dict[str, Schedule]:
    found: list[Schedule] = []
    while page := client.schedules.list(after=found[-1].name if found else ""):
        found += page
    return {schedule.name: schedule for schedule in found}


def _problems(client: Client, manifest: Manifest, stored: Mapping[str, Schedule]) -> list[str]:
    found: list[str] = []
    for template in manifest.templates:
        found += _tried(template.place, partial(check_template, client, template.task, template.fields))
    for entry in manifest.schedules:
        before = stored.get(entry.name)
        if before is not None and before.origin == "code":
            found.append(f"{entry.place}: code declares a schedule of this name: change it there, or rename this one")
            continue
        alone = manifest.standing_alone(entry.definition)
        found += _tried(entry.place, partial(client.schedules.check, alone))
    for hook in manifest.webhooks:
        if _endpoint(client, hook.url) is None:
            found += _tried(hook.place, partial(refuse_closed, hook.url, allow_private=client.allow_private))
    return found


def _tried(place: str, check: Callable[[], object]) -> list[str]:
    try:
        check()
    except BadInput as error:
        return [f"{place}: {error}"]
    return []


# --- one thing ----------------------------------------------------------------------------------------------------


def _template(client: Client, entry: TemplateEntry) -> ManifestChange:
    before = _template_in_use(client, entry.name)
    if before is None:
        make = partial(client.templates.create, entry.name, entry.task, **entry.fields)
        return ManifestChange("+", "template", entry.name, do=make)
    words = differences({"task": before.task, **before.fields}, {"task": entry.task, **entry.fields})
    if not words:
        return ManifestChange("=", "template", entry.name)
    # A field that the file leaves out is removed.
    fields = {**dict.fromkeys(before.fields), **entry.fields}
    do = partial(client.templates.edit, before.id, if_version=before.version, task=entry.task, **fields)
    return ManifestChange("~", "template", entry.name, tuple(words), do)


def _template_in_use(client: Client, name: str) -> Template | None:
    try:
        with client.database.read() as tx:
            found = templates.find(tx, client.tenant_id, name)
    except NotFound:
        return None
    return found if found.archived_at is None else None


def _schedule(client: Client, entry: ScheduleEntry, before: Schedule | None) -> ManifestChange:
    if before is None:
        enabled = entry.enabled is not False
        make = partial(client.schedules.create, entry.name, entry.definition.facts(), enabled=enabled, origin="file")
        return ManifestChange("+", "schedule", entry.name, () if enabled else ("disabled",), make)
    words = differences(before.parsed.facts(), entry.definition.facts())
    if before.origin != "file":
        words.append(f"origin {before.origin} → file")
    edits = bool(words)
    if entry.enabled is not None and entry.enabled != bool(before.enabled):
        words.append("disabled → enabled" if entry.enabled else "enabled → disabled")
    if not words:
        return ManifestChange("=", "schedule", entry.name)
    return ManifestChange(
        "~", "schedule", entry.name, tuple(words), partial(_change_schedule, client, entry, before, edits)
    )


def _change_schedule(client: Client, entry: ScheduleEntry, before: Schedule, edits: bool) -> None:
    verbs = client.schedules
    if entry.enabled is False and before.enabled:
        before = verbs.disable(before.id)
    if edits:
        changes: dict[str, Any] = {**dict.fromkeys(before.parsed.facts()), **entry.definition.facts()}
        verbs.edit(before.id, changes, before.version, origin="file")
    if entry.enabled and not before.enabled:
        verbs.enable(before.id)


def _target(client: Client, entry: TargetEntry) -> ManifestChange:
    with client.database.read() as tx:
        before = _target_row(tx, client.tenant_id, entry.name)
    was = before is not None and before[0]
    do = partial(_change_target, client, entry)
    pause = ("paused",) if entry.paused else ()
    if before is None:
        return ManifestChange("+", "target", entry.name, pause, do)
    words = []
    if entry.paused is not None and entry.paused != was:
        words.append("free → paused" if entry.paused else "paused → free")
    if entry.paused and was and entry.note != before[1]:
        words.append(f"note {before[1] or '(none)'} → {entry.note or '(none)'}")
    return (
        ManifestChange("~", "target", entry.name, tuple(words), do)
        if words
        else ManifestChange("=", "target", entry.name)
    )


def _target_row(tx: Tx, tenant_id: int, name: str) -> tuple[bool, str | None] | None:
    try:
        target = targets.shown(tx, tenant_id, name)
    except NotFound:
        return None
    return target.state == "paused", target.note


def _change_target(client: Client, entry: TargetEntry) -> None:
    client.lanes.target(client.tenant_id, entry.name)
    if entry.paused:
        client.pause_target(entry.name, note=entry.note)
    elif entry.paused is False:
        client.resume_target(entry.name)


def _webhook(client: Client, entry: WebhookEntry) -> ManifestChange:
    """Plans the change of the oldest endpoint with this URL."""
    before = _endpoint(client, entry.url)
    fields: dict[str, Any] = {
        "events": list(entry.events),
        "description": entry.description,
        "max_tries": entry.max_tries or MAX_TRIES,
    }
    if before is None:
        return ManifestChange("+", "webhook", entry.url, do=partial(_make_webhook, client, entry, fields))
    was = {"events": json.loads(before.events), "description": before.description, "max_tries": before.max_tries}
    if entry.enabled is not None:
        fields["enabled"], was["enabled"] = entry.enabled, bool(before.enabled)
    words = differences(was, fields)
    if not words:
        return ManifestChange("=", "webhook", entry.url)
    do = partial(client.webhooks.edit, before.id, if_version=before.version, **fields)
    return ManifestChange("~", "webhook", entry.url, tuple(words), do)


def _make_webhook(client: Client, entry: WebhookEntry, fields: Mapping[str, Any]) -> Endpoint:
    return client.webhooks.create(entry.url, **fields, enabled=entry.enabled is not False)


def _endpoint(client: Client, url: str) -> Endpoint | None:
    found: list[Endpoint] = []
    while page := client.webhooks.list(after=found[-1].id if found else 0):
        found += page
    return next((endpoint for endpoint in found if endpoint.url == url), None)
