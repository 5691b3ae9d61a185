"""Migrations: once, whoever comes first, forwards only, as a whole; and the same schema on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headway.engine.maintenance.recovery import Recovery
from headway.errors import Refused
from headway.model.jobs.outcome import Completed
from headway.store import workers
from headway.store.db import Database, Row, Tx, open_database
from headway.store.migrations import _apply, migrate, refuse_newer, versions
from headway.store.sqlite.database import SqliteDatabase
from tests.support.life import Life, raw_connection
from tests.support.waiting import at_once

MIGRATE = """
import sys
from headway.store.db import open_database
from headway.store.migrations import migrate
sys.stdin.readline()
database = open_database(sys.argv[1])
print(migrate(database), flush=True)
database.close()
"""


def columns(database: Database) -> dict[str, set[str]]:
    """Each table of ours with its columns."""
    if database.dialect == "sqlite":
        text = "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c where t.type = 'table'"
    else:
        text = "select table_name, column_name from information_schema.columns where table_schema = 'public'"
    found: dict[str, set[str]] = {}
    with database.read() as tx:
        for table, column in tx.connection.execute(text):  # type: ignore[attr-defined]
            if table.startswith("hw_"):
                found.setdefault(table, set()).add(column)
    return found


def indexes(database: Database) -> set[tuple[str, bool]]:
    """Those we named, and whether they are unique."""
    if database.dialect == "sqlite":
        text = "select name, sql from sqlite_schema where type = 'index' and sql is not null"
    else:
        text = "select indexname, indexdef from pg_indexes where schemaname = 'public'"
    with database.read() as tx:
        found = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
    own = [(name, "unique" in made.lower()) for name, made in found if name.startswith("hw_")]
    return {(name, unique) for name, unique in own if not name.endswith(("_pkey", "_key")) or name == "hw_job_key"}


def test_a_fresh_database_gets_every_migration_once(empty_url: str) -> None:
    database = open_database(empty_url)
    assert migrate(database) == versions()
    assert migrate(database) == []
    with database.read() as tx:
        found = tx.connection.execute("select version from hw_schema order by version").fetchall()  # type: ignore[attr-defined]
    assert [row[0] for row in found] == versions()
    database.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert versions() == list(range(1, len(versions()) + 1))


def test_a_second_opening_changes_nothing(empty_url: str) -> None:
    with Life(empty_url) as life:
        job_id = life.in_state("FAILED")
        before = life.everything()
    again = open_database(empty_url)
    assert migrate(again) == []
    again.close()
    with Life(empty_url) as life:
        assert life.everything(job_id)["job"] == before["job"]


def test_both_databases_have_the_same_tables_columns_and_indexes(sqlite_life: Life, postgres_life: Life) -> None:
    ours, theirs = columns(sqlite_life.database), columns(postgres_life.database)
    assert ours.pop("hw_counter") == {"name", "value"}  # a sequence elsewhere
    assert ours == theirs
    assert indexes(sqlite_life.database) == indexes(postgres_life.database)


def test_both_databases_guard_the_same(sqlite_life: Life, postgres_life: Life) -> None:
    ours = {row[0] for row in sqlite_life.sql("select name from sqlite_schema where type = 'trigger'")}
    theirs = {
        row[0] for row in postgres_life.sql("select tgname from pg_trigger where not tgisinternal and tgenabled = 'O'")
    }
    assert {name for name in theirs if not name.endswith("_whole")} == ours  # SQLite cannot truncate


def test_threads_that_migrate_at_once(empty_url: str) -> None:
    databases = [open_database(empty_url) for _ in range(4)]
    done = [future.result() for future in at_once([lambda d=d: migrate(d) for d in databases])]  # type: ignore[misc]
    assert sorted(version for ran in done for version in ran) == versions()  # each once, whoever did which
    for database in databases:
        database.close()


def test_processes_that_migrate_at_once(empty_url: str) -> None:
    """They open the file, switch it to WAL and make the schema, all at the same moment."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, empty_url],
            cwd=Path(__file__).parents[2] / "src",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], answers
    assert sorted(version for out, _ in answers for version in json.loads(out)) == versions()
    with Life(empty_url) as life:
        assert life.status(life.enqueue()) == "QUEUED"


