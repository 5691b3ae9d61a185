"""Every named statement: understood by its database, with every parameter bound, and named once."""

from __future__ import annotations

import re
from collections.abc import Callable

import apsw
import psycopg
import pytest

from headway.model.jobs.states import State
from headway.store.db import Database, open_database
from headway.store.migrations import migrate
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.fragments import translate
from headway.store.rows import STATES
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.values import parameters_of, values_of
from headway.store.statements import blocks, load_statements, sql_files, sql_text, statements_of
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


def test_values_are_given_to_sqlite_in_its_own_order(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    migrate(database)
    several = 0
    with raw_connection(sqlite_url) as raw:
        for name, texts in own_statements(database).items():
            for text in texts:
                names = parameters_of(text)
                cursor = raw.execute("explain " + text, dict.fromkeys(names))
                assert tuple(names) == cursor.bindings_names, name
                assert values_of(text)({each: each for each in names}) == tuple(names)
                several += len(names) > 1
    database.close()
    assert several > 50


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


# A number beside `status`, in a comparison, a list, a `case` that becomes the status, or an event of a job.
BARE = re.compile(
    r"\bstatus(?: \+ 0)? *(?:=|<>|!=|<=?|>=?|(?:not )?(?:in|between)) *\(?[0-9]"
    r"|\bstatus, [0-9]|(?:then|else) [0-9] (?:when|else|end)[^,]* as status|status = case [^,]*(?:then|else) [0-9]"
    r"|'job\.[a-z_]+', [0-9]"
)


def test_states_are_named_in_every_statement() -> None:
    bare = [
        f"{dialect}: {name}"
        for dialect in ("sqlite", "postgres")
        for name, text in load_statements(dialect).items()
        if any(BARE.search(part) for part in statements_of(text))
    ]
    assert bare == []


@pytest.mark.parametrize(
    "text",
    [
        "where j.status = 3",
        "where status + 0 = 3",
        "where status <= 2",
        "where status between 4 and 5",
        "where status in (2, 3)",
        "coalesce(r.status, 3)",
        "case when hold = 1 then 0 when start > now then 1 else 2 end as status",
        "set status = case when not_before > now then 1 else 2 end",
        "select 'job.claimed', 3, :now",
    ],
)
def test_a_number_for_a_state_is_found(text: str) -> None:
    assert BARE.search(text)


def test_the_states_in_sql_are_those_of_the_model() -> None:
    assert {name: int(STATES[name]) for name in State.__members__} == {state.name: state.value for state in State}
    chosen = {
        "is_unclaimed": {state for state in State if state.claimable_later},
        "is_startable": {State.SCHEDULED, State.QUEUED, State.RUNNING},
        "is_claimed": {State.RUNNING, State.PAUSED, State.ERROR},
        "is_held": {State.PAUSED, State.ERROR},
        "is_unfinished": {state for state in State if not state.terminal},
        "is_finished": {state for state in State if state.terminal},
    }
    raw = apsw.Connection(":memory:")
    for name, states in chosen.items():
        assert {state for state in State if raw.execute(f"select {state:d} {STATES[name]}").get} == states
