"""Figures about the installation and about one tenant, each of bounded cost."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.jobs import views as job_views

# Upper bound of a count, over all buckets together.
COUNTED = 100_000
# How many event numbers a count covers at a time.
SLICE = 200_000


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """A lane's load: ready jobs, the longest wait in seconds, and running jobs."""

    name: str
    kind: str
    tenant: str
    limit: int | None
    ready: int = 0
    waits: float = 0.0
    running: int = 0


@dataclass(frozen=True, slots=True)
class _Work:
    ready: Mapping[int, int]
    since: Mapping[int, int]
    running: Mapping[int, int]


def lanes(tx: Tx, now: int) -> list[LaneFigures]:
    """Returns the figures of every lane.

    Jobs on targets use none of the policy's lanes and are counted as one lane named `targets`.
    """
    tx.run("pin_plans")
    buckets = {n: (tuple(json.loads(held)), bool(on_target)) for n, _, _, held, on_target in tx.run("all_buckets")}
    work = _work(tx)
    tenants = {number: name for number, name, *_ in tx.run("tenants")}
    found = [
        _lane(name, kind, tenants.get(owner, ""), limit, work, now, _with(buckets, number))
        for number, owner, kind, name, limit, _ in tx.run("lanes")
        if kind != "target"
    ]
    on_targets = [bucket for bucket, (_, on_target) in buckets.items() if on_target]
    return [*found, _lane("targets", "target", "", None, work, now, on_targets)]


def _with(buckets: Mapping[int, tuple[tuple[int, ...], bool]], lane: int) -> list[int]:
    return [bucket for bucket, (held, _) in buckets.items() if lane in held]


def _lane(
    name: str, kind: str, tenant: str, limit: int | None, work: _Work, now: int, buckets: Iterable[int]
) -> LaneFigures:
    mine = list(buckets)
    since = min((work.since[bucket] for bucket in mine if bucket in work.since), default=now)
    ready = sum(work.ready.get(bucket, 0) for bucket in mine)
    running = sum(work.running.get(bucket, 0) for bucket in mine)
    return LaneFigures(name, kind, tenant, limit, ready, max(0.0, (now - since) / 1e6), running)


def _work(tx: Tx) -> _Work:
    filled = [number for (number,) in tx.run("filled_buckets")]
    ids = json.dumps(filled)
    running: dict[int, int] = {}
    for bucket_id, _, _, count in tx.run("running_per_bucket"):
        running[bucket_id] = running.get(bucket_id, 0) + count
    if not filled:
        return _Work({}, {}, running)
    most = max(1, COUNTED // len(filled))
    ready: dict[int, int] = dict(tx.run("ready_per_bucket", ids=ids, most=most))
    return _Work(ready, dict(tx.run("oldest_of_buckets", ids=ids)), running)


def tick_lag(tx: Tx) -> float:
    """Returns the lateness of the most overdue tick in seconds."""
    ((due, now),) = tx.run("next_due_tick")
    return 0.0 if due is None else max(0.0, (now - due) / 1e6)


def workers(tx: Tx) -> dict[str, int]:
    found: dict[str, int] = dict(tx.run("worker_states"))
    return found


def size(tx: Tx) -> int:
    """Returns the size of the whole database in bytes."""
    ((found,),) = tx.run("database_size")
    return int(found)


def pending_deliveries(tx: Tx) -> int:
    ((count,),) = tx.run("count_pending_deliveries", most=COUNTED)
    return int(count)


def held_jobs(tx: Tx) -> dict[str, int]:
    counted: dict[int, int] = dict(tx.run("count_held_jobs", most=COUNTED))
    return {state.name: counted.get(state, 0) for state in (State.PAUSED, State.ERROR)}


def count_events(tx: Tx, after: int, upto: int, kinds: Sequence[str]) -> list[tuple[str, str | None, int]]:
    """Counts events as (kind, failure kind, count)."""
    rows = tx.run("count_events", after=after, upto=upto, kinds=json.dumps(kinds))
    return [(kind, failure, count) for kind, failure, count in rows]


def count_ticks(tx: Tx, after: int, upto: int) -> dict[str, int]:
    """Counts the ticks that were decided, by outcome; one event may stand for many ticks."""
    return {outcome: int(count) for outcome, count in tx.run("count_ticks", after=after, upto=upto)}


# --- one tenant ---------------------------------------------------------------------------------------------------

HOUR, SPAN = micros(3600.0), micros(300.0)
LOOKED_AT, LAST = 2_000, 200
# Upper bound of finished jobs to read; no index covers a single tenant's.
ENDED = 20_000


@dataclass(frozen=True, slots=True)
class Span:
    """The jobs that ended in the five minutes from `since`."""

    since: int
    completed: int
    failed: int
    other: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of `count` durations, in seconds."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """A tenant's figures.

    Spans before `complete_since` are undercounted, because more jobs ended than are read.
    """

    now: int
    counts: job_views.Counts
    spans: list[Span]
    complete_since: int
    waits: Spread
    durations: Spread


def stats(tx: Tx, tenant_id: int) -> Stats:
    now = tx.now()
    since = now - now % SPAN - HOUR + SPAN
    counts = job_views.counts(tx, tenant_id, since=since)
    bound = tx.run("bound_of_ended", since=since, most=ENDED)
    ended = tx.run("last_ended", tenant_id=tenant_id, most=LOOKED_AT, limit=LAST)
    # A resumed job was queued again after its start, which overwrote its first waiting time.
    waits = [(began - queued) / 1e6 for queued, began, _ in ended if queued is not None and queued <= began]
    return Stats(
        now,
        counts,
        _spans(tx, tenant_id, since, now),
        bound[0][0] if bound else since,
        spread(waits),
        spread([ran / 1e6 for _, _, ran in ended]),
    )


def _spans(tx: Tx, tenant_id: int, since: int, now: int) -> list[Span]:
    found: dict[int, dict[int, int]] = {}
    for n, status, count in tx.run("throughput", tenant_id=tenant_id, since=since, span=SPAN, most=ENDED):
        found.setdefault(n, {})[status] = count
    return [_span(since + n * SPAN, found.get(n, {})) for n in range((now - since) // SPAN + 1)]


def _span(since: int, ended: Mapping[int, int]) -> Span:
    completed, failed = ended.get(State.COMPLETED, 0), ended.get(State.FAILED, 0)
    return Span(since, completed, failed, sum(ended.values()) - completed - failed)


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """The waits, in seconds, of jobs that started in the five minutes from `since`."""

    since: int
    count: int = 0
    mean: float = 0.0
    longest: float = 0.0


def waits(tx: Tx, tenant_id: int, spans: Sequence[Span]) -> list[WaitSpan]:
    """Returns the waits in the same spans as those in which jobs ended."""
    if not spans:
        return []
    since = spans[0].since
    found = {
        n: WaitSpan(since + n * SPAN, count, total / count / 1e6, longest / 1e6)
        for n, count, total, longest in tx.run("waits", tenant_id=tenant_id, since=since, span=SPAN, most=ENDED)
    }
    return [found.get(n) or WaitSpan(span.since) for n, span in enumerate(spans)]


def spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(0)
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.9, 0.99)]
    return Spread(len(ordered), statistics.fmean(ordered), *at)
