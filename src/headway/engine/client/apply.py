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
    ScheduleWish,
    TargetWish,
    TemplateWish,
    WebhookWish,
    differences,
    refuse,
)
from headway.model.schedules.definition import Schedule
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
    changes = [_template(client, wish) for wish in manifest.templates]
    changes += [_schedule(client, wish, stored.get(wish.name)) for wish in manifest.schedules]
    changes += [_target(client, wish) for wish in manifest.targets]
    changes += [_webhook(client, wish) for wish in manifest.webhooks]
    named = {wish.name for wish in manifest.schedules}
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
    for wish in manifest.schedules:
        before = stored.get(wish.name)
        if before is not None and before.origin == "code":
            found.append(f"{wish.place}: code declares a schedule of this name: change it there, or rename this one")
            continue
        alone = manifest.standing_alone(wish.definition)
        found += _tried(wish.place, partial(client.schedules.check, alone))
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


def _template(client: Client, wish: TemplateWish) -> ManifestChange:
    before = _template_in_use(client, wish.name)
    if before is None:
        make = partial(client.templates.create, wish.name, wish.task, **wish.fields)
        return ManifestChange("+", "template", wish.name, do=make)
    words = differences({"task": before.task, **before.fields}, {"task": wish.task, **wish.fields})
    if not words:
        return ManifestChange("=", "template", wish.name)
    # A field that the file leaves out is removed.
    fields = {**dict.fromkeys(before.fields), **wish.fields}
    do = partial(client.templates.edit, before.id, if_version=before.version, task=wish.task, **fields)
    return ManifestChange("~", "template", wish.name, tuple(words), do)


def _template_in_use(client: Client, name: str) -> Template | None:
    try:
        with client.database.read() as tx:
            found = templates.find(tx, client.tenant_id, name)
    except NotFound:
        return None
    return found if found.archived_at is None else None


def _schedule(client: Client, wish: ScheduleWish, before: Schedule | None) -> ManifestChange:
    if before is None:
        enabled = wish.enabled is not False
        make = partial(client.schedules.create, wish.name, wish.definition.facts(), enabled=enabled, origin="file")
        return ManifestChange("+", "schedule", wish.name, () if enabled else ("disabled",), make)
    words = differences(before.parsed.facts(), wish.definition.facts())
    if before.origin != "file":
        words.append(f"origin {before.origin} → file")
    edits = bool(words)
    if wish.enabled is not None and wish.enabled != bool(before.enabled):
        words.append("disabled → enabled" if wish.enabled else "enabled → disabled")
    if not words:
        return ManifestChange("=", "schedule", wish.name)
    return ManifestChange(
        "~", "schedule", wish.name, tuple(words), partial(_change_schedule, client, wish, before, edits)
    )


def _change_schedule(client: Client, wish: ScheduleWish, before: Schedule, edits: bool) -> None:
    verbs = client.schedules
    if wish.enabled is False and before.enabled:
        before = verbs.disable(before.id)
    if edits:
        changes: dict[str, Any] = {**dict.fromkeys(before.parsed.facts()), **wish.definition.facts()}
        verbs.edit(before.id, changes, before.version, origin="file")
    if wish.enabled and not before.enabled:
        verbs.enable(before.id)


def _target(client: Client, wish: TargetWish) -> ManifestChange:
    with client.database.read() as tx:
        before = _target_row(tx, client.tenant_id, wish.name)
    was = before is not None and before[0]
    do = partial(_change_target, client, wish)
    pause = ("paused",) if wish.paused else ()
    if before is None:
        return ManifestChange("+", "target", wish.name, pause, do)
    words = []
    if wish.paused is not None and wish.paused != was:
        words.append("free → paused" if wish.paused else "paused → free")
    if wish.paused and was and wish.note != before[1]:
        words.append(f"note {before[1] or '(none)'} → {wish.note or '(none)'}")
    return (
        ManifestChange("~", "target", wish.name, tuple(words), do)
        if words
        else ManifestChange("=", "target", wish.name)
    )


def _target_row(tx: Tx, tenant_id: int, name: str) -> tuple[bool, str | None] | None:
    try:
        target = targets.shown(tx, tenant_id, name)
    except NotFound:
        return None
    return target.state == "paused", target.note


def _change_target(client: Client, wish: TargetWish) -> None:
    client.lanes.target(client.tenant_id, wish.name)
    if wish.paused:
        client.pause_target(wish.name, note=wish.note)
    elif wish.paused is False:
        client.resume_target(wish.name)


def _webhook(client: Client, wish: WebhookWish) -> ManifestChange:
    """Plans the change of the oldest endpoint with this URL."""
    before = _endpoint(client, wish.url)
    fields: dict[str, Any] = {
        "events": list(wish.events),
        "description": wish.description,
        "max_tries": wish.max_tries or MAX_TRIES,
    }
    if before is None:
        return ManifestChange("+", "webhook", wish.url, do=partial(_make_webhook, client, wish, fields))
    was = {"events": json.loads(before.events), "description": before.description, "max_tries": before.max_tries}
    if wish.enabled is not None:
        fields["enabled"], was["enabled"] = wish.enabled, bool(before.enabled)
    words = differences(was, fields)
    if not words:
        return ManifestChange("=", "webhook", wish.url)
    do = partial(client.webhooks.edit, before.id, if_version=before.version, **fields)
    return ManifestChange("~", "webhook", wish.url, tuple(words), do)


def _make_webhook(client: Client, wish: WebhookWish, fields: Mapping[str, Any]) -> Endpoint:
    return client.webhooks.create(wish.url, **fields, enabled=wish.enabled is not False)


def _endpoint(client: Client, url: str) -> Endpoint | None:
    found: list[Endpoint] = []
    while page := client.webhooks.list(after=found[-1].id if found else 0):
        found += page
    return next((endpoint for endpoint in found if endpoint.url == url), None)
