"""The built-in task `sql`, in a real child, on real SQLite files and a real PostgreSQL."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from headway import App
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.engine.execution.secrets import Vault
from headway.errors import BadInput
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Outcome, StoppedByRequest
from tests.engine.test_child import DEADLINE, Recorder
from tests.support.life import raw_connection
from tests.support.waiting import until


@pytest.fixture
def shop(database_url: str) -> str:
    """A database of each kind with one small table."""
    with raw_connection(database_url) as connection:
        connection.execute("create table item (id integer primary key, name text, price numeric)")
        connection.execute("insert into item (id, name, price) values (1, 'fog', 2.5), (2, 'rain', null)")
    return database_url


@pytest.fixture(scope="module")
def warm() -> Iterator[list[Child]]:
    children = [Child.start()]
    yield children
    children[-1].close()


@pytest.fixture
def child(warm: list[Child]) -> Child:
    if not warm[-1].usable:
        warm.append(Child.start())
    return warm[-1]


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


def script(url: str, text: str, params: Any = None) -> WorkItem:
    given = {"connection": "shop", "script": text, **({} if params is None else {"params": params})}
    return WorkItem(7, "sql", 3, 2, given, module="headway.tasks.sql", connection=url)


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.result)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def names(url: str) -> list[str]:
    with raw_connection(url) as connection:
        return [name for (name,) in connection.execute("select name from item order by id").fetchall()]


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql://")


def placeholders(url: str, text: str) -> str:
    """`:name` as the database's own driver spells it."""
    return text.replace(":a", "%(a)s").replace(":b", "%(b)s") if is_postgres(url) else text


# --- what it does -------------------------------------------------------------------------------------------------


def test_the_rows_of_a_query_are_the_result(child: Child, sink: Recorder, shop: str):
    result = result_of(child.run(script(shop, "select id, name, price from item order by id"), sink))

    price = "2.5" if is_postgres(shop) else 2.5  # an exact number is text: JSON would round it
    rows = [{"id": 1, "name": "fog", "price": price}, {"id": 2, "name": "rain", "price": None}]
    assert result == {"rows_affected": 0, "rows": rows, "truncated": False}


def test_several_statements_with_params_are_one_transaction(child: Child, sink: Recorder, shop: str):
    text = (
        "insert into item (id, name) values (3, :a); update item set name = :b where id < 3;"
        " select count(*) as n from item"
    )

    result = result_of(child.run(script(shop, placeholders(shop, text), {"a": "snow", "b": "it''s; --"}), sink))

    assert result == {"rows_affected": 3, "rows": [{"n": 3}], "truncated": False}
    assert names(shop) == ["it''s; --", "it''s; --", "snow"]


def test_params_may_be_a_list(child: Child, sink: Recorder, shop: str):
    mark = "%s" if is_postgres(shop) else "?"
    text = f"insert into item (id, name) values ({mark}, {mark})"

    assert result_of(child.run(script(shop, text, [3, None]), sink)) == {"rows_affected": 1}
    assert names(shop)[2] is None


def test_without_params_a_percent_sign_is_one(child: Child, sink: Recorder, shop: str):
    result = result_of(child.run(script(shop, "select name from item where name like 'f%'"), sink))

    assert result["rows"] == [{"name": "fog"}]


def test_the_last_query_speaks_and_columns_keep_apart(child: Child, sink: Recorder, shop: str):
    text = "select 1 as first; select 2 as a, 3 as a, 4 as b; delete from item"

    result = result_of(child.run(script(shop, text), sink))

    assert result == {"rows_affected": 2, "rows": [{"a": 2, "a_2": 3, "b": 4}], "truncated": False}


def test_a_query_without_rows_has_none(child: Child, sink: Recorder, shop: str):
    result = result_of(child.run(script(shop, "select id from item where id > 5"), sink))

    assert result == {"rows_affected": 0, "rows": [], "truncated": False}


