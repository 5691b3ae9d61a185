"""What both desks share: how pages are filled, when a job is over, and what some answers consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headway.errors import Refused
from headway.model.states import State
from headway.store.pages import Page, make_cursor

if TYPE_CHECKING:
    from headway.model.schedule import Schedule, Tick
    from headway.store.plans_reading import GroupView
    from headway.store.reading import Event, JobView, Line

T = TypeVar("T")
LOOK_SECONDS = 0.15
MOST = 10_000
# A held job waits for a person: there is nothing more to wait for.
ENDS = (State.PAUSED, State.ERROR)


class Seen(NamedTuple):
    """A look at a job that is followed: new lines of its log, and the automatic retry that follows it."""

    view: JobView
    lines: list[Line]
    retry: JobView | None = None


class ScheduleShown(NamedTuple):
    schedule: Schedule
    numbers: Mapping[str, int]
    recent: list[GroupView]
    last: Tick | None
    events: list[Event]


def over(status: State) -> bool:
    return status.terminal or status in ENDS


def fill(read: Callable[[str | None], Page[T]], limit: int, cursor: str | None, number: Callable[[T], int]) -> Page[T]:
    """A page as long as asked for: one whose filter finds little is read on, piece by piece."""
    items: list[T] = []
    while True:
        page = read(cursor)
        items += page.items
        cursor = page.next
        if cursor is None or len(items) >= limit:
            cut = len(items) > limit
            return Page(items[:limit], make_cursor(number(items[limit - 1])) if cut else cursor)


def every(read: Callable[[str | None], Page[int]]) -> list[int]:
    """The numbers of all pages, if those are not too many."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        page = read(cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return sorted(found)
        if len(found) > MOST:
            raise Refused(f"more than {MOST} jobs fit: narrow it down with --task, --since or --until")
