"""The plans of every statement of the flow, with 50,000 jobs queued, 50,000 finished and 20,000 on 2,000 targets, half
of them held: by an index, with little work.

The statements are those that the verbs really run, with the parameters they really give. On PostgreSQL each is planned
as in its own transaction (pinned or not), for the values and for none in particular, before and after ANALYZE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql

from headway.engine.client import limits
from headway.engine.maintenance.pruner import Pruner
from headway.engine.maintenance.recovery import Recovery
from headway.model.groups.group import NewGroup
from headway.model.jobs.outcome import Completed, StoppedByRequest
from headway.model.queue.capacity import BURST
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Call, Row, Tx
from headway.store.groups import views as group_views
from headway.store.postgres.database import PostgresDatabase
from headway.store.queue import claim_snapshot, claims, reservations, select
from headway.store.queue.lanes import BucketCache
from headway.store.sqlite.database import SqliteDatabase
from tests.support.life import ADA, BROKEN, HOUR, Life
from tests.support.plans import finish, make, member

# The index that each statement must find its jobs by. Those not named here find them by their number.
BY_INDEX = {
    "claim_view": {"hw_job_ready", "hw_job_slot", "hw_job_due", "hw_job_expiring"},
    "bucket_places": {"hw_job_ready"},
    "first_places": {"hw_job_ready"},
    "first_of_bucket": {"hw_job_ready"},
    "front": {"hw_job_order"},
    "bucket_levels": {"hw_job_ready"},
    "level_places": {"hw_job_ready"},
    "ready_of_bucket": {"hw_job_ready"},
    "target_queues": {"hw_job_target", "hw_job_target_head", "hw_job_target_hold"},
    "open_jobs_of": {"hw_job_target_head"},
    "busy_targets": {"hw_job_target_hold"},
    "resumed_targets": {"hw_job_target_hold"},
    "served_now": {"hw_job_slot"},
    "stuck_groups": {"hw_job_member"},
    "stage_is_open": {"hw_job_member", "hw_job_group"},
    "ended_stages": {"hw_job_member", "hw_job_group", "hw_job_retries"},
    "group_is_open": {"hw_job_member", "hw_job_group"},
    "first_stage": {"hw_job_group"},
    "group_members": {"hw_job_group", "hw_job_retries"},
    "stage_members": {"hw_job_group", "hw_job_retries"},
    "unfinished_members": {"hw_job_member", "hw_job_group"},
    "unfilled_members": {"hw_job_member", "hw_job_group"},
    "earlier_results": {"hw_job_group"},
    "group_steps": {"hw_job_group"},
    "group_steps_shown": {"hw_job_group", "hw_job_retries"},
    "count_steps": {"hw_job_group"},
    "steps_to_tell": {"hw_job_group", "hw_job_retries"},
    "held_in_stage": {"hw_job_member", "hw_job_group"},
    "release_stage": {"hw_job_member", "hw_job_group"},
    "end_waiting_members": {"hw_job_member", "hw_job_group"},
    "group_chains": {"hw_job_group", "hw_job_retries"},
    "promote": {"hw_job_due"},
    "expire": {"hw_job_expiring"},
    "stop_requests": {"hw_job_slot"},
    "own_claims": {"hw_job_slot"},
    "orphans": {"hw_job_slot"},
    "finished_but_running": {"hw_job_slot"},
    "prune_workers": {"hw_job_slot"},
    "neighbour_before": {"hw_job_order"},
    "neighbour_after": {"hw_job_order"},
    "first_place": {"hw_job_order"},
    "last_place": {"hw_job_order"},
    "highest_priority": {"hw_job_order"},
    "nth_queued": {"hw_job_order"},
    "last_queued": {"hw_job_order"},
    "window": {"hw_job_order", "hw_job_slot", "hw_job_held"},
    "job_with_key": {"hw_job_key"},
    "count_queued": {"hw_job_order"},
    "automatic_retry": {"hw_job_auto_retry", "hw_job_retries"},
    "any_retry": {"hw_job_retries"},
    "retries_beyond": {"hw_job_retries"},
    "chain": {"hw_job_retries"},
    "undecided_failures": {"hw_job_undecided", "hw_job_retries"},
    "prunable": {"hw_job_finished"},
}
BY_NUMBER = {"hw_job_pkey", "INTEGER PRIMARY KEY"}
# Statements that find something else than jobs, of which there may be as many.
OTHERS = {"active_reservations", "take_touched", "touch", "close_gates", "open_gates", "raise_streaks", "reset_streaks",
          "raise_target_streak", "reset_target_streaks", "end_reservation", "grant_reservation", "target_by_name",
          "buckets_by_id", "find_bucket", "read_setting"}  # fmt: skip
TABLES = ("hw_job", "hw_target", "hw_touched", "hw_reservation", "hw_bucket")
# How many jobs a statement may look at that takes, ends or moves at most fifty.
FEW = 2_000
STEPS = 60_000  # of SQLite's machine; looking at all jobs takes millions

FILL = """
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, fence, not_before,
  expires_at, queued_at, started_at, finished_at, retry_of, retry_auto, exhausted, failure_kind, key, task, params,
  options, created_by)
