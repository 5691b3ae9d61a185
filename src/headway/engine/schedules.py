"""What people and programs do to schedules: each verb one transaction.

A change first decides the ticks up to now under the definition that was in force. Jobs that exist never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from headway.clock import SECOND
from headway.engine.firing import Ready, fire, place, ready
from headway.errors import BadInput, Busy, WrongState
from headway.model import cron
from headway.model.plan import failure_policy
from headway.model.schedule import ORIGINS, Definition, Schedule, Tick, anchor_of
from headway.model.ticks import next_due, times_of
from headway.model.values import check_name, instant, instant_text, refuse
from headway.store import groups, schedules, tenants
from headway.store.db import Tx
from headway.store.groups import Placed
from headway.store.pages import Page

if TYPE_CHECKING:
    from headway.engine.client import Client

T = TypeVar("T")
MOST_BACKFILLED = 1_000
MOST_PREVIEWED = 1_000
TRIES = 20


class _Stale(Exception):
    """Somebody edited the schedule after it was read."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A time at which a schedule would fire: the instant, the wall clock of its zone, what a clock change did to it."""

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
        """Its first tick is the first one after now."""
        client = self.client
        check_name(name, field="name")
        if origin not in ORIGINS:
            refuse("origin", f"must be {', '.join(ORIGINS)}, not {origin!r}")
        wished = self.check(definition)
        wishes = {"name": name, "definition": wished.text(), "enabled": enabled, "origin": origin}

        def work(tx: Tx) -> Schedule:
            tenants.admit_schedule(tx, client.tenant_id)
            made = schedules.insert(tx, client.tenant_id, now=client.time_in(tx), actor=client.actor, **wishes)  # type: ignore[arg-type]
            if enabled:
                next_at = next_due(wished, made.anchor, made.id, made.decided_until)
                made = schedules.set_next(tx, made, next_at)
            schedules.record(tx, made, "created", client.actor, version=1)
            tx.wake()
            return made

        return client.database.transact("create_schedule", work)

    def check(self, definition: Mapping[str, object] | Definition) -> Definition:
        """The definition, if an execution can be made of it: tasks, templates, params and options included."""
        wished = definition if isinstance(definition, Definition) else Definition.parse(definition)
        failure_policy(wished.on_failure)
        self._place(0, "trial", wished)
        return wished

    def _place(self, schedule_id: int, name: str, definition: Definition) -> Placed:
        trial = Schedule(schedule_id, self.client.tenant_id, name, "{}", 0, "api", 0, None, None, 0, "", None, 1)
        return place(self.client, trial, definition)

    def edit(
        self,
        which: int | str,
        changes: Mapping[str, object],
        if_version: int | None = None,
        *,
        origin: str | None = None,
        enabled: bool | None = None,
    ) -> Schedule:
        """Fields of the definition, or its `name`. What is not named stays; null takes a field away. `enabled` switches
        it on or off in the same transaction."""
        given = dict(changes)
        name = given.pop("name", None)
        if name is not None:
            check_name(name, field="name")

        def change(schedule: Schedule, _now: int) -> Schedule:
            text = schedule.parsed.changed(given).text() if given else schedule.definition
            fields = {"definition": text, "name": name or schedule.name, "origin": origin or schedule.origin}
            switch = schedule.enabled if enabled is None else int(enabled)
            return replace(schedule, enabled=switch, **fields)  # type: ignore[arg-type]

        if given:
            self.check(self.get(which).parsed.changed(given))
        return self._change("edit_schedule", "changed", which, change, if_version=if_version)

    def enable(self, which: int | str) -> Schedule:
        """From now on. What would have fired while it was disabled does not."""
        return self._change("enable_schedule", "enabled", which, lambda schedule, _: replace(schedule, enabled=1))

    def disable(self, which: int | str, *, reason: str | None = None) -> Schedule:
        """No more ticks. Executions that exist go on."""
        return self._change(
            "disable_schedule", "disabled", which, lambda schedule, _: replace(schedule, enabled=0), reason=reason
        )

    def delete(self, which: int | str, *, if_version: int | None = None) -> Schedule:
        """Its executions and its ledger stay; its name is free again."""

        def change(schedule: Schedule, now: int) -> Schedule:
            return replace(schedule, enabled=0, deleted_at=now)

        return self._change("delete_schedule", "deleted", which, change, if_version=if_version)

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

        def work(tx: Tx, one: Ready) -> Schedule:
            locked, now = self._lock(tx, one)
            schedules.expect(locked, if_version)
            wanted = change(locked, now)
            if wanted == locked:
                return locked
            settled = _settle(tx, one, locked, now)
            _check_name_free(tx, locked, wanted.name)
            wanted = _with_next(replace(change(settled, now), decided_until=max(now, settled.decided_until)))
            version = schedules.save(tx, wanted)
            switched = kind == "changed" and wanted.enabled != locked.enabled
            told = ("enabled" if wanted.enabled else "disabled") if switched else kind
            schedules.record(tx, wanted, told, actor, version=version, reason=reason)
            tx.wake()
            return replace(wanted, version=version)

        return self._on(label, which, work)

    # --- running ---

    def run(
        self,
        which: int | str,
        force: bool = False,
        params: Mapping[str, object] | None = None,
        *,
        if_version: int | None = None,
    ) -> int:
        """One execution now, also of a disabled schedule. `params` go over the schedule's own."""
        client = self.client
        extra = dict(params or {})

        def work(tx: Tx, one: Ready) -> int:
            locked, _ = self._lock(tx, one)
            schedules.expect(locked, if_version)
            for other in () if force else groups.active(tx, locked.id):
                text = f"schedule {locked.name!r} has an unfinished execution, {other.id}: wait for it, or force"
                raise WrongState(text, status=other.status, execution_id=other.id)
            schedules.mark_run(tx, locked.id)
            with tenants.admitting(tx.run, client.tenant_id):
                return groups.insert(tx, client.tenant_id, one.execution("manual"), client.actor)

        return self._on("run_schedule", which, work, params=extra)

    def backfill(self, which: int | str, since: object, until: object, dry_run: bool = False) -> list[int]:
        """Executions for past nominal times that did not fire, oldest first, one after another. Their ids; with
        `dry_run` the nominal times instead, and nothing is made. The ledger is not changed."""
        client = self.client
        first, last = (_instant(value, field) for value, field in ((since, "since"), (until, "until")))

        def work(tx: Tx, one: Ready) -> list[int]:
            locked, now = self._lock(tx, one)
            wanted = _unfired(tx, locked, first, last, now)
            if dry_run:
                return wanted
            with tenants.admitting(tx.run, client.tenant_id):
                return self._fill_in(tx, one, locked, wanted)

        return self._on("backfill", which, work, params={})

    def _fill_in(self, tx: Tx, one: Ready, locked: Schedule, wanted: Sequence[int]) -> list[int]:
        before = _still_open(tx, [group.id for group in groups.active(tx, locked.id)])
        after = None if one.definition.overlap == "allow" else before
        made: list[int] = []
        for nominal_at in wanted:
            placed = one.execution("backfill", nominal_at=nominal_at, after_id=after)
            made.append(groups.insert(tx, self.client.tenant_id, placed, self.client.actor))
            after = made[-1]
        return made

    # --- looking ---

    def get(self, which: int | str) -> Schedule:
        with self.client.database.read() as tx:
            return schedules.find(tx, self.client.tenant_id, which)

    def ticks(self, which: int | str, *, limit: int = 50, cursor: str | None = None) -> Page[Tick]:
        """The ledger of a schedule, the latest nominal times first."""
        with self.client.database.read() as tx:
            schedule = schedules.find(tx, self.client.tenant_id, which)
            return schedules.ledger(tx, schedule.id, limit=limit, cursor=cursor)

    def preview(self, what: int | str | Mapping[str, object] | Definition, count: int = 5) -> list[Preview]:
        """The next times of a schedule, or of a definition that need not say what it runs. Jitter is left out."""
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
        self, label: str, which: int | str, work: Callable[[Tx, Ready], T], params: Mapping[str, Any] | None = None
    ) -> T:
        """A transaction about a schedule, with what it runs worked out before. With `params` it must be able to run."""
        client = self.client
        for _ in range(TRIES):
            schedule = self.get(which)
            if params is None:
                one = ready(client, schedule) if schedule.readable else Ready(schedule, Definition(), None)
            else:
                one = Ready(schedule, schedule.parsed, place(client, schedule, schedule.parsed, params))
            try:
                return client.database.transact(label, lambda tx, one=one: work(tx, one))  # type: ignore[misc]
            except _Stale:
                continue
        raise Busy(f"schedule {which!r} is being changed by others all the time: try again", retry_after=1)

    def _lock(self, tx: Tx, one: Ready) -> tuple[Schedule, int]:
        locked = schedules.lock(tx, self.client.tenant_id, one.schedule.id)
        if locked.version != one.schedule.version:
            raise _Stale
        return locked, self.client.time_in(tx)


