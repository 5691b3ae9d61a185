"""What ran: searched and filtered, how long it took, and its errors grouped by what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from headway import errors
from headway.dashboard import words
from headway.dashboard.pages import Page, Pages
from headway.dashboard.pictures.scatter import Dot, in_words, scatter
from headway.dashboard.searching import KINDS, PERIODS, STATUSES, Search, search, within
from headway.dashboard.times import clock_zone, written
from headway.engine.client import KNOWN_FOR
from headway.model.fingerprint import alike
from headway.model.states import State
from headway.store import reading, records, schedules
from headway.store.records import FAILURES, Record

pages = Pages("history")
LISTED = 50
DRAWN = 200
OFFERED = 200


@pages.get("/history")
def show(page: Page) -> Response:
    """A page of runs. Beyond those in the table, a few more are in the picture."""
    asked = search(page.asked, page.taste)
    try:
        found, listed, more = _found(page, asked)
        problem = None
    except (errors.BadInput, errors.NotFound) as error:
        found, listed, more, problem = [], 0, None, error
    with page.read() as tx:
        offered = schedules.page(tx, page.tenant_id, limit=OFFERED)
        tasks = sorted(one.name for one in reading.seen_tasks(tx, within=KNOWN_FOR))
    return page.render(
        "history.html",
        status=200 if problem is None else 422,
        search=asked,
        found=found[:listed],
        more=more,
        picture=_picture(page, found, asked.zone),
        problem=problem,
        field=_field(problem),
        schedules=[one.name for one in offered],
        tasks=tasks,
        statuses=STATUSES,
        kinds=KINDS,
        periods=PERIODS,
        took=_took,
    )


def _found(page: Page, asked: Search) -> tuple[list[Record], int, str | None]:
    """The runs, how many of them are listed, and where the next page begins."""
    filters, cursor = asked.filters(page.now, partial(_schedule, page)), page.asked.get("cursor") or None
    with page.read() as tx:
        found = records.list_records(tx, page.tenant_id, filters, LISTED, cursor)
        drawn = [*found.items]
        if len(drawn) == LISTED and found.next is not None:
            drawn += records.list_records(tx, page.tenant_id, filters, DRAWN - LISTED, found.next).items
    return drawn, len(found.items), found.next


def _schedule(page: Page, name: str) -> int:
    try:
        return page.client.schedules.get(name).id
    except errors.NotFound as error:
        raise errors.BadInput(str(error), field="schedule") from None


def _field(problem: errors.HeadwayError | None) -> str:
    """What is to be mended. A name that leads nowhere is a target's."""
    if problem is None:
        return ""
    return "target" if isinstance(problem, errors.NotFound) else problem.field or ""


def _took(record: Record) -> str:
    return in_words(record.ran / 1e6)


def _picture(page: Page, found: Sequence[Record], zone: str) -> Markup | None:
    """Of those that have ended. One alone says nothing."""
    dots = [_dot(page, one, zone) for one in found if one.finished_at is not None]
    return scatter(dots, zone=zone) if len(dots) > 1 else None


def _dot(page: Page, one: Record, zone: str) -> Dot:
    facts = [
        f"#{one.job_id} {one.task}",
        f"{one.status.name.lower()} after {_took(one)}",
        written(one.started_at, zone),
    ]
    if one.status is State.FAILED and one.headline:
        facts.append(one.headline[:120])
    return Dot(
        key=f"run-{one.job_id}",
        href=page.address(f"/jobs/{one.job_id}"),
        title=" · ".join(facts),
        at=one.started_at,
        seconds=one.ran / 1e6,
        outcome=one.status.name.lower(),
        tone=words.tone(one.status),
    )


# --- errors -------------------------------------------------------------------------------------------------------


@pages.get("/history/errors")
def show_errors(page: Page) -> Response:
    """The latest failures by what they have in common, or those of one kind (`key`)."""
    task, (since, until) = page.asked.get("task"), within(page.asked.get("within"), page.now, clock_zone(page.taste))
    with page.read() as tx:
        latest, complete = records.latest_failures(tx, page.tenant_id)
    wanted = [one for one in latest if task in ("", one.task) and _between(one.at, since, until)]
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
    """The groups are counted anew each time, so that a page begins at a rank."""
    if not (cursor.isascii() and cursor.isdigit()):
        return 0
    return min(int(cursor[:6]), FAILURES)
