"""Every named statement: understood by its database, with every parameter bound, and named once."""

from __future__ import annotations

import re
from collections.abc import Callable

import apsw
import psycopg
import pytest

from headway.store.db import Database, blocks, load_statements, open_database, sql_files, sql_text, statements_of
from headway.store.migrate import migrate
from headway.store.postgres import PostgresDatabase, translate
from headway.store.sqlite import SqliteDatabase
from tests.support.life import raw_connection

# Statements of one dialect alone say so in their name.
FOREIGN = {"sqlite": "_postgres", "postgres": "_sqlite"}


def own_statements(database: Database) -> dict[str, list[str]]:
    assert isinstance(database, SqliteDatabase | PostgresDatabase)
    return {name: texts for name, texts in database.texts.items() if not name.endswith(FOREIGN[database.dialect])}


def test_both_databases_have_the_same_statements() -> None:
    assert load_statements("sqlite").keys() == load_statements("postgres").keys()


def test_a_dialect_redefines_only_what_it_must() -> None:
    """A statement that both spell alike belongs into a shared file."""
    ours, theirs = (blocks(sql_text(f"{dialect}.sql")) for dialect in ("sqlite", "postgres"))
    assert not [
        name for name in ours.keys() & theirs.keys() if statements_of(ours[name]) == statements_of(theirs[name])
    ]
    assert sql_files()


def test_sqlite_understands_every_statement(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    migrate(database)
    with raw_connection(sqlite_url) as raw:
        for name, texts in own_statements(database).items():
            for text in texts:
                try:
                    raw.execute("explain " + text, dict.fromkeys(re.findall(r":([a-z_][a-z0-9_]*)", text))).fetchall()
                except apsw.Error as error:
                    pytest.fail(f"{name}: {error}\n{text}")
    database.close()


def test_postgresql_understands_every_statement(postgres_url: str) -> None:
    database = open_database(postgres_url)
    migrate(database)
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        for name, texts in own_statements(database).items():
            for text in texts:
                bound = re.sub(r"%\(([a-z_][a-z0-9_]*)\)s", _numbered(), text).replace("%%", "%")
                assert "%(" not in bound
                result = raw.pgconn.prepare(b"", bound.encode())
                assert result.status == 1, f"{name}: {result.error_message.decode()}\n{text}"
    database.close()


def _numbered() -> Callable[[re.Match[str]], str]:
    numbers: dict[str, int] = {}
    return lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select :id", "select %(id)s"),
        ("select :sha256, :a_1", "select %(sha256)s, %(a_1)s"),
        ("select :id::bigint", "select %(id)s::bigint"),
        ("select 'a'::text", "select 'a'::text"),
        ("select 5 % 2", "select 5 %% 2"),
    ],
)
def test_parameters_are_spelled_for_psycopg(text: str, expected: str) -> None:
    assert translate(text) == expected