def test_a_newer_schema_is_refused_and_left_alone(empty_url: str) -> None:
    with Life(empty_url) as life:
        life.enqueue()
    with raw_connection(empty_url) as raw:
        raw.execute("insert into hw_schema (version, applied_at) values (999, 0)")
    database = open_database(empty_url)
    with pytest.raises(Refused) as refusal:
        migrate(database)
    known = f"this Headway knows up to {versions()[-1]}"
    assert str(refusal.value) == f"the database has schema 999, {known}: install the newer Headway that made it"
    with database.read() as tx:
        assert tx.connection.execute("select max(version), count(*) from hw_schema").fetchall() == [  # type: ignore[attr-defined]
            (999, len(versions()) + 1)
        ]
    database.close()


def test_one_version_ahead_is_already_too_new() -> None:
    refuse_newer(versions()[-1])
    with pytest.raises(Refused):
        refuse_newer(versions()[-1] + 1)


def test_a_migration_that_fails_leaves_nothing_behind(empty_postgres_url: str) -> None:
    """Somebody has a table of that name: nothing is made, and when it is gone everything is."""
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("create table hw_event (mine integer)")
        database = open_database(empty_postgres_url)
        with pytest.raises(psycopg.errors.DuplicateTable):
            migrate(database)
        assert columns(database) == {"hw_event": {"mine"}}
        raw.execute("drop table hw_event")
        assert migrate(database) == versions()
        database.close()


def test_a_migration_that_fails_in_the_middle_leaves_nothing_behind(empty_sqlite_url: str) -> None:
    broken = Stumbling(empty_sqlite_url)
    with pytest.raises(Exception, match="already exists"):
        migrate(broken)
    assert columns(broken) == {}
    broken.close()
    database = open_database(empty_sqlite_url)
    assert migrate(database) == versions()
    database.close()


class Stumbling(SqliteDatabase):
    """Makes the tables, and then one of them again."""

    def execute_script(self, tx: Tx, text: str) -> None:
        super().execute_script(tx, text + "create table hw_tenant (again integer);")


