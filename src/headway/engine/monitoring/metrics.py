"""Metrics for Prometheus, collected at each scrape.

Gauges describe the whole installation, whichever process is scraped. Counters are counted from events, which all
processes see alike, so one process is enough. They begin at 0 with its first scrape. Calls of deprecated addresses have
no event, so each process counts its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.engine.monitoring.legacy_calls import LegacyCalls
from headway.model.schedules.ticks import MISSED
from headway.store import events, stats
from headway.store.db import Database

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Longest time that one scrape counts events; the rest is left to the next.
SECONDS = 1.0
LANES = 500
FINISHED = {
    "job.completed": "completed",
    "job.resolved": "completed",
    "job.failed": "failed",
    "job.skipped": "skipped",
    "job.cancelled": "cancelled",
}
DELIVERED = {"delivery.delivered": "delivered", "delivery.failed": "failed"}
FAILING = ("job.failed", "job.error")
# A lost lease ends a job with one of these, or holds it for a person.
LOSING = (*FAILING, "job.cancelled", "job.paused")
COUNTED = sorted({"job.claimed", "job.late_write_rejected", *FINISHED, *DELIVERED, *LOSING})
TICKS = ("FIRED", "SKIPPED", *MISSED)
FAILURES = ("EXCEPTION", "EXIT_CODE", "TIMEOUT", "LOST", "INTERRUPTED", "BUDGET", "BAD_PARAMS", "UNKNOWN_TASK")


class Metrics(Collector):
    """The collector of one process. `text()` is the answer to a scrape."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lock = threading.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.position: int | None = None
        self.newest = 0
        self.counted: Counter[tuple[str, str | None]] = Counter()
        self.ticks: Counter[str] = Counter()
        self.legacy_calls = LegacyCalls()

    def text(self) -> bytes:
        with self.lock:
            return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        return []  # registering must not query the database

    def collect(self) -> Iterator[Metric]:
        began = time.perf_counter()
        with self.database.read() as tx:
            tx.run("ping")
        ping = time.perf_counter() - began
        self._count()
        yield _gauge("database_ping_seconds", "Round trip of the simplest query", ping)
        yield from self._gauges()
        yield from self._counters()

    # --- gauges ---

    def _gauges(self) -> Iterator[Metric]:
        with self.database.read() as tx:
            now = tx.now()
            lanes = stats.lanes(tx, now)
            lag = stats.tick_lag(tx)
            workers = stats.workers(tx)
            held = stats.held_jobs(tx)
            pending = stats.pending_deliveries(tx)
        yield from _lanes(lanes)
        yield _labelled("workers", "Workers by state; silent: its lease has passed", "state", _states(workers))
        yield _labelled("held_jobs", "Jobs that wait for a person", "status", held)
        yield _gauge("tick_lag_seconds", "How late the most overdue tick of a schedule is", lag)
        yield _gauge("pending_deliveries", "Webhook deliveries on their way", pending)
        yield _gauge("events_behind", "Events that the counters do not count yet", self.newest - (self.position or 0))

    # --- counters ---

    def _count(self) -> None:
        """Counts the events since the last scrape.

        Ids may be committed out of order, so only settled events are counted.
        """
        deadline = time.monotonic() + SECONDS
        with self.database.read() as tx:
            upto, self.newest = events.settled(tx), events.newest(tx)
        if self.position is None:
            self.position = upto
        while self.position < upto and time.monotonic() < deadline:
            end = min(upto, self.position + stats.SLICE)
            with self.database.read() as tx:
                rows = stats.count_events(tx, self.position, end, COUNTED)
                ticks = stats.count_ticks(tx, self.position, end)
            self.counted.update({(kind, failure): count for kind, failure, count in rows})
            self.ticks.update(ticks)
            self.position = end
        self.newest = max(self.newest, self.position)

    def _sum(self, *kinds: str, failure: str | None = None) -> int:
        return sum(n for (kind, why), n in self.counted.items() if kind in kinds and failure in (None, why))

    def _counters(self) -> Iterator[Metric]:
        yield _counter("claims", "Claims", self._sum("job.claimed"))
        finished = dict.fromkeys(FINISHED.values(), 0)
        for kind, outcome in FINISHED.items():
            finished[outcome] += self._sum(kind)
        yield _counted("finished", "Jobs that ended, by outcome", "outcome", finished)
        failures = {kind: self._sum(*FAILING, failure=kind) for kind in FAILURES}
        yield _counted("failures", "Failed runs, by failure kind", "kind", failures)
        yield _counter("leases_lost", "Jobs whose worker was lost", self._sum(*LOSING, failure="LOST"))
        late = self._sum("job.late_write_rejected")
        yield _counter("late_writes_rejected", "Claims with a rejected write under a stale fence", late)
        ticks = {outcome: self.ticks[outcome] for outcome in TICKS}
        yield _counted("ticks", "Ticks of schedules that were decided, by outcome", "outcome", ticks)
        deliveries = {outcome: self._sum(kind) for kind, outcome in DELIVERED.items()}
        yield _counted("deliveries", "Webhook deliveries that ended, by outcome", "outcome", deliveries)
        yield _legacy(self.legacy_calls.counts())


def _lanes(lanes: list[stats.LaneFigures]) -> Iterator[Metric]:
    """Yields the metrics of the busiest lanes; each lane is a time series of its own."""
    lanes = sorted(lanes, key=lambda lane: (lane.running, lane.ready, lane.limit or 0), reverse=True)[:LANES]
    names = ["lane", "kind", "tenant"]
    ready = GaugeMetricFamily("headway_queue_depth", "Jobs that are ready to start, by lane", labels=names)
    waits = GaugeMetricFamily(
        "headway_queue_oldest_wait_seconds", "How long the first of these jobs has waited", labels=names
    )
    running = GaugeMetricFamily("headway_running", "Jobs that run, by lane", labels=names)
    limits = GaugeMetricFamily("headway_lane_limit", "How many may run at once, where there is a limit", labels=names)
    for lane in lanes:
        labels = [lane.name, lane.kind, lane.tenant]
        ready.add_metric(labels, lane.ready)
        waits.add_metric(labels, lane.waits)
        running.add_metric(labels, lane.running)
        if lane.limit is not None:
            limits.add_metric(labels, lane.limit)
    yield from (ready, waits, running, limits)


def _legacy(calls: dict[tuple[str, str], int]) -> Metric:
    text = "Calls of deprecated addresses in this process, by path and client"
    family = CounterMetricFamily("headway_legacy_calls", text, labels=["path", "client"])
    for call, count in sorted(calls.items()):
        family.add_metric(call, count)
    return family


def _states(found: dict[str, int]) -> dict[str, int]:
    return {state: found.get(state, 0) for state in ("live", "draining", "stuck", "silent")}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headway_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"headway_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"headway_{name}", text, value=value)


def _counted(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"headway_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
