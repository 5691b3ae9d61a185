"""Schedules and the ledger of their ticks in the database. Functions of a transaction.

A schedule's row is locked before groups and jobs are. `decided_until` only ever moves by an update that names where it
stood: whoever comes second changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.errors import BadInput, NotFound, WrongState
from headway.model.job import Actor
from headway.model.schedule import Schedule, Tick
from headway.model.values import closest, instant_text
from headway.store.db import Row, Tx
from headway.store.pages import Page, check_limit, make_cursor, read_cursor

SUGGESTED_FROM = 1_000


class Decided(NamedTuple):
    """That the ticks of a schedule up to an instant are decided."""

    id: int
    version: int
    before: int
    until: int
    next_at: int | None
    ran_at: int | None


class NewTick(NamedTuple):
    tenant_id: int
    schedule_id: int
    nominal_at: int
    until: int
    times: int
    outcome: str
    reason: str | None
    execution_id: int | None


# --- deciding -----------------------------------------------------------------------------------------------------


def next_due(tx: Tx) -> tuple[int, int | None]:
    """The time by the database's clock, and when the next tick of any schedule is due."""
    ((now, next_at),) = tx.run("next_schedule")
    return int(now), next_at


def due(tx: Tx, limit: int) -> list[Schedule]:
    return [_schedule(row) for row in tx.run("due_schedules", limit=limit)]


def lock_due(tx: Tx, ids: Collection[int]) -> list[Schedule]:
    """Those of them that are still due and that nobody else has in hand, in the order of their time."""
    return [_schedule(row) for row in tx.run("lock_due_schedules", ids=json.dumps(sorted(ids)))]


def decide(tx: Tx, decided: Sequence[Decided]) -> set[int]:
    """Moves `decided_until`. Only what is in the answer was not decided before."""
    return {schedule_id for (schedule_id,) in tx.run("decide_schedules", rows=json.dumps(decided))}


def open_stages(tx: Tx, ids: Collection[int]) -> dict[int, int | None]:
    """The lowest open stage of each schedule's unfinished executions: -1 if one waits, None if there is none."""
    return dict(tx.run("active_stages", ids=json.dumps(sorted(ids))))


def add_ticks(tx: Tx, new: Sequence[NewTick], actors: Mapping[int, Actor]) -> None:
    """Decisions for the ledger; one that did not fire, though it could have, is also an event."""
    events = []
    for number, tenant_id, schedule_id, nominal_at, until, count, outcome, reason in tx.run(
        "add_ticks", rows=json.dumps(new)
    ):
        if outcome == "SKIPPED":
            facts = {"schedule": schedule_id, "nominal_at": nominal_at, "until": until, "count": count}
            data, actor = json.dumps({**facts, "reason": reason}), actors[schedule_id].text()
            events.append((tenant_id, "tick", number, 1, "schedule.tick.skipped", None, actor, None, data))
    if events:
        tx.run("add_events", rows=json.dumps(events))


def fired(tx: Tx, schedule_id: int, since: int, until: int) -> set[int]:
    found = tx.run("fired_between", schedule_id=schedule_id, since=since, until=until)
    return {nominal for (nominal,) in found}


def check_kept(tx: Tx, schedule: Schedule, since: int) -> None:
    """What fired in a time whose ledger was pruned is not known any more, and would be made again."""
    ((first, pruned),) = tx.run("ledger_begins", schedule_id=schedule.id, tenant_id=schedule.tenant_id)
    if pruned and first is not None and schedule.created_at < first and since < first:
        raise BadInput(
            f"since: the ledger of this schedule begins at {instant_text(first)}: what fired before is not known",
            field="since",
        )


# --- finding ------------------------------------------------------------------------------------------------------


def find(tx: Tx, tenant_id: int, which: int | str) -> Schedule:
    """By number or by name. Deleted ones are gone."""
    if isinstance(which, int):
        found = tx.run("schedule_by_id", id=which, tenant_id=tenant_id)
    else:
        found = tx.run("schedule_by_name", name=which, tenant_id=tenant_id)
    if not found:
        raise _unknown(which, (row[2] for row in _first(tx, tenant_id)))
    return _schedule(found[0])


def _first(tx: Tx, tenant_id: int) -> list[Row]:
    return tx.run("schedules_after", tenant_id=tenant_id, after="", limit=SUGGESTED_FROM)


def _unknown(which: int | str, known: Iterable[str]) -> NotFound:
    near = closest(which, known) if isinstance(which, str) else None
    hint = f": did you mean {near}?" if near else ""
    return NotFound(f"there is no schedule {which!r}{hint}", code="unknown_schedule")


def find_named(tx: Tx, tenant_id: int, name: str) -> Schedule | None:
    found = tx.run("schedule_by_name", name=name, tenant_id=tenant_id)
    return _schedule(found[0]) if found else None


