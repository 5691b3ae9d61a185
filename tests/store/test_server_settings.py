"""Settings that a server, a role or a database gives its sessions: with hostile values everything works as without."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import psycopg
import pytest
from psycopg import sql

from headway.errors import BadInput, Unreachable
from headway.model.jobs.job import NewJob, Options
from headway.model.jobs.outcome import Completed
from headway.store.db import open_database
from headway.store.postgres import session
from headway.store.postgres.transaction import PostgresTx
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.cable import cabled
from tests.support.figures import Figure
from tests.support.life import BROKEN, TASK, Life
from tests.support.postgres import fresh_database
from tests.support.schedules import Clockwork
from tests.support.waiting import at_once

ROUNDS = 8 if os.environ.get("HEADWAY_PROOF") else 1
EVIL = "evil, public, pg_catalog"
HOSTILE = [
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_isolation", "read uncommitted"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "on"),
    ("search_path", EVIL),
    ("statement_timeout", "300ms"),
    ("statement_timeout", "1ms"),
    ("lock_timeout", "1ms"),
    ("idle_in_transaction_session_timeout", "300ms"),
    ("idle_in_transaction_session_timeout", "1ms"),
    ("idle_session_timeout", "300ms"),
    ("transaction_timeout", "300ms"),
    ("transaction_timeout", "1ms"),
    ("deadlock_timeout", "1h"),
    ("synchronous_commit", "off"),
    ("synchronous_commit", "local"),
    ("synchronous_commit", "remote_apply"),
    ("commit_delay", "100"),
    ("session_replication_role", "replica"),
    ("row_security", "off"),
    ("DateStyle", "German, DMY"),
    ("DateStyle", "Postgres, MDY"),
    ("IntervalStyle", "sql_standard"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "Pacific/Kiritimati"),
    ("TimeZone", "<-13:30>+13:30"),
    ("extra_float_digits", "-15"),
    ("bytea_output", "escape"),
    ("client_encoding", "LATIN1"),
    ("client_encoding", "SQL_ASCII"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "off"),
    ("escape_string_warning", "on"),
    ("escape_string_warning", "off"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("quote_all_identifiers", "on"),
    ("xmlbinary", "hex"),
    ("xmloption", "document"),
    ("lc_messages", "C"),
    ("client_min_messages", "debug5"),
    ("client_min_messages", "error"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("plan_cache_mode", "force_custom_plan"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_seqscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_hashagg", "off"),
    ("enable_sort", "off"),
    ("enable_material", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_memoize", "off"),
    ("enable_tidscan", "off"),
    ("enable_incremental_sort", "off"),
    ("jit_inline_above_cost", "0"),
    ("debug_parallel_query", "on"),
    ("join_collapse_limit", "1"),
    ("from_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("constraint_exclusion", "on"),
    ("cursor_tuple_fraction", "0"),
    ("work_mem", "64kB"),
    ("temp_file_limit", "0"),
    ("maintenance_work_mem", "1MB"),
    ("temp_buffers", "800kB"),
    ("default_tablespace", "pg_default"),
    ("check_function_bodies", "off"),
    ("track_activities", "off"),
    ("plpgsql.variable_conflict", "use_column"),
    ("plpgsql.extra_errors", "all"),
    ("tcp_keepalives_idle", "7200"),
    ("client_connection_check_interval", "0"),
]


@dataclass(frozen=True)
class Ground:
    """One database for all of this, with a clock that its lives share."""

    url: str
    clock: FrozenClock
    raw: psycopg.Connection[tuple[object, ...]]

    @contextmanager
    def hostile(self, setting: str, value: str, *, role: bool) -> Iterator[None]:
        """Every session begins with it: by the database, or by the role in it."""
        name = sql.Identifier(self.raw.info.dbname)
        whose = sql.SQL("role {} in database {}").format(sql.Identifier(self.raw.info.user), name)
        whose = whose if role else sql.SQL("database {}").format(name)
        path = sql.SQL(value) if setting == "search_path" else sql.Literal(value)
        given = sql.SQL(setting)
        if setting.startswith("plpgsql."):
            self.raw.execute("load 'plpgsql'")
        self.raw.execute(sql.SQL("alter {} set {} = {}").format(whose, given, path))
        self._end_sessions()
        try:
            yield
        finally:
            self.raw.execute(sql.SQL("alter {} reset {}").format(whose, given))
            self._end_sessions()

    def _end_sessions(self) -> None:
        """A pooler would go on with sessions that began before the change."""
        self.raw.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="module")
def ground(postgres_server: str, postgres_template: str) -> Iterator[Ground]:
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(postgres_server, template=postgres_template))
        raw = stack.enter_context(psycopg.connect(url, autocommit=True))
        clock = FrozenClock()
        with Life(url, clock=clock) as life:
            Clockwork(life).create(cron="* * * * *", overlap="allow")
        yield Ground(url, clock, raw)


@pytest.fixture(scope="module")
def evil(ground: Ground) -> Iterator[None]:
    """A schema that has everything of ours by name, and functions of the server's by name."""
    for text in (
        "create schema evil",
        "create table evil.hw_job (like public.hw_job including all)",
        "create table evil.hw_event (like public.hw_event)",
        "create table evil.hw_setting (like public.hw_setting)",
        "create function evil.set_config(text, text, boolean) returns text language sql return null",
        "create function evil.jsonb_array_elements(jsonb) returns setof jsonb language sql as 'select $1 limit 0'",
        "create function evil.statement_timestamp() returns timestamptz language sql return 'epoch'::timestamptz",
        "create function evil.pg_advisory_xact_lock(bigint) returns void language sql as 'select'",
        "create function evil.equal(bigint, bigint) returns boolean language sql return false",
        "create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.equal)",
    ):
        ground.raw.execute(text.encode())
    yield
    ground.raw.execute("drop schema evil cascade")


