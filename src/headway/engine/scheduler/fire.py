"""Fires schedules: prepares the jobs of an execution, decides ticks, stores both.

The jobs are prepared before the transaction, from steps and templates as they are then; the transaction uses them only
if the schedule has not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.engine.client.authority import check_plan, of_author, of_caller
from headway.engine.client.templates import in_use
from headway.engine.tasks.task import make_job
from headway.errors import BadInput, NotFound, Refused
from headway.model.access.authority import Authority, check_new_params
from headway.model.groups.group import Group, NewGroup, NewMember, check_members
from headway.model.jobs.job import Actor
from headway.model.schedules.definition import Definition, RequestedStep, stages_of, steps_of
from headway.model.schedules.schedule import Schedule
from headway.model.schedules.ticks import LIMITED, TOLERANCE, Decision, PlannedTick, decide, was_late
from headway.model.templates import Template
from headway.store import templates
from headway.store.access import tenants
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.groups import create as new_groups
from headway.store.groups.create import Placed
from headway.store.schedules import schedules
from headway.store.schedules.schedules import Decided, NewTick

if TYPE_CHECKING:
    from headway.engine.client.client import Client

log = logging.getLogger("headway")
MOST_REASON = 500


# --- the jobs of an execution -------------------------------------------------------------------------------------


def members_of(
    client: Client, schedule: Schedule, definition: Definition, params: Mapping[str, Any] | None = None
) -> tuple[NewMember, ...]:
    """Returns the jobs of one execution.

    Params of the schedule go to every step that does not set the same name itself; params of a template are defaults.
    So is `on_shutdown`.
    A template that the definition names is the one that had this name when the schedule was saved.
    """
    shared = {**definition.params, **(params or {})}
    options = {} if definition.on_shutdown is None else {"on_shutdown": definition.on_shutdown}
    steps = steps_of(definition)
    places = [""] if definition.template is not None else [f"steps[{n}]" for n in range(len(steps))]
    found = tuple(
        _member(client, schedule, step, stage, shared, options, place)
        for step, stage, place in zip(steps, stages_of(steps), places, strict=True)
    )
    check_members(found)
    return found


def _member(
    client: Client,
    schedule: Schedule,
    step: RequestedStep,
    stage: int,
    shared: Mapping[str, Any],
    options: Mapping[str, Any],
    place: str,
) -> NewMember:
    tenant_id = schedule.tenant_id
    with at(place):
        if step.task is not None:
            job = make_job(client, step.task, {**shared, **step.params}, {**options, **step.options})
            client.lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
            return NewMember(job, stage, step.name)
        template = _template(client, schedule, step.template or "")
        params = {**template.params, **shared, **step.params}
        job = make_job(client, template.task, params, {**template.options, **options, **step.options})
        client.lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
        return NewMember(job._replace(template_id=template.id), stage, step.name)


def _template(client: Client, schedule: Schedule, which: int | str) -> Template:
    try:
        with client.database.read() as tx:
            return in_use(templates.find(tx, schedule.tenant_id, _bound(schedule, which)))
    except NotFound as error:
        raise BadInput(error.problem, hint=error.hint, code=error.code, field="template") from error


def _bound(schedule: Schedule, which: int | str) -> int | str:
    """Returns the template that had this name when the schedule was saved."""
    if isinstance(which, int) or which in schedule.bound:
        return schedule.bound[which] if isinstance(which, str) else which
    if schedule.id:
        text = f"template {which!r} did not exist when the schedule was saved: save the schedule again"
        raise BadInput(text, code="unknown_template", field="template")
    return which  # a definition that is being saved: the lookup says what is missing


@contextmanager
def at(place: str) -> Iterator[None]:
    """Adds the place, a step or an item of a list, to a BadInput raised inside."""
    try:
        yield
    except BadInput as error:
        if not place:
            raise
        field = f"{place}.{error.field}" if error.field else place
        facts = error.facts
        if "errors" in facts:
            facts = {**facts, "errors": [{**item, "field": f"{place}.{item['field']}"} for item in facts["errors"]]}
        raise BadInput(f"{place}: {error}", code=error.code, field=field, **facts) from error


@dataclass(frozen=True, slots=True)
class Ready:
    """A schedule as it was read, with its prepared jobs or the reason it cannot run.

    `tolerance` is how late its ticks may be and still be on time, as the settings of this process say.
    """

    schedule: Schedule
    definition: Definition
    placed: Placed | None
    problem: str | None = None
    tolerance: int = TOLERANCE

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
    """Prepares an execution; refuses a definition that cannot run.

    It runs before the transaction, because buckets are created in transactions of their own. A stored schedule is
    checked against its author, a new definition and params for one run against the caller.
    """
    members = members_of(client, schedule, definition, params)
    if params and client.visitor is not None:
        check_new_params(of_caller(client), sorted({member.job.task for member in members}))
    if params or not schedule.id:  # given now, by a caller of this tenant
        check = client.check_secrets if schedule.id else client.check_stored
        for number, member in enumerate(members):
            with at(f"steps[{number}]" if definition.template is None else ""):
                check(member.job.task, [member.job.params])
    check_plan(client, schedule.tenant_id, lambda: _author(client, schedule), definition.on_failure, members)
    new = NewGroup(
        schedule.name,
        "staged",
        definition.on_failure,
        members,
        kind="execution",
        schedule_id=schedule.id,
        reason="tick",
    )
    return new_groups.place(client.lanes, schedule.tenant_id, new)


def _author(client: Client, schedule: Schedule) -> Authority:
    return of_author(client, schedule.tenant_id, schedule.author) if schedule.id else of_caller(client)


def ready(client: Client, schedule: Schedule) -> Ready:
    """Returns the schedule with its prepared execution.

    A step that cannot be prepared does not stop other schedules: the ticks of its schedule are skipped with that
    reason.
    """
    definition = schedule.parsed
    try:
        return Ready(schedule, definition, place(client, schedule, definition), tolerance=client.tick_tolerance)
    except (BadInput, Refused) as error:
        log.warning("schedule %s cannot run: %s", schedule.name, error)
        return Ready(schedule, definition, None, str(error)[:MOST_REASON], client.tick_tolerance)


# --- deciding and firing ------------------------------------------------------------------------------------------


def fire(tx: Tx, batch: Sequence[Ready], *, now: int, settle: bool = False) -> list[NewTick]:
    """Decides the ticks of locked schedules up to now. Returns the decisions, as they were written to the ledger."""
    if not batch:
        return []
    vacancies = tenants.vacancies(tx, {prepared.schedule.tenant_id for prepared in batch})  # before groups are locked
    unfinished = _unfinished(tx, batch)
    decisions = [_decide(prepared, unfinished[prepared.schedule.id], now, settle, vacancies) for prepared in batch]
    landed = schedules.decide(
        tx, [_decided(prepared, made, now) for prepared, made in zip(batch, decisions, strict=True)]
    )
    fresh = [
        (prepared, made) for prepared, made in zip(batch, decisions, strict=True) if prepared.schedule.id in landed
    ]
    started = _start(tx, fresh, unfinished, now)
    ticks = [_row(prepared, tick, started) for prepared, made in fresh for tick in made.ticks]
    if ticks:
        schedules.add_ticks(tx, ticks, {prepared.schedule.id: prepared.actor for prepared in batch})
    return ticks


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """The unfinished executions of a schedule.

    `ids` and `caught_up` are filled only where a new execution may have to wait for them; `caught_up` means that one of
    them belongs to a tick that was late.
    """

    active: bool
    waiting: bool
    ids: tuple[int, ...] = ()
    caught_up: bool = False


def _unfinished(tx: Tx, batch: Sequence[Ready]) -> dict[int, _Unfinished]:
    """Finds unfinished executions, and locks those that a new one may wait for.

    The end of the old execution starts the new one, so it must not end before the new one is stored.
    """
    stages = schedules.open_stages(tx, [prepared.schedule.id for prepared in batch])
    found = {number: _Unfinished(stage is not None, stage == -1) for number, stage in stages.items()}
    patient = [
        prepared.schedule.id
        for prepared in batch
        if _may_wait(prepared.definition) and found[prepared.schedule.id].active
    ]
    by_id = {prepared.schedule.id: prepared for prepared in batch}
    executions = {number: [group.id for group in groups.active(tx, number)] for number in patient}
    locked = groups.lock_all(tx, [group_id for ids in executions.values() for group_id in ids]) if patient else {}
    for number, ids in executions.items():
        still = [locked[group_id] for group_id in ids if locked[group_id].finished_at is None]
        waiting = any(group.stage < 0 for group in still)
        caught_up = any(_caught_up(group, by_id[number]) for group in still)
        found[number] = _Unfinished(bool(still), waiting, tuple(group.id for group in still), caught_up)
    return found


def _caught_up(group: Group, prepared: Ready) -> bool:
    """Returns True if an execution belongs to a tick that was late when it fired."""
    if group.reason != "tick" or group.nominal_at is None:
        return False
    anchor = prepared.schedule.anchor
    return was_late(prepared.definition, anchor, group.nominal_at, group.created_at, prepared.tolerance)


def _may_wait(definition: Definition) -> bool:
    return definition.overlap in ("queue", "cancel_running") or definition.catch_up == "all"


def _decide(
    prepared: Ready, unfinished: _Unfinished, now: int, settle: bool, vacancies: dict[int, int | None]
) -> Decision:
    schedule, tenant_id = prepared.schedule, prepared.schedule.tenant_id
    made = decide(
        prepared.definition,
        schedule.anchor,
        schedule_id=schedule.id,
        decided_until=schedule.decided_until,
        now=now,
        active=unfinished.active,
        waiting=unfinished.waiting,
        line=len(unfinished.ids) if unfinished.caught_up else 0,
        settle=settle,
        inactive=tenant_id in vacancies and vacancies[tenant_id] is None,
        most=prepared.tolerance,
    )
    if prepared.placed is None:
        made = replace(made, ticks=tuple(_unable(tick, prepared.problem) for tick in made.ticks))
    elif tenant_id in vacancies:
        made = replace(made, ticks=tuple(_within(tick, prepared.placed, tenant_id, vacancies) for tick in made.ticks))
    return made


def _within(tick: PlannedTick, placed: Placed, tenant_id: int, vacancies: dict[int, int | None]) -> PlannedTick:
    """Skips a tick that would exceed the tenant's max_queued."""
    left, needed = vacancies[tenant_id], len(placed.new.members)
    if tick.outcome != "FIRED" or left is None:
        return tick
    if left < needed:
        return _unable(tick, LIMITED)
    vacancies[tenant_id] = left - needed
    return tick


