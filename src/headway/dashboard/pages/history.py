"""The history of runs: search, durations, and errors grouped by similarity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from headway import errors
from headway.dashboard import state_styles
from headway.dashboard.charts.scatter import Dot, in_words, scatter
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.pages.history_search import KINDS, PERIODS, STATUSES, Search, search, within
from headway.dashboard.time_format import clock_zone, written
from headway.engine.client.client import KNOWN_FOR
from headway.model.jobs.failure_groups import alike
from headway.model.jobs.states import State
from headway.store.jobs import history
from headway.store.jobs import views as job_views
from headway.store.jobs.history import FAILURES, Record
from headway.store.schedules import schedules

pages = Pages("history")
LISTED = 50
DRAWN = 200
OFFERED = 200


@pages.get("/history")
def show(page: PageRequest) -> Response:
    """Shows a page of runs; the picture has more runs than the table."""
    asked = search(page.asked, page.preferences)
    try:
        found, listed, more = _found(page, asked)
        problem = None
    except (errors.BadInput, errors.NotFound) as error:
        found, listed, more, problem = [], 0, None, error
    with page.read() as tx:
        offered = schedules.page(tx, page.tenant_id, limit=OFFERED)
        tasks = sorted(task.name for task in job_views.seen_tasks(tx, within=KNOWN_FOR))
    return page.render(
        "history.html",
        status=200 if problem is None else 422,
        search=asked,
        found=found[:listed],
        more=more,
        picture=_picture(page, found, asked.zone),
        problem=problem,
        field=_field(problem),
        schedules=[schedule.name for schedule in offered],
        tasks=tasks,
        statuses=STATUSES,
        kinds=KINDS,
        periods=PERIODS,
        took=_took,
    )


def _found(page: PageRequest, asked: Search) -> tuple[list[Record], int, str | None]:
    """Returns the runs, how many of them the table lists, and the cursor of the next page."""
    filters, cursor = asked.filters(page.now, partial(_schedule, page)), page.asked.get("cursor") or None
    with page.read() as tx:
        found = history.list_records(tx, page.tenant_id, filters, LISTED, cursor)
        drawn = [*found.items]
        if len(drawn) == LISTED and found.next is not None:
            drawn += history.list_records(tx, page.tenant_id, filters, DRAWN - LISTED, found.next).items
    return drawn, len(found.items), found.next


def _schedule(page: PageRequest, name: str) -> int:
    try:
        return page.client.schedules.get(name).id
    except errors.NotFound as error:
        raise errors.BadInput(str(error), field="schedule") from None


def _field(problem: errors.HeadwayError | None) -> str:
    """Returns the form field of a problem; only a target can be not found."""
    if problem is None:
        return ""
    return "target" if isinstance(problem, errors.NotFound) else problem.field or ""


def _took(record: Record) -> str:
    return in_words(record.ran / 1e6)


def _picture(page: PageRequest, found: Sequence[Record], zone: str) -> Markup | None:
    """Draws the ended runs; None for fewer than two."""
    dots = [_dot(page, record, zone) for record in found if record.finished_at is not None]
    return scatter(dots, zone=zone) if len(dots) > 1 else None


def _dot(page: PageRequest, record: Record, zone: str) -> Dot:
    facts = [
        f"#{record.job_id} {record.task}",
        f"{record.status.name.lower()} after {_took(record)}",
        written(record.started_at, zone),
    ]
    if record.status is State.FAILED and record.headline:
        facts.append(record.headline[:120])
    return Dot(
        key=f"run-{record.job_id}",
        href=page.address(f"/jobs/{record.job_id}"),
        title=" · ".join(facts),
        at=record.started_at,
        seconds=record.ran / 1e6,
        outcome=record.status.name.lower(),
        tone=state_styles.tone(record.status),
    )


# --- errors -------------------------------------------------------------------------------------------------------


@pages.get("/history/errors")
def show_errors(page: PageRequest) -> Response:
    """Shows the latest failures in groups of similar errors, or the group `key`."""
    task, (since, until) = (
        page.asked.get("task"),
        within(page.asked.get("within"), page.now, clock_zone(page.preferences)),
    )
    with page.read() as tx:
        latest, complete = history.latest_failures(tx, page.tenant_id)
    wanted = [failure for failure in latest if task in ("", failure.task) and _between(failure.at, since, until)]
    groups = alike(wanted)
    one = next((group for group in groups if group.key == page.asked.get("key")), None)
    begin = _begin(page.asked.get("cursor"))
    listed = groups if one is None else one.failures
    facts: dict[str, Any] = {
        "looked_at": len(latest),
        "all_of_them": complete,
        "begin": begin,
        "more": str(begin + LISTED) if len(listed) > begin + LISTED else None,
        "periods": PERIODS,
    }
    if one is not None:
        return page.render("history_error.html", one=one, shown=one.failures[begin : begin + LISTED], **facts)
    tasks = sorted({failure.task for failure in latest})
    gone = bool(page.asked.get("key"))
    return page.render(
        "history_errors.html", groups=groups, shown=groups[begin : begin + LISTED], tasks=tasks, gone=gone, **facts
    )


def _between(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


def _begin(cursor: str) -> int:
    """Reads the rank at which a page begins; groups are counted anew for each page."""
    if not (cursor.isascii() and cursor.isdigit()):
        return 0
    return min(int(cursor[:6]), FAILURES)
