"""Migrations that are killed at every statement: the next start completes them, and no row is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from headway.errors import Unreachable
from headway.store.db import Database, Row, open_database
from headway.store.migrations import _apply, migrate, versions
from headway.store.sqlite.database import SqliteDatabase
from tests.store.test_migrate import ADVANCE, LEFT
from tests.support import dying_migration
from tests.support.deadlines import read_line
from tests.support.figures import Figure
from tests.support.life import raw_connection
from tests.support.postgres import fresh_database
from tests.support.waiting import at_once

ROOT = Path(__file__).parents[2]
# The parts of a PostgreSQL schema, as the catalogue spells them.
CATALOGUE = (
    "select table_name, column_name, data_type, is_nullable, column_default from information_schema.columns"
    " where table_schema = 'public' and column_default is distinct from 'x'",
    "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint"
    " where connamespace = 'public'::regnamespace",
    "select tablename, indexname, indexdef from pg_indexes where schemaname = 'public'",
    "select tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal",
    "select proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace and proname not like 'test_%'",
    "select tablename, policyname, qual, with_check from pg_policies where schemaname = 'public'",
    "select relname, relkind, relrowsecurity, relforcerowsecurity, relacl::text from pg_class"
    " where relnamespace = 'public'::regnamespace and relname not like 'test_%'",
)


def schema(database: Database) -> list[list[Row]]:
    """All of the schema."""
    texts: tuple[str, ...] = CATALOGUE
    if database.dialect == "sqlite":
        texts = ("select type, name, tbl_name, sql from sqlite_schema",)
    with database.read() as tx:
        found = [tx.connection.execute(text).fetchall() for text in texts]  # type: ignore[attr-defined]
    return [sorted(map(tuple, rows), key=repr) for rows in found]


def rows(database: Database) -> dict[str, list[Row]]:
    """All rows of all tables of ours; of the record of migrations, which there were."""
    listed = (
        "select name from sqlite_schema where type = 'table' and name like 'hw%'"
        if database.dialect == "sqlite"
        else "select tablename from pg_tables where schemaname = 'public' and tablename like 'hw%'"
    )
    found: dict[str, list[Row]] = {}
    with database.read() as tx:
        run = tx.connection.execute  # type: ignore[attr-defined]
        for (name,) in run(listed).fetchall():
            picked = "version" if name == "hw_schema" else "*"
            found[name] = sorted((tuple(row) for row in run(f"select {picked} from {name}").fetchall()), key=repr)
    return found


def state(url: str) -> tuple[list[list[Row]], dict[str, list[Row]]]:
    database = open_database(url)
    try:
        return schema(database), rows(database)
    finally:
        database.close()


def version(url: str) -> int:
    """0 where there is not even the record of migrations."""
    with raw_connection(url) as raw:
        try:
            return int(raw.execute("select coalesce(max(version), 0) from hw_schema").fetchall()[0][0])
        except (psycopg.errors.UndefinedTable, apsw.SQLError):
            return 0


def fill(url: str) -> None:
    """A database of the first schema with jobs in every state."""
    database = open_database(url)
    database.transact("migrate", lambda tx: _apply(tx, version=1))
    with database.transaction("fill") as tx:
        database.execute_script(tx, LEFT + ADVANCE[database.dialect])
    database.close()


def finish(url: str) -> None:
    with closing(open_database(url)) as database:
        migrate(database)


class Dying:
    """Starts migrations that are killed before their n-th statement."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.kills = 0

    def migrate(self, url: str, n: int) -> bool:
        """Whether it came to its end before that statement."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{url} {n}\n")
        self.process.stdin.flush()
        code = int(read_line(self.process.stdout))
        assert code in (0, -9), f"a migration that was to be killed at statement {n} ended with {code}"
        self.kills += code != 0
        return code == 0


@pytest.fixture
def dying() -> Iterator[Dying]:
    with started() as found:
        yield found


@contextmanager
def started() -> Iterator[Dying]:
    process = subprocess.Popen(
        [sys.executable, str(dying_migration.__file__)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Dying(process)
    finally:
        process.communicate(timeout=60)


@pytest.fixture
def whole(request: pytest.FixtureRequest, empty_url: str, tmp_path: Path) -> Iterator[str]:
    """A second empty database of the same kind, for the schema that is made in one go."""
    if not empty_url.startswith("postgresql:"):
        yield str(tmp_path / "whole.db")
        return
    with fresh_database(request.getfixturevalue("postgres_server")) as url:
        yield url


def test_a_migration_killed_at_every_statement_is_completed(
    empty_url: str, whole: str, dying: Dying, figure: Figure
) -> None:
    """From nothing up to the first version that is whole; the next start goes on from there."""
    finish(whole)
    n = 1
    while version(empty_url) == 0:
        assert not dying.migrate(empty_url, n)
        n += 1
    finish(empty_url)
    assert state(empty_url) == state(whole)
    assert dying.kills == n - 1 >= 5
    figure(f"migrations killed from nothing: {dying.kills}")


def test_data_survive_a_migration_killed_at_every_statement(
    empty_url: str, whole: str, dying: Dying, figure: Figure
) -> None:
    """From the first schema, with jobs in every state in it."""
    for url in (empty_url, whole):
        fill(url)
    finish(whole)
    n, before = 1, 1
    while not dying.migrate(empty_url, n):
        found = version(empty_url)
        assert found in (before, before + 1)  # a kill takes one version at the most with it
        n, before = (1 if found > before else n + 1), found
    assert state(empty_url) == state(whole)
    figure(f"migrations killed with data in them: {dying.kills}")


def test_a_migration_killed_beside_another(empty_url: str, whole: str, dying: Dying) -> None:
    """Two processes migrate at once, one of them is killed: the other one completes the schema."""
    for url in (empty_url, whole):
        fill(url)
    finish(whole)
    killed, done = at_once([lambda: dying.migrate(empty_url, 25), lambda: finish(empty_url)])
    killed.result()
    done.result()
    assert state(empty_url) == state(whole)


# Counts every statement that changes the schema, and ends its own connection at the one that was chosen.
AMBUSH = """
create sequence test_count;
create table test_at (n bigint);
insert into test_at values (0);
create function test_ambush() returns event_trigger language plpgsql as $$
begin
  if nextval('test_count') = (select n from test_at) then
    perform pg_terminate_backend(pg_backend_pid());
  end if;