def test_tables_of_other_programs_may_stand_beside_ours_on_postgresql(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("create table orders (id integer)")
    with Life(empty_postgres_url) as life:
        assert life.status(life.enqueue()) == "QUEUED"


# A database as the first schema left it: every state a job could be in then, with runs and events, and a worker.
LEFT = """
insert into hw_worker (id, host, boot, pid, process_start, slots, tasks, started_at, beat_at, lease_until)
  values (77, 'elsewhere', 'boot', 1, 1, 4, '["story.generate"]', 1, 1, 1);
insert into hw_bucket (id, tenant_id, task, lanes) values (3, 1, 'story.generate', '[1]'), (9, 1, 'other', '[1]');
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, fence, version, not_before,
  queued_at, started_at, finished_at, worker_id, slot, claimed_at, key, task, params, options, created_by) values
  (1, 1, 3, 6, 0, 0, 1048576, 1, 1, 3, null, 1, 2, 3, null, null, 2, null, 'story.generate', '{}', '{}', '{}'),
  (2, 1, 3, 3, 0, 0, 2097152, 1, 1, 2, null, 1, 2, null, 77, 0, 2, null, 'story.generate', '{}', '{}', '{}'),
  (3, 1, 3, 4, 0, 0, 3145728, 1, 1, 3, null, 1, 2, null, null, null, 2, null, 'story.generate', '{}', '{}', '{}'),
  (4, 1, 3, 2, 1, 0, 4194304, 1, 0, 1, null, 1, null, null, null, null, null, 'k', 'story.generate', '{}', '{}', '{}'),
  (5, 1, 9, 2, 1, 7, 5242880, 1, 0, 1, null, 1, null, null, null, null, null, null, 'other', '{}', '{}', '{}'),
  (6, 1, 3, 1, 0, 0, 6291456, 1, 0, 1, 5, null, null, null, null, null, null, null, 'story.generate', '{}', '{}', '{}'),
  (7, 1, 3, 0, 0, 0, 7340032, 1, 0, 1, null, null, null, null, null, null, null, null, 'story.generate', '{}', '{}',
   '{}');
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at, status, finished_at) values
  (1, 1, 'story.generate', '{}', 77, 2, 6, 3), (2, 1, 'story.generate', '{}', 77, 2, null, null),
  (3, 1, 'story.generate', '{}', 77, 2, null, null);
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor)
  select tenant_id, 'job', id, 1, 'job.created', case when status <= 1 then status else 2 end, 1, '{}' from hw_job;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
  select tenant_id, 'job', id, 2, 'job.claimed', 3, 2, '{}', 1 from hw_job where fence > 0;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
  select tenant_id, 'job', id, 3, 'job.ended', status, 3, '{}', 1 from hw_job where version = 3;
update hw_job set hold = 1 where id = 7;
update hw_lane set capacity = 4, version = 2 where name = 'global';
update hw_tenant set paused_at = 5, paused_until = 6 where id = 1;
"""
ADVANCE = {
    "postgres": "select setval('hw_job_id', 7); select setval(pg_get_serial_sequence('hw_bucket', 'id'), 9);",
    "sqlite": "update hw_counter set value = 7 where name = 'job';",
}


def contents(database: Database, tables: dict[str, str]) -> dict[str, list[Row]]:
    with database.read() as tx:
        return {
            name: [tuple(row) for row in tx.connection.execute(f"select {columns} from {name} order by 1").fetchall()]  # type: ignore[attr-defined]
            for name, columns in tables.items()
        }


def test_a_database_of_the_first_schema_with_data_in_it_is_brought_up_to_date(empty_url: str) -> None:
    old = open_database(empty_url)
    assert old.transact("migrate", lambda tx: _apply(tx, version=1)) == 0
    tables = {name: ", ".join(sorted(found, key="id job_id".find)) for name, found in columns(old).items()}
    tables = {name: found for name, found in tables.items() if name not in ("hw_schema", "hw_tenant")}
    with old.transaction("fill") as tx:
        old.execute_script(tx, LEFT + ADVANCE[old.dialect])
    before = contents(old, tables)
    assert migrate(old) == versions()[1:]
    assert contents(old, tables) == before  # not a row is gone, and none is different
    with old.read() as tx:
        assert {bool(row[4]) for row in tx.run("all_buckets")} == {False}
        assert [(row[0], row[1]) for row in tx.run("tenants")] == [(1, "default")]
    old.close()


def test_what_the_first_schema_left_goes_on_in_the_new_one(empty_url: str) -> None:
    """Every job that was there comes to its end, also beside jobs on targets and under another policy."""
    old = open_database(empty_url)
    old.transact("migrate", lambda tx: _apply(tx, version=1))
    with old.transaction("fill") as tx:
        old.execute_script(tx, LEFT + ADVANCE[old.dialect])
    old.close()
    with Life(empty_url) as life:
        new = [life.enqueue(target="desk"), life.enqueue(target="desk", task="other"), life.enqueue()]
        assert new == [8, 9, 10]
        assert life.client.enqueue(life.new(key="k")) == (4, False)
        assert life.sql("select count(*) from hw_bucket where on_target = 0") == [(2,)]  # the old ones serve new jobs
        life.database.transact("lost", lambda tx: workers.retire(tx, 77, "gone"))
        Recovery(life.database).tick()
        life.client.resume(3)
        life.client.resume(7)
        order: list[int] = []
        while taken := life.claim_next(1):
            order.append(taken[0].job_id)
            assert life.end(taken[0], Completed())
            life.clock.advance(60)
        ((retry,),) = life.sql("select id from hw_job where retry_of = 2")
        assert order == [5, retry, 3, 4, 6, 7, 8, 9, 10]  # the one that was lost is tried again, in its place
        assert life.sql("select id from hw_job where status < 6") == []
        life.check_versions()
