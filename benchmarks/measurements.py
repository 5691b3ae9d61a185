"""The measurements: the contenders of each, their settings, and our goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import flatness as flat
from benchmarks import http, ours, plans
from benchmarks.frame import Contender, Goal, Line, Measurement, Medians, Store, at_most, best, times, within
from benchmarks.peers import on_dbos, on_huey, on_litequeue, on_pgqueuer, on_procrastinate
from benchmarks.raw import postgres as raw_postgres
from benchmarks.raw import sqlite as raw_sqlite

BATCH = 1_000  # jobs per call in a bulk enqueue
# The peers' settings: the best median of three interleaved rounds among the values tried, on two shared cores.
# Neighbouring values often lie within the noise of each other; far ones do not.
PGQUEUER_BATCH = 500  # of 200, 500, 1,000, 2,000
PROCRASTINATE_CONCURRENCY = 10  # of 5, 10, 20
HUEY_THREADS = 8  # on PostgreSQL, of 8 and 16 threads, 2 and 4 processes; on SQLite one thread was best
DBOS_POLLING = 0.001  # seconds, of 0.001, 0.01, 0.05
QUICK_JOBS = 40

Function = Callable[..., float | dict[str, float]]


def headway(label: str, store: Store, function: Function, **settings: Any) -> Contender:
    return Contender(label, "ours", store, function, settings, quick(settings))


def peer(label: str, store: Store, function: Function, needs: tuple[str, ...], **settings: Any) -> Contender:
    return Contender(label, "peer", store, function, settings, quick(settings), needs)


def raw(label: str, store: Store, function: Function, **settings: Any) -> Contender:
    needs = ("apsw",) if store == "sqlite" else ("psycopg",)
    return Contender(label, "raw", store, function, settings, quick(settings), needs)


def quick(settings: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": QUICK_JOBS} if "jobs" in settings else {}


SLOTS = {200: 8, 50: 6, 10: 3}  # slots of a worker, and how many times huey's rate is wanted with them


def drain_sqlite() -> Measurement:
    return Measurement(
        "drain-sqlite",
        "drain, SQLite, one process, async no-op, no limit",
        (
            *(contender for slots in SLOTS for contender in drain_sqlite_with(slots)),
            peer("huey", "sqlite", on_huey.drain_sqlite, on_huey.NEEDS, jobs=3_000),
            peer("DBOS", "sqlite", on_dbos.drain, on_dbos.NEEDS, jobs=200, polling=DBOS_POLLING),
        ),
        tuple(drain_sqlite_line(slots) for slots in SLOTS),
    )


def drain_sqlite_with(slots: int) -> tuple[Contender, Contender]:
    return (
        headway(f"{slots} slots", "sqlite", ours.drain_sqlite, jobs=20_000, slots=slots, limit=None),
        raw(f"{slots} a commit", "sqlite", raw_sqlite.drain, jobs=20_000, batch=slots),
    )


def drain_sqlite_line(slots: int) -> Line:
    here, limit = f"{slots} slots", f"{slots} a commit"
    goals = (times(here, "huey", SLOTS[slots]), times(here, limit, 0.4, name="raw"))
    return Line(here, here, ("huey", "DBOS") if slots == 200 else ("huey",), (limit,), goals)


def drain_serial() -> Measurement:
    return Measurement(
        "drain-serial",
        "drain, SQLite, default lanes (one job at a time)",
        (
            headway("ours", "sqlite", ours.drain_serial_sqlite, jobs=3_000),
            peer("litequeue", "sqlite", on_litequeue.drain, on_litequeue.NEEDS, jobs=2_000),
            raw("1 a commit", "sqlite", raw_sqlite.drain, jobs=5_000, batch=1),
        ),
        (Line("one by one", "ours", ("litequeue",), ("1 a commit",), (times("ours", "1 a commit", 0.8, name="raw"),)),),
    )


def drain_children() -> Measurement:
    two = {"workers": 2, "worker_type": "process"}
    return Measurement(
        "drain-children",
        "drain, SQLite, plain functions in warm child processes",
        (
            headway("ours", "sqlite", ours.drain_children_sqlite, jobs=3_000, slots=2),
            peer("huey", "sqlite", on_huey.drain_sqlite, on_huey.NEEDS, jobs=3_000, **two),
        ),
        (Line("2 slots", "ours", ("huey",), (), (times("ours", "huey", 2, name="huey, 2 processes"),)),),
    )


def drain_postgres() -> Measurement:
    slow = ("procrastinate", "DBOS", "huey")
    threads = {"workers": HUEY_THREADS}
    return Measurement(
        "drain-postgres",
        "drain, PostgreSQL, fresh and unanalysed, one process, async no-op",
        (
            headway("ours", "postgres", ours.drain_postgres, jobs=20_000, slots=200, processes=1),
            peer("pgqueuer", "postgres", on_pgqueuer.drain, on_pgqueuer.NEEDS, jobs=20_000, batch=PGQUEUER_BATCH),
            raw("200 a commit", "postgres", raw_postgres.drain, jobs=20_000, batch=200),
            peer(
                "procrastinate",
                "postgres",
                on_procrastinate.drain,
                on_procrastinate.NEEDS,
                jobs=400,
                concurrency=PROCRASTINATE_CONCURRENCY,
            ),
            peer("DBOS", "postgres", on_dbos.drain, on_dbos.NEEDS, jobs=500, polling=DBOS_POLLING),
            peer("huey", "postgres", on_huey.drain_postgres, on_huey.NEEDS_POSTGRES, jobs=800, **threads),
        ),
        (
            Line(
                "200 slots",
                "ours",
                ("pgqueuer", *slow),
                ("200 a commit",),
                (times("ours", "pgqueuer", 1.2), best("ours", slow, 20, name="best of the others")),
            ),
            Line(
                "last 2,000 of 20,000 against the first",
                "ours",
                (),
                ("200 a commit",),
                (within("ours", "last", "first", 0.9, text="≥ 0.9 × first"),),
                values=("first", "last"),
            ),
        ),
    )


def drain_pair() -> Measurement:
    def ratio(medians: Medians, of: str) -> float:
        return medians[f"{of} × 2"]["rate"] / medians[f"{of} × 1"]["rate"]

    goals = (
        Goal("≥ 1.3 × one process", lambda m: ratio(m, "ours"), 1.3),
        Goal("≥ 0.9 × the raw pair's", lambda m: ratio(m, "ours") / ratio(m, "raw"), 0.9),
    )
    each = {"jobs": 20_000, "batch": 200}
    peers = {"jobs": 20_000, "batch": PGQUEUER_BATCH}
    return Measurement(
        "drain-pair",
        "drain, PostgreSQL, two processes against one",
        tuple(
            contender
            for n in (1, 2)
            for contender in (
                headway(f"ours × {n}", "postgres", ours.drain_postgres, jobs=20_000, slots=200, processes=n),
                peer(
                    f"pgqueuer × {n}",
                    "postgres",
                    on_pgqueuer.drain_together,
                    on_pgqueuer.NEEDS,
                    **peers,
                    processes=n,
                ),
                raw(f"raw × {n}", "postgres", raw_postgres.drain_together, **each, processes=n),
            )
        ),
        (
            Line("one process", "ours × 1", ("pgqueuer × 1",), ("raw × 1",)),
            Line("two processes", "ours × 2", ("pgqueuer × 2",), ("raw × 2",), goals),
        ),
    )


def enqueue_one() -> Measurement:
    return Measurement(
        "enqueue-one",
        "enqueue one by one, each with its durable commit",
        (
            headway("ours, SQLite", "sqlite", ours.enqueue_one_by_one, jobs=2_000),
            peer("huey", "sqlite", on_huey.enqueue_one_by_one_sqlite, on_huey.NEEDS, jobs=2_000),
            raw("apsw", "sqlite", raw_sqlite.enqueue_one_by_one, jobs=2_000),
            headway("ours, PostgreSQL", "postgres", ours.enqueue_one_by_one, jobs=1_000),
            peer("pgqueuer", "postgres", on_pgqueuer.enqueue_one_by_one, on_pgqueuer.NEEDS, jobs=1_000),
            raw("psycopg", "postgres", raw_postgres.enqueue_one_by_one, jobs=1_000),
            peer("procrastinate", "postgres", on_procrastinate.enqueue_one_by_one, on_procrastinate.NEEDS, jobs=300),
            peer("DBOS", "postgres", on_dbos.enqueue_one_by_one, on_dbos.NEEDS, jobs=200),
        ),
        (
            Line("SQLite", "ours, SQLite", ("huey",), ("apsw",), (times("ours, SQLite", "huey", 1),)),
            Line(
                "PostgreSQL",
                "ours, PostgreSQL",
                ("pgqueuer", "procrastinate", "DBOS"),
                ("psycopg",),
                (times("ours, PostgreSQL", "psycopg", 0.8, name="raw"), times("ours, PostgreSQL", "pgqueuer", 1)),
            ),
        ),
    )


def enqueue_concurrent() -> Measurement:
    return Measurement(
        "enqueue-concurrent",
        "enqueue by 50 callers at once, SQLite, each waiting for its durable commit",
        (
            headway("50 callers", "sqlite", ours.enqueue_concurrent, jobs=10_000, callers=50),
            headway("1 caller", "sqlite", ours.enqueue_one_by_one, jobs=2_000),
            raw("50 a commit", "sqlite", raw_sqlite.enqueue_bulk, jobs=10_000, batch=50),
        ),
        (
            Line("one caller", "1 caller"),
            Line(
                "50 callers",
                "50 callers",
                (),
                ("50 a commit",),
                (times("50 callers", "1 caller", 8, name="one by one"),),
            ),
        ),
    )


def enqueue_bulk() -> Measurement:
    many = {"jobs": 20_000, "batch": BATCH}
    return Measurement(
        "enqueue-bulk",
        "bulk enqueue, 1,000 jobs a call",
        (
            headway("ours, SQLite", "sqlite", ours.enqueue_bulk, **many),
            peer("huey, one by one", "sqlite", on_huey.enqueue_one_by_one_sqlite, on_huey.NEEDS, jobs=2_000),
            raw("apsw", "sqlite", raw_sqlite.enqueue_bulk, **many),
            headway("ours, PostgreSQL", "postgres", ours.enqueue_bulk, **many),
            peer("pgqueuer", "postgres", on_pgqueuer.enqueue_bulk, on_pgqueuer.NEEDS, **many),
            raw("array", "postgres", raw_postgres.enqueue_bulk, **many),
            raw("COPY", "postgres", raw_postgres.enqueue_bulk_copy, **many),
            peer(
                "procrastinate",
                "postgres",
                on_procrastinate.enqueue_bulk,
                on_procrastinate.NEEDS,
                jobs=5_000,
                batch=BATCH,
            ),
            peer("DBOS", "postgres", on_dbos.enqueue_bulk, on_dbos.NEEDS, jobs=1_000, batch=BATCH),
        ),
        (
            Line("SQLite", "ours, SQLite", ("huey, one by one",), ("apsw",), (bulk_over_huey(),)),
            Line(
                "PostgreSQL",
                "ours, PostgreSQL",
                ("pgqueuer", "procrastinate", "DBOS"),
                ("array", "COPY"),
                (times("ours, PostgreSQL", "pgqueuer", 1.2),),
            ),
        ),
    )


def bulk_over_huey() -> Goal:
    return times("ours, SQLite", "huey, one by one", 50)


PICKUPS: tuple[tuple[str, str, Store], ...] = (
    ("same process", "same process", "sqlite"),
    ("another process, one SQLite file", "another process", "sqlite"),
    ("another process, PostgreSQL", "another process", "postgres"),
)


def pickup() -> Measurement:
    return Measurement(
        "pickup",
        "pickup latency on an idle system, 500 samples",
        tuple(
            Contender(
                title,
                "ours",
                store,
                ours.pickup_latency,
                {"kind": kind, "samples": 500},
                {"samples": 2},
                limit=180,
            )
            for title, kind, store in PICKUPS
        ),
        tuple(
            Line(
                title,
                title,
                goals=(at_most(title, "p50", 5, "ms"), at_most(title, "p99", 20, "ms")),
                values=("p50", "p99"),
                unit=" ms",
            )
            for title, _, _ in PICKUPS
        ),
    )


def pickup_silence() -> Measurement:
    """One sample a round: its price is 75 seconds."""
    return Measurement(
        "pickup-silence",
        "pickup latency after 75 s of silence",
        tuple(
            Contender(
                title,
                "ours",
                store,
                ours.pickup_latency,
                {"kind": kind, "samples": 1, "silence": 75.0},
                {"silence": 0.1},
                limit=150,
            )
            for title, kind, store in PICKUPS
        ),
        tuple(
            Line(title, title, goals=(at_most(title, "p50", 5, "ms"),), values=("p50",), unit=" ms")
            for title, _, _ in PICKUPS
        ),
    )


STORES: tuple[tuple[str, Store], ...] = (("SQLite", "sqlite"), ("PostgreSQL", "postgres"))


def flatness() -> Measurement:
    return Measurement(
        "flatness",
        "the same rate in a large database as in a small one",
        tuple(flat_contenders()),
        tuple(
            Line(
                f"{case.title}, {store}",
                f"{name}, {store}",
                goals=(within(f"{name}, {store}", "large", "small", case.factor, text=f"≥ {case.factor:g} × small"),),
                values=("small", "large"),
            )
            for store, _ in STORES
            for name, case in flat.CASES.items()
        ),
        once=True,
    )


def flat_contenders() -> Iterator[Contender]:
    for title, store in STORES:
        for name in flat.CASES:
            sizes = (1, 200) if name == "kinds" else (2_000, 1_000_000)
            settings = {"case": name, "sizes": sizes, "rounds": 9}
            small = {"sizes": (1, 2) if name == "kinds" else (20, 40), "rounds": 1}
            yield Contender(f"{name}, {title}", "ours", store, flat.flatness, settings, small, databases=2, limit=900)


def idle() -> Measurement:
    limits = (("cpu", 0.5, "%"), ("memory", 80.0, "MiB"))
    return Measurement(
        "idle",
        "an idle worker",
        tuple(
            Contender(title, "ours", store, ours.idle, {"seconds": 20.0}, {"seconds": 0.5}, limit=90)
            for title, store in STORES
        ),
        tuple(
            Line(
                f"{title}: {value}",
                title,
                goals=(at_most(title, value, bound, unit),),
                values=(value,),
                unit=f" {unit}",
            )
            for title, store in STORES
            for value, bound, unit in (*limits, *((("transactions", 1.0, "/s"),) if store == "postgres" else ()))
        ),
    )


def memory() -> Measurement:
    steady = Goal("± 10 %", lambda m: abs(m["ours"]["late"] / m["ours"]["early"] - 1) * 100, 10, True, "%")
    drain = Contender("ours", "ours", "sqlite", ours.memory, {"jobs": 1_000_000}, {"jobs": QUICK_JOBS}, limit=900)
    return Measurement(
        "memory",
        "memory while draining 1M",
        (drain,),
        (Line("SQLite", "ours", goals=(steady,), values=("early", "late"), unit=" MiB"),),
        once=True,
    )


ALL: tuple[Measurement, ...] = (
    drain_sqlite(),
    drain_serial(),
    drain_children(),
    drain_postgres(),
    drain_pair(),
    enqueue_one(),
    enqueue_concurrent(),
    enqueue_bulk(),
    pickup(),
    pickup_silence(),
    *plans.ALL,
    *http.ALL,
    flatness(),
    idle(),
    memory(),
)
