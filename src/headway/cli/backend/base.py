"""Shared parts of both backends: paging, the end of a job, and the shape of some answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from headway.cli.output import Json
from headway.errors import Refused
from headway.model.jobs.states import State
from headway.store.paging import Page, make_cursor, read_cursor

if TYPE_CHECKING:
    from headway.model.event import Event
    from headway.model.schedules.definition import Schedule, Tick
    from headway.store.groups.views import GroupView
    from headway.store.jobs.views import JobView, LogLine

T = TypeVar("T")
LOOK_SECONDS = 0.15
MOST = 10_000
# A held job changes only when a person decides, so waiting for it ends here.
ENDS = (State.PAUSED, State.ERROR)


class FollowedJob(NamedTuple):
    """The state of a followed job: its new log lines, and its automatic retry if there is one."""

    view: JobView
    lines: list[LogLine]
    retry: JobView | None = None


class ScheduleShown(NamedTuple):
    """A schedule with its template numbers, recent executions, last tick and events."""

    schedule: Schedule
    numbers: Mapping[str, int]
    recent: list[GroupView]
    last: Tick | None
    events: list[Event]


class GroupsBackend(Protocol):
    """The verbs on groups, or on executions."""

    def page(self, limit: int, cursor: str | None, *, status: str | None, schedule_id: int | None = None) -> Json: ...
    def get(self, number: int) -> Json: ...
    def shown(self, number: int) -> Json: ...
    def cancel(self, number: int) -> Json: ...
    def retry(self, number: int) -> Json: ...


def after(cursor: str | None) -> int:
    """Returns the number after which a page begins, in a list with the oldest first."""
    return 0 if cursor is None else read_cursor(cursor)


def cut(items: list[Json], limit: int, number: str) -> Json:
    """Returns `limit` items as a page. One more item means that another page follows."""
    return {"items": items[:limit], "next": make_cursor(items[limit - 1][number]) if len(items) > limit else None}


def over(status: State) -> bool:
    """Returns True if a job in this state has ended or is held."""
    return status.terminal or status in ENDS


def fill(read: Callable[[str | None], Page[T]], limit: int, cursor: str | None, number: Callable[[T], int]) -> Page[T]:
    """Reads pages until `limit` items are found or no page is left; returns them as one page."""
    items: list[T] = []
    while True:
        page = read(cursor)
        items += page.items
        cursor = page.next
        if cursor is None or len(items) >= limit:
            cut = len(items) > limit
            return Page(items[:limit], make_cursor(number(items[limit - 1])) if cut else cursor)


def every(read: Callable[[str | None], Page[int]]) -> list[int]:
    """Returns the job numbers of all pages, sorted; raises `Refused` beyond `MOST`."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        page = read(cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return sorted(found)
        if len(found) > MOST:
            raise Refused(f"more than {MOST} jobs match: narrow the filter with --task, --since or --until")
