"""The first page: running, waiting and held jobs, and the next ticks."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.responses import Response

from headway.api.schemas.schedules import in_words
from headway.dashboard import state_styles
from headway.dashboard.charts.bars import Bar, bars
from headway.dashboard.expected_durations import at_work, overdue
from headway.dashboard.held_jobs import used_up
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.time_format import DisplayPreferences, written
from headway.engine.monitoring.overview import Overview, overview
from headway.model.explain.blockers import on_page
from headway.model.explain.forecast import span
from headway.model.jobs.job import Reservation
from headway.model.schedules.schedule import Schedule
from headway.store import stats as store_stats
from headway.store.db import Tx
from headway.store.jobs.held import held
from headway.store.queue import reservations, targets
from headway.store.schedules import schedules
from headway.store.stats import SPAN, Span, WaitSpan
from headway.text.overview import Headline, OverviewCounts, headline
from headway.text.params import excerpt

pages = Pages("now")
LISTED = 20
TICKS = 8
CALLS = 200  # upper bound on the reservations that are read
NamedReservation = tuple[Reservation, list[str], str | None]


@pages.get("/")
def show(page: PageRequest) -> Response:
    with page.look() as tx:
        seen = overview(tx, page.tenant_id, page.now, listed=LISTED, foresee=True, most_blocked=0)
        paused, all_paused = targets.paused(tx, page.tenant_id, LISTED)
        running = at_work(tx, seen.running, seen.now)
        late = overdue(tx, page.tenant_id, seen.waiting, seen.now)
        kept, calls = held(tx, page.tenant_id, LISTED), _calls(tx, page.tenant_id)
        coming = schedules.upcoming(tx, page.tenant_id, TICKS)
        stats = store_stats.stats(tx, page.tenant_id)
        waits = store_stats.waits(tx, page.tenant_id, stats.spans)
    return page.render(
        "home.html",
        seen=seen,
        headline=_headline(seen, calls),
        running=running,
        overdue=late,
        excerpt=excerpt,
        held=kept,
        over=used_up((job.view for job in kept), page.now),
        paused=paused,
        more_paused=all_paused - len(paused),
        calls=calls[:LISTED],
        more_calls=len(calls) - LISTED,
        ticks=[(schedule, _words(schedule)) for schedule in coming],
        stats=stats,
        throughput=_throughput(stats.spans, page.preferences),
        waits=_waits(waits, page.preferences),
        under_way=sum(call.granted_at is not None and call.task is not None for call, _, _ in calls),
        in_line_means=state_styles.IN_LINE_MEANS,
        sentence=on_page,
    )


def _headline(seen: Overview, calls: Sequence[NamedReservation]) -> Headline:
    counts = seen.counts.by_status
    granted = [call for call, _, _ in calls if call.granted_at is not None]
    return headline(
        OverviewCounts(
            running=counts["RUNNING"],
            queued=counts["QUEUED"],
            held=counts["PAUSED"] + counts["ERROR"],
            workers=sum(alive for _, alive in seen.workers),
            paused=bool(seen.pause or seen.everybody),
            in_line=sum(counts[state.name] for state in state_styles.IN_LINE),
            calls=sum(call.task is not None for call in granted),
            holds=sum(call.task is None for call in granted),
            at_least=seen.counts.at_least,
        )
    )


def _calls(tx: Tx, tenant_id: int) -> list[NamedReservation]:
    """Returns the active reservations in the order in which they are granted."""
    found = reservations.listed(tx, tenant_id, status="ACTIVE", limit=CALLS).items
    return reservations.named(tx, sorted(found, key=lambda reservation: reservation.id))


def _words(schedule: Schedule) -> tuple[str, str]:
    """Returns when a schedule fires, in words, and its zone."""
    if not schedule.readable:
        return "", "UTC"
    return in_words(schedule.parsed), schedule.parsed.timezone


# --- charts -------------------------------------------------------------------------------------------------------


def _zone(preferences: DisplayPreferences) -> str:
    return "UTC" if preferences.mode == "utc" else preferences.zone


def _throughput(spans: Sequence[Span], preferences: DisplayPreferences) -> Markup:
    zone = _zone(preferences)
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
    jobs = state_styles.count(ended, "job")
    label = f"{jobs} ended within the last hour, {failed} of them failed; a bar for five minutes each"
    return bars(found, SPAN, label=label, shown=lambda value: f"{value:g}", zone=zone)


def _waits(spans: Sequence[WaitSpan], preferences: DisplayPreferences) -> Markup:
    zone = _zone(preferences)
    found = [
        Bar(
            one.since,
            f"{_hour(one.since, zone)}: {state_styles.count(one.count, 'job')}, {_seconds(one.mean)} on average,"
            f" {_seconds(one.longest)} at most",
            (("waits", one.mean), ("ghost", one.longest - one.mean)),
        )
        for one in spans
    ]
    longest = max((one.longest for one in spans), default=0.0)
    label = f"Waits of jobs that started within the last hour: {_seconds(longest)} at most"
    return bars(found, SPAN, label=label, shown=_seconds, zone=zone)


def _seconds(value: float) -> str:
    return span(round(value * 1e6)) if value >= 1 or value == 0 else f"{value:.1f} s"


def _hour(at: int, zone: str) -> str:
    return written(at, zone)[11:16]
