"""From SQLite to PostgreSQL: everything or nothing, never both, and work goes on there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from headway import fault_points
from headway.app import App
from headway.engine.maintenance.recovery import Recovery
from headway.errors import CommitUnknown, Refused
from headway.model.jobs.states import State
from headway.store import workers
from headway.store.db import Row, open_database
from headway.store.migrations import _apply, versions
from headway.store.postgres.row_security import row_security
from headway.store.sqlite.database import SqliteDatabase
from headway.store.transfer import copy
from headway.testing import drain
from tests.support.cli import Here, line_of, running
from tests.support.life import Life, raw_connection
from tests.support.lively import at_work, lively, lively_app
from tests.support.promotion import cut_off, fill, killed, once_at, promote, raise_, rows_of, seals, unused
from tests.support.receivers import receiver
from tests.support.tenants import add_tenant, furnish
from tests.support.waiting import until
from tests.system.support import labels


@pytest.fixture
def cli(here: Here, sqlite_url: str) -> Here:
    here.database = sqlite_url
    return here


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    fault_points.arm(None)


# --- everything ---------------------------------------------------------------------------------------------------


# What no verb of `furnish` leaves behind.
REST = """
insert into hw_process (tag, worker_id, slot, pid, process_start) select 'x', min(id), 0, 1, 1 from hw_worker;
insert into hw_session (hash, token_id, created_at, expires_at) select 'h', min(id), 1, 2 from hw_token;
insert into hw_setting (name, value) values ('some', '{}');
insert into hw_key (name, secret, made_at) values ('cookies', '00', 1);
insert into hw_touched (target_id) select id from hw_target;
insert into hw_report (job_id, at, done, total, label, spent) values (999, 1, 0.1, 3, 'a\\b \t ❄', '{"t": 1e-7}');
insert into hw_result (job_id, body) values (999, '');
"""


def furnished(url: str) -> None:
    """Something in every table, of two tenants, and nobody at work any more."""
    with Life(url) as life:
        for client in (life.client, add_tenant(life, "other")):
            client.release_reservation(furnish(life, client).reservation)
        life.database.transact("lost", lambda tx: workers.retire(tx, life.worker_id, "gone"))
        Recovery(life.database).tick()
        for text in REST.strip().splitlines():
            life.sql_write(text)


def test_every_row_of_every_table_is_there(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    furnished(sqlite_url)
    before = rows_of(sqlite_url)
    assert [table for table, rows in before.items() if not rows] == []  # a table that is always empty shows nothing
    answer = promote(cli, empty_postgres_url, "--json").done().data
    assert rows_of(empty_postgres_url) == before
    assert answer["tables"] == {table: len(rows) for table, rows in before.items()}
    assert answer["rows"] == sum(map(len, before.values()))
    assert rows_of(sqlite_url) == before


def test_numbers_go_on_after_those_that_are_there(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    furnished(sqlite_url)
    with raw_connection(sqlite_url) as raw:
        raw.execute("update hw_counter set value = 5000 where name = 'job'")  # the last ones were pruned
    before = rows_of(sqlite_url)
    promote(cli, empty_postgres_url).done()
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        found = raw.execute(
            "select table_name, pg_get_serial_sequence(table_name, column_name) from information_schema.columns"
            " where table_schema = 'public' and is_identity = 'YES'"
        ).fetchall()
        assert len(found) > 10
        for table, sequence in found:
            ((highest, following),) = raw.execute(f"select max(id), nextval('{sequence}') from {table}").fetchall()
            assert following == highest + 1, table
    with Life(empty_postgres_url) as life:
        assert life.enqueue() == 5001
    assert len(before["hw_job"]) + 1 == len(rows_of(empty_postgres_url)["hw_job"])


def test_it_says_what_was_moved_and_what_to_do_now(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    said = promote(cli, empty_postgres_url).done().out
    assert "all data was moved: 5 jobs, 0 schedules, 0 groups, " in said
    assert f'set database = "{empty_postgres_url}" in headway.toml (or HEADWAY_DATABASE)' in said
    assert f"{sqlite_url} is now sealed" in said
    assert f"Attached files stay in {cli.folder / 'headway-artifacts'}" in said


def test_a_schema_with_nothing_in_it_will_do(cli: Here, sqlite_url: str, postgres_url: str) -> None:
    furnished(sqlite_url)
    promote(cli, postgres_url).done()
    assert rows_of(postgres_url) == rows_of(sqlite_url)


def test_an_older_schema_with_nothing_in_it_will_do(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    old = open_database(empty_postgres_url)
    old.transact("migrate", lambda tx: _apply(tx, version=1))
    old.close()
    furnished(sqlite_url)
    promote(cli, empty_postgres_url).done()
    assert rows_of(empty_postgres_url) == rows_of(sqlite_url)


def test_tables_of_others_are_left_alone(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as raw:
        raw.execute("create table orders (id integer); insert into orders values (7)")
    fill(sqlite_url)
    promote(cli, empty_postgres_url).done()
    with psycopg.connect(empty_postgres_url) as raw:
        assert raw.execute("select id from orders").fetchall() == [(7,)]


def log_much(url: str, lines: int) -> None:
    with App(url) as app:
        job = app.enqueue("command", {"argv": ["true"]})
        with app.database.transaction("fill") as tx:
            tx.connection.execute(  # type: ignore[attr-defined]
                f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {lines})"
                f" insert into hw_log (job_id, at, lines) select {job.id}, i, 'line ' || i from n"
            )


def test_many_rows_come_in_pieces(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    log_much(sqlite_url, 20000)
    pieces: list[str] = []
    fault_points.arm(lambda name: pieces.append(name) if name == "promote.rows" else None)
    assert promote(cli, empty_postgres_url, "--json").done().data["tables"]["hw_log"] == 20000
    assert len(pieces) == 40  # sent, and compared
    assert rows_of(empty_postgres_url) == rows_of(sqlite_url)


# --- and then -----------------------------------------------------------------------------------------------------


def in_the_middle_of_its_day(url: str, folder: Path, hook: str) -> dict[str, int]:
    """Work of every kind that has to go on, by its numbers."""
    with lively(url, folder):
        pass
    app, gate = lively_app(url, folder)
    gate.set()
    with app:
        app.client.resume_queue()
        text = {"text": "fog"}
        first = app.step("shop.fine", text, priority=100)
        group = app.plan("half").then(first).then(app.step("shop.fine", text), app.step("shop.fine", text)).start()
        assert drain(app, limit=1) == 1
        assert app.client.groups.get(group.id).stage == 1
        endpoint = app.client.webhooks.create(hook, ["job.run.completed"])
        steps = [{"task": "shop.fine", "params": text}]
        return {
            "group": group.id,
            "delivery": app.client.webhooks.test(endpoint.id).id,
            "queued": app.enqueue("shop.fine", text).id,
            "soon": app.enqueue("shop.fine", text, delay="1s").id,
            "later": app.enqueue("shop.fine", text, delay="10h").id,
            "held": app.enqueue("shop.fine", text, hold=True).id,
            "schedule": app.client.schedules.create("often", {"interval": "1s", "steps": steps}).id,
        }


def test_a_worker_goes_on_there(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with receiver() as hook:
        made = in_the_middle_of_its_day(sqlite_url, cli.folder, hook.url)
        before = rows_of(sqlite_url)
        assert cli("verify", "--json").done().data["findings"] == []
        promote(cli, empty_postgres_url).done()
        assert rows_of(empty_postgres_url) == before
        assert cli("verify", "--json", database=empty_postgres_url).done().data["findings"] == []
        with at_work(empty_postgres_url, cli.folder) as site:
            client = site.app.client
            with site.app.database.read() as tx:
                assert row_security(tx).enabled
            found = cli("jobs", "ls", "--status", "ERROR", "--json", database=empty_postgres_url).data["items"]
            (error,) = [job["job_id"] for job in found]
            client.resume(error)  # same job, same run, a higher fence
            client.resume(made["held"])
            for name in ("queued", "soon", "held"):
                until(lambda name=name: client.get(made[name]).status is State.COMPLETED)  # type: ignore[misc]
            until(lambda: client.groups.get(made["group"]).status == "COMPLETED")
            until(lambda: client.get(error).fence == 2 and client.get(error).status is State.ERROR)
            until(lambda: fired(empty_postgres_url, made["schedule"]))
            assert client.get(made["later"]).status is State.SCHEDULED
            hook.await_received(2)  # the one that was open, and those of jobs that ended here
            fresh = site.app.enqueue("shop.fine", {"text": "new"}).id
            assert fresh > last_job(sqlite_url)
            until(lambda: client.get(fresh).status is State.COMPLETED)
            client.schedules.disable(made["schedule"])
        assert cli("verify", "--json", database=empty_postgres_url).done().data["findings"] == []


def last_job(url: str) -> int:
    with raw_connection(url) as raw:
        return int(raw.execute("select max(id) from hw_job").fetchall()[0][0])


def fired(url: str, schedule: int) -> int:
    with raw_connection(url) as raw:
        text = f"select count(*) from hw_tick where outcome = 'FIRED' and schedule_id = {schedule}"
        return int(raw.execute(text).fetchall()[0][0])


def test_a_promotion_is_not_taken_for_one_long_transaction(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    """Otherwise `verify` would forgive, for as long as the history is, what happens out of order."""
    furnished(sqlite_url)
    with raw_connection(sqlite_url) as raw:
        raw.execute("insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor)"
                    " values (1, 'x', 1, 1, 'x', 1, '{}')")  # fmt: skip
    promote(cli, empty_postgres_url).done()
    database = open_database(empty_postgres_url)
    with database.read() as tx:
        assert tx.run("verify_longest_postgres") == [(None,)]
        everything = {"after": 0, "upto": 10**9}
        together = tx.run("verify_together_postgres", **everything)
    database.close()
    with open_sqlite(sqlite_url) as tx:
        assert sorted(together) == sorted(tx.run("verify_together_sqlite", **everything)) != []


# --- the file, afterwards -----------------------------------------------------------------------------------------


@contextmanager
def open_sqlite(url: str) -> Iterator[Any]:
    with closing(SqliteDatabase(url, even_moved=True)) as database, database.read() as tx:
        yield tx


def test_no_process_uses_the_file_by_accident(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    promote(cli, empty_postgres_url).done()
    words = (f"{sqlite_url} was moved to {empty_postgres_url} at ", "set `database` to that address")
    for command in (["work", "--burst"], ["up", "--roles", "worker"], ["jobs", "ls"], ["verify"], ["db", "migrate"]):
        cli(*command).refused(4, *words)
    cli("sh", "--", "true").refused(4, *words)
    cli("db", "backup", "copy").refused(4, *words)
    promote(cli, empty_postgres_url).refused(4, *words)
    assert cli("jobs", "ls", "--json").error["code"] == "moved"
    assert len(rows_of(sqlite_url)["hw_job"]) == 5


def test_a_process_with_the_file_open_writes_nothing_into_it(
    cli: Here, sqlite_url: str, empty_postgres_url: str
) -> None:
    with App(sqlite_url) as app:
        app.enqueue("command", {"argv": ["true"]})
        promote(cli, empty_postgres_url).done()
        before = rows_of(sqlite_url)
        with pytest.raises(Refused, match="this database is closed: its data went to postgresql://") as refused:
            app.enqueue("command", {"argv": ["true"]})
        assert refused.value.code == "moved"
    assert rows_of(sqlite_url) == before


def test_every_table_of_the_file_is_guarded(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    furnished(sqlite_url)
    promote(cli, empty_postgres_url).done()
    with raw_connection(sqlite_url) as raw:
        tables = [*rows_of(sqlite_url), "hw_schema", "hw_counter"]
        for table in tables:
            column = raw.execute(f"select name from pragma_table_info('{table}')").fetchall()[0][0]
            for text in (f"delete from {table}", f"update {table} set {column} = {column}"):
                with pytest.raises(apsw.ConstraintError, match="this database is closed"):
                    raw.execute(text)


def test_the_seal_can_be_lifted_by_hand(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    promote(cli, empty_postgres_url).done()
    with raw_connection(sqlite_url) as raw:
        raw.execute("delete from hw_moved")
    assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5
    fill(sqlite_url, 1)


def test_a_backup_from_before_can_be_brought_back(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    cli("db", "backup", "before").done()
    promote(cli, empty_postgres_url).done()
    cli("db", "restore", sqlite_url, "--yes", "--although-moved").refused(4, "was moved to")  # not by itself
    kept = cli("db", "restore", "before", "--yes", "--although-moved", "--json").done().data["kept"]
    assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5
    cli("jobs", "ls", database=kept).refused(4, "was moved to")


# --- interrupted --------------------------------------------------------------------------------------------------


BEFORE = [
    "1:promote.begun",
    "1:promote_note.before_commit",
    "1:promote.noted",
    "1:promote.table",
    "20:promote.table",
    "1:promote.sent",
    "1:promote.before_commit",
]
BETWEEN = ["1:promote.sealed", "1:promote_there.before_commit"]
AFTER = ["1:promote.landed", "1:promote.committed", "1:promote_done.begun", "1:promote_done.before_commit"]
DONE = "1:promote_done.committed"
UNDOING = ["1:promote_undone.begun", "1:promote_undone.before_commit", "1:promote_undone.committed"]
IN_A_TABLE = "2:promote.rows"


def test_it_is_killed_at_every_point_it_has() -> None:
    places = {place.partition(":")[2] for place in (*BEFORE, *BETWEEN, *AFTER, DONE, *UNDOING, IN_A_TABLE)}
    whole, alone = labels.labels(labels.PROMOTION)
    assert whole
    assert (whole | alone) - places == set()


@pytest.mark.parametrize("place", BEFORE)
def test_killed_before_the_seal_nothing_has_happened(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str
) -> None:
    furnished(sqlite_url)
    before = rows_of(sqlite_url)
    killed(cli, empty_postgres_url, place)
    assert unused(empty_postgres_url)
    assert (rows_of(sqlite_url), seals(sqlite_url)) == (before, [])
    cli("jobs", "ls").done()
    promote(cli, empty_postgres_url).done()
    assert rows_of(empty_postgres_url) == before


@pytest.mark.parametrize("place", BEFORE[2:])
def test_killed_before_the_seal_an_empty_schema_stays_empty(
    cli: Here, sqlite_url: str, postgres_url: str, place: str
) -> None:
    furnished(sqlite_url)
    before = rows_of(postgres_url)
    killed(cli, postgres_url, place)
    assert rows_of(postgres_url) == before
    with Life(postgres_url) as life:
        assert life.enqueue() == 1
    cli("jobs", "ls").done()


@pytest.mark.parametrize("place", BETWEEN)
def test_killed_between_seal_and_commit_neither_can_be_used_until_it_is_done_again(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str
) -> None:
    furnished(sqlite_url)
    before = rows_of(sqlite_url)
    killed(cli, empty_postgres_url, place)
    assert unused(empty_postgres_url)
    assert seals(sqlite_url) == [(empty_postgres_url, None)]
    said = (f"{sqlite_url} is being moved to {empty_postgres_url}, or the move was interrupted", "headway db promote")
    cli("work", "--burst").refused(4, *said)
    answer = promote(cli, empty_postgres_url, "--json").done().data
    assert answer["earlier"] is False
    assert rows_of(empty_postgres_url) == before


@pytest.mark.parametrize("place", AFTER)
def test_killed_after_the_commit_the_next_promotion_says_that_it_is_done(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str
) -> None:
    furnished(sqlite_url)
    before = rows_of(sqlite_url)
    killed(cli, empty_postgres_url, place)
    cli("work", "--burst").refused(4, "was interrupted")
    assert rows_of(empty_postgres_url) == before
    with Life(empty_postgres_url) as life:
        life.enqueue()  # PostgreSQL is in use meanwhile
    answer = promote(cli, empty_postgres_url, "--json").done().data
    assert answer["earlier"] is True
    assert answer["tables"] == {table: len(rows) for table, rows in before.items()}
    assert len(rows_of(empty_postgres_url)["hw_job"]) == len(before["hw_job"]) + 1
    promote(cli, empty_postgres_url).refused(4, "was moved to")


def test_killed_in_the_middle_of_a_table_nothing_has_happened(
    cli: Here, sqlite_url: str, empty_postgres_url: str
) -> None:
    log_much(sqlite_url, 3000)
    before = rows_of(sqlite_url)
    killed(cli, empty_postgres_url, IN_A_TABLE)
    assert unused(empty_postgres_url)
    assert (rows_of(sqlite_url), seals(sqlite_url)) == (before, [])
    promote(cli, empty_postgres_url).done()
    assert rows_of(empty_postgres_url) == before


def test_killed_when_all_was_done_it_is_done(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    killed(cli, empty_postgres_url, DONE)
    cli("work", "--burst").refused(4, "was moved to")
    promote(cli, empty_postgres_url).refused(4, "was moved to")
    assert len(rows_of(empty_postgres_url)["hw_job"]) == 5


@pytest.mark.parametrize("place", UNDOING)
def test_killed_while_it_is_undone_it_is_undone_again(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str
) -> None:
    fill(sqlite_url)
    before = rows_of(sqlite_url)
    killed(cli, empty_postgres_url, BETWEEN[0])
    killed(cli, empty_postgres_url, place)
    assert unused(empty_postgres_url)
    assert bool(seals(sqlite_url)) == (place != UNDOING[-1])
    promote(cli, empty_postgres_url).done()
    assert rows_of(empty_postgres_url) == before


def test_an_interrupted_promotion_is_finished_where_it_began(
    cli: Here, sqlite_url: str, empty_postgres_url: str, postgres_url: str
) -> None:
    fill(sqlite_url)
    killed(cli, empty_postgres_url, AFTER[0])
    said = f"to {empty_postgres_url} was interrupted", "none of its data is in", "give the address and the user"
    promote(cli, postgres_url).refused(4, *said)
    with psycopg.connect(empty_postgres_url, autocommit=True) as there:
        there.execute("create schema other")
    promote(cli, f"{empty_postgres_url}&options=-csearch_path%3Dother").refused(4, *said)
    assert rows_of(postgres_url)["hw_job"] == []
    assert seals(sqlite_url) == [(empty_postgres_url, None)]
    promote(cli, f"{empty_postgres_url}&password=geheim").done()


def test_no_password_is_stored_or_shown(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    answer = promote(cli, f"{empty_postgres_url}&password=geheim").done()
    refused = cli("jobs", "ls").refused(4, "password=***")
    with raw_connection(sqlite_url) as raw:
        stored = raw.execute("select sql from sqlite_schema union all select url from hw_moved").fetchall()
    with psycopg.connect(empty_postgres_url) as there:
        stored += there.execute("select value from hw_setting").fetchall()
    assert "geheim" not in f"{answer}{refused}{stored}"


@pytest.mark.parametrize("place", ["promote.table", "promote.sealed", "promote_there.before_commit"])
def test_ctrl_c_leaves_everything_as_it_was(cli: Here, sqlite_url: str, empty_postgres_url: str, place: str) -> None:
    furnished(sqlite_url)
    before = rows_of(sqlite_url)
    fault_points.arm(once_at(place, lambda: raise_(KeyboardInterrupt())))
    assert promote(cli, empty_postgres_url).code == 130
    assert unused(empty_postgres_url)
    assert (rows_of(sqlite_url), seals(sqlite_url)) == (before, [])
    promote(cli, empty_postgres_url).done()


@pytest.mark.parametrize("place", ["promote.sent", "promote_there.before_commit"])
def test_a_connection_that_breaks_leaves_everything_as_it_was(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str
) -> None:
    fill(sqlite_url)
    before = rows_of(sqlite_url)
    fault_points.arm(once_at(place, lambda: cut_off(empty_postgres_url)))
    promote(cli, empty_postgres_url).refused(5)
    assert unused(empty_postgres_url)
    assert (rows_of(sqlite_url), seals(sqlite_url)) == (before, [])


def test_an_answer_that_was_lost_is_found_out(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    fault_points.arm(once_at("promote.landed", lambda: raise_(CommitUnknown("the connection broke"))))
    promote(cli, empty_postgres_url).done()
    assert len(rows_of(empty_postgres_url)["hw_job"]) == 5
    promote(cli, empty_postgres_url).refused(4, "was moved to")


def test_what_cannot_be_found_out_stays_closed(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    """The server is gone at the last step, and somebody else holds what would tell."""
    fill(sqlite_url)
    with psycopg.connect(empty_postgres_url) as other:

        def hold() -> None:
            cut_off(empty_postgres_url, but=other.info.backend_pid)
            other.execute("select pg_advisory_lock(7236838301)")

        fault_points.arm(once_at("promote_there.before_commit", hold))
        promote(cli, empty_postgres_url).refused(5, "not known whether it has the data", "stays sealed")
    cli("work", "--burst").refused(4, "was interrupted")
    promote(cli, empty_postgres_url).done()
    assert len(rows_of(empty_postgres_url)["hw_job"]) == 5


# --- refused ------------------------------------------------------------------------------------------------------


def test_bad_addresses(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    for url in ("other.db", "mysql://x/y", ""):
        promote(cli, url).refused(2, "is not a PostgreSQL address", "postgresql://user@host/name")
    promote(cli, "postgresql://h/x?colour=red").refused(
        2, "postgresql://h/x?colour=red is not a valid PostgreSQL address", "write it"
    )
    missing = empty_postgres_url.replace("headway_", "nobody_")
    promote(cli, missing).refused(5, "cannot be used", "does not exist", "create the database there")
    promote(cli, "postgresql://ann:geheim@127.0.0.1:1/x").refused(5, "ann:***@127.0.0.1:1/x cannot be used")
    cli("db", "promote").refused(2, "URL")
    assert seals(sqlite_url) == []


def test_sources_that_are_none(cli: Here, sqlite_url: str, empty_postgres_url: str, postgres_url: str) -> None:
    args = ("db", "promote", empty_postgres_url, "--yes")
    cli(*args, database=postgres_url).refused(4, "is PostgreSQL already", "--database")
    cli(*args, database="none.db").refused(5, "no database at ./none.db")
    (cli.folder / "text.db").write_text("this is no database " * 100)
    cli(*args, database="text.db").refused(5)
    old = open_database(str(cli.folder / "old.db"))
    old.transact("migrate", lambda tx: _apply(tx, version=1))
    old.close()
    cli(*args, database="old.db").refused(4, f"has schema 1, this Headway needs {versions()[-1]}", "headway db migrate")
    assert unused(empty_postgres_url)


def test_it_asks_first(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url, 1)
    said = f"this would move 1 job and all other data from {sqlite_url} to {empty_postgres_url}, and seal the file"
    cli("db", "promote", empty_postgres_url).refused(2, said, "--yes")
    assert unused(empty_postgres_url)
    assert seals(sqlite_url) == []


def test_a_destination_that_is_in_use(cli: Here, sqlite_url: str, postgres_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    fill(postgres_url, 1)
    promote(cli, postgres_url).refused(4, "is in use by Headway already", "name an empty database")
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("create table hw_event (mine integer)")
        promote(cli, empty_postgres_url).refused(4, "has a table hw_event that is not Headway's")
        raw.execute("drop table hw_event; create table hw_schema (version integer, applied_at bigint)")
        raw.execute("insert into hw_schema values (999, 0)")
        promote(cli, empty_postgres_url).refused(4, "has schema 999", "install the newer Headway")
    assert seals(sqlite_url) == []


def test_a_destination_that_others_are_making(cli: Here, sqlite_url: str, postgres_url: str) -> None:
    fill(sqlite_url)
    with psycopg.connect(postgres_url) as other:
        other.execute("select pg_advisory_xact_lock(7236838301)")
        promote(cli, postgres_url).refused(4, "another process is creating or filling the schema", "try again")
        other.rollback()
        other.execute("lock table hw_job in row exclusive mode")
        promote(cli, postgres_url).refused(4, "another process uses the tables", "try again")
    assert seals(sqlite_url) == []
    promote(cli, postgres_url).done()


def test_not_while_a_worker_lives(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with running("work", "--json", cwd=cli.folder, database=sqlite_url) as process:
        line_of(process.stdout, "started")
        promote(cli, empty_postgres_url).refused(4, "1 worker is alive", f"pid {process.pid}", "stop them first")
    promote(cli, empty_postgres_url).done()


def test_not_while_something_is_reserved(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with App(sqlite_url, resources={"gpu": 1}) as app:
        number = app.client.reserve(resources=["gpu"]).id
        promote(cli, empty_postgres_url).refused(4, f"reservation {number} is active", "wait for the end")
        app.client.release_reservation(number)
    promote(cli, empty_postgres_url).done()


def test_not_while_a_job_is_running(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with Life(sqlite_url) as life:
        ids = [life.in_state("RUNNING") for _ in range(2)]
    said = f"jobs {ids[0]}, {ids[1]} are RUNNING", "left by a dead worker", "headway up --roles api"
    promote(cli, empty_postgres_url).refused(4, *said)
    assert unused(empty_postgres_url)


def test_without_the_driver(cli: Here, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("headway.cli.database.promote", "headway.store.transfer.copy", "headway.store.postgres.database"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("headway.cli.database.promote", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    promote(cli, "postgresql://h/x").refused(4, "PostgreSQL needs its driver: install headway[postgres]")


def test_values_that_postgresql_does_not_take(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    with raw_connection(sqlite_url) as raw:
        raw.execute("insert into hw_log (job_id, at, lines) values (1, 1, 'a' || char(0) || 'b')")
    promote(cli, empty_postgres_url).refused(4, "PostgreSQL rejected a row of hw_log", "nothing was moved")
    assert unused(empty_postgres_url)
    assert seals(sqlite_url) == []


def test_a_table_that_only_one_of_the_schemas_has(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with raw_connection(sqlite_url) as raw:
        raw.execute("create table hw_forgotten (id integer)")
    promote(cli, empty_postgres_url).refused(4, "hw_forgotten is not the same in both schemas", "nothing was moved")


def test_what_arrived_otherwise_is_not_kept(
    cli: Here, sqlite_url: str, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_url)
    monkeypatch.setattr(copy, "_through", changed_on_the_way)
    promote(cli, empty_postgres_url).refused(4, "hw_job in ", "differs from what was sent", "nothing was moved")
    assert unused(empty_postgres_url)
    assert seals(sqlite_url) == []


def changed_on_the_way(rows: Any, write: Callable[[Row], None]) -> Iterator[Row]:
    for row in rows:
        write(tuple("false" if value == '{"argv":["true","3"]}' else value for value in row))
        yield row
