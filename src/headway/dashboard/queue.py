"""The queue: what waits, in claim order, for reading, moving and pausing; and acting on all jobs that fit a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from headway.api.problems import status_of
from headway.api.queue import pause_end
from headway.dashboard.expected import overdue
from headway.dashboard.pages import Form, Page, Pages
from headway.dashboard.said import Said
from headway.dashboard.times import written
from headway.dashboard.words import IN_LINE, IN_LINE_MEANS
from headway.engine import bulk
from headway.engine.client import KNOWN_FOR
from headway.engine.limits import lives
from headway.errors import HeadwayError
from headway.model import many, words
from headway.model.access import check_everybody
from headway.model.excerpt import excerpt
from headway.model.schedule import Schedule
from headway.model.states import State
from headway.model.values import check_name, whole
from headway.model.waiting import on_page
from headway.store import lanes, queue_reading, reading, schedules, targets, tenants
from headway.store.db import Tx
from headway.store.pages import Filters, count_jobs
from headway.store.queue_reading import Waiting
from headway.store.reading import JobView

pages = Pages("queue")
SIZE = 50
UNFINISHED = IN_LINE | {State.RUNNING, State.PAUSED, State.ERROR}
FIELDS = ("q", "task", "target", "group", "schedule")
# So many jobs are acted on by one request, each in a transaction of its own; so many names are there to choose from.
SLICE, CHOICE = 500, 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A filter as it was filled in, and as it is meant. Without a status it is about what waits."""

    fields: Mapping[str, str]
    filters: Filters

    @property
    def narrow(self) -> bool:
        """Whether only some of the jobs in a state are wanted."""
        return any(self.fields.values())

    @property
    def statuses(self) -> frozenset[State]:
        return self.filters.statuses or IN_LINE

    @property
    def ordered(self) -> bool:
        """Whether all that is asked for has a place in the queue."""
        return self.statuses <= IN_LINE

    @property
    def everything(self) -> Filters:
        """With its states, also those that go without saying."""
        return replace(self.filters, statuses=self.statuses)