select 1000 + n, 1, 1 + n % 5, case when n > 50000 then 6 + n % 4 when n % 10 = 0 then 1 else 2 end,
  case when n <= 50000 and n % 10 > 0 then 1 else 0 end, n % 3, cast(n as bigint) * 1048576, n,
  case when n > 50000 then 1 else 0 end,
  case when n % 10 = 0 then {later} end, case when n % 11 = 0 then {later} end,
  case when n % 10 > 0 then n end, case when n > 50000 then n end, case when n > 50000 then n end,
  case when n > 99000 and n % 4 = 2 then 1000 + n - 1 end, case when n > 99000 and n % 4 = 2 then 1 else 0 end,
  case when n % 4 = 1 and n < 99000 then 1 else 0 end, case when n > 50000 and n % 4 = 1 then 'EXCEPTION' end,
  case when n % 7 = 0 then 'key' || n end, 'task' || (n % 5), '{{}}', '{{}}', '{{}}'
from {series};
"""
# The first of each even target is open; each odd one is held.
FILL_TARGETS = """
insert into hw_target (id, tenant_id, name, created_at) select n, 1, 'target' || n, 1 from {few};
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, queued_at, target_id, task,
  params, options, created_by)
select 150000 + n, 1, 6, 2, case when n <= 2000 and n % 2 = 0 then 1 else 0 end, 0, cast(n as bigint) * 1048576, n, n,
  1 + (n - 1) % 2000, 'task0', '{{}}', '{{}}', '{{}}' from {many};
insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, fence, queued_at, started_at,
  target_id, task, params, options, created_by)
select 180000 + n, 1, 6, 4, 0, 1, n, 1, n, n, n, 'task0', '{{}}', '{{}}', '{{}}' from {few} where n % 2 = 1;
insert into hw_reservation (tenant_id, status, lanes, holder, created_at, granted_at, finished_at, expires_at, ttl,
  created_by)
