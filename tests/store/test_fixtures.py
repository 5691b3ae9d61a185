"""The databases the tests stand on: fresh, with the schema or empty, apart from each other, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import psutil
import psycopg
import pytest

from tests.support.deadlines import read_line
from tests.support.life import Life, raw_connection
from tests.support.postgres import fresh_database
from tests.support.templates import make_template

OWNER = """
import os, pathlib, sys
from tests.support.postgres import postgres_server
with postgres_server(directory=pathlib.Path(sys.argv[1])) as dsn:
    if os.fork():
        print(dsn, flush=True)
    sys.stdin.read()
    os._exit(0)
"""


def test_an_empty_sqlite_url_is_a_new_file(empty_sqlite_url: str) -> None:
    assert not Path(empty_sqlite_url).exists()
    connection = apsw.Connection(empty_sqlite_url)
    connection.execute("create table kept (n integer)")
    connection.execute("insert into kept values (1)")
    connection.close()
    again = apsw.Connection(empty_sqlite_url)
    assert again.execute("select n from kept").fetchall() == [(1,)]
    again.close()


def test_an_empty_postgres_url_is_an_empty_database(empty_postgres_url: str) -> None:
    assert empty_postgres_url.startswith("postgresql://")
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)


def everything(url: str) -> dict[str, object]:
    """How each table was made and what is in it, but for the time of the migration."""
    with raw_connection(url) as raw:
        if url.startswith("postgresql://"):
            named = "select tablename from pg_tables where schemaname = 'public'"
            made = "select table_name, column_name, data_type, column_default from information_schema.columns"
            text = f"{made} where table_schema = 'public' order by 1, 2"
        else:
            named = "select name from sqlite_schema where type = 'table'"
            text = "select type, name, sql from sqlite_schema order by 1, 2"
        tables = [name for (name,) in raw.execute(named).fetchall()]
        held = {name: raw.execute(f"select * from {name} order by 1").fetchall() for name in tables}
        held["hw_schema"] = [version for version, _ in held["hw_schema"]]
        return {**held, "made": raw.execute(text).fetchall()}


def test_a_copied_database_is_as_the_migrations_make_one(
    database_url: str, empty_sqlite_url: str, empty_postgres_url: str
) -> None:
    made = empty_postgres_url if database_url.startswith("postgresql://") else empty_sqlite_url
    make_template(made)
    assert everything(database_url) == everything(made)


def test_copied_sqlite_files_are_whole_and_apart(sqlite_url: str, sqlite_template: Path) -> None:
    assert [file.name for file in Path(sqlite_url).parent.iterdir()] == ["headway.db"]
    before = sqlite_template.read_bytes()
    with Life(sqlite_url) as life:
        life.enqueue()
    assert sqlite_template.read_bytes() == before


def test_postgres_acknowledges_after_the_commit_is_written(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)


def test_postgres_databases_do_not_see_each_other(
    postgres_server: str, postgres_template: str, postgres_url: str
) -> None:
    with (
        fresh_database(postgres_server, template=postgres_template) as other_url,
        psycopg.connect(postgres_url) as one,
        psycopg.connect(other_url) as other,
    ):
        one.execute("create table mine (n integer)")
        one.commit()
        assert one.execute("select to_regclass('mine') is null").fetchone() == (False,)
        assert other.execute("select to_regclass('mine') is null").fetchone() == (True,)


def test_a_postgres_database_is_dropped_even_if_someone_is_connected(postgres_server: str) -> None:
    with fresh_database(postgres_server) as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("select 1")
    left_open.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_database_url_gives_both_kinds(database_url: str, request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.id
    assert database_url.startswith("postgresql://") == (kind == "postgres")
    assert kind in {"sqlite", "postgres"}


def test_a_killed_owner_leaves_no_server_and_no_data(scratch: Path) -> None:
    directory = scratch / "owned"
    directory.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        dsn = read_line(owner.stdout).strip()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("show fsync").fetchone() == ("on",)
        [keeper] = [child for child in psutil.Process(owner.pid).children() if "-P" in child.cmdline()]
        owner.kill()
        # Meanwhile the owner's forked child lives on, with the owner's end of every pipe.
        assert psutil.wait_procs([keeper], timeout=30)[1] == []
    assert list(directory.iterdir()) == []
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