def read(form: Form) -> Asked:
    fields = {name: form.get(name) for name in FIELDS}
    return Asked(
        fields,
        Filters(
            statuses=words.states([form.get("status")]) if form.get("status") else frozenset(),
            task=fields["task"] or None,
            q=fields["q"] or None,
            target=check_name(fields["target"], field="target") if fields["target"] else None,
            group_id=_number(fields, "group"),
            schedule_id=_number(fields, "schedule"),
        ),
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields[name]
    return whole(text, field=name, least=1) if text else None


# --- looking ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A page of jobs with what is in their way, and how many there are in each state. `complete`: all were counted."""

    items: list[Waiting]
    next: str | None
    counts: Mapping[State, int]
    complete: bool


@pages.get("/queue")
def show(page: Page) -> Response:
    try:
        asked = read(page.asked)
        with page.look() as tx:
            found = _found(tx, page, asked)
            late = overdue(tx, page.tenant_id, found.items, page.now)
            pauses = lanes.pauses(tx, page.tenant_id)
            shared, choice = tenants.several(tx), _choice(tx, page)
    except HeadwayError as error:
        return _mistaken(page, error)
    chosen = {state: found.counts.get(state, 0) for state in asked.statuses}
    return page.render(
        "queue.html",
        asked=asked,
        found=found,
        chips=[(state, found.counts.get(state, 0)) for state in sorted(UNFINISHED)],
        ended=[State.FAILED],
        in_line=sum(found.counts.get(state, 0) for state in IN_LINE),
        offers=many.offers(chosen) if found.complete else [],
        matching=sum(chosen.values()),
        pauses=pauses,
        shared=shared,
        choice=choice,
        overdue=late,
        problem=None,
        **_WORDS,
    )


def _mistaken(page: Page, error: HeadwayError) -> Response:
    """What was filled in stays, with what is wrong about it."""
    fields = {name: page.asked.get(name) for name in FIELDS}
    facts = {
        "chips": [],
        "ended": [],
        "in_line": 0,
        "offers": [],
        "matching": 0,
        "pauses": (None, None),
        "shared": False,
        "choice": Choice(),
    }
    empty = {"asked": Asked(fields, Filters()), "found": Found([], None, {}, False)}
    status = status_of(error)
    return page.render("queue.html", status=status, **empty, **facts, overdue={}, problem=error, **_WORDS)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the fields of the filter may be filled in with; the first so many of each."""

    tasks: Sequence[str] = ()
    targets: Sequence[str] = ()
    schedules: Sequence[Schedule] = ()


def _choice(tx: Tx, page: Page) -> Choice:
    known = {one.name for one in reading.seen_tasks(tx, within=KNOWN_FOR)} | set(page.client.registry.specs)
    return Choice(
        sorted(known)[:CHOICE],
        targets.known(tx, page.tenant_id, CHOICE),
        schedules.page(tx, page.tenant_id, limit=CHOICE),
    )


def _found(tx: Tx, page: Page, asked: Asked) -> Found:
    cursor, tenant_id = page.asked.given("cursor"), page.tenant_id
    narrow = asked.narrow or bool(asked.filters.statuses)
    counts, complete = _counts(tx, page, asked)
    if not asked.ordered:
        listed = reading.list_jobs(tx, tenant_id, asked.everything, SIZE, cursor)
        return Found([Waiting(one, []) for one in listed.items], listed.next, counts, complete)
    filters = asked.everything if narrow else None
    line = queue_reading.queue_page(tx, tenant_id, SIZE, cursor, lives=lives, filters=filters, foresee=True)
    return Found(line.items, line.next, counts, complete)


def _counts(tx: Tx, page: Page, asked: Asked) -> tuple[Mapping[State, int], bool]:
    """By state, of all that fits but for its state. Ended jobs are counted if they are what is asked for."""
    ended = asked.statuses - UNFINISHED
    if asked.narrow or ended:
        return count_jobs(tx, page.tenant_id, replace(asked.filters, statuses=UNFINISHED | ended))
    counts = reading.counts(tx, page.tenant_id, since=page.now)
    return {State[name]: count for name, count in counts.by_status.items()}, not counts.at_least


def _note(view: JobView) -> str:
    """The one thing worth saying about a job that is not in line."""
    error = view.run.error if view.run is not None and view.job.status is not State.COMPLETED else None
    return (error or view.job.reason or "").strip().partition("\n")[0]


_WORDS: dict[str, Any] = {"sentence": on_page, "note": _note, "excerpt": excerpt, "in_line_means": IN_LINE_MEANS}


# --- acting -------------------------------------------------------------------------------------------------------


@pages.post("/queue/act")
def act(page: Page) -> Response:
    """On everything that fits, if it is as much as was said: on the first of it, and on the rest when asked again."""
    action, asked, before = page.form.get("action"), read(page.form), page.form.given("before")
    done = bulk.act(
        page.client,
        asked.everything,
        action,
        expected=whole(page.form.get("expected"), field="expected"),
        most=SLICE,
        before=None if before is None else whole(before, field="before"),
    )
    refused = [(job_id, str(error)) for job_id, error in done.refused]
    text = many.told(action, len(done.changed), refused, done.left)
    if not done.left:
        return page.done(text)
    rest = {"action": action, "expected": done.left, "before": done.last, "status": page.form.get("status")}
    return page.back(Said(text, "more", ("/queue/act", {**rest, **asked.fields})))


@pages.post("/queue/pause")
def pause(page: Page) -> Response:
    everybody, until = _everybody(page), pause_end(page.now, page.form.given("for"))
    page.client.pause_queue(note=page.form.given("note"), until=until, everybody=everybody)
    what = "Every queue is paused" if everybody else "The queue is paused"
    ends = "" if until is None else f" until {written(until, page.taste.zone)}"
    return page.done(
        f"{what}{ends}. What runs goes on.", undo=("/queue/resume", {"everybody": "1"} if everybody else {})
    )


@pages.post("/queue/resume")
def resume(page: Page) -> Response:
    everybody = _everybody(page)
    page.client.resume_queue(everybody=everybody)
    return page.done("Every queue goes on." if everybody else "The queue goes on.")


def _everybody(page: Page) -> bool:
    wished = bool(page.form.get("everybody"))
    check_everybody(page.visitor, wished)
    return wished


@pages.post("/reservations/{reservation_id:int}/release")
def release(page: Page, reservation_id: int) -> Response:
    """Takes back what a program outside holds."""
    given = page.client.release_reservation(reservation_id)
    return page.done(f"Reservation {given.id} of {given.holder} was given back.")
