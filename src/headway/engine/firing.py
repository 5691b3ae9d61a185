"""Firing: what an execution of a schedule runs, and the decisions about its ticks, stored with what they start.

What a schedule runs is worked out before the transaction, from its steps and templates as they are at that moment; the
transaction only goes by it when the schedule is still the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.engine.task import make_job
from headway.engine.templates import in_use
from headway.errors import BadInput, NotFound
from headway.model.job import Actor
from headway.model.plan import NewGroup, NewMember, check_members
from headway.model.schedule import Definition, Schedule, StepWish, stages_of
from headway.model.template import Template
from headway.model.ticks import LIMITED, Decision, TickWish, decide
from headway.store import groups, schedules, templates, tenants
from headway.store.db import Tx
from headway.store.groups import Placed
from headway.store.schedules import Decided, NewTick

if TYPE_CHECKING:
    from headway.engine.client import Client

log = logging.getLogger("headway")
MOST_REASON = 500


# --- what runs ----------------------------------------------------------------------------------------------------


def members_of(
    client: Client, tenant_id: int, definition: Definition, params: Mapping[str, Any] | None = None
) -> tuple[NewMember, ...]:
    """The jobs of one execution. Params of the schedule go to every step that does not set the same name itself; those
    of a template are its defaults."""
    shared = {**definition.params, **(params or {})}
    steps, places = definition.steps, [f"steps[{n}]" for n in range(len(definition.steps))]
    if definition.template is not None:
        steps, places = (StepWish(0, str(definition.template), template=definition.template),), [""]
    found = tuple(
        _member(client, tenant_id, step, stage, shared, place)
        for step, stage, place in zip(steps, stages_of(steps), places, strict=True)
    )
    check_members(found)
    return found


def _member(
    client: Client, tenant_id: int, step: StepWish, stage: int, shared: Mapping[str, Any], place: str
) -> NewMember:
    with at(place):
        if step.task is not None:
            job = make_job(client, step.task, {**shared, **step.params}, step.wishes)
            client.lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
            return NewMember(job, stage, step.name)
        template = _template(client, tenant_id, step.template or "")
        params = {**template.params, **shared, **step.params}
        job = make_job(client, template.task, params, {**template.wishes, **step.wishes})
        client.lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
        return NewMember(job._replace(template_id=template.id), stage, step.name)


def _template(client: Client, tenant_id: int, which: int | str) -> Template:
    try:
        with client.database.read() as tx:
            return in_use(templates.find(tx, tenant_id, which))
    except NotFound as error:
        raise BadInput(str(error), code=error.code, field="template") from error


@contextmanager
def at(place: str) -> Iterator[None]:
    """Says which step, or which job of a list, it is that something is wrong with."""
    try:
        yield
    except BadInput as error:
        if not place:
            raise
        field = f"{place}.{error.field}" if error.field else place
        facts = error.facts
        if "errors" in facts:
            facts = {**facts, "errors": [{**one, "field": f"{place}.{one['field']}"} for one in facts["errors"]]}
        raise BadInput(f"{place}: {error}", code=error.code, field=field, **facts) from error


@dataclass(frozen=True, slots=True)
class Ready:
    """A schedule as it was read, with what it would run now, or why it cannot run."""

    schedule: Schedule
    definition: Definition
    placed: Placed | None
    problem: str | None = None

    @property
    def actor(self) -> Actor:
        return Actor("schedule", str(self.schedule.id), self.schedule.name)

    def execution(self, reason: str, *, nominal_at: int | None = None, after_id: int | None = None) -> Placed:
        assert self.placed is not None
        new = replace(self.placed.new, reason=reason, nominal_at=nominal_at, after_id=after_id)
        return self.placed._replace(new=new)


def place(
    client: Client, schedule: Schedule, definition: Definition, params: Mapping[str, Any] | None = None
) -> Placed:
    """Refused when a step cannot be made of it. Before the transaction: kinds of work come into being on their own."""
    members = members_of(client, schedule.tenant_id, definition, params)
    new = NewGroup(
        schedule.name,
        "staged",
        definition.on_failure,
        members,
        kind="execution",
        schedule_id=schedule.id,
        reason="tick",
    )
    return groups.place(client.lanes, schedule.tenant_id, new)


def ready(client: Client, schedule: Schedule) -> Ready:
    """A step that cannot be made any more does not stop the others: its schedule's ticks are skipped, and say why."""
    definition = schedule.parsed
    try:
        return Ready(schedule, definition, place(client, schedule, definition))
    except BadInput as error:
        log.warning("schedule %s cannot run: %s", schedule.name, error)
        return Ready(schedule, definition, None, str(error)[:MOST_REASON])


# --- deciding and firing ------------------------------------------------------------------------------------------


def fire(tx: Tx, batch: Sequence[Ready], *, now: int, settle: bool = False) -> list[int]:
    """Decides the ticks of locked schedules up to now and starts what fires. The new executions."""
    if not batch:
        return []
    vacancies = tenants.vacancies(tx, {one.schedule.tenant_id for one in batch})  # before groups are locked
    unfinished = _unfinished(tx, batch)
    decisions = [_decide(one, unfinished[one.schedule.id], now, settle, vacancies) for one in batch]
    landed = schedules.decide(tx, [_decided(one, made, now) for one, made in zip(batch, decisions, strict=True)])
    fresh = [(one, made) for one, made in zip(batch, decisions, strict=True) if one.schedule.id in landed]
    started = _start(tx, fresh, unfinished, now)
    ticks = [_row(one, tick, started) for one, made in fresh for tick in made.ticks]
    if ticks:
        schedules.add_ticks(tx, ticks, {one.schedule.id: one.actor for one in batch})
    return list(started.values())


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """The unfinished executions of a schedule; which they are matters, and is known, where new ones may wait."""

    active: bool
    waiting: bool
    ids: tuple[int, ...] = ()


