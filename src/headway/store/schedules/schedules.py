"""Stores schedules and the ledger of their ticks.

A schedule's row is locked before groups and jobs are. `decided_until` moves only by an update that names its old value,
so a second scheduler changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.errors import BadInput, NotFound, WrongState
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.schedules.schedule import Schedule, Tick
from headway.model.values.suggestions import closest
from headway.model.values.times import instant_text
from headway.store import events
from headway.store.db import Row, Tx
from headway.store.paging import Page, check_limit, make_cursor, read_cursor

SUGGESTED_FROM = 1_000


class Decided(NamedTuple):
    """Moves a schedule's `decided_until` from `before` to `until`."""

    id: int
    version: int
    before: int
    until: int
    next_at: int | None
    ran_at: int | None


class NewTick(NamedTuple):
    """A decision for the ledger. `tolerance` is how late a tick could be and still be on time; None by default."""

    tenant_id: int
    schedule_id: int
    nominal_at: int
    until: int
    times: int
    outcome: str
    reason: str | None
    execution_id: int | None
    tolerance: int | None = None


# --- deciding -----------------------------------------------------------------------------------------------------


def next_due(tx: Tx) -> tuple[int, int | None]:
    """Returns the database's time, and the time of the next tick of any schedule."""
    ((now, next_at),) = tx.run("next_schedule")
    return int(now), next_at


def due(tx: Tx, limit: int) -> list[Schedule]:
    return [_schedule(row) for row in tx.run("due_schedules", limit=limit)]


def lock_due(tx: Tx, ids: Collection[int]) -> list[Schedule]:
    """Locks the schedules that are still due, in order of time; skips locked ones."""
    return [_schedule(row) for row in tx.run("lock_due_schedules", ids=json.dumps(sorted(ids)))]


def decide(tx: Tx, decided: Sequence[Decided]) -> set[int]:
    """Moves `decided_until`. Returns the schedules that this transaction decided."""
    return {schedule_id for (schedule_id,) in tx.run("decide_schedules", rows=json.dumps(decided))}


def open_stages(tx: Tx, ids: Collection[int]) -> dict[int, int | None]:
    """Returns the lowest open stage of each schedule's unfinished executions.

    -1 if an execution waits to begin, None if there is none.
    """
    return dict(tx.run("active_stages", ids=json.dumps(sorted(ids))))


def add_ticks(tx: Tx, new: Sequence[NewTick], actors: Mapping[int, Actor]) -> None:
    """Writes decisions to the ledger; a tick that did not fire also writes an event."""
    unfired = []
    for number, tenant_id, schedule_id, nominal_at, until, count, outcome, reason in tx.run(
        "add_ticks", rows=json.dumps(new)
    ):
        if outcome == "FIRED":
            continue
        skipped = outcome == "SKIPPED"
        kind = "schedule.tick.skipped" if skipped else "schedule.tick.missed"
        why = {"reason": reason} if skipped else {"outcome": outcome}
        data = json.dumps({"schedule": schedule_id, "nominal_at": nominal_at, "until": until, "count": count, **why})
        of_tick = {"thing": "tick", "tenant_id": tenant_id, "thing_id": number, "version": 1}
        unfired.append(NewEvent(kind, actors[schedule_id], data=data, **of_tick))
    events.record(tx, *unfired)


def fired(tx: Tx, schedule_id: int, since: int, until: int) -> set[int]:
    found = tx.run("fired_between", schedule_id=schedule_id, since=since, until=until)
    return {nominal for (nominal,) in found}


def check_kept(tx: Tx, schedule: Schedule, since: int) -> None:
    """Refuses a backfill of a time whose ledger was pruned.

    Ticks that fired then are unknown and would fire again.
    """
    ((first, pruned),) = tx.run("ledger_begins", schedule_id=schedule.id, tenant_id=schedule.tenant_id)
    if pruned and first is not None and schedule.created_at < first and since < first:
        raise BadInput(
            f"since: the ledger of this schedule begins at {instant_text(first)}",
            hint="give a later time, because earlier ticks were pruned",
            field="since",
        )


class Missed(NamedTuple):
    """The missed ticks of a schedule that no person has seen: how many, the first and the last."""

    schedule: Schedule
    times: int
    first_at: int
    last_at: int


