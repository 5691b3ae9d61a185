"""Migrations: once, whoever comes first, forwards only, as a whole; and the same schema on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headway.errors import Refused
from headway.store.db import Database, Tx, open_database
from headway.store.migrate import migrate, refuse_newer, versions
from headway.store.sqlite import SqliteDatabase
from tests.support.life import Life, raw_connection
from tests.support.waiting import at_once

MIGRATE = """
import sys
from headway.store.db import open_database
from headway.store.migrate import migrate
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


def test_a_fresh_database_gets_every_migration_once(database_url: str) -> None:
    database = open_database(database_url)
    assert migrate(database) == versions()
    assert migrate(database) == []
    with database.read() as tx:
        found = tx.connection.execute("select version from hw_schema order by version").fetchall()  # type: ignore[attr-defined]
    assert [row[0] for row in found] == versions()
    database.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert versions() == list(range(1, len(versions()) + 1))


def test_a_second_opening_changes_nothing(database_url: str) -> None:
    with Life(database_url) as life:
        job_id = life.in_state("FAILED")
        before = life.everything()
    again = open_database(database_url)
    assert migrate(again) == []
    again.close()
    with Life(database_url) as life:
        assert life.everything(job_id)["job"] == before["job"]


def test_both_databases_have_the_same_tables_columns_and_indexes(sqlite_life: Life, postgres_life: Life) -> None:
    ours, theirs = columns(sqlite_life.database), columns(postgres_life.database)
    assert ours.pop("hw_counter") == {"name", "value"}  # a sequence elsewhere
    assert ours == theirs
    assert indexes(sqlite_life.database) == indexes(postgres_life.database)


def test_both_databases_guard_the_same(sqlite_life: Life, postgres_life: Life) -> None:
    ours = {row[0] for row in sqlite_life.sql("select name from sqlite_schema where type = 'trigger'")}
    theirs = {row[0] for row in postgres_life.sql("select tgname from pg_trigger where not tgisinternal")}
    assert {name for name in theirs if not name.endswith("_whole")} == ours  # SQLite cannot truncate


def test_threads_that_migrate_at_once(database_url: str) -> None:
    databases = [open_database(database_url) for _ in range(4)]
    done = [future.result() for future in at_once([lambda d=d: migrate(d) for d in databases])]  # type: ignore[misc]
    assert sorted(done, key=len) == [[], [], [], versions()]
    for database in databases:
        database.close()


def test_processes_that_migrate_at_once(database_url: str) -> None:
    """They open the file, switch it to WAL and make the schema, all at the same moment."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, database_url],
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
    assert sorted((out.strip() for out, _ in answers), key=len) == ["[]", "[]", str(versions())]
    with Life(database_url) as life:
        assert life.status(life.enqueue()) == "QUEUED"


def test_a_newer_schema_is_refused_and_left_alone(database_url: str) -> None:
    with Life(database_url) as life:
        life.enqueue()
    with raw_connection(database_url) as raw:
        raw.execute("insert into hw_schema (version, applied_at) values (999, 0)")
    database = open_database(database_url)
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


def test_a_migration_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    """Somebody has a table of that name: nothing is made, and when it is gone everything is."""
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute("create table hw_event (mine integer)")
        database = open_database(postgres_url)
        with pytest.raises(psycopg.errors.DuplicateTable):
            migrate(database)
        assert columns(database) == {"hw_event": {"mine"}}
        raw.execute("drop table hw_event")
        assert migrate(database) == versions()
        database.close()


def test_a_migration_that_fails_in_the_middle_leaves_nothing_behind(sqlite_url: str) -> None:
    broken = Stumbling(sqlite_url)
    with pytest.raises(Exception, match="already exists"):
        migrate(broken)
    assert columns(broken) == {}
    broken.close()
    database = open_database(sqlite_url)
    assert migrate(database) == versions()
    database.close()


class Stumbling(SqliteDatabase):
    """Makes the tables, and then one of them again."""

    def execute_script(self, tx: Tx, text: str) -> None:
        super().execute_script(tx, text + "create table hw_tenant (again integer);")


def test_tables_of_other_programs_may_stand_beside_ours_on_postgresql(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute("create table orders (id integer)")
    with Life(postgres_url) as life:
        assert life.status(life.enqueue()) == "QUEUED"