def test_a_hundred_rows_are_kept(child: Child, sink: Recorder, shop: str):
    numbers = "with recursive t(n) as (select 1 union all select n + 1 from t where n < {}) select n from t"

    whole = result_of(child.run(script(shop, numbers.format(100)), sink))
    cut = result_of(child.run(script(shop, numbers.format(5000)), sink))

    assert (len(whole["rows"]), whole["truncated"]) == (100, False)
    assert ([row["n"] for row in cut["rows"]], cut["truncated"]) == (list(range(1, 101)), True)


def test_long_values_are_cut_and_a_large_result_still_fits(child: Child, sink: Recorder, shop: str):
    long = "repeat('é', 5000)" if is_postgres(shop) else "replace(hex(zeroblob(2500)), '0', 'é')"
    text = f"with recursive t(n) as (select 1 union all select n + 1 from t where n < 90) select {long} as a from t"

    result = result_of(child.run(script(shop, text), sink))

    assert result["rows"][0]["a"] == "é" * 4095 + "…"
    assert (result["truncated"], 10 < len(result["rows"]) < 20) == (True, True)


def test_values_that_json_has_no_word_for(child: Child, sink: Recorder, database_url: str):
    if is_postgres(database_url):
        text = """select 'NaN'::float8 as nan, 12345678901234567890::numeric as big, '\\x00ff'::bytea as bytes,
            '2026-01-02T03:04:05Z'::timestamptz at time zone 'UTC' as at, array[1, null] as list,
            '{"a": [1]}'::jsonb as doc,
            '00000000-0000-0000-0000-000000000001'::uuid as id, interval '90 s' as span, true as yes"""
        wanted = {
            "nan": "nan",
            "big": "12345678901234567890",
            "bytes": "AP8=",
            "at": "2026-01-02T03:04:05",
            "list": [1, None],
            "doc": {"a": [1]},
            "id": "00000000-0000-0000-0000-000000000001",
            "span": "0:01:30",
            "yes": True,
        }
    else:
        text = "select 9e999 as inf, x'00ff' as bytes, char(0) || 'a' as nul"
        wanted = {"inf": "inf", "bytes": "AP8=", "nul": "\ufffda"}
        with raw_connection(database_url) as connection:
            connection.execute("create table t (a)")

    assert result_of(child.run(script(database_url, text), sink))["rows"] == [wanted]


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_an_error_rolls_everything_back_and_is_not_tried_again(child: Child, sink: Recorder, shop: str):
    failed = failure(child.run(script(shop, "delete from item; select id from nowhere"), sink))

    assert (failed.kind, failed.final) == (FailureKind.EXCEPTION, True)
    assert failed.error.startswith("connection shop: ")
    assert "nowhere" in failed.error
    assert names(shop) == ["fog", "rain"]


def test_a_broken_rule_of_the_data_may_be_tried_again(child: Child, sink: Recorder, shop: str):
    failed = failure(child.run(script(shop, "delete from item where id = 1; insert into item (id) values (2)"), sink))

    assert (failed.kind, failed.final) == (FailureKind.EXCEPTION, False)
    assert failed.error.startswith("connection shop: ")
    assert names(shop) == ["fog", "rain"]


@pytest.mark.parametrize(
    ("values", "params"), [("3, :a", {"b": 1}), ("3, ?", ["fog", "rain"]), ("?, ?", [3]), ("3, :a", ["fog", "rain"])]
)
def test_params_that_do_not_fit_are_bad_params(child: Child, sink: Recorder, shop: str, values: str, params: Any):
    marks = placeholders(shop, values).replace("?", "%s" if is_postgres(shop) else "?")
    text = f"delete from item; insert into item (id, name) values ({marks})"

    failed = failure(child.run(script(shop, text, params), sink))

    assert failed.kind is FailureKind.BAD_PARAMS
    assert failed.error.startswith("params.params ")
    assert names(shop) == ["fog", "rain"]


@pytest.mark.parametrize("text", ["commit", "rollback", "begin", "commit; begin", "end"])
def test_a_script_cannot_take_over_the_transaction(child: Child, sink: Recorder, shop: str, text: str):
    failed = failure(child.run(script(shop, f"{text}; select 1 as a"), sink))

    assert "remove BEGIN, COMMIT and ROLLBACK" in failed.error
    assert failed.final or failed.kind is FailureKind.BAD_PARAMS