def missed(tx: Tx, tenant_id: int | None, *, schedule_id: int | None = None, limit: int = 50) -> list[Missed]:
    """Returns the schedules with unseen missed ticks, the latest first. None as the tenant means all tenants."""
    found = tx.run("unseen_misses", tenant_id=tenant_id, schedule_id=schedule_id, limit=limit)
    return [Missed(_schedule(row[:-3]), int(row[-3]), row[-2], row[-1]) for row in found]


def see_missed(tx: Tx, schedule: Schedule, actor: Actor) -> Schedule:
    """Marks the missed ticks of a locked schedule as seen; changes nothing if there are none."""
    if not missed(tx, schedule.tenant_id, schedule_id=schedule.id):
        return schedule
    ((version, at),) = tx.run("see_misses", id=schedule.id)
    record(tx, schedule, "seen", actor, version=version)
    return replace(schedule, version=version, missed_seen_at=at)


# --- finding ------------------------------------------------------------------------------------------------------


def find(tx: Tx, tenant_id: int, which: int | str) -> Schedule:
    """Finds a schedule by number or by name. A deleted one raises NotFound."""
    if isinstance(which, int):
        found = tx.run("schedule_by_id", id=which, tenant_id=tenant_id)
    else:
        found = tx.run("schedule_by_name", name=which, tenant_id=tenant_id)
    if not found:
        raise _unknown(which, (row[2] for row in _first(tx, tenant_id)))
    return _schedule(found[0])


def find_kept(tx: Tx, tenant_id: int, number: int) -> Schedule:
    """Finds a schedule by number, a deleted one too."""
    return kept(tx, tenant_id, [number]).get(number) or find(tx, tenant_id, number)


def _first(tx: Tx, tenant_id: int) -> list[Row]:
    return tx.run("schedules_after", tenant_id=tenant_id, after="", limit=SUGGESTED_FROM)


def _unknown(which: int | str, known: Iterable[str]) -> NotFound:
    near = closest(which, known) if isinstance(which, str) else None
    hint = f"did you mean {near}?" if near else None
    return NotFound(f"there is no schedule {which!r}", hint=hint, noun="schedule", code="unknown_schedule")


def find_named(tx: Tx, tenant_id: int, name: str) -> Schedule | None:
    found = tx.run("schedule_by_name", name=name, tenant_id=tenant_id)
    return _schedule(found[0]) if found else None


def kept(tx: Tx, tenant_id: int, ids: Collection[int]) -> dict[int, Schedule]:
    """Returns schedules by number, deleted ones too, because their executions remain."""
    found = tx.run("schedules_kept", tenant_id=tenant_id, ids=json.dumps(sorted(ids))) if ids else []
    return {schedule.id: schedule for schedule in map(_schedule, found)}


def lock(tx: Tx, tenant_id: int, which: int | str) -> Schedule:
    schedule = find(tx, tenant_id, which)
    locked = _schedule(tx.run("lock_schedule", id=schedule.id)[0])
    if locked.deleted_at is not None:  # deleted between the two reads
        raise _unknown(which, ())
    return locked


def page(tx: Tx, tenant_id: int, *, after: str = "", limit: int = 50) -> list[Schedule]:
    """Lists schedules by name, after a given name."""
    return [_schedule(row) for row in tx.run("schedules_after", tenant_id=tenant_id, after=after, limit=limit)]


def upcoming(tx: Tx, tenant_id: int, limit: int) -> list[Schedule]:
    """Returns the schedules with the earliest next ticks."""
    return [_schedule(row) for row in tx.run("upcoming_schedules", tenant_id=tenant_id, limit=limit)]


def listed(tx: Tx, tenant_id: int, *, limit: int = 50, cursor: str | None = None) -> Page[Schedule]:
    """Returns a page of schedules by name.

    A name may be too long for a cursor, so the cursor has the last schedule's number, which is never reused.
    """
    after = ""
    if cursor is not None:
        number = read_cursor(cursor)
        known = kept(tx, tenant_id, [number])
        if number not in known:
            raise BadInput("cursor is not valid", hint="list again without a cursor", field="cursor")
        after = known[number].name
    found = page(tx, tenant_id, after=after, limit=check_limit(limit) + 1)
    return Page(found[:limit], make_cursor(found[limit - 1].id) if len(found) > limit else None)


def deleted(tx: Tx, tenant_id: int, *, limit: int = 50, cursor: str | None = None) -> Page[Schedule]:
    """Returns a page of deleted schedules, the last made first."""
    rows = tx.run("deleted_schedules", tenant_id=tenant_id, before=read_cursor(cursor), limit=check_limit(limit) + 1)
    found = [_schedule(row) for row in rows]
    return Page(found[:limit], make_cursor(found[limit - 1].id) if len(found) > limit else None)