select 1, 'RELEASED', '[1]', 'gone', n, n, n, n, 1, '{{}}' from {many};
"""
SERIES = {
    "postgres": "generate_series(1, {}) as s(n)",
    "sqlite": "(with recursive s(n) as (select 1 union all select n + 1 from s where n < {}) select n from s) s",
}
ADVANCE = {
    "postgres": [
        "select setval('hw_job_id', 200000)",
        "select setval(pg_get_serial_sequence('hw_target', 'id'), 2000)",
        "alter table hw_job set (autovacuum_enabled = false)",
    ],
    "sqlite": ["update hw_counter set value = 200000 where name = 'job'"],
}


@dataclass
class Recorded:
    """A statement as it was run: its parameters, and whether its transaction had pinned its plans."""

    name: str
    params: dict[str, object]
    pinned: bool


@dataclass
class Recording:
    calls: list[Recorded] = field(default_factory=list)

    def watch(self, tx: Tx) -> Tx:
        run, pinned = tx.run, False

        def watched(name: str, /, **params: object) -> list[Row]:
            nonlocal pinned
            self.calls.append(Recorded(name, dict(params), pinned))
            pinned = pinned or name == "pin_plans"
            return run(name, **params)

        def one_by_one(*calls: Call, commit: bool = False) -> list[list[Row]]:
            answers = [watched(name, **params) for name, params in calls]
            if commit:
                tx.commit()
            return answers

        tx.run = watched  # type: ignore[method-assign]
        tx.run_all = one_by_one  # type: ignore[method-assign]
        tx.send = partial(Tx.send, tx)  # type: ignore[method-assign]
        return tx


@contextmanager
def recording(life: Life) -> Iterator[Recording]:
    recording, database = Recording(), life.database
    begin, begin_read, once = database.begin, database.begin_read, database.once

    def once_watched(name: str, /, **params: object) -> list[Row]:
        recording.calls.append(Recorded(name, dict(params), False))
        return once(name, **params)

    database.begin = lambda label: recording.watch(begin(label))  # type: ignore[method-assign]
    database.begin_read = lambda: recording.watch(begin_read())  # type: ignore[method-assign]
    database.once = once_watched  # type: ignore[method-assign]
    try:
        yield recording
    finally:
        del database.begin, database.begin_read, database.once


@pytest.fixture(scope="module")
def crowded(shared_life: Life) -> Life:
    life = shared_life
    life.set_limit(None)
    for n in range(5):
        life.client.lanes.of(life.client.tenant_id, f"task{n}")
    assert life.client.lanes.of(life.client.tenant_id, "task0", on_target=True) == 6
    limits.settle(life.database, Concurrency(limit=None), {"ollama": 1}, actor=ADA)
    dialect = life.database.dialect
    with life.database.transaction("fill") as tx:
        series = SERIES[dialect].format
        text = FILL.format(later=life.clock.now() + 9 * HOUR, series=series(100_000))
        on_targets = FILL_TARGETS.format(few=series(2_000), many=series(20_000)).split(";")
        for one in (text, *on_targets, *ADVANCE[dialect]):
            if one.strip():
                tx.connection.execute(one)  # type: ignore[attr-defined]
    for state in ("PAUSED", "ERROR", "interrupting", "RUNNING"):
        for _ in range(4):
            life.in_state(state)
    return life


@pytest.fixture(scope="module")
def recorded(crowded: Life) -> list[Recorded]:
    """Every statement that the verbs run, once per name and way of running."""
    with recording(crowded) as found:
        live(crowded)
    kinds = {(call.name, call.pinned): call for call in found.calls if call.name not in ("pin_plans", "add_events")}
    return list(kinds.values())


def in_groups(life: Life) -> None:
    """Stages, results, holds, cancels, retries."""
    client = life.client
    wants = member(life, 1, "c", params='{"x":{"$result":"a"}}')
    made = client.groups.create(
        NewGroup("g", "staged", "stop", (member(life, 0, "a"), member(life, 0, "b"), wants, member(life, 2, "d")))
    )
    after = make(life, "a", "b", after_id=made)
    finish(life, made, "a")
    finish(life, made, "b")
    finish(life, made, "c", BROKEN)
    again = client.groups.retry(made)
    finish(life, again, "c")
    with life.database.read() as tx:
        group_views.group_view(tx, client.tenant_id, again)
        group_views.groups_page(tx, client.tenant_id)
        tx.run("pin_plans")
        tx.run("group_chains", group_id=made)
    client.groups.cancel(after)
    client.groups.cancel(again)


def live(life: Life) -> None:
    """All verbs, once."""
    client, database = life.client, life.database
    database.transact("due", lambda tx: (tx.run("pin_plans"), claims.promote(tx, life.actor())))
    client.enqueue(life.new(task="task0", resources=("ollama",)))
    on_targets(life)
    aged(life)
    direct_calls(life)
    in_groups(life)
    database.transact("look", lambda tx: (tx.run("pin_plans"), tx.run("front", tenant_id=client.tenant_id, limit=108)))
    claimed = turn(life, 50)
    turn(life, 1, lambda task: task == "task3")
    both, owner = {claim.job_id: claim.fence for claim in claimed[:2]}, life.worker_id
    assert (
        database.transact("ends", lambda tx: claims.complete(tx, owner, life.actor(), both, {}).result()) == both.keys()
    )
    for n, claim in enumerate(claimed[2:]):
        if n % 10 < 8:
            assert life.end(claim, Completed("1") if n % 2 else BROKEN)
        else:
            client.cancel(claim.job_id)
            assert life.end(claim, StoppedByRequest())
    ids = life.pick(30)
    for wish in ({"rank": 10**6}, {"to": "top"}, {"to": "bottom"}, {"to": "front"}, {"rank": 7}, {"before": ids[1]}):
        client.move(ids[0], **wish)
    for n in range(25):  # until the gap is used up
        client.move(ids[n % 2], after=ids[2])
    client.edit(ids[3], priority=9, params={"n": 1})
    client.interrupt(ids[4])
    client.resume(ids[4])
    failed = life.in_state("retried")
    client.retry(failed)
    client.retry(life.in_state("PAUSED"))
    client.resolve(life.in_state("ERROR"))
    client.release(life.in_state("PAUSED"))
    client.enqueue(life.new(key="taken"))
    client.enqueue(life.new(key="taken"))
    life.client.retry(life.in_state("FAILED", key="retaken"))
    database.transact(
        "beat", lambda tx: (workers.beat(tx, life.worker_id, 60.0), workers.stop_requests(tx, life.worker_id))
    )
    with database.read() as tx:
        claims.own(tx, life.worker_id)
    recover(life)
    Pruner(database, retention=1.0, artifacts=Path("nowhere")).prune(50_300)
    database.transact("retry", lambda tx: tx.run("any_retry", id=failed))
    database.transact("counted", lambda tx: tx.run("count_queued", tenant_id=1, most=50))


def on_targets(life: Life) -> None:
    """Jobs on targets: made, chosen, claimed, ended, held, resumed and moved."""
    client = life.client
    made = [client.enqueue(life.new(task="task0", target=name))[0] for name in ("target2", "target4", "new")]
    claimed = turn(life, 50, lambda task: task == "task0")
    for claim in claimed[:20]:
        assert life.end(claim, Completed())
    client.move(made[0], to="top")
    client.edit(made[1], priority=3)
    client.pause_target("target6")
    turn(life, 5)
    client.resume_target("target6")
    client.resume(180_001)
    client.cancel(180_003)
    turn(life, 5)


def aged(life: Life) -> None:
    wished = Concurrency(limit=None, aging=3600.0)
    limits.settle(life.database, wished, {}, actor=ADA, adopt=True)
    turn(life, 5)
    limits.settle(life.database, replace(wished, aging=None), {}, actor=ADA, adopt=True)


def direct_calls(life: Life) -> None:
    """One on a lane and one on a target, after so many others that a job goes first."""
    lane, target = 1, 8

    def reserve(tx: Tx) -> None:
        tx.run("claim_lock")
        for wish in ({"lanes": [lane], "target_id": None}, {"lanes": [], "target_id": target}):
            reservations.add(tx, 1, **wish, holder="call", actor=ADA, worker_id=7)
        for _ in range(BURST):
            tx.run("raise_streaks", ids=json.dumps([lane]))
            tx.run("raise_target_streak", id=target)

    def leave(tx: Tx) -> None:
        tx.run("claim_lock")
        for one in reservations.active(tx):
            reservations.end(tx, one.id, status="RELEASED", actor=ADA)

    life.database.transact("reserve", reserve)
    turn(life, 5)
    turn(life, 5)
    life.database.transact("leave", leave)
    life.database.transact("look", lambda tx: tx.run("ready_of_bucket", bucket_id=1))


def turn(life: Life, count: int, knows: Any = lambda _: True) -> list[Any]:
    """A worker's turn: what is due, then the claim, in one transaction."""
    lanes = BucketCache(life.database)
    slots = [next(life.slots) for _ in range(count)]

    def work(tx: Tx) -> list[Any]:
        tx.run("pin_plans")
        return life.claim_in(tx, slots, knows=knows, lanes=lanes)

    with life.database.read() as tx:
        view = claim_snapshot.glance(tx)
        if not claims.needs_settling(tx, view, lanes):
            select.pick(tx, view, lanes, knows, count)
    return life.database.transact("turn", work)