def test_a_savepoint_is_the_scripts_own(child: Child, sink: Recorder, shop: str):
    text = "savepoint a; delete from item; rollback to a; release a; delete from item where id = 1"

    assert isinstance(child.run(script(shop, text), sink), Completed)
    assert names(shop) == ["rain"]


LOCKED = "another program has locked the database: waiting"
LONG = {
    True: "delete from item; select pg_sleep(3600)",
    False: "delete from item; with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
}


def test_a_stop_ends_the_statement_and_rolls_back(child: Child, sink: Recorder, shop: str):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(child.run, script(shop, LONG[is_postgres(shop)]), sink)
        until(lambda: at_work(shop), "the statement runs")
        child.stop(DEADLINE)
        assert running.result(DEADLINE) == StoppedByRequest()
    assert names(shop) == ["fog", "rain"]
    if is_postgres(shop):
        until(lambda: not at_work(shop), "the server has ended it")


def at_work(url: str) -> bool:
    """Whether the script's transaction is under way: it holds its locks."""
    if is_postgres(url):
        with raw_connection(url) as connection:
            found = connection.execute(
                "select 1 from pg_stat_activity where query like '%pg_sleep(3600)%' and state = 'active'"
                " and pid <> pg_backend_pid()"
            )
            return bool(found.fetchall())
    other = apsw.Connection(url)
    try:
        other.execute("begin immediate")
        other.execute("rollback")
    except apsw.BusyError:
        return True
    finally:
        other.close()
    return False


def test_a_locked_file_is_waited_for_and_a_stop_ends_that(child: Child, sink: Recorder, sqlite_url: str):
    with raw_connection(sqlite_url) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("create table item (id integer primary key, name text)")
        holder.execute("begin immediate")
        running = pool.submit(child.run, script(sqlite_url, "insert into item values (1, 'fog')"), sink)
        sink.wait_for(LOCKED)
        holder.execute("commit")
        assert isinstance(running.result(DEADLINE), Completed)

        holder.execute("begin immediate")
        running = pool.submit(child.run, script(sqlite_url, "insert into item values (2, 'rain')"), sink)
        sink.wait_for(LOCKED)
        child.stop(DEADLINE)
        assert running.result(DEADLINE) == StoppedByRequest()
        holder.execute("rollback")
    assert names(sqlite_url) == ["fog"]


def test_a_file_that_is_not_there_is_not_made(child: Child, sink: Recorder, tmp_path: Path):
    path = tmp_path / "none.db"

    failed = failure(child.run(script(str(path), "select 1"), sink))

    assert failed.error == "connection shop: the file does not exist or cannot be opened"
    assert not path.exists()


def test_no_other_file_can_be_attached(child: Child, sink: Recorder, sqlite_url: str, tmp_path: Path):
    apsw.Connection(sqlite_url).close()
    with raw_connection(sqlite_url) as connection:
        connection.execute("create table item (id)")

    failed = failure(child.run(script(sqlite_url, f"attach '{tmp_path}/other.db' as o; select 1"), sink))

    assert (failed.kind, failed.final) == (FailureKind.BAD_PARAMS, False)
    assert "attaches another file" in failed.error
    assert not (tmp_path / "other.db").exists()


def test_a_file_may_be_read_only(child: Child, sink: Recorder, sqlite_url: str, tmp_path: Path):
    with raw_connection(sqlite_url) as connection:
        connection.execute("create table item (id); insert into item values (1)")

    if os.geteuid() != 0:
        os.chmod(sqlite_url, 0o444)
        assert "readonly" in failure(child.run(script(sqlite_url, "delete from item"), sink)).error
    assert result_of(child.run(script(sqlite_url, "select id from item"), sink))["rows"] == [{"id": 1}]


def test_what_is_no_database_is_said_in_words(child: Child, sink: Recorder, tmp_path: Path):
    path = tmp_path / "text.db"
    path.write_text("no database at all, but long enough to look at" * 100)

    assert failure(child.run(script(str(path), "select * from a"), sink)).error.startswith("connection shop: ")


