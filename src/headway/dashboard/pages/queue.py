"""The queue page: lists, moves and pauses jobs.

Acts on all jobs that match a filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from headway.api.endpoints.queue import pause_end
from headway.api.http.problems import status_of
from headway.dashboard.expected_durations import overdue
from headway.dashboard.flash import FlashMessage
from headway.dashboard.page import Form, PageRequest, Pages
from headway.dashboard.state_styles import IN_LINE, IN_LINE_MEANS
from headway.dashboard.time_format import written
from headway.engine.client import bulk
from headway.engine.client.client import KNOWN_FOR
from headway.engine.client.limits import lives
from headway.errors import HeadwayError
from headway.model.access.permissions import check_everybody
from headway.model.explain.blockers import on_page
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.model.schedules.schedule import Schedule
from headway.model.values.names import whole
from headway.store.access import tenants
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.paging import count_jobs
from headway.store.queue import lanes, queue_views, targets
from headway.store.queue.queue_views import WaitingJob
from headway.store.schedules import schedules
from headway.text import bulk as text_bulk
from headway.text.params import excerpt

pages = Pages("queue")
SIZE = 50
UNFINISHED = IN_LINE | {State.RUNNING, State.PAUSED, State.ERROR}
FIELDS = ("q", "task", "target", "group", "schedule")
# Number of jobs that one request acts on, each in its own transaction; number of names in a list of choices.
SLICE, CHOICE = 500, 200


@dataclass(frozen=True, slots=True)
class FilledFilter:
    """A filter as filled in and as parsed.

    Without a status it selects the waiting jobs.
    """

    fields: Mapping[str, str]
    filters: JobFilter

    @property
    def narrow(self) -> bool:
        """True if the filter restricts more than the state."""
        return any(self.fields.values())

    @property
    def statuses(self) -> frozenset[State]:
        return self.filters.statuses or IN_LINE

    @property
    def ordered(self) -> bool:
        """True if all selected jobs have a place in the queue."""
        return self.statuses <= IN_LINE

    @property
    def everything(self) -> JobFilter:
        """The filters with their states, including the default ones."""
        return replace(self.filters, statuses=self.statuses)


def read(form: Form) -> FilledFilter:
    fields = {name: form.get(name) for name in FIELDS}
    return FilledFilter(
        fields,
        JobFilter.from_query(
            {
                **{name: fields[name] or None for name in ("task", "q", "target")},
                "status": [form.get("status")] if form.get("status") else None,
                "group_id": _number(fields, "group"),
                "schedule_id": _number(fields, "schedule"),
            }
        ),
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields[name]
    return whole(text, field=name, least=1) if text else None


# --- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A page of jobs with their blockers, and the count of each state.

    `complete` if all were counted.
    """

    items: list[WaitingJob]
    next: str | None
    counts: Mapping[State, int]
    complete: bool


@pages.get("/queue")
def show(page: PageRequest) -> Response:
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
        offers=text_bulk.offers(chosen) if found.complete else [],
        matching=sum(chosen.values()),
        pauses=pauses,
        shared=shared,
        choice=choice,
        overdue=late,
        problem=None,
        **_WORDS,
    )


def _mistaken(page: PageRequest, error: HeadwayError) -> Response:
    """Shows the form with its values and the error."""
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
    empty = {"asked": FilledFilter(fields, JobFilter()), "found": Found([], None, {}, False)}
    status = status_of(error)
    return page.render("queue.html", status=status, **empty, **facts, overdue={}, problem=error, **_WORDS)


@dataclass(frozen=True, slots=True)
class Choice:
    """The first choices for the fields of the filter."""

    tasks: Sequence[str] = ()
    targets: Sequence[str] = ()
    schedules: Sequence[Schedule] = ()


def _choice(tx: Tx, page: PageRequest) -> Choice:
    known = {task.name for task in job_views.seen_tasks(tx, within=KNOWN_FOR)} | set(page.client.registry.specs)
    return Choice(
        sorted(known)[:CHOICE],
        targets.known(tx, page.tenant_id, CHOICE),
        schedules.page(tx, page.tenant_id, limit=CHOICE),
    )


def _found(tx: Tx, page: PageRequest, asked: FilledFilter) -> Found:
    cursor, tenant_id = page.asked.given("cursor"), page.tenant_id
    narrow = asked.narrow or bool(asked.filters.statuses)
    counts, complete = _counts(tx, page, asked)
    if not asked.ordered:
        listed = job_views.list_jobs(tx, tenant_id, asked.everything, SIZE, cursor)
        return Found([WaitingJob(view, []) for view in listed.items], listed.next, counts, complete)
    filters = asked.everything if narrow else None
    line = queue_views.queue_page(tx, tenant_id, SIZE, cursor, lives=lives, filters=filters, foresee=True)
    return Found(line.items, line.next, counts, complete)


def _counts(tx: Tx, page: PageRequest, asked: FilledFilter) -> tuple[Mapping[State, int], bool]:
    """Counts the jobs that match the filter, by state.

    Ended states are counted only if asked for.
    """
    ended = asked.statuses - UNFINISHED
    if asked.narrow or ended:
        return count_jobs(tx, page.tenant_id, replace(asked.filters, statuses=UNFINISHED | ended))
    counts = job_views.counts(tx, page.tenant_id, since=page.now)
    return {State[name]: count for name, count in counts.by_status.items()}, not counts.at_least


def _note(view: JobView) -> str:
    """Returns the first line of the error or reason of a job that is not in line."""
    error = view.run.error if view.run is not None and view.job.status is not State.COMPLETED else None
    return (error or view.job.reason or "").strip().partition("\n")[0]


_WORDS: dict[str, Any] = {"sentence": on_page, "note": _note, "excerpt": excerpt, "in_line_means": IN_LINE_MEANS}


# --- acting -------------------------------------------------------------------------------------------------------


@pages.post("/queue/act")
def act(page: PageRequest) -> Response:
    """Acts on all matching jobs if their number is as expected, a slice per request.

    The flash message then has a form that continues with the rest.
    """
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
    text = text_bulk.outcome_text(action, len(done.changed), refused, done.left)
    if not done.left:
        return page.done(text)
    rest = {"action": action, "expected": done.left, "before": done.last, "status": page.form.get("status")}
    return page.back(FlashMessage(text, "more", ("/queue/act", {**rest, **asked.fields})))


@pages.post("/queue/pause")
def pause(page: PageRequest) -> Response:
    everybody, until = _everybody(page), pause_end(page.now, page.form.given("for"))
    page.client.pause_queue(note=page.form.given("note"), until=until, everybody=everybody)
    what = "Every queue is paused" if everybody else "The queue is paused"
    ends = "" if until is None else f" until {written(until, page.preferences.zone)}"
    return page.done(
        f"{what}{ends}. Running jobs continue.", undo=("/queue/resume", {"everybody": "1"} if everybody else {})
    )


@pages.post("/queue/resume")
def resume(page: PageRequest) -> Response:
    everybody = _everybody(page)
    page.client.resume_queue(everybody=everybody)
    return page.done("Every queue is resumed." if everybody else "The queue is resumed.")


def _everybody(page: PageRequest) -> bool:
    requested = bool(page.form.get("everybody"))
    check_everybody(page.visitor, requested)
    return requested


@pages.post("/reservations/{reservation_id:int}/release")
def release(page: PageRequest, reservation_id: int) -> Response:
    """Releases the reservation of an outside program."""
    given = page.client.release_reservation(reservation_id)
    return page.done(f"Reservation {given.id} of {given.holder} was released.")
