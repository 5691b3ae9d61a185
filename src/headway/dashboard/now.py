"""The first page: what runs, what waits and why, what is held, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.responses import Response

from headway.api.wire.plans import in_words
from headway.dashboard import words
from headway.dashboard.expected import at_work, overdue
from headway.dashboard.pages import Page, Pages
from headway.dashboard.pictures.bars import Bar, bars
from headway.dashboard.times import Taste, written
from headway.dashboard.told import used_up
from headway.engine.overview import Overview, overview
from headway.model.estimate import span
from headway.model.excerpt import excerpt
from headway.model.headline import Headline, Standing, headline
from headway.model.job import Reservation
from headway.model.schedule import Schedule
from headway.model.waiting import on_page
from headway.store import figures, reservations, schedules, targets
from headway.store.db import Tx
from headway.store.figures import SPAN, Span, WaitSpan
from headway.store.holding import held

pages = Pages("now")
LISTED = 20
TICKS = 8
CALLS = 200  # so many reservations are looked through for those that came first
Named = tuple[Reservation, list[str], str | None]


@pages.get("/")
def show(page: Page) -> Response:
    with page.look() as tx:
        seen = overview(tx, page.tenant_id, page.now, listed=LISTED, foresee=True, most_blocked=0)
        paused, all_paused = targets.paused(tx, page.tenant_id, LISTED)
        running = at_work(tx, seen.running, seen.now)
        late = overdue(tx, page.tenant_id, seen.waiting, seen.now)
        kept, calls = held(tx, page.tenant_id, LISTED), _calls(tx, page.tenant_id)
        coming = schedules.upcoming(tx, page.tenant_id, TICKS)
        stats = figures.stats(tx, page.tenant_id)
        waits = figures.waits(tx, page.tenant_id, stats.spans)
    return page.render(
        "now.html",
        seen=seen,
        headline=_headline(seen, calls),
        running=running,
        overdue=late,
        excerpt=excerpt,
        held=kept,
        over=used_up((one.view for one in kept), page.now),
        paused=paused,
        more_paused=all_paused - len(paused),
        calls=calls[:LISTED],
        more_calls=len(calls) - LISTED,
        ticks=[(one, _words(one)) for one in coming],
        stats=stats,
        throughput=_throughput(stats.spans, page.taste),
        waits=_waits(waits, page.taste),
        under_way=sum(one.granted_at is not None and one.task is not None for one, _, _ in calls),
        in_line_means=words.IN_LINE_MEANS,
        sentence=on_page,
    )


def _headline(seen: Overview, calls: Sequence[Named]) -> Headline:
    counts = seen.counts.by_status
    granted = [one for one, _, _ in calls if one.granted_at is not None]
    return headline(
        Standing(
            running=counts["RUNNING"],
            queued=counts["QUEUED"],
            held=counts["PAUSED"] + counts["ERROR"],
            workers=sum(alive for _, alive in seen.workers),
            paused=bool(seen.pause or seen.everybody),
            in_line=sum(counts[state.name] for state in words.IN_LINE),
            calls=sum(one.task is not None for one in granted),
            holds=sum(one.task is None for one in granted),
            at_least=seen.counts.at_least,
        )
    )


def _calls(tx: Tx, tenant_id: int) -> list[Named]:
    """Reservations in the order in which they are served."""
    found = reservations.listed(tx, tenant_id, status="ACTIVE", limit=CALLS).items
    return reservations.named(tx, sorted(found, key=lambda one: one.id))


def _words(schedule: Schedule) -> tuple[str, str]:
    """When it fires, and in which zone."""
    if not schedule.readable:
        return "", "UTC"
    return in_words(schedule.parsed), schedule.parsed.timezone


# --- charts -------------------------------------------------------------------------------------------------------


def _zone(taste: Taste) -> str:
    return "UTC" if taste.mode == "utc" else taste.zone


def _throughput(spans: Sequence[Span], taste: Taste) -> Markup:
    zone = _zone(taste)
    found = [
        Bar(
            one.since,
            f"{_hour(one.since, zone)}: {one.completed} completed, {one.failed} failed, {one.other} other",
            (("good", one.completed), ("bad", one.failed), ("quiet", one.other)),
        )
        for one in spans
    ]
    ended = sum(one.completed + one.failed + one.other for one in spans)
    failed = sum(one.failed for one in spans)
    label = (
        f"{words.count(ended, 'job')} ended within the last hour, {failed} of them failed; a bar for five minutes each"
    )
    return bars(found, SPAN, label=label, shown=lambda value: f"{value:g}", zone=zone)


def _waits(spans: Sequence[WaitSpan], taste: Taste) -> Markup:
    zone = _zone(taste)
    found = [
        Bar(
            one.since,
            f"{_hour(one.since, zone)}: {words.count(one.count, 'job')}, {_seconds(one.mean)} on average,"
            f" {_seconds(one.longest)} at most",
            (("waits", one.mean), ("ghost", one.longest - one.mean)),
        )
        for one in spans
    ]
    longest = max((one.longest for one in spans), default=0.0)
    label = f"How long jobs waited that began within the last hour: {_seconds(longest)} at most"
    return bars(found, SPAN, label=label, shown=_seconds, zone=zone)


def _seconds(value: float) -> str:
    return span(round(value * 1e6)) if value >= 1 or value == 0 else f"{value:.1f} s"


def _hour(at: int, zone: str) -> str:
    return written(at, zone)[11:16]
