"""The verbs on schedules, each in one transaction.

A change first decides the ticks up to now under the old definition. Existing jobs never change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from headway.clock import SECOND
from headway.engine.client import authority, idempotency
from headway.engine.scheduler.fire import Ready, fire, place, ready
from headway.errors import BadInput, Busy, NotFound, WrongState
from headway.model.access import authority as rule
from headway.model.access.permissions import tasks_of
from headway.model.groups.group import failure_policy
from headway.model.jobs.job import Actor
from headway.model.schedules import cron
from headway.model.schedules.definition import ORIGINS, WHAT, Definition
from headway.model.schedules.schedule import Schedule, Tick, anchor_of
from headway.model.schedules.ticks import next_due, times_of
from headway.model.values.names import check_name
from headway.model.values.refuse import refuse
from headway.model.values.times import instant, instant_text
from headway.store.access import tenants
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.groups import create as new_groups
from headway.store.paging import Page
from headway.store.schedules import schedules

if TYPE_CHECKING:
    from headway.engine.client.client import Client

T = TypeVar("T")
MOST_BACKFILLED = 1_000
MOST_PREVIEWED = 1_000
TRIES = 20


class _Stale(Exception):
    """The schedule was edited after it was read."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A time at which a schedule would fire.

    `local` is the wall-clock time in its zone; `note` describes the effect of a DST change.
    """

    at: int
    local: str
    note: str | None = None


class Schedules:
    """The verbs on schedules, for one tenant and one actor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    # --- making and changing ---

    def create(
        self, name: str, definition: Mapping[str, object], *, enabled: bool = True, origin: str = "api"
    ) -> Schedule:
        """Creates a schedule. Its first tick is the first one after now."""
        client = self.client
        check_name(name, field="name")
        if origin not in ORIGINS:
            refuse("origin", f"must be {', '.join(ORIGINS)}, not {origin!r}")
        requested = definition if isinstance(definition, Definition) else Definition.parse(definition)
        bound = self._bind(requested)
        self.check(requested, bound)
        options = {"name": name, "definition": requested.text(), "enabled": enabled, "origin": origin}
        options |= {"templates": bound, "author": client.actor_text}

        def work(tx: Tx) -> Schedule:
            tenants.admit_schedule(tx, client.tenant_id)
            made = schedules.insert(tx, client.tenant_id, now=client.time_in(tx), actor=client.actor, **options)  # type: ignore[arg-type]
            if enabled:
                next_at = next_due(requested, made.anchor, made.id, made.decided_until)
                made = schedules.set_next(tx, made, next_at)
            schedules.record(tx, made, "created", client.actor, version=1)
            tx.wake()
            return made

        return idempotency.create_once(
            client, "create_schedule", work, noun=Schedule, look=f"headway schedules show {quote(name)}"
        )

    def check(self, definition: Mapping[str, object] | Definition, templates: str = "{}") -> Definition:
        """Returns the definition if the caller may make it and an execution can be made of it.

        The check covers authority, tasks, templates, params and options.
        """
        requested = definition if isinstance(definition, Definition) else Definition.parse(definition)
        authority.check_policy(self.client, requested.on_failure)  # before its module is imported
        failure_policy(requested.on_failure)
        trial = Schedule(0, self.client.tenant_id, "trial", "{}", 0, "api", 0, None, None, 0, "", None, 1)
        place(self.client, replace(trial, templates=templates), requested)
        return requested

    def _bind(self, definition: Definition) -> str:
        """Returns the ids of the templates that a definition names."""
        named = [definition.template, *(step.template for step in definition.steps)]
        with self.client.database.read() as tx:
            return authority.bound_templates(tx, self.client.tenant_id, [n for n in named if isinstance(n, str)])

    def may_define(self, schedule: Schedule) -> None:
        """Refuses a caller that may not change this schedule, because it could not have made it."""
        if schedule.readable:
            self._may_hold(schedule.parsed, schedule.bound)
        elif self.client.visitor is not None:
            author = authority.of_author(self.client, schedule.tenant_id, schedule.author)
            rule.check_unread(authority.of_caller(self.client), author, schedule.name)

    def _may_hold(self, definition: Definition, bound: Mapping[str, int]) -> None:
        """Refuses a caller that may not make this definition, before its params are checked."""
        if self.client.visitor is None:
            return
        caller = authority.of_caller(self.client)
        rule.check_policy(caller, definition.on_failure)
        rule.check_tasks(caller, tasks_of(definition, lambda which: self._task_of(bound, which)))

    def _task_of(self, bound: Mapping[str, int], which: int | str) -> str:
        try:
            return self.client.templates.get(bound.get(which, which) if isinstance(which, str) else which).task
        except NotFound:
            return ""

    def edit(
        self,
        which: int | str,
        changes: Mapping[str, object],
        if_version: int | None = None,
        *,
        origin: str | None = None,
        enabled: bool | None = None,
    ) -> Schedule:
        """Changes fields of the definition, or the `name`.

        Fields that are not named stay; null removes a field. `enabled` enables or disables the schedule in the same
        transaction.
        """
        given = dict(changes)
        name = given.pop("name", None)
        if name is not None:
            check_name(name, field="name")

        def change(schedule: Schedule, _now: int) -> Schedule:
            fields = {"name": name or schedule.name, "origin": origin or schedule.origin}
            if given:
                text = schedule.parsed.changed(given).text()
                if (text, templates) != (schedule.definition, schedule.templates):
                    fields |= {"definition": text, "defined_by": self.client.actor_text, "templates": templates}
            switch = schedule.enabled if enabled is None else int(enabled)
            return replace(schedule, enabled=switch, **fields)  # type: ignore[arg-type]

        seen = self.get(which)
        templates = seen.templates
        if given or name is not None:
            self.may_define(seen)
        if given:
            requested = seen.parsed.changed(given)
            templates = self._bind(requested) if any(part in given for part in WHAT) else templates
            self._may_hold(requested, json.loads(templates))
            self.check(requested, templates)
        elif enabled:
            self._may_run(seen)
        return self._change("edit_schedule", "changed", which, change, if_version=if_version)

    def enable(self, which: int | str) -> Schedule:
        """Enables a schedule from now on; the disabled time has no ticks."""
        self._may_run(self.get(which))
        return self._change("enable_schedule", "enabled", which, lambda schedule, _: replace(schedule, enabled=1))

    def _may_run(self, schedule: Schedule) -> None:
        """Refuses a schedule whose author may not run it; other problems are reasons of its skipped ticks."""
        if schedule.readable:
            with suppress(BadInput):
                place(self.client, schedule, schedule.parsed)

    def disable(self, which: int | str, *, reason: str | None = None) -> Schedule:
        """Disables a schedule: it has no more ticks, and its executions continue."""
        return self._change(
            "disable_schedule", "disabled", which, lambda schedule, _: replace(schedule, enabled=0), reason=reason
        )

    def see(self, which: int | str) -> Schedule:
        """Marks the missed ticks of a schedule as seen, so that the checks no longer report them."""
        client = self.client

        def work(tx: Tx) -> Schedule:
            return schedules.see_missed(tx, schedules.lock(tx, client.tenant_id, which), client.actor)

        return client.transact("see_missed", work, noun=Schedule)

    def delete(self, which: int | str, *, if_version: int | None = None) -> Schedule:
        """Deletes a schedule. Its executions and ledger stay; its name is free again."""

        def change(schedule: Schedule, now: int) -> Schedule:
            return replace(schedule, enabled=0, deleted_at=now)

        self.may_define(self.get(which))
        return self._change("delete_schedule", "deleted", which, change, if_version=if_version)

    def reset(self, which: int | str) -> Schedule:
        """Replaces a schedule whose ticks were decided too far ahead by a wrong clock.

        Decided ticks stay decided, so a new schedule with the same name and definition takes its place and begins now.
        The executions and the ledger stay with the id of the old one.
        """
        client = self.client
        self.may_define(self.get(which))

        def work(tx: Tx, prepared: Ready) -> Schedule:
            locked, now = self._lock(tx, prepared)
            if not locked.ahead(now):
                text = f"schedule {locked.name!r} is decided up to now and no further: there is nothing to put right"
                raise WrongState(text, status="enabled" if locked.enabled else "disabled")
            old = replace(locked, enabled=0, next_at=None, deleted_at=now)
            version = schedules.save(tx, old)
            schedules.record(tx, old, "deleted", client.actor, version=version, reason="its clock was ahead")
            options = {"name": locked.name, "definition": locked.definition, "enabled": True, "origin": locked.origin}
            options |= {"templates": locked.templates, "author": locked.author}
            made = schedules.insert(tx, client.tenant_id, now=now, actor=Actor.parse(locked.created_by), **options)  # type: ignore[arg-type]
            made = schedules.set_next(tx, made, next_due(made.parsed, made.anchor, made.id, now))
            schedules.record(tx, made, "created", client.actor, version=1, reason=f"it replaces schedule {locked.id}")
            tx.wake()
            return made

        return self._on("reset_schedule", which, work, noun=Schedule)

    def _change(
        self,
        label: str,
        kind: str,
        which: int | str,
        change: Callable[[Schedule, int], Schedule],
        *,
        if_version: int | None = None,
        reason: str | None = None,
    ) -> Schedule:
        actor = self.client.actor

        def work(tx: Tx, prepared: Ready) -> Schedule:
            locked, now = self._lock(tx, prepared)
            schedules.expect(locked, if_version)
            wanted = change(locked, now)
            if wanted == locked:
                return locked
            settled = _settle(tx, prepared, locked, now)
            _check_name_free(tx, locked, wanted.name)
            wanted = _with_next(replace(change(settled, now), decided_until=max(now, settled.decided_until)))
            version = schedules.save(tx, wanted)
            switched = kind == "changed" and wanted.enabled != locked.enabled
            event_kind = ("enabled" if wanted.enabled else "disabled") if switched else kind
            schedules.record(tx, wanted, event_kind, actor, version=version, reason=reason)
            tx.wake()
            return replace(wanted, version=version)

        return self._on(label, which, work, noun=Schedule)

    # --- running ---

    def run(
        self,
        which: int | str,
        force: bool = False,
        params: Mapping[str, object] | None = None,
        *,
        if_version: int | None = None,
    ) -> int:
        """Creates an execution now, also of a disabled schedule.

        `params` override the schedule's own.
        """
        client = self.client
        extra = dict(params or {})

        def work(tx: Tx, prepared: Ready) -> int:
            locked, _ = self._lock(tx, prepared)
            schedules.expect(locked, if_version)
            for other in () if force else groups.active(tx, locked.id):
                text = f"schedule {locked.name!r} has an unfinished execution, {other.id}: wait for it, or force"
                raise WrongState(text, status=other.status, execution_id=other.id)
            schedules.mark_run(tx, locked.id)
            with tenants.admitting(tx.run, client.tenant_id):
                return new_groups.insert(tx, client.tenant_id, prepared.execution("manual"), client.actor)

        return self._on("run_schedule", which, work, params=extra)

    def backfill(self, which: int | str, since: object, until: object, dry_run: bool = False) -> list[int]:
        """Creates executions for past ticks that did not fire, oldest first, in sequence.

        Returns their ids; with `dry_run` creates nothing and returns the nominal times. The ledger does not change.
        """
        client = self.client
        first, last = (_instant(value, field) for value, field in ((since, "since"), (until, "until")))

        def work(tx: Tx, prepared: Ready) -> list[int]:
            locked, now = self._lock(tx, prepared)
            wanted = _unfired(tx, locked, first, last, now)
            if dry_run:
                return wanted
            with tenants.admitting(tx.run, client.tenant_id):
                return self._fill_in(tx, prepared, locked, wanted)

        return self._on("backfill", which, work, params={})

    def _fill_in(self, tx: Tx, prepared: Ready, locked: Schedule, wanted: Sequence[int]) -> list[int]:
        before = _still_open(tx, [group.id for group in groups.active(tx, locked.id)])
        after = None if prepared.definition.overlap == "allow" else before
        made: list[int] = []
        for nominal_at in wanted:
            placed = prepared.execution("backfill", nominal_at=nominal_at, after_id=after)
            made.append(new_groups.insert(tx, self.client.tenant_id, placed, self.client.actor))
            after = made[-1]
        return made

    # --- reading ---

    def get(self, which: int | str) -> Schedule:
        with self.client.database.read() as tx:
            return schedules.find(tx, self.client.tenant_id, which)

    def ticks(self, which: int | str, *, limit: int = 50, cursor: str | None = None) -> Page[Tick]:
        """Returns the ledger of a schedule, latest nominal times first. By number also of a deleted one."""
        with self.client.database.read() as tx:
            tenant_id = self.client.tenant_id
            kept = isinstance(which, int)
            schedule = schedules.find_kept(tx, tenant_id, int(which)) if kept else schedules.find(tx, tenant_id, which)
            return schedules.ledger(tx, schedule.id, limit=limit, cursor=cursor)

    def preview(self, what: int | str | Mapping[str, object] | Definition, count: int = 5) -> list[Preview]:
        """Returns the next times of a schedule or a definition, without jitter.

        The definition needs no template and no steps.
        """
        if not 1 <= count <= MOST_PREVIEWED:
            raise BadInput(f"count must be from 1 to {MOST_PREVIEWED}, not {count}", field="count")
        with self.client.database.read() as tx:
            now = self.client.time_in(tx)
            if isinstance(what, int | str):
                found = schedules.find(tx, self.client.tenant_id, what)
                definition, anchor = found.parsed, found.anchor
            else:
                definition = _timing(what)
                anchor = anchor_of(definition, now)
        return upcoming(definition, anchor, now, count)

    def list(self, *, after: str = "", limit: int = 200) -> list[Schedule]:
        with self.client.database.read() as tx:
            return schedules.page(tx, self.client.tenant_id, after=after, limit=limit)

    # --- one schedule at a time ---

    def _on(
        self,
        label: str,
        which: int | str,
        work: Callable[[Tx, Ready], T],
        *,
        noun: type | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> T:
        """Runs a transaction on a schedule, with its jobs prepared before.

        With `params` the schedule must be able to run.
        """
        client = self.client
        for _ in range(TRIES):
            schedule = self.get(which)
            if params is None:
                prepared = ready(client, schedule) if schedule.readable else Ready(schedule, Definition(), None)
            else:
                prepared = Ready(schedule, schedule.parsed, place(client, schedule, schedule.parsed, params))
            try:
                look = f"headway schedules show {quote(schedule.name)}"
                return idempotency.create_once(client, label, partial(_with, work, prepared), noun=noun, look=look)
            except _Stale:
                continue
        raise Busy(f"other callers keep changing schedule {which!r}", hint="try again", retry_after=1)

    def _lock(self, tx: Tx, prepared: Ready) -> tuple[Schedule, int]:
        locked = schedules.lock(tx, self.client.tenant_id, prepared.schedule.id)
        if locked.version != prepared.schedule.version:
            raise _Stale
        return locked, self.client.time_in(tx)


def _settle(tx: Tx, prepared: Ready, locked: Schedule, now: int) -> Schedule:
    """Decides the ticks up to now under the stored definition; disabled time has none."""
    if not locked.enabled or not locked.readable:  # an unreadable definition can still be disabled
        return locked
    fire(tx, [replace(prepared, schedule=locked)], now=now, settle=True)
    return replace(locked, decided_until=max(now, locked.decided_until))


def _with_next(schedule: Schedule) -> Schedule:
    if not schedule.enabled or schedule.deleted_at is not None:
        return replace(schedule, next_at=None)
    return replace(schedule, next_at=next_due(schedule.parsed, schedule.anchor, schedule.id, schedule.decided_until))


def _check_name_free(tx: Tx, locked: Schedule, name: str) -> None:
    if name != locked.name and schedules.find_named(tx, locked.tenant_id, name) is not None:
        raise BadInput(f"name: there is a schedule {name!r} already", code="name_taken", field="name")


def _instant(value: object, field: str) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else instant(value, field=field)


def _unfired(tx: Tx, schedule: Schedule, since: int, until: int, now: int) -> list[int]:
    """Returns the nominal times from `since` to `until`, inclusive, that did not fire."""
    if until < since:
        refuse("until", "is before since")
    if until > now:
        refuse("until", f"is in the future: name a time up to now ({instant_text(now)})")
    times = times_of(schedule.parsed, schedule.anchor)
    count = times.count(since - 1, until)
    if count > MOST_BACKFILLED:
        refuse("since", f"to until are {count} times, the limit is {MOST_BACKFILLED}: backfill shorter ranges")
    schedules.check_kept(tx, schedule, since)
    fired = schedules.fired(tx, schedule.id, since, until)
    return [nominal for nominal in times.between(since - 1, until) if nominal not in fired]


def _still_open(tx: Tx, ids: list[int]) -> int | None:
    """Returns the last unfinished group, locked so that it stays unfinished."""
    left = [group.id for group in groups.lock_all(tx, ids).values() if group.finished_at is None] if ids else []
    return left[-1] if left else None


def _timing(what: Mapping[str, object] | Definition) -> Definition:
    if isinstance(what, Definition):
        return what
    some = {} if "template" in what or "steps" in what else {"steps": [{"task": "preview"}]}
    return Definition.parse({**some, **what})


def upcoming(definition: Definition, anchor: int, now: int, count: int) -> list[Preview]:
    """Returns the next times after now."""
    times, zone = times_of(definition, anchor), ZoneInfo(definition.timezone)
    expression = None if definition.cron is None else cron.parse(definition.cron)
    found: list[Preview] = []
    for at in islice(times.between(now, cron.LATEST), count):
        note = None if expression is None else cron.note_of_tick(expression, definition.timezone, at)
        local = datetime.fromtimestamp(at // SECOND, zone).isoformat()
        found.append(Preview(at, local, note))
    return found


def _with(work: Callable[[Tx, Ready], T], prepared: Ready, tx: Tx) -> T:
    return work(tx, prepared)