end $$;
create event trigger test_ambush on ddl_command_start execute function test_ambush();
"""


def test_a_backend_that_ends_at_every_statement_of_a_migration(
    empty_postgres_url: str, postgres_server: str, figure: Figure
) -> None:
    """PostgreSQL gets a migration as one message: here its own process ends in the middle of that."""
    ended, n = 0, 1
    with (
        fresh_database(postgres_server) as whole,
        psycopg.connect(empty_postgres_url, autocommit=True) as raw,
    ):
        for url in (empty_postgres_url, whole):
            fill(url)
        finish(whole)
        raw.execute(AMBUSH)
        before = 1
        while True:
            raw.execute("update test_at set n = %s", [n])
            raw.execute("select setval('test_count', 1, false)")
            try:
                finish(empty_postgres_url)
            except Unreachable:
                pass  # its connection was ended
            else:
                break
            ended += 1
            found = version(empty_postgres_url)
            assert found >= before
            n, before = (1 if found > before else n + 1), found
        raw.execute("drop event trigger test_ambush")
        raw.execute("drop function test_ambush; drop table test_at; drop sequence test_count")
        assert state(empty_postgres_url) == state(whole)
    assert ended >= 20
    figure(f"backends ended in a migration: {ended}")


def test_the_ambush_is_seen(empty_sqlite_url: str, dying: Dying) -> None:
    """The kill comes where it was asked for: before the first statement there is nothing at all."""
    assert not dying.migrate(empty_sqlite_url, 1)
    assert SqliteDatabase(empty_sqlite_url).check() == []
    assert version(empty_sqlite_url) == 0
    assert dying.migrate(empty_sqlite_url, 100_000)
    assert version(empty_sqlite_url) == versions()[-1]