def recover(life: Life) -> None:
    gone = life.new_worker()
    claim = life.claim(life.enqueue(), worker_id=gone)
    life.database.transact("leave", lambda tx: workers.retire(tx, gone, "shut down"))
    Recovery(life.database).tick()
    assert life.status(claim.job_id) == "FAILED"


# --- SQLite ---

_ALIAS = re.compile(r"\bhw_job\b(?:\s+(?:as\s+)?(?!on\b|set\b|where\b|order\b|group\b|values\b)([a-z]\w*))?")
_STEP = re.compile(r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(?:INDEX (\w+)|(INTEGER PRIMARY KEY)))?")


def sqlite_scans(connection: apsw.Connection, text: str, params: dict[str, object]) -> list[str]:
    """Where all targets or reservations are looked at."""
    rows = [row[3] for row in connection.execute("explain query plan " + text, params)]
    return [row for row in rows if re.fullmatch(r"SCAN (hw_target|hw_reservation)", row)]


def sqlite_accesses(connection: apsw.Connection, text: str, params: dict[str, object]) -> list[tuple[str, str | None]]:
    """How the jobs are found: (SCAN or SEARCH, index)."""
    names = {"hw_job"} | {alias for alias in _ALIAS.findall(text) if alias}
    steps = [_STEP.match(row[3]) for row in connection.execute("explain query plan " + text, params)]
    return [(step[1], step[3] or step[4]) for step in steps if step and step[2] in names]


