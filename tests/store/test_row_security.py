"""The second wall, on PostgreSQL: of every table there is, what another tenant owns is not there and cannot be written,
whatever a statement asks for; and every verb still works behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headway.engine.client.client import Client
from headway.errors import Unreachable
from headway.model.groups.group import NewGroup
from headway.model.jobs.outcome import Completed
from headway.store.db import open_database
from headway.store.jobs import views as job_views
from headway.store.migrations import migrate
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.row_security import ON, TenantScopedDatabase, row_security, walled
from headway.store.postgres.transaction import PostgresTx
from headway.testing import FrozenClock
from tests.docs.pages import blocks
from tests.support.life import ADA, Life
from tests.support.pgbouncer import Pooler
from tests.support.plans import member
from tests.support.schedules import teach
from tests.support.tenants import Things, add_tenant, furnish

TENANTS = Path(__file__).parents[2] / "docs" / "tenants.md"
# Nobody's in particular. Whatever else is in the schema belongs to tenants, and must be behind the wall.
SHARED = {
    *("hw_schema", "hw_setting", "hw_worker", "hw_process", "hw_task", "hw_touched", "hw_pruning", "hw_outbox"),
}


def tables(life: Life) -> list[str]:
    found = life.sql("select relname from pg_class where relkind = 'r' and relname like 'hw\\_%' order by relname")
    return [name for (name,) in found]


@pytest.fixture(scope="module")
def shared_url(postgres_server: str) -> Iterator[str]:
    from tests.support.postgres import fresh_database

    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def two(shared_life: Life) -> tuple[Life, Things, Things]:
    """Two tenants with one of everything."""
    life = shared_life
    return life, furnish(life, add_tenant(life, "one")), furnish(life, add_tenant(life, "two"))


def owner(table: str) -> str:
    """Whose a row is, in SQL."""
    if table == "hw_tenant":
        return "t.id"
    of_job = table in ("hw_result", "hw_report", "hw_log", "hw_artifact", "hw_wait")
    return "(select j.tenant_id from hw_job j where j.id = t.job_id)" if of_job else "t.tenant_id"


def test_every_table_of_tenants_has_the_wall(two: tuple[Life, Things, Things]) -> None:
    life, *_ = two
    secured = life.sql("select relname from pg_class where relrowsecurity")
    assert {name for (name,) in secured} == set(tables(life)) - SHARED


def test_rows_of_another_tenant_are_absent_and_cannot_be_written(two: tuple[Life, Things, Things]) -> None:
    life, one, other = two
    numbers = {name: number for number, name in life.sql("select id, name from hw_tenant")}
    mine, theirs = numbers[one.tenant], numbers[other.tenant]
    database = walled(life.database, mine)
    assert isinstance(database, TenantScopedDatabase)
    for table in sorted(set(tables(life)) - SHARED - {"hw_lane", "hw_turn", "hw_session", "hw_key"}):
        whose = owner(table)
        foreign = life.sql(f"select row_to_json(t)::text from {table} t where {whose} = {theirs}")
        own = life.sql(f"select count(*) from {table} t where {whose} = {mine}")
        assert foreign, f"nobody filled {table}"
        with database.read() as tx:
            found = tx.connection.execute(f"select count(*), count(*) filter (where {whose} = {theirs}) from {table} t")  # type: ignore[attr-defined]
            assert found.fetchall() == [(own[0][0], 0)], table
        column = "id" if table == "hw_tenant" else "job_id" if "job_id" in whose else "tenant_id"
        row = json.loads(foreign[0][0])
        write(database, table, f"insert into {table} select (jsonb_populate_record(null::{table}, %s::jsonb)).*", row)
        write(database, table, f"update {table} set {column} = {row[column]} where {column} <> {row[column]}")
        assert changed(database, f"update {table} set {column} = {column} where {column} = {row[column]}", table) == 0
        write(database, table, f"delete from {table}")


def write(database: TenantScopedDatabase, table: str, text: str, row: dict[str, Any] | None = None) -> None:
    """Refused by the wall, by a missing right, or by a trigger that lets nobody do it."""
    tx = database.begin("forbidden")
    try:
        with pytest.raises(psycopg.Error) as caught:
            tx.connection.execute(text, None if row is None else [json.dumps(row)])
    finally:
        database.end(tx)
    assert isinstance(
        caught.value, psycopg.errors.InsufficientPrivilege | psycopg.errors.IntegrityConstraintViolation
    ), f"{table}: {caught.value!r}"


def changed(database: TenantScopedDatabase, text: str, table: str) -> int:
    tx = database.begin("forbidden")
    try:
        return int(tx.connection.execute(text).rowcount)
    except psycopg.errors.InsufficientPrivilege:
        return 0
    finally:
        database.end(tx)


def test_turns_are_nobodys_business(two: tuple[Life, Things, Things]) -> None:
    life, one, _ = two
    database = walled(life.database, life.client.tenants.get(one.tenant).id)
    with database.read() as tx, pytest.raises(Unreachable, match="hw_turn"):
        tx.run("turns", ids="[0]")


def test_sessions_are_begun_and_found_beyond_it_and_are_not_there_behind_it(two: tuple[Life, Things, Things]) -> None:
    """Also for a role that was granted all tables."""
    life, one, _ = two
    mine = life.client.tenants.get(one.tenant).id
    client = life.client.sibling(ADA, one.tenant)
    client.database = database = walled(life.database, mine)
    _, plain = client.tokens.create("browser", "viewer", tenant=one.tenant)
    session = client.sessions.begin(plain)
    assert session is not None
    assert client.sessions.visitor(session) is not None
    assert life.sql("select count(*) from hw_session") == [(1,)]
    with database.read() as tx, pytest.raises(Unreachable, match="hw_session"):
        tx.run("ended_session")
    life.sql_write("grant select, insert, update, delete on hw_session to headway_tenant")
    with database.read() as tx:
        assert tx.connection.execute("select count(*) from hw_session").fetchall() == [(0,)]  # type: ignore[attr-defined]
    assert isinstance(database, TenantScopedDatabase)
    assert changed(database, "delete from hw_session", "hw_session") == 0
    text = "insert into hw_session (id, hash, token_id, created_at, expires_at) select 9, 'x', id, 0, 1 from hw_token"
    write(database, "hw_session", text)
    client.sessions.end(session)
    assert life.sql("select count(*) from hw_session") == [(0,)]


def test_the_keys_of_the_installation_are_not_there_behind_it(two: tuple[Life, Things, Things]) -> None:
    """Also for a role that was granted all tables."""
    life, one, _ = two
    client = life.client.sibling(ADA, one.tenant)
    client.database = database = walled(life.database, life.client.tenants.get(one.tenant).id)
    assert client.sessions.cookie_key() == life.client.sessions.cookie_key()
    with database.read() as tx, pytest.raises(Unreachable, match="hw_key"):
        tx.run("cookie_key")
    life.sql_write("grant select, insert, update, delete on hw_key to headway_tenant")
    with database.read() as tx:
        assert tx.run("cookie_key") == []
    life.sql_write("revoke all on hw_key from headway_tenant")


def test_lanes_are_ones_own_and_everybodys(two: tuple[Life, Things, Things]) -> None:
    life, one, _ = two
    mine = life.client.tenants.get(one.tenant).id
    life.sql_write(f"insert into hw_lane (tenant_id, kind, name) values ({mine}, 'policy', 'a'), (99, 'policy', 'b')")
    with walled(life.database, mine).read() as tx:
        assert {owner for _, owner, *_ in tx.run("lanes")} == {0, mine}


def test_a_role_without_a_tenant_sees_nothing(two: tuple[Life, Things, Things]) -> None:
    life, *_ = two
    with life.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        connection.execute("set local role headway_tenant")
        assert connection.execute("select count(*) from hw_job").fetchall() == [(0,)]
        assert connection.execute("select count(*) from hw_result").fetchall() == [(0,)]


# --- working behind it --------------------------------------------------------------------------------------------


def behind(life: Life, name: str) -> Client:
    client = add_tenant(life, name)
    client.database = walled(life.database, client.tenant_id)
    assert isinstance(client.database, TenantScopedDatabase)
    return client


def test_every_verb_works_behind_it(postgres_life: Life) -> None:
    life = postgres_life
    plain = add_tenant(life, "elsewhere")
    furnish(life, plain)
    client = behind(life, "walled")
    client_things = furnish(life, client)
    # What furnish does not do.
    client.move(client_things.queued, to="top")
    client.edit(client_things.queued, params={"n": 2}, priority=4)
    client.resume(client_things.queued)
    client.reorder([client_things.queued])
    client.resume(client_things.paused)
    client.cancel(client_things.paused)
    client.retry(client_things.failed)
    client.resolve(client_things.error, {"by": "hand"})
    client.interrupt(client_things.running)
    client.pause_queue(note="lunch")
    client.resume_queue()
    client.pause_queue(everybody=True)
    client.resume_queue(everybody=True)
    client.pause_target(client_things.target)
    client.resume_target(client_things.target)
    client.renew_reservation(client_things.reservation)
    client.release_reservation(client_things.reservation)
    client.groups.retry(client_things.failed_group)
    client.groups.cancel(client.groups.create(NewGroup("h", "parallel", "stop", (member(life, 0, "a"),))))
    client.schedules.edit(client_things.schedule, {"note": "x"})
    client.schedules.enable(client_things.schedule)
    client.templates.edit(client_things.template, priority=3)
    client.templates.archive(client_things.template)
    client.tokens.revoke(client_things.token)
    client.webhooks.edit(client_things.webhook, description="x")
    client.webhooks.rotate(client_things.webhook)
    client.webhooks.rotate_secret()
    client.webhooks.delete(client_things.webhook)
    assert client.enqueue(life.new(key="k"))[1]
    assert not client.enqueue(life.new(key="k"))[1]
    client.enqueue_many([life.new(target=f"desk {n}") for n in range(3)])
    client.tenants.edit("walled", {"max_queued": 100})
    client.enqueue(life.new(resources=()))
    life.check_versions()


def test_a_job_made_behind_it_runs_like_any_other(postgres_life: Life) -> None:
    life = postgres_life
    client = behind(life, "walled")
    job_id, _ = client.enqueue(life.new(target="desk"))
    (claim,) = life.claim_next()
    assert claim.job_id == job_id
    assert life.end(claim, Completed('{"ok":true}'))
    with client.database.read() as tx:
        shown = job_views.view(tx, client.tenant_id, job_id)
    assert shown.run is not None
    assert shown.run.result == '{"ok":true}'


def test_it_holds_for_its_transaction_only_also_behind_a_pooler(pooler: Pooler, postgres_url: str) -> None:
    clock = FrozenClock()
    database = PostgresDatabase(pooler.pooled(postgres_url), listen=postgres_url, clock=clock)
    with Life(postgres_url, database=database, clock=clock) as life:
        teach(life)
        here, client = life.enqueue(), behind(life, "walled")
        there, _ = client.enqueue(life.new())
        for _ in range(6):
            with client.database.read() as tx:
                assert [row[0] for row in tx.connection.execute("select id from hw_job")] == [there]  # type: ignore[attr-defined]
            assert life.sql("select id from hw_job order by id") == [(here,), (there,)]
            assert life.sql("select current_user, current_setting('headway.tenant_id', true)")[0][1] in (None, "")
        client.cancel(there)
        assert life.client.cancel(here).status.name == "CANCELLED"


def test_a_refused_write_says_so_and_changes_nothing(postgres_life: Life) -> None:
    life = postgres_life
    client = behind(life, "walled")
    with pytest.raises(Unreachable, match="row-level security"):
        client.database.transact(
            "forbidden",
            lambda tx: tx.run("add_events", rows=json.dumps([(1, "job", 9, 1, "x", None, "{}", None, None)])),
        )
    assert life.sql("select count(*) from hw_event where thing_id = 9") == [(0,)]


# --- what it costs ------------------------------------------------------------------------------------------------

READING = ("runs_of", "reports_of", "pick_jobs", "pick_runs", "paid_of", "groups_of", "targets_by_id", "queued_jobs_of")
NO_FILTER = dict.fromkeys(
    (
        "task",
        "key",
        "target_id",
        "group_id",
        "schedule_id",
        "failure_kind",
        "by_name",
        "by_id",
        "q",
        "exhausted",
        "stopping",
    ),
    None,
)


def test_statements_find_their_rows_by_an_index_behind_it_too(postgres_life: Life) -> None:
    """A cast beside a column with policies would keep the planner from its index."""
    life = postgres_life
    client = behind(life, "walled")
    ids = [job_id for job_id, _ in client.enqueue_alike(life.new(), ["{}"] * 20_000)]
    life.sql_write(
        "insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)"
        " select id, tenant_id, task, params, 1, 1 from hw_job"
    )
    life.sql_write("analyze")
    params = {**NO_FILTER, "ids": json.dumps(ids[:50]), "tenant_id": client.tenant_id, "mask": 1023}
    params |= {"since": 0, "until": 2**62, "limit": 50}
    database = client.database
    assert isinstance(database, TenantScopedDatabase)
    for name in READING:
        with database.read() as tx:
            assert isinstance(tx, PostgresTx)
            for text in tx.texts[name]:
                found = tx.connection.execute(f"explain {text}", params).fetchall()
                scans = [row for (row,) in found if "Seq Scan on hw_job" in row or "Seq Scan on hw_run" in row]
                assert scans == [], f"{name}: {found}"


# --- where there is none ------------------------------------------------------------------------------------------


def test_on_sqlite_there_is_none_and_it_says_so(sqlite_life: Life) -> None:
    assert walled(sqlite_life.database, 1) is sqlite_life.database
    with sqlite_life.database.read() as tx:
        assert str(row_security(tx)).startswith("none: SQLite")


@contextmanager
def modest(url: str) -> Iterator[str]:
    """The database for a user who may make tables and no roles."""
    with psycopg.connect(url, autocommit=True) as raw:
        name = f"modest_{raw.info.dbname}"
        raw.execute(f"create role \"{name}\" login password 'x'")
        raw.execute(f'grant all on schema public to "{name}"')
        parts: dict[str, Any] = dict(psycopg.conninfo.conninfo_to_dict(url))
        try:
            yield psycopg.conninfo.make_conninfo(**{**parts, "user": name, "password": "x"})
        finally:
            raw.execute(f'drop owned by "{name}"')
            raw.execute(f'revoke all on schema public from "{name}"')
            raw.execute(f'drop role "{name}"')


@pytest.fixture
def owned_url(empty_postgres_url: str) -> Iterator[str]:
    with modest(empty_postgres_url) as url:
        yield url


def test_an_owner_that_may_not_become_the_role_has_no_wall_until_it_may(
    owned_url: str, empty_postgres_url: str
) -> None:
    """The role itself may be there already, from another database of the same server."""
    database = PostgresDatabase(owned_url)
    migrate(database)
    with database.read() as tx:
        state = str(row_security(tx))
        user = tx.connection.info.user  # type: ignore[attr-defined]
    assert state.startswith("off: "), state
    assert walled(database, 1) is database
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        if not raw.execute("select 1 from pg_roles where rolname = 'headway_tenant'").fetchall():
            raw.execute("create role headway_tenant nologin")
        raw.execute(f'grant headway_tenant to "{user}"')
    with database.read() as tx:
        state = str(row_security(tx))
    if state != str(ON):
        assert "may not use the tables" in state
        with psycopg.connect(owned_url, autocommit=True) as raw:
            raw.execute("grant usage on schema public to headway_tenant")
            raw.execute("grant select on all tables in schema public to headway_tenant")
    assert isinstance(walled(database, 1), TenantScopedDatabase)
    database.close()


RIGHTS = """
select table_name, privilege_type from information_schema.role_table_grants
where grantee = 'headway_tenant' and table_schema = 'public'
union all
select c.relname, a.privilege_type from pg_class c, aclexplode(c.relacl) a
where c.relkind = 'S' and a.grantee = 'headway_tenant'::regrole
union all
select n.nspname, a.privilege_type from pg_namespace n, aclexplode(n.nspacl) a
where n.nspname = 'public' and a.grantee = 'headway_tenant'::regrole
order by 1, 2
"""


def test_the_grants_by_hand_give_what_the_migrations_give(postgres_life: Life) -> None:
    (by_hand,) = [block.text for block in blocks(TENANTS) if block.language == "sql"]
    of_role = ("create role headway_tenant nologin", "grant headway_tenant to headway")
    statements = [part.strip() for part in by_hand.split(";") if part.strip()]
    assert statements[:2] == list(of_role)
    with psycopg.connect(postgres_life.url, autocommit=True) as raw:
        by_migrations = raw.execute(RIGHTS).fetchall()
        assert len(by_migrations) > 50
        for thing in ("all tables in schema public", "all sequences in schema public", "schema public"):
            raw.execute(f"revoke all on {thing} from headway_tenant")
        assert raw.execute(RIGHTS).fetchall() == []
        for statement in statements[2:]:
            raw.execute(statement)
        assert raw.execute(RIGHTS).fetchall() == by_migrations


def test_another_user_who_is_no_owner_sees_everything(postgres_life: Life) -> None:
    """Workers may be another user than the one who migrates; that they could become the role does not wall them in."""
    life = postgres_life
    life.enqueue()
    with (
        modest(life.url) as modest_url,
        psycopg.connect(life.url, autocommit=True) as raw,
        psycopg.connect(modest_url) as other,
    ):
        raw.execute(f'grant select, insert, update on all tables in schema public to "{other.info.user}"')
        raw.execute(f'grant headway_tenant to "{other.info.user}"')
        assert other.execute("select count(*) from hw_job").fetchall() == [(1,)]


def test_the_open_database_is_unchanged(postgres_life: Life) -> None:
    assert open_database(postgres_life.url).beyond().dialect == "postgres"
    assert postgres_life.client.sibling(ADA, "default").database is postgres_life.database