def hooked(life: Life) -> NewJob:
    new = life.new(params='{"snow":"\\u2603 ☃ \\\\ \' 1.1"}')
    return new._replace(options=replace(Options.parse(new.options), webhook_url="https://hook.example/x").text())


def in_pairs(life: Life, rounds: int) -> None:
    """Two claimers, each with a job that only it can run, under limit 1: one gets its job, and the other none."""
    for _ in range(rounds):
        life.enqueue(), life.enqueue(task="other")
        for _ in range(2):
            calls = [partial(life.claim_next, knows=task.__eq__) for task in (TASK, "other")]
            taken = [claim for future in at_once(calls) for claim in future.result()]
            assert len(taken) == 1
            assert life.end(taken[0], Completed("7"))
    assert life.claim_next() == []


def live(life: Life) -> None:
    """A failure and its retry, a tick of the schedule, a delivery in the outbox, a job with odd params."""
    failing, hook = life.enqueue(), life.client.enqueue(hooked(life))[0]
    life.run(failing, BROKEN)
    life.run(hook, Completed('{"ok":"☃"}'))
    assert life.sql(f"select count(*) from hw_delivery where job_id = {hook}") == [(1,)]
    assert life.job(hook).params == hooked(life).params
    fired = life.sql("select count(*) from hw_tick where outcome = 'FIRED'")[0][0]
    life.clock.advance(60)
    clockwork = Clockwork(life)
    clockwork.round()
    clockwork.scheduler.waiter.close()
    assert life.sql("select count(*) from hw_tick where outcome = 'FIRED'")[0][0] > fired
    linger(life)
    while claims := life.claim_next():
        assert life.end(claims[0], Completed())
    assert {row[0] for row in life.sql(f"select status from hw_job where retry_of = {failing}")} == {6}


def linger(life: Life) -> None:
    """A transaction with a statement that takes longer than the timeouts below, and as long a pause."""
    tx = life.database.begin("linger")
    assert isinstance(tx, PostgresTx)
    limits = life.sql("select count(*) from pg_db_role_setting, unnest(setconfig) s where s like '%=300ms'")
    seconds = 0.4 if limits != [(0,)] else 0.0
    tx.connection.execute("select pg_sleep(%s)", [seconds])
    threading.Event().wait(seconds)
    tx.run("ping")
    tx.commit()
    life.database.end(tx)


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize(("number", "setting", "value"), [(n, *pair) for n, pair in enumerate(HOSTILE * ROUNDS)])
def test_a_life_under_a_hostile_setting(ground: Ground, number: int, setting: str, value: str, figure: Figure) -> None:
    with ground.hostile(setting, value, role=bool(number % 2)), Life(ground.url, clock=ground.clock) as life:
        live(life)
        in_pairs(life, 8 if "isolation" in setting else 1)
        assert [str(one) for one in check(life.database).findings] == []
    assert ground.raw.execute("select count(*) from evil.hw_job").fetchall() == [(0,)]
    figure("lives of a job under a hostile setting of the server, the database or the role", 1)


def test_there_are_sixty_settings() -> None:
    assert len(set(HOSTILE)) >= 60


# --- what is refused ---


@pytest.mark.parametrize("path", ["''", "pg_temp", "nowhere"])
def test_a_search_path_without_a_schema_is_refused_with_the_way_out(ground: Ground, path: str) -> None:
    with (
        ground.hostile("search_path", path, role=False),
        pytest.raises(Unreachable, match=r"names no schema for Headway's tables: run `alter role .* set search_path"),
        Life(ground.url, clock=ground.clock),
    ):
        pass