def check_sqlite(life: Life, calls: list[Recorded]) -> None:
    database = life.database
    assert isinstance(database, SqliteDatabase)
    for call in calls:
        for text in database.texts[call.name]:
            writer = database.begin("explain")
            try:
                params = {**call.params, "now": life.clock.now()}
                accesses = sqlite_accesses(writer.connection, text, params)
                steps = sqlite_steps(writer.connection, text, params)
                assert sqlite_scans(writer.connection, text, params) == [], call.name
            finally:
                database.end(writer)
            allowed = BY_NUMBER | BY_INDEX.get(call.name, set())
            assert all(index in allowed for _, index in accesses), f"{call.name}: {accesses}\n{text}"
            assert steps < STEPS, f"{call.name} took {steps} steps: {accesses}\n{text}"


def sqlite_steps(connection: apsw.Connection, text: str, params: dict[str, object]) -> int:
    steps: list[int] = []
    connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
    )
    try:
        connection.execute(text, params).fetchall()
    except apsw.ConstraintError:  # it has been done already: as far as it came, it was planned
        steps.append(0)
    finally:
        connection.trace_v2(0, None)
    return max(steps)


# --- PostgreSQL ---


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def large(value: object) -> bool:
    return isinstance(value, int) and abs(value) >= 1 << 31


