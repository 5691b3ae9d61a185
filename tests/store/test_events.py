"""Events are recorded by named fields, through one function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headway.model.event import NewEvent
from headway.model.jobs.job import SYSTEM
from headway.store import events
from tests.support.life import Life

SOURCE = Path(__file__).parents[2] / "src" / "headway"
NEW = NewEvent("job.edited", SYSTEM, tenant_id=1, thing_id=7, version=2, status=3, fence=4, data="{}")
TICK = NewEvent("schedule.tick.skipped", SYSTEM, tenant_id=1, thing="tick", thing_id=7, version=3)


def test_an_event_is_stored_with_its_fields(life: Life) -> None:
    life.database.transact("record", lambda tx: events.record(tx, NEW, TICK))
    with life.database.read() as tx:
        last = events.newest(tx)
        stored = events.between(tx, last - 2, last, 2).events
        now = tx.now()
    for new, thing, event in zip((NEW, TICK), ("job", "tick"), stored, strict=True):
        assert (event.tenant_id, event.thing, event.thing_id, event.version) == (1, thing, 7, new.version)
        assert (event.kind, event.status, event.fence, event.data) == (new.kind, new.status, new.fence, new.data)
        assert event.actor == SYSTEM.text()
        assert event.at <= now


def test_no_module_but_events_names_the_statement() -> None:
    naming = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if '"add_events"' in path.read_text()
    }
    assert naming == {"store/events.py"}


def test_a_page_of_long_events_is_short_and_leaves_none_out(life: Life) -> None:
    """An event has the definition of a template, and a page of 500 such definitions would fill the memory."""
    with life.database.read() as tx:
        first = events.newest(tx)
    sizes = [10, events.PAGE_BYTES // 2, 10, events.PAGE_BYTES, 10, 3 * events.PAGE_BYTES, 10]
    new = [replace(NEW, version=n + 10, data=f'"{"é" * (size // 2)}"') for n, size in enumerate(sizes)]
    life.database.transact("record", lambda tx: events.record(tx, *new))
    for tenant_id in (None, 1):
        pages, after = [], first
        while True:
            with life.database.read() as tx:
                page = events.between(tx, after, first + len(new), 4, tenant_id)
            pages.append([event.version - 10 for event in page.events])
            if not page.full:
                break
            after = page.events[-1].id
        assert pages == [[0, 1, 2, 3], [4, 5], [6]]