def test_a_role_without_rights_is_refused(ground: Ground) -> None:
    """A setting of the login role makes each of its sessions another role."""
    with (
        ground.hostile("role", "pg_monitor", role=True),
        pytest.raises(Unreachable, match="PostgreSQL refuses writes by this user"),
        Life(ground.url, clock=ground.clock),
    ):
        pass


def test_a_server_that_ends_every_first_statement_is_named(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server under load does with a timeout of 1 ms."""
    monkeypatch.setattr(session, "_FIRST", "begin; set local statement_timeout = 1; select pg_sleep(1)")
    with (
        pytest.raises(Unreachable, match=r"ended the first statement of 10 sessions .*reset statement_timeout"),
        open_database(postgres_url).read(),
    ):
        pass


# --- what a transaction has ---


def shown(life: Life, *names: str) -> list[str]:
    tx = life.database.begin("shown")
    assert isinstance(tx, PostgresTx)
    try:
        return [tx.connection.execute(f"show {name}".encode()).fetchall()[0][0] for name in names]
    finally:
        life.database.end(tx)


@pytest.mark.parametrize(
    ("below", "ours"),
    [("off", "on"), ("local", "local"), ("remote_write", "remote_write"), ("remote_apply", "remote_apply")],
)
def test_a_commit_is_synced_and_waits_for_replicas_as_the_administrator_says(
    ground: Ground, below: str, ours: str
) -> None:
    with ground.hostile("synchronous_commit", below, role=False), Life(ground.url, clock=ground.clock) as life:
        assert shown(life, "synchronous_commit") == [ours]
        with life.database.read() as tx:
            found = tx.connection.execute("show transaction_isolation").fetchall()  # type: ignore[attr-defined]
            assert found == [("repeatable read",)]


@pytest.mark.direct("a pooler gives its own connections to the server")
def test_both_sides_notice_within_a_minute_that_the_other_has_vanished(postgres_url: str) -> None:
    """The server names 0 for a connection through a socket file, which needs no keepalives."""
    wanted = {
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "60000",
        "client_connection_check_interval": "10000",
    }
    with cabled(postgres_url) as (_, url), closing(open_database(url)) as database, database.read() as tx:
        connection = tx.connection  # type: ignore[attr-defined]
        found = connection.execute(
            "select name, setting, source from pg_settings where name = any(%s)", [list(wanted)]
        ).fetchall()
        by_file = connection.execute("select inet_client_addr() is null").fetchall()[0][0]
        expected = {name: "0" if by_file and name.startswith("tcp_") else value for name, value in wanted.items()}
        assert {name: setting for name, setting, _ in found} == expected
        assert {source for *_, source in found} == {"session"}, "Headway has set each of them"
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            assert [ours.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 10, 3, 60_000]


def test_triggers_that_only_a_superuser_can_turn_on_again(ground: Ground) -> None:
    """Without them rows are not guarded and deliveries not made: such a session is refused."""
    role = f"plain_{ground.raw.info.backend_pid}"
    ground.raw.execute(f"create role {role} login".encode())
    ground.raw.execute(f"grant all on all tables in schema public to {role}".encode())
    ground.raw.execute(f"alter role {role} set session_replication_role = replica".encode())
    try:
        with pytest.raises(Unreachable, match="session_replication_role"), Life(f"{ground.url}&user={role}"):
            pass
    finally:
        ground.raw.execute(f"drop owned by {role}; drop role {role}".encode())


# --- a connection of the caller's ---


@pytest.mark.usefixtures("evil")
def test_a_job_on_a_connection_with_another_search_path_comes_to_the_right_table(ground: Ground) -> None:
    with Life(ground.url, clock=ground.clock) as life, psycopg.connect(ground.url) as own:
        own.execute("set search_path = evil, public")
        job_id = life.client.enqueue_on(own, life.new(), ["{}"])[0]
        assert own.execute("show search_path").fetchall() == [("evil, public",)]
        own.commit()
        assert life.status(job_id) == "QUEUED"
        own.autocommit = True
        second = life.client.enqueue_on(own, life.new(), ["{}"])[0]
        assert own.execute("show search_path").fetchall() == [("evil, public",)]
        assert life.status(second) == "QUEUED"
        for job in (job_id, second):
            life.client.cancel(job)


def test_a_connection_to_another_database_is_refused(ground: Ground, postgres_server: str) -> None:
    with (
        Life(ground.url, clock=ground.clock) as life,
        fresh_database(postgres_server) as other,
        psycopg.connect(other) as own,
        pytest.raises(BadInput, match="another database"),
    ):
        life.client.enqueue_on(own, life.new(), ["{}"])