def _settle(tx: Tx, one: Ready, locked: Schedule, now: int) -> Schedule:
    """The ticks up to now, as the definition says that was in force. Disabled time has none."""
    if not locked.enabled or not locked.readable:  # what cannot be read here can still be switched off
        return locked
    fire(tx, [replace(one, schedule=locked)], now=now, settle=True)
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
    """The nominal times from one instant to another, both included, that did not fire."""
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
    """The last of them that has not ended, locked so that it does not."""
    left = [group.id for group in groups.lock_all(tx, ids).values() if group.finished_at is None] if ids else []
    return left[-1] if left else None


def _timing(what: Mapping[str, object] | Definition) -> Definition:
    if isinstance(what, Definition):
        return what
    some = {} if "template" in what or "steps" in what else {"steps": [{"task": "preview"}]}
    return Definition.parse({**some, **what})


def upcoming(definition: Definition, anchor: int, now: int, count: int) -> list[Preview]:
    """The next times after now."""
    times, zone = times_of(definition, anchor), ZoneInfo(definition.timezone)
    expression = None if definition.cron is None else cron.parse(definition.cron)
    found: list[Preview] = []
    at = times.next(now)
    while at is not None and len(found) < count:
        note = None if expression is None else cron.notes(expression, definition.timezone, at)
        local = datetime.fromtimestamp(at // SECOND, zone).isoformat()
        found.append(Preview(at, local, note))
        at = times.next(at)
    return found