def postgres_plan(
    connection: psycopg.Connection[Any], text: str, params: dict[str, object], *, run: bool
) -> list[dict[str, Any]]:
    """The steps of a plan that touch jobs, or what there may be as many of."""
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    bound = re.sub(r"%\(([a-z_][a-z0-9_]*)\)s", number, text).replace("%%", "%")
    connection.execute("deallocate all")
    # As the driver sends them: large numbers with their type, the rest without.
    types = ", ".join("bigint" if large(params[name]) else "unknown" for name in order)
    connection.execute(f"prepare one{f'({types})' if types else ''} as {bound}".encode())
    values = sql.SQL(", ").join(sql.Literal(params[name]) for name in order).as_string(connection)
    analyze = "analyze, timing off, " if run else ""
    arguments = f"({values})" if order else ""
    ((found,),) = connection.execute(f"explain ({analyze}format json) execute one{arguments}".encode()).fetchall()
    return [
        step for step in nodes(found[0]["Plan"]) if step.get("Relation Name") in TABLES and "Scan" in step["Node Type"]
    ]


def check_postgres(life: Life, calls: list[Recorded], *, generic: bool) -> None:
    database = life.database
    assert isinstance(database, PostgresDatabase)
    wrong: list[str] = []
    for call in calls:
        for text in database.texts[call.name]:
            tx = database.begin("explain")
            try:
                if call.pinned:
                    tx.run("pin_plans")
                if generic:
                    tx.connection.execute("set local plan_cache_mode = force_generic_plan")
                steps = postgres_plan(tx.connection, text, {**call.params, "now": life.clock.now()}, run=True)
            except psycopg.errors.UniqueViolation:
                continue  # it has been done already
            finally:
                database.end(tx)
            wrong += [
                f"{call.name} ({'pinned' if call.pinned else 'not pinned'}): {flaw}" for flaw in flaws(call, steps)
            ]
    assert not wrong, "\n" + "\n".join(wrong)


def flaws(call: Recorded, steps: list[dict[str, Any]]) -> Iterator[str]:
    allowed = BY_NUMBER | BY_INDEX.get(call.name, set())
    for step in steps:
        index = next((part["Index Name"] for part in nodes(step) if "Index Name" in part), None)
        seen = (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"]
        if index not in allowed and step["Relation Name"] == "hw_job":
            yield f"{step['Node Type']} {index or 'of all jobs'}"
        elif seen > FEW:
            yield f"{step['Node Type']} {index} looked at {seen:.0f} of {step['Relation Name']}"


# --- the tests ---


def test_the_recording_has_every_statement_that_the_table_names(recorded: list[Recorded]) -> None:
    assert set(BY_INDEX) | OTHERS <= {call.name for call in recorded}
    assert {"take", "complete", "save_job", "lock_job", "respace", "insert_retry", "enqueue"} <= {
        c.name for c in recorded
    }


def test_statements_find_their_jobs_by_an_index(crowded: Life, recorded: list[Recorded]) -> None:
    """On PostgreSQL nothing has been analysed yet: a new installation in its first minutes."""
    if crowded.database.dialect == "sqlite":
        check_sqlite(crowded, recorded)
    else:
        assert crowded.sql("select count(*) from pg_statistic where starelid = 'hw_job'::regclass") == [(0,)]
        check_postgres(crowded, recorded, generic=False)
        check_postgres(crowded, recorded, generic=True)


def test_statements_find_their_jobs_by_an_index_with_statistics_too(crowded: Life, recorded: list[Recorded]) -> None:
    with crowded.database.transaction("analyze") as tx:
        tx.connection.execute("analyze")  # type: ignore[attr-defined]
    if crowded.database.dialect == "sqlite":
        check_sqlite(crowded, recorded)
    else:
        check_postgres(crowded, recorded, generic=False)
        check_postgres(crowded, recorded, generic=True)


def test_the_guards_can_fail(crowded: Life) -> None:
    """A statement that looks at all jobs is found out."""
    bad = Recorded("unfinished_params", {"tenant_id": 1, "task": "task1"}, False)
    check = (
        check_sqlite
        if crowded.database.dialect == "sqlite"
        else lambda life, calls: check_postgres(life, calls, generic=True)
    )
    with pytest.raises(AssertionError, match="unfinished_params"):
        check(crowded, [bad])