ADDRESSES = [
    "postgresql://report:hunter2@127.0.0.1:1/shop",
    "postgresql://report:hunter2@no-such-host.invalid/shop",
    "postgresql://report:hunter2@127.0.0.1:1/shop?nonsense=hunter2",
    "postgresql://report:hunter2@[::bad/shop",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_connection_that_fails_does_not_tell_its_address(child: Child, sink: Recorder, address: str):
    failed = failure(child.run(script(address, "select 1"), sink))

    assert failed.kind is FailureKind.EXCEPTION
    assert failed.error.startswith("connection shop: cannot connect: ")
    for part in ("hunter2", "report", "127.0.0.1", "no-such-host"):
        assert part not in failed.error


def test_a_refused_login_does_not_tell_its_address(child: Child, sink: Recorder, postgres_url: str):
    facts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    wrong = psycopg.conninfo.make_conninfo(postgres_url, dbname="nowhere_at_all", user=facts.get("user", "postgres"))

    failed = failure(child.run(script(f"postgresql://?{'&'.join(wrong.split())}", "select 1"), sink))

    assert failed.error.startswith("connection shop: cannot connect: ")
    assert "nowhere_at_all" not in failed.error


def test_without_the_driver_it_says_what_to_install(sink: Recorder, tmp_path: Path):
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    child = Child.start(sys_path=[str(tmp_path), *sys.path])
    try:
        failed = failure(child.run(script("postgresql://db/x", "select 1"), sink))
    finally:
        child.close()
    assert failed.kind is FailureKind.BAD_PARAMS
    assert "pip install 'headway[postgres]'" in failed.error


# --- what is refused before ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (
            {"connection": "postgresql://me:hunter2@db/x"},
            "params.connection must be the name of a connection in the settings",
        ),
        ({"connection": "host=db password=hunter2"}, "params.connection must be the name"),
        ({"connection": " "}, "params.connection is empty"),
        ({"script": ""}, "params.script is empty"),
        ({"params": [[1]]}, "params.params has a list or a dict at 0"),
        ({"params": {"a": {"b": 1}}}, "params.params has a list or a dict at 'a'"),
        ({"params": "x"}, "params.params must be list"),
        ({"url": "x"}, "params.url is not a parameter of the task"),
    ],
)
def test_bad_params_are_refused_at_enqueue(params: dict[str, Any], problem: str):
    with pytest.raises(BadInput, match=problem) as refused:
        App().tasks["sql"].enqueue(**{"connection": "shop", "script": "select 1", **params})
    assert not any(name in str(refused.value).split() for name in ("shop", "store", "hunter2"))


def test_a_secret_may_be_a_value_of_a_statement():
    given = {"connection": "shop", "script": "select ?", "params": [{"$secret": "KEY"}, {"$result": "step"}]}
    assert App().tasks["sql"].spec.signature.check(given) == given


def test_an_unknown_connection_is_refused_without_the_names_there_are():
    vault = Vault(connections={"shop": "./shop.db", "store": "postgresql://me:hunter2@db/x"})
    with pytest.raises(BadInput, match=r"is not a connection in the settings$") as refused:
        vault.connection("shopp")
    assert (refused.value.code, refused.value.field) == ("bad_params", "params.connection")
    assert not any(name in str(refused.value).split() for name in ("shop", "store", "hunter2"))


@pytest.mark.parametrize("way", ["same", "link", "hard link", "dots"])
def test_headways_own_file_is_no_connection(tmp_path: Path, way: str):
    own = tmp_path / "headway.db"
    own.write_bytes(b"")
    path = {"same": own, "dots": tmp_path / "x" / ".." / "headway.db"}.get(way, tmp_path / "other.db")
    (tmp_path / "x").mkdir()
    if way == "link":
        path.symlink_to(own)
    elif way == "hard link":
        os.link(own, path)
    vault = Vault(connections={"mine": str(path)}, database=str(own))

    with pytest.raises(BadInput, match="mine is Headway's own database, which no job may use"):
        vault.connection("mine")