def _unable(tick: PlannedTick, problem: str | None) -> PlannedTick:
    return replace(tick, outcome="SKIPPED", reason=problem) if tick.outcome == "FIRED" else tick


def _decided(prepared: Ready, made: Decision, now: int) -> Decided:
    schedule = prepared.schedule
    ran_at = now if any(tick.outcome == "FIRED" for tick in made.ticks) else None
    return Decided(schedule.id, schedule.version, schedule.decided_until, made.until, made.next_at, ran_at)


def _start(
    tx: Tx, decided: Sequence[tuple[Ready, Decision]], unfinished: Mapping[int, _Unfinished], now: int
) -> dict[tuple[int, int], int]:
    """Starts the fired executions. Returns {(schedule, nominal time): execution}.

    Schedules are independent of each other, so the first executions of all are inserted together, then the second ones,
    which may wait for the first.
    """
    queues = [(prepared, [tick for tick in made.ticks if tick.outcome == "FIRED"]) for prepared, made in decided]
    mine = {number: list(found.ids) for number, found in unfinished.items()}
    last = {number: ids[-1] if ids else None for number, ids in mine.items()}
    started: dict[tuple[int, int], int] = {}
    for turn in range(max((len(ticks) for _, ticks in queues), default=0)):
        wave = [(prepared, ticks[turn]) for prepared, ticks in queues if len(ticks) > turn]
        for prepared, tick in wave:
            if tick.cancels:
                last[prepared.schedule.id] = _cancel(tx, mine[prepared.schedule.id], prepared.actor, now)
        made = new_groups.insert_all(
            tx, [_wanted(prepared, tick, last[prepared.schedule.id]) for prepared, tick in wave]
        )
        for (prepared, tick), execution_id in zip(wave, made, strict=True):
            started[prepared.schedule.id, tick.nominal_at] = last[prepared.schedule.id] = execution_id
            mine[prepared.schedule.id].append(execution_id)
    return started


def _wanted(prepared: Ready, tick: PlannedTick, last: int | None) -> tuple[int, Placed, Actor]:
    placed = prepared.execution("tick", nominal_at=tick.nominal_at, after_id=last if tick.waits else None)
    return prepared.schedule.tenant_id, placed, prepared.actor


def _row(prepared: Ready, tick: PlannedTick, started: Mapping[tuple[int, int], int]) -> NewTick:
    schedule, execution_id = prepared.schedule, started.get((prepared.schedule.id, tick.nominal_at))
    span = (schedule.tenant_id, schedule.id, tick.nominal_at, tick.until, tick.count)
    tolerance = None if prepared.tolerance == TOLERANCE else prepared.tolerance
    return NewTick(*span, tick.outcome, tick.reason, execution_id, tolerance)


def _cancel(tx: Tx, ids: Sequence[int], actor: Actor, now: int) -> int | None:
    """Cancels locked executions. Returns the last one that is still unfinished."""
    for group in groups.lock_all(tx, ids).values():
        if group.finished_at is None and group.cancelled_by is None:
            groups.cancel(tx, group, actor, now=now)
    left = [group.id for group in groups.lock_all(tx, ids).values() if group.finished_at is None]
    return left[-1] if left else None