def ledger(tx: Tx, schedule_id: int, *, limit: int = 50, cursor: str | None = None) -> Page[Tick]:
    """Returns a schedule's decisions, latest nominal time first."""
    found = tx.run("ticks_before", schedule_id=schedule_id, before=read_cursor(cursor), limit=check_limit(limit) + 1)
    ticks = [Tick(*row) for row in found[:limit]]
    return Page(ticks, make_cursor(ticks[-1].nominal_at) if len(found) > limit else None)


def last_switch(tx: Tx, schedule_id: int) -> tuple[str, Mapping[str, object]]:
    """Returns kind and data of the event that last enabled or disabled the schedule."""
    ((kind, data),) = tx.run("last_switch", id=schedule_id)
    return kind, json.loads(data)


def definition_at(tx: Tx, schedule_id: int, at: int) -> Mapping[str, object] | None:
    """Returns the definition that a schedule had at an instant; None if that event is pruned."""
    for (data,) in tx.run("definition_at", id=schedule_id, at=at):
        found: Mapping[str, object] = json.loads(data)["definition"]
        return found
    return None


def silent(tx: Tx) -> list[Schedule]:
    """Returns enabled schedules without a next time."""
    return [_schedule(row) for row in tx.run("silent_schedules")]


def speak_again(tx: Tx, schedule: Schedule, next_at: int) -> bool:
    values = {"id": schedule.id, "version": schedule.version, "before": schedule.decided_until, "next_at": next_at}
    return bool(tx.run("speak_again", **values))


# --- changing -----------------------------------------------------------------------------------------------------


def insert(
    tx: Tx,
    tenant_id: int,
    *,
    name: str,
    definition: str,
    templates: str,
    enabled: bool,
    origin: str,
    now: int,
    actor: Actor,
    author: str,
) -> Schedule:
    """Creates a schedule that is decided up to now.

    The caller records its first event when the first time is set.
    """
    values = {"name": name, "definition": definition, "enabled": int(enabled), "origin": origin, "at": now}
    bound = {"author": author, "templates": templates}
    found = tx.run("add_schedule", tenant_id=tenant_id, actor=actor.text(), **values, **bound)
    if not found:
        raise BadInput(
            f"name: there is a schedule {name!r} already",
            hint="edit it, or take another name",
            code="name_taken",
            field="name",
        )
    return _schedule(tx.run("lock_schedule", id=found[0][0])[0])


def set_next(tx: Tx, schedule: Schedule, next_at: int | None) -> Schedule:
    """Sets the time of the first tick.

    The jitter derives from the schedule's number, so the time is known only after the insert.
    """
    tx.run("set_next", id=schedule.id, next_at=next_at)
    return replace(schedule, next_at=next_at)


def save(tx: Tx, schedule: Schedule) -> int:
    """Stores a changed schedule at its version and returns the new version."""
    names = ("id", "name", "definition", "enabled", "origin", "decided_until", "next_at", "deleted_at", "version")
    author = ("defined_by", "templates")
    landed = tx.run("save_schedule", **{name: getattr(schedule, name) for name in (*names, *author)})
    assert landed, f"schedule {schedule.id} was changed without its lock"
    return int(landed[0][0])


def record(tx: Tx, schedule: Schedule, kind: str, actor: Actor, *, version: int, reason: str | None = None) -> None:
    """Records an event of a schedule, with its whole definition."""
    facts = {
        "name": schedule.name,
        "definition": json.loads(schedule.definition),
        "enabled": bool(schedule.enabled),
        "origin": schedule.origin,
        "decided_until": schedule.decided_until,
        **({"reason": reason} if reason else {}),
    }
    data = json.dumps(facts, separators=(",", ":"))
    event = NewEvent(
        f"schedule.{kind}", actor, tenant_id=schedule.tenant_id, thing_id=schedule.id, version=version, data=data
    )
    events.record(tx, event)


def mark_run(tx: Tx, schedule_id: int) -> None:
    tx.run("mark_run", id=schedule_id)


def expect(schedule: Schedule, version: int | None) -> None:
    if version is not None and version != schedule.version:
        raise WrongState(
            f"schedule {schedule.name!r} has changed since it was read (version {schedule.version}, not {version})",
            code="version_mismatch",
            status="enabled" if schedule.enabled else "disabled",
        )


def _schedule(row: Row) -> Schedule:
    return Schedule(*row)