def kept(tx: Tx, tenant_id: int, ids: Collection[int]) -> dict[int, Schedule]:
    """By number, deleted ones too: their executions are still there."""
    found = tx.run("schedules_kept", tenant_id=tenant_id, ids=json.dumps(sorted(ids))) if ids else []
    return {schedule.id: schedule for schedule in map(_schedule, found)}


def lock(tx: Tx, tenant_id: int, which: int | str) -> Schedule:
    schedule = find(tx, tenant_id, which)
    locked = _schedule(tx.run("lock_schedule", id=schedule.id)[0])
    if locked.deleted_at is not None:  # between the two looks
        raise _unknown(which, ())
    return locked


def page(tx: Tx, tenant_id: int, *, after: str = "", limit: int = 50) -> list[Schedule]:
    """In the order of their names, from one on."""
    return [_schedule(row) for row in tx.run("schedules_after", tenant_id=tenant_id, after=after, limit=limit)]


def upcoming(tx: Tx, tenant_id: int, limit: int) -> list[Schedule]:
    """Those whose next tick comes first."""
    return [_schedule(row) for row in tx.run("upcoming_schedules", tenant_id=tenant_id, limit=limit)]


def listed(tx: Tx, tenant_id: int, *, limit: int = 50, cursor: str | None = None) -> Page[Schedule]:
    """A page by name. Names may be too long for a cursor: it has the number of the last one, which is never reused."""
    after = ""
    if cursor is not None:
        number = read_cursor(cursor)
        known = kept(tx, tenant_id, [number])
        if number not in known:
            raise BadInput("cursor is not one that a list gave: begin without it", field="cursor")
        after = known[number].name
    found = page(tx, tenant_id, after=after, limit=check_limit(limit) + 1)
    return Page(found[:limit], make_cursor(found[limit - 1].id) if len(found) > limit else None)


def ledger(tx: Tx, schedule_id: int, *, limit: int = 50, cursor: str | None = None) -> Page[Tick]:
    """The decisions about a schedule, the latest nominal times first."""
    found = tx.run("ticks_before", schedule_id=schedule_id, before=read_cursor(cursor), limit=check_limit(limit) + 1)
    ticks = [Tick(*row) for row in found[:limit]]
    return Page(ticks, make_cursor(ticks[-1].nominal_at) if len(found) > limit else None)


def last_switch(tx: Tx, schedule_id: int) -> tuple[str, Mapping[str, object]]:
    """The event that last enabled or disabled it: its kind and its data."""
    ((kind, data),) = tx.run("last_switch", id=schedule_id)
    return kind, json.loads(data)


def silent(tx: Tx) -> list[Schedule]:
    """Enabled schedules for which no next time is known."""
    return [_schedule(row) for row in tx.run("silent_schedules")]


def speak_again(tx: Tx, schedule: Schedule, next_at: int) -> bool:
    wishes = {"id": schedule.id, "version": schedule.version, "before": schedule.decided_until, "next_at": next_at}
    return bool(tx.run("speak_again", **wishes))


# --- changing -----------------------------------------------------------------------------------------------------


def insert(
    tx: Tx, tenant_id: int, *, name: str, definition: str, enabled: bool, origin: str, now: int, actor: Actor
) -> Schedule:
    """Decided up to now. Its first event, `record`, comes when its first time is set."""
    wishes = {"name": name, "definition": definition, "enabled": int(enabled), "origin": origin, "at": now}
    found = tx.run("add_schedule", tenant_id=tenant_id, actor=actor.text(), **wishes)
    if not found:
        raise BadInput(
            f"name: there is a schedule {name!r} already: edit it, or take another name",
            code="name_taken",
            field="name",
        )
    return _schedule(tx.run("lock_schedule", id=found[0][0])[0])


def set_next(tx: Tx, schedule: Schedule, next_at: int | None) -> Schedule:
    """When its first tick is due: known when its number is, because the jitter comes from it."""
    tx.run("set_next", id=schedule.id, next_at=next_at)
    return replace(schedule, next_at=next_at)


def save(tx: Tx, schedule: Schedule) -> int:
    """What may change, at once; the version says that nothing came in between. The new version."""
    names = ("id", "name", "definition", "enabled", "origin", "decided_until", "next_at", "deleted_at", "version")
    landed = tx.run("save_schedule", **{name: getattr(schedule, name) for name in names})
    assert landed, f"schedule {schedule.id} was changed without its lock"
    return int(landed[0][0])


def record(tx: Tx, schedule: Schedule, kind: str, actor: Actor, *, version: int, reason: str | None = None) -> None:
    """One event of a schedule, with all that it says from now on."""
    facts = {
        "name": schedule.name,
        "definition": json.loads(schedule.definition),
        "enabled": bool(schedule.enabled),
        "origin": schedule.origin,
        "decided_until": schedule.decided_until,
        **({"reason": reason} if reason else {}),
    }
    data = json.dumps(facts, separators=(",", ":"))
    event = (schedule.tenant_id, "schedule", schedule.id, version, f"schedule.{kind}", None, actor.text(), None, data)
    tx.run("add_events", rows=json.dumps([event]))


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
