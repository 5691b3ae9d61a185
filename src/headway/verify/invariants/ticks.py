"""I-14: each nominal time of a schedule is decided once.

The definition in force decides, with its overlap and catch-up. The nominal times come from `tick_oracle`, which is
independent of the scheduler.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfoNotFoundError

from headway.clock import micros
from headway.verify.history import History
from headway.verify.report import Finding
from headway.verify.rows import Execution, ScheduleEvent, ScheduleRow, Tick, facts
from headway.verify.tick_oracle import Clockwork, clockwork, instant, is_tick

T = TypeVar("T")
NEVER = 2**63 - 1
OVERLAP = "overlap"
OUTSIDE = "outside start and end"
INACTIVE = "tenant inactive"
# The outcome of a missed tick that did not fire, by the catch-up policy.
UNFIRED = {"last": "COALESCED", "none": "MISSED", "all": "MISSED"}


def check(history: History) -> Iterator[Finding]:
    all_events = _Shelf(history.schedule_events(), lambda event: event.schedule_id)
    all_ticks = _Shelf(history.ticks(), lambda tick: tick.schedule_id)
    all_executions = _Shelf(history.executions(), lambda execution: execution.schedule_id)
    known: dict[int, int] = {}
    gone: list[Finding] = []
    inactive = _inactive(history)
    for row in history.schedules():
        executions = _Executions(history, all_executions.of(row.id))
        ledger = _Ledger(history, row, list(all_events.of(row.id)), executions, inactive.get(row.tenant_id, []))
        for text in ledger.read(all_ticks.of(row.id)):
            yield Finding("I-14", f"schedule {row.id}", text)
        known[row.id] = ledger.known_from
        gone += [Finding("I-14", f"schedule {row.id}", text) for text in ledger.gone]
    # Ticks outlive their execution when that is pruned.
    if len(gone) > history.pruned.get("groups", 0):
        yield from gone
    for schedule_id, number, nominal_at, reason in history.tx.run("verify_unticked", settle=history.settle):
        if reason == "backfill":
            yield Finding("I-14", f"execution {number}", f"it backfills {nominal_at}, which had fired before")
        elif nominal_at is None or nominal_at > known.get(schedule_id, 0):
            yield Finding("I-14", f"execution {number}", f"no tick of schedule {schedule_id} at {nominal_at} fired it")


def _inactive(history: History) -> dict[int, list[tuple[int, int]]]:
    """Returns the spans of time in which each tenant was inactive."""
    inactive: dict[int, list[tuple[int, int]]] = {}
    for tenant_id, kind, at in history.tx.run("verify_switches"):
        spans = inactive.setdefault(tenant_id, [])
        if kind == "tenant.deactivated":
            spans.append((at, NEVER))
        elif spans:
            spans[-1] = (spans[-1][0], at)
    return inactive


class _Shelf(Generic[T]):
    """Splits a stream that is ordered by schedule into the items of each schedule."""

    def __init__(self, things: Iterator[T], key: Callable[[T], int]) -> None:
        self.things = things
        self.key = key
        self.next = next(things, None)

    def of(self, number: int) -> Iterator[T]:
        while self.next is not None and self.key(self.next) <= number:
            item, self.next = self.next, next(self.things, None)
            if self.key(item) == number:
                yield item


# --- definitions in force -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reign:
    """A definition in force for the ticks after one instant, up to another.

    Without a clock nothing fires.
    """

    event: ScheduleEvent
    definition: dict[str, Any]
    clock: Clockwork | None
    after: int
    until: int

    @cached_property
    def overlap(self) -> str:
        return str(self.definition.get("overlap", "skip"))

    @cached_property
    def catch_up(self) -> str:
        return str(self.definition.get("catch_up", "last"))

    @cached_property
    def jitter(self) -> int:
        return micros(self.definition.get("jitter", 0))

    @cached_property
    def window(self) -> int:
        return micros(self.definition.get("window", 86_400))

    @cached_property
    def bounds(self) -> tuple[int | None, int | None]:
        start, end = (self.definition.get(name) for name in ("start", "end"))
        return start and instant(start), end and instant(end)

    def outside(self, nominal_at: int) -> bool:
        start, end = self.bounds
        return (start is not None and nominal_at < start) or (end is not None and nominal_at > end)

    def tolerance(self, nominal_at: int, most: int) -> int:
        """Returns how late a tick may be decided and still be on time."""
        following = None if self.clock is None else self.clock.first(nominal_at, nominal_at + 2 * most)
        return most if following is None or self.outside(following) else (following - nominal_at) // 2

    def late(self, tick: Tick, by: int) -> bool:
        """Returns True if the tick was certainly missed by then."""
        late = by - tick.nominal_at - self.jitter
        return late > tick.most_late or (late > 0 and late > self.tolerance(tick.nominal_at, tick.most_late))


def _next(reign: _Reign, after: int, until: int) -> int | None:
    """Returns the first tick in a span, or None.

    Returns None also if the definition was not in force for the whole span.
    """
    inside = reign.clock is not None and reign.after <= after and until <= reign.until
    return reign.clock.first(after, until) if inside and reign.clock is not None else None


def _reigns(row: ScheduleRow, events: list[ScheduleEvent]) -> Iterator[_Reign]:
    stored = [facts(event.data) for event in events]
    ends = [*(int(one.get("decided_until", 0)) for one in stored[1:]), row.decided_until]
    for event, recorded, until in zip(events, stored, ends, strict=True):
        definition = recorded.get("definition") or {}
        live = recorded.get("enabled") and event.kind != "schedule.deleted"
        clock = clockwork(definition, row.created_at) if live else None
        yield _Reign(event, definition, clock, int(recorded.get("decided_until", 0)), until)


# --- the ledger of one schedule -----------------------------------------------------------------------------------


class _Ledger:
    """Checks the decisions of one schedule in the order of their nominal times."""

    def __init__(
        self,
        history: History,
        row: ScheduleRow,
        events: list[ScheduleEvent],
        executions: _Executions,
        inactive: list[tuple[int, int]],
    ) -> None:
        self.history = history
        self.inactive = inactive
        self.row = row
        self.events = events
        self.executions = executions
        self.reigns: list[_Reign] = []
        self.known_from = 0
        self.gone: list[str] = []

    def read(self, ticks: Iterator[Tick]) -> Iterator[str]:
        if not self.events or self.events[0].kind != "schedule.created":
            yield "its history does not begin with its creation"
            return
        try:
            self.reigns = [*_reigns(self.row, self.events)]
        except ZoneInfoNotFoundError:
            return  # this machine does not know the time zone, so nothing can be checked
        except (KeyError, TypeError, ValueError) as error:
            yield f"its definition cannot be read from its events: {error}"
            return
        yield from self._recorded()
        yield from self._rows(ticks)
        yield from self._expected()

    def _recorded(self) -> Iterator[str]:
        """Yields differences between its events and its row, and steps back in time."""
        row, last = self.row, self.events[-1]
        recorded = facts(last.data)
        stored = (
            last.version,
            recorded.get("definition"),
            bool(recorded.get("enabled")),
            last.kind == "schedule.deleted",
        )
        if stored != (row.version, facts(row.definition), bool(row.enabled), row.deleted_at is not None):
            yield f"its events lead to {stored}, its row is at version {row.version} and differs"
        for reign in self.reigns:
            if reign.until < reign.after:
                yield f"{reign.event.where} was decided up to {reign.after}, and later only up to {reign.until}"

    def _rows(self, ticks: Iterator[Tick]) -> Iterator[str]:
        upto, decision = self.reigns[0].after, list[Tick]()
        for tick in ticks:
            self.history.counted["ticks"] += 1
            if not self.known_from:
                self.known_from = tick.nominal_at - 1 if self.history.pruned.get("ticks") else upto
                upto = max(upto, self.known_from)
            reign = self._reign(tick.nominal_at)
            # The usual row is the next tick, which needs no further checks.
            if not (tick.times == 1 and tick.until == tick.nominal_at == _next(reign, upto, tick.nominal_at)):
                if tick.nominal_at <= upto:
                    yield f"{tick.name} is decided twice, or not within its time: all up to {upto} is decided before"
                yield from self._uncovered(upto, tick.nominal_at - 1)
                yield from self._span(tick, reign)
            yield from self._outcome(tick, reign)
            if decision and decision[0].decided_at != tick.decided_at:
                yield from self._caught_up(decision)
                decision = []
            decision.append(tick)
            upto = max(upto, tick.until)
        yield from self._caught_up(decision)
        yield from self._uncovered(upto, self.row.decided_until)

    def _reign(self, nominal_at: int) -> _Reign:
        place = bisect_right(self.reigns, nominal_at - 1, key=lambda reign: reign.after)
        return self.reigns[max(0, place - 1)]

    def _uncovered(self, after: int, until: int) -> Iterator[str]:
        """Yields nominal times in a gap of the ledger."""
        for reign in self.reigns:
            if reign.clock is not None and reign.after < until and after < reign.until:
                span = max(after, reign.after), min(until, reign.until)
                if count := reign.clock.count(*span):
                    first = reign.clock.first(*span)
                    yield f"{count} ticks from {first} on are not decided, though all up to {span[1]} should be"

    def _span(self, tick: Tick, reign: _Reign) -> Iterator[str]:
        if tick.until > reign.until:
            yield f"{tick.name} reaches {tick.until}, but ticks were decided only up to {reign.until}"
        if reign.clock is None:
            yield f"{tick.name}: the schedule was off then ({reign.event.where})"
        elif not (is_tick(reign.clock, tick.nominal_at) and is_tick(reign.clock, tick.until)):
            yield f"{tick.name} is not a time of the schedule, or {tick.until} is not"
        elif reign.clock.count(tick.nominal_at - 1, tick.until) != tick.times:
            count = reign.clock.count(tick.nominal_at - 1, tick.until)
            yield f"{tick.name} stands for {tick.times} ticks until {tick.until}, and there are {count}"

    # --- outcomes ---

    def _outcome(self, tick: Tick, reign: _Reign) -> Iterator[str]:
        if tick.decided_at < tick.until:
            yield f"{tick.name} was decided at {tick.decided_at}, before its time"
        if (tick.reason == OUTSIDE) != (reign.outside(tick.nominal_at) and reign.outside(tick.until)):
            yield f"{tick.name} ({tick.reason}), and start and end are {reign.bounds}"
        if tick.reason == INACTIVE and not self._was_inactive(tick.decided_at, self.history.settle):
            yield f"{tick.name} ({tick.reason}), and its tenant was active at {tick.decided_at}"
        match tick.outcome:
            case "FIRED":
                yield from self._fired(tick)
                yield from self.executions.see(tick, reign)
                if self._was_inactive(tick.decided_at, -1 - self.history.settle):
                    yield f"{tick.name} at {tick.decided_at}, and its tenant was inactive"
            case "SKIPPED":
                if tick.event_id is None:
                    yield f"{tick.name} has no event"
                if tick.reason == OVERLAP and reign.overlap == "allow":
                    yield f"{tick.name} for its overlap, which is allowed"
                elif tick.reason == OVERLAP and not self.executions.may_have_met(tick):
                    yield f"{tick.name} for its overlap, and nothing ran at {tick.decided_at}"
            case missed:
                if tick.event_id is None and tick.id > self.history.untold_ticks:
                    yield f"{tick.name} has no event"
                if missed != UNFIRED.get(reign.catch_up):
                    yield f"{tick.name}, and catch_up is {reign.catch_up}"
                elif tick.decided_at - tick.until <= reign.tolerance(tick.until, tick.most_late):
                    yield f"{tick.name}, and it was decided in time, at {tick.decided_at}"

    def _was_inactive(self, at: int, leeway: int) -> bool:
        """Returns True if its tenant was inactive then.

        The leeway allows for transactions that saw the change later.
        """
        return any(since - leeway <= at <= until + leeway for since, until in self.inactive)

    def _fired(self, tick: Tick) -> Iterator[str]:
        if tick.found is None:
            self.gone.append(f"{tick.name} as execution {tick.execution_id}, which does not exist")
        elif (tick.its_schedule, tick.its_reason, tick.its_nominal) != (self.row.id, "tick", tick.nominal_at):
            its = f"{tick.its_reason} of schedule {tick.its_schedule} at {tick.its_nominal}"
            yield f"{tick.name} as execution {tick.execution_id}, which is a {its}"

    def _caught_up(self, decision: list[Tick]) -> Iterator[str]:
        """Checks the ticks of one decision.

        No more missed ticks may have fired than the catch-up policy allows.
        """
        if not decision:
            return
        by = decision[0].decided_at - self.history.settle
        unfit = (OUTSIDE, INACTIVE)
        late = [(tick, self._reign(tick.nominal_at)) for tick in decision if tick.reason not in unfit]
        late = [(tick, reign) for tick, reign in late if reign.late(tick, by)]
        fired = [(tick, reign) for tick, reign in late if tick.outcome == "FIRED"]
        for tick, reign in fired:
            if reign.catch_up == "none":
                yield f"{tick.name} when it had been missed, at {tick.decided_at}, and catch_up is none"
            elif reign.catch_up == "last" and tick is not late[-1][0]:
                yield f"{tick.name} when it had been missed, and so had later ones, and catch_up is last"
            elif reign.catch_up == "all" and tick.nominal_at <= by - reign.window:
                yield f"{tick.name} at {tick.decided_at}, and the window is {reign.window}"
        yield from self._enough(decision, late, len(fired), by)

    def _enough(self, decision: list[Tick], late: list[tuple[Tick, _Reign]], fired: int, by: int) -> Iterator[str]:
        for tick, reign in late:
            cap = int(reign.definition.get("cap", 10))
            if tick.outcome == "COALESCED" and tick is decision[-1]:
                yield f"{tick.name} until {tick.until}, and no later one stands for them"
            elif reign.catch_up == "all" and tick is late[-1][0] and fired > cap:
                yield f"{fired} missed ticks up to {tick.nominal_at} fired at {tick.decided_at}, and the cap is {cap}"
            elif (
                tick.outcome == "MISSED" and reign.catch_up == "all" and tick.until > by + tick.most_late - reign.window
            ):
                tried = [one for one in decision if one.outcome in ("FIRED", "SKIPPED") and one.reason != OUTSIDE]
                chosen = sum(one.times for one in tried if self._was_late(one))
                if chosen < cap:
                    yield f"{tick.name} until {tick.until}, within the window, and only {chosen} of {cap} fired"

    def _was_late(self, tick: Tick) -> bool:
        return tick.decided_at - tick.nominal_at > self._reign(tick.nominal_at).tolerance(
            tick.nominal_at, tick.most_late
        )

    def _expected(self) -> Iterator[str]:
        """Checks that the row knows when the next tick has to be decided."""
        row, reign = self.row, self.reigns[-1]
        if reign.clock is None:
            return
        upto = self.history.now if row.next_at is None else row.next_at
        start, end = reign.bounds
        after = row.decided_until if start is None else max(row.decided_until, start - 1)
        first = reign.clock.first(after, upto if end is None else min(upto, end))
        if first is not None and (row.next_at is None or row.next_at > first + reign.jitter):
            yield f"its next tick is {first}, but its row decides the next one at {row.next_at}"


# --- its executions -----------------------------------------------------------------------------------------------


class _Executions:
    """The executions of one schedule in order, and those that had not ended."""

    def __init__(self, history: History, executions: Iterator[Execution]) -> None:
        self.history = history
        self.executions = executions
        self.next = next(executions, None)
        self.unfinished: list[Execution] = []
        # The last end of all executions so far: its time, and the id of its event.
        self.last_end = (0, 0)

    def _take(self) -> None:
        one, self.next = self.next, next(self.executions, None)
        if one is not None:
            self.unfinished.append(one)
            end = (NEVER, NEVER) if one.finished_at is None else (one.finished_at, one.ended or NEVER)
            self.last_end = max(self.last_end[0], end[0]), max(self.last_end[1], end[1])

    def may_have_met(self, tick: Tick) -> bool:
        """Returns True if an execution may have been active when a tick was skipped.

        A pruned execution may have been active too.
        """
        event = tick.event_id or NEVER
        while self.next is not None and (self.next.created or 0) < event:
            self._take()
        at, number = self.last_end
        near = number > event or at >= tick.decided_at - self.history.settle
        return near or self.history.pruned.get("groups", 0) > 0

    def see(self, tick: Tick, reign: _Reign) -> Iterator[str]:
        """Checks the execution that a tick fired against those that were active then."""
        this = self._find(tick.execution_id)
        if this is None or this.created is None:
            return
        self.unfinished = [one for one in self.unfinished if one.ended is None or one.ended > this.created]
        others = [one for one in self.unfinished if one is not this and self._met(one, this)]
        if not others or reign.overlap == "allow":
            return
        chained = reign.catch_up == "all" and any(self._was_late(one, reign, tick) for one in (this, *others))
        what = f"{tick.name} as execution {this.id} while {others[0].id} was unfinished"
        if reign.overlap == "skip" and not chained:
            yield f"{what}, and overlap is skip"
        elif not this.waits:
            yield f"{what}, and did not wait for it"
        elif not chained and any(one.waits and (one.begun is None or one.begun > this.created) for one in others):
            yield f"{what}, and one waited already"

    def _find(self, number: int | None) -> Execution | None:
        while self.next is not None and number is not None and self.next.id <= number:
            self._take()
        return next((one for one in self.unfinished if one.id == number), None)

    def _was_late(self, one: Execution, reign: _Reign, tick: Tick) -> bool:
        """Returns True if an execution belongs to a tick that was missed: those behind it join its line."""
        if one.nominal_at is None or one.reason != "tick":
            return False
        return one.created_at - one.nominal_at > reign.tolerance(one.nominal_at, tick.most_late)

    def _met(self, one: Execution, this: Execution) -> bool:
        """Returns True if the tick that fired `this` must have seen `one`.

        A retry is created without reading the schedule, so the tick may not have seen it.
        """
        before = one.created is not None and this.created is not None and one.created < this.created
        return before and (one.reason != "retry" or one.created_at + self.history.settle <= this.created_at)