def _unfinished(tx: Tx, batch: Sequence[Ready]) -> dict[int, _Unfinished]:
    """What a new execution may have to wait for is locked, so that it cannot end before the new one is there to be
    begun by its end."""
    stages = schedules.open_stages(tx, [one.schedule.id for one in batch])
    found = {number: _Unfinished(stage is not None, stage == -1) for number, stage in stages.items()}
    patient = [one.schedule.id for one in batch if _may_wait(one.definition) and found[one.schedule.id].active]
    executions = {number: [group.id for group in groups.active(tx, number)] for number in patient}
    locked = groups.lock_all(tx, [one for ids in executions.values() for one in ids]) if patient else {}
    for number, ids in executions.items():
        still = [locked[one] for one in ids if locked[one].finished_at is None]
        waiting = any(group.stage < 0 for group in still)
        found[number] = _Unfinished(bool(still), waiting, tuple(group.id for group in still))
    return found


def _may_wait(definition: Definition) -> bool:
    return definition.overlap in ("queue", "cancel_running") or definition.catch_up == "all"


def _decide(one: Ready, unfinished: _Unfinished, now: int, settle: bool, vacancies: dict[int, int | None]) -> Decision:
    schedule, tenant_id = one.schedule, one.schedule.tenant_id
    made = decide(
        one.definition,
        schedule.anchor,
        schedule_id=schedule.id,
        decided_until=schedule.decided_until,
        now=now,
        active=unfinished.active,
        waiting=unfinished.waiting,
        settle=settle,
        inactive=tenant_id in vacancies and vacancies[tenant_id] is None,
    )
    if one.placed is None:
        made = replace(made, ticks=tuple(_unable(tick, one.problem) for tick in made.ticks))
    elif tenant_id in vacancies:
        made = replace(made, ticks=tuple(_within(tick, one.placed, tenant_id, vacancies) for tick in made.ticks))
    return made


def _within(tick: TickWish, placed: Placed, tenant_id: int, vacancies: dict[int, int | None]) -> TickWish:
    """What is more than its tenant may have waiting does not fire."""
    left, needed = vacancies[tenant_id], len(placed.new.members)
    if tick.outcome != "FIRED" or left is None:
        return tick
    if left < needed:
        return _unable(tick, LIMITED)
    vacancies[tenant_id] = left - needed
    return tick


def _unable(tick: TickWish, problem: str | None) -> TickWish:
    return replace(tick, outcome="SKIPPED", reason=problem) if tick.outcome == "FIRED" else tick


def _decided(one: Ready, made: Decision, now: int) -> Decided:
    schedule = one.schedule
    ran_at = now if any(tick.outcome == "FIRED" for tick in made.ticks) else None
    return Decided(schedule.id, schedule.version, schedule.decided_until, made.until, made.next_at, ran_at)


def _start(
    tx: Tx, decided: Sequence[tuple[Ready, Decision]], unfinished: Mapping[int, _Unfinished], now: int
) -> dict[tuple[int, int], int]:
    """The executions of all that fires: {(schedule, nominal time): execution}. Schedules have nothing to do with each
    other, so the first of each are made together, then the second of each, which may wait for the first."""
    queues = [(one, [tick for tick in made.ticks if tick.outcome == "FIRED"]) for one, made in decided]
    mine = {number: list(found.ids) for number, found in unfinished.items()}
    last = {number: ids[-1] if ids else None for number, ids in mine.items()}
    started: dict[tuple[int, int], int] = {}
    for turn in range(max((len(ticks) for _, ticks in queues), default=0)):
        wave = [(one, ticks[turn]) for one, ticks in queues if len(ticks) > turn]
        for one, tick in wave:
            if tick.cancels:
                last[one.schedule.id] = _cancel(tx, mine[one.schedule.id], one.actor, now)
        made = groups.insert_all(tx, [_wanted(one, tick, last[one.schedule.id]) for one, tick in wave])
        for (one, tick), execution_id in zip(wave, made, strict=True):
            started[one.schedule.id, tick.nominal_at] = last[one.schedule.id] = execution_id
            mine[one.schedule.id].append(execution_id)
    return started


def _wanted(one: Ready, tick: TickWish, last: int | None) -> tuple[int, Placed, Actor]:
    placed = one.execution("tick", nominal_at=tick.nominal_at, after_id=last if tick.waits else None)
    return one.schedule.tenant_id, placed, one.actor


def _row(one: Ready, tick: TickWish, started: Mapping[tuple[int, int], int]) -> NewTick:
    schedule, execution_id = one.schedule, started.get((one.schedule.id, tick.nominal_at))
    span = (schedule.tenant_id, schedule.id, tick.nominal_at, tick.until, tick.count)
    return NewTick(*span, tick.outcome, tick.reason, execution_id)


def _cancel(tx: Tx, ids: Sequence[int], actor: Actor, now: int) -> int | None:
    """Cancels locked executions; the last of them that has not ended at once."""
    for group in groups.lock_all(tx, ids).values():
        if group.finished_at is None and group.cancelled_by is None:
            groups.cancel(tx, group, actor, now=now)
    left = [group.id for group in groups.lock_all(tx, ids).values() if group.finished_at is None]
    return left[-1] if left else None
