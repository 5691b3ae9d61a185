"""Promotions that meet each other, another server, or somebody at work: never both databases can be used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headway import fault_points
from headway.api.schemas import webhooks
from headway.app import App
from headway.cli.database import promote as command
from headway.engine.client.limits import settle
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.errors import Refused
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.store.postgres.database import PostgresDatabase
from headway.store.sqlite.database import SqliteDatabase
from headway.store.transfer import destination, seal
from headway.store.transfer.seal import Moved, Seal
from tests.support.cli import PATIENCE, Answer, Here, environment, line_of, program, running, until
from tests.support.life import raw_connection
from tests.support.promotion import cut_off, fill, killed, once_at, promote, rows_of, seals, unused
from tests.support.receivers import hang, receiver
from tests.support.terminal import terminal

SEALED, LANDED = "1:promote.sealed", "1:promote.landed"
# A promotion that stands still between seal and commit until it is told to go on.
STOPS = """
import os, signal, sys
from headway import fault_points
from headway.cli.main import main
fault_points.arm(lambda name: os.kill(os.getpid(), signal.SIGSTOP) if name == "promote.sealed" else None)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def cli(here: Here, sqlite_url: str) -> Here:
    here.database = sqlite_url
    return here


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    fault_points.arm(None)


# --- two of them --------------------------------------------------------------------------------------------------


def test_who_stood_at_the_question_does_not_move_it_a_second_time(
    cli: Here, sqlite_url: str, empty_postgres_url: str, postgres_url: str
) -> None:
    fill(sqlite_url)
    with terminal("db", "promote", postgres_url, cwd=cli.folder, database=sqlite_url) as other:
        other.until("[y/N]")
        promote(cli, empty_postgres_url).done()
        other.type("y\n")
        assert other.ended() == 4, other.text
        assert "was moved to" in " ".join(other.text.split())
    assert unused(postgres_url)
    ((url, done_at),) = seals(sqlite_url)
    assert url == empty_postgres_url
    assert done_at is not None


def test_a_file_has_one_seal(sqlite_url: str) -> None:
    with closing(SqliteDatabase(sqlite_url, even_moved=True)) as database:
        for number in ("a", "b"):
            with database.transaction("seal") as tx:
                if number == "a":
                    seal.close(tx, Seal(number, "postgresql://h/a", 1), ["hw_job"])
                    continue
                with pytest.raises(Exception, match="hw_moved"):
                    seal.run(tx, "close", id=number, url="postgresql://h/b", began_at=1)


def test_only_the_seal_that_was_judged_is_lifted(sqlite_url: str) -> None:
    old, new = Seal("old", "postgresql://h/a", 1), Seal("new", "postgresql://h/b", 2)
    with closing(SqliteDatabase(sqlite_url, even_moved=True)) as database:
        database.transact("lift", lambda tx: seal.lift(tx, old))  # none there: that is as well
        database.transact("seal", lambda tx: seal.close(tx, new, ["hw_job"]))
        with pytest.raises(Moved, match="postgresql://h/b"):
            database.transact("lift", lambda tx: seal.lift(tx, old))
        with pytest.raises(Refused, match="postgresql://h/a has all the data"):
            database.transact("done", lambda tx: seal.conclude(tx, old))
        assert seals(sqlite_url) == [("postgresql://h/b", None)]
        database.transact("done", lambda tx: seal.conclude(tx, new))
        with pytest.raises(Moved, match="was moved to postgresql://h/b"):
            database.transact("lift", lambda tx: seal.lift(tx, new))
        assert len(seals(sqlite_url)) == 1


def test_two_that_clear_up_at_once(
    cli: Here, sqlite_url: str, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one has read the seal of the dead; by the time it comes to lift it, the faster one is done."""
    fill(sqlite_url)
    killed(cli, empty_postgres_url, SEALED)
    slower, faster = command._after_interruption, list[Answer]()

    def slow(*args: object, **more: object) -> object:
        if not faster:
            faster.append(program("db", "promote", empty_postgres_url, "--yes", cwd=cli.folder, database=sqlite_url))
        return slower(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "_after_interruption", slow)
    promote(cli, empty_postgres_url).refused(4, "was moved to")
    faster[0].done()
    cli("jobs", "ls").refused(4, "was moved to")
    assert len(rows_of(empty_postgres_url)["hw_job"]) == 5


def test_one_that_was_frozen_at_the_last_step(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    """Meanwhile its connection was ended and the move made by another; it does not open what that one closed."""
    fill(sqlite_url)
    words = ["db", "promote", empty_postgres_url, "--yes", "--database", sqlite_url]
    frozen = subprocess.Popen(
        [sys.executable, "-c", STOPS, *words],
        cwd=cli.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT | os.WEXITED)
        with psycopg.connect(empty_postgres_url) as raw:
            ((pid,),) = raw.execute("select pid from pg_locks where locktype = 'advisory' and granted").fetchall()
        said = "another process is creating or filling the schema", f"pid {pid}"
        promote(cli, empty_postgres_url).refused(4, *said)
        cli("jobs", "ls").refused(4, "is being moved", "or the move was interrupted")
        cut_off(empty_postgres_url)
        promote(cli, empty_postgres_url).done()
    finally:
        frozen.send_signal(signal.SIGCONT)
        _, err = frozen.communicate(timeout=60)
    assert frozen.returncode == 4, err
    assert "was moved to" in err
    cli("jobs", "ls").refused(4, "was moved to")


def test_a_backend_that_nobody_speaks_to_does_not_block_for_ever(
    cli: Here, sqlite_url: str, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sqlite_url)
    monkeypatch.setattr(destination, "LAST_STEP", "1s")

    def ended() -> bool:
        with psycopg.connect(empty_postgres_url) as raw:
            return not raw.execute("select 1 from pg_locks where locktype = 'advisory'").fetchall()

    fault_points.arm(once_at("promote.sealed", lambda: until(ended, "the end of the connection")))
    promote(cli, empty_postgres_url).refused(5, "nothing was moved")
    assert seals(sqlite_url) == []


# --- another server -----------------------------------------------------------------------------------------------


def surroundings(monkeypatch: pytest.MonkeyPatch, url: str) -> str:
    """An address that leaves everything to the environment, which now means that database."""
    facts = conninfo_to_dict(url)
    for name, variable in {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}.items():
        if facts.get(name):
            monkeypatch.setenv(variable, str(facts[name]))
    if facts.get("password"):
        monkeypatch.setenv("PGPASSWORD", str(facts["password"]))
    return "postgresql://"


@pytest.mark.parametrize("place", [SEALED, LANDED])
def test_the_same_words_may_mean_another_database(
    cli: Here,
    sqlite_url: str,
    empty_postgres_url: str,
    postgres_url: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(sqlite_url)
    url = surroundings(monkeypatch, empty_postgres_url)
    killed(cli, url, place)
    ((said, _),) = seals(sqlite_url)
    surroundings(monkeypatch, postgres_url)
    for words in (("--yes",), ()):
        cli("db", "promote", url, *words).refused(4, "was interrupted", "none of its data is in postgresql://")
    assert seals(sqlite_url) == [(said, None)]
    assert str(conninfo_to_dict(empty_postgres_url)["dbname"]) in said
    surroundings(monkeypatch, empty_postgres_url)
    promote(cli, url).done()
    assert len(rows_of(empty_postgres_url)["hw_job"]) == 5


def test_another_schema_of_the_same_database_is_another_place(
    cli: Here, sqlite_url: str, empty_postgres_url: str
) -> None:
    fill(sqlite_url)
    killed(cli, empty_postgres_url, LANDED)
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("create schema other")
        raw.execute(f"alter role current_user in database {raw.info.dbname} set search_path = other")
        promote(cli, empty_postgres_url).refused(4, "none of its data is in")
        raw.execute(f"alter role current_user in database {raw.info.dbname} reset search_path")
    promote(cli, empty_postgres_url).done()


def test_a_standby_is_not_asked(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    """It may be behind, and have the beginning of a move, but not yet its end."""
    fill(sqlite_url)
    killed(cli, empty_postgres_url, LANDED)
    function = "create or replace function pg_catalog.pg_is_in_recovery() returns boolean volatile"
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("set allow_system_table_mods = on")
        raw.execute(f"{function} language sql as 'select true'".encode())
        promote(cli, empty_postgres_url).refused(4, "is a standby", "name the primary server")
        assert len(seals(sqlite_url)) == 1
        raw.execute(f"{function} language internal strict as 'pg_is_in_recovery'".encode())
    promote(cli, empty_postgres_url).done()


def test_a_waiter_for_the_lock_sees_later_commits(empty_postgres_url: str) -> None:
    url = f"{empty_postgres_url}&options=-cdefault_transaction_isolation%3Dserializable"
    with closing(PostgresDatabase(url)) as target, destination.locked(target, "x") as there:
        assert there.connection.execute("show transaction_isolation").fetchall() == [("read committed",)]


def test_another_file_that_came_meanwhile_does_not_hide_what_became_of_this_one(
    cli: Here, sqlite_url: str, empty_postgres_url: str
) -> None:
    fill(sqlite_url)
    killed(cli, empty_postgres_url, SEALED)
    fill("other.db", 2)
    cli("db", "promote", empty_postgres_url, "--yes", database="other.db").done()
    promote(cli, empty_postgres_url).refused(4, "is in use by Headway already")
    assert seals(sqlite_url) == []  # nothing had arrived, and yes was said
    assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5


def test_the_seal_is_lifted_after_a_yes_only(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    killed(cli, empty_postgres_url, SEALED)
    said = f"this would unseal {sqlite_url}", "no data arrived", "--yes"
    cli("db", "promote", empty_postgres_url).refused(2, *said)
    assert seals(sqlite_url) == [(empty_postgres_url, None)]
    with terminal("db", "promote", empty_postgres_url, cwd=cli.folder, database=sqlite_url) as shown:
        shown.until("[y/N]")
        shown.type("y\n")
        shown.until("seal the file? [y/N]")
        shown.type("n\n")
        assert shown.ended() == 4
    assert seals(sqlite_url) == []
    fill(sqlite_url, 1)
    assert unused(empty_postgres_url)


# --- what is left in the file -------------------------------------------------------------------------------------


def test_no_secret_of_an_address_is_stored(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    promote(cli, f"{empty_postgres_url}&sslpassword=geheim").done()
    assert [file for file in Path(sqlite_url).parent.glob("*.db*") if b"geheim" in file.read_bytes()] == []


def test_guards_name_the_last_address(cli: Here, sqlite_url: str, empty_postgres_url: str, postgres_url: str) -> None:
    fill(sqlite_url)
    promote(cli, empty_postgres_url).done()
    with raw_connection(sqlite_url) as raw:
        raw.execute("delete from hw_moved")
    promote(cli, postgres_url).done()
    with raw_connection(sqlite_url) as raw, pytest.raises(Exception, match=postgres_url.rpartition("/")[2][:20]):
        raw.execute("delete from hw_job")


def test_a_broken_connection_is_told_with_what_became_of_the_file(
    cli: Here, sqlite_url: str, empty_postgres_url: str
) -> None:
    fill(sqlite_url)
    fault_points.arm(once_at("promote_there.before_commit", lambda: cut_off(empty_postgres_url)))
    answer = promote(cli, empty_postgres_url).refused(5, "nothing was moved", f"{sqlite_url} is unchanged")
    assert "not known" not in answer.err


def test_a_file_that_cannot_be_read_to_its_end(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    fill(sqlite_url)
    with raw_connection(sqlite_url) as raw:
        raw.execute("insert into hw_log (job_id, at, lines) values (1, 1, ?)", ("x" * 100_000,))
        raw.execute("pragma wal_checkpoint(truncate)").fetchall()
    file = Path(sqlite_url)
    data = bytearray(file.read_bytes())
    page = data.index(b"x" * 4092, 8192) // 4096 * 4096 + 4096
    data[page : page + 4] = b"\xff\xff\xff\xff"  # where the next piece of that row is
    file.write_bytes(data)
    promote(cli, empty_postgres_url).refused(5, "the database file is damaged", "headway db restore")
    assert unused(empty_postgres_url)


# --- somebody is at work ------------------------------------------------------------------------------------------


def test_not_while_a_direct_call_is_at_work(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    app = App(sqlite_url, resources={"gpu": 1})
    began, go = threading.Event(), threading.Event()

    @app.task("slow", isolation="thread", resources=["gpu"])
    def slow() -> str:
        began.set()
        go.wait(60)
        return "done"

    answers: list[object] = []
    with app:
        calling = threading.Thread(target=lambda: answers.append(app.direct("slow", {})))
        calling.start()
        try:
            assert began.wait(60)
            promote(cli, empty_postgres_url).refused(4, "reservation 1 is active", "wait for the end")
        finally:
            go.set()
            calling.join(60)
        assert answers == ["done"]
        promote(cli, empty_postgres_url).done()


def test_not_while_a_program_holds_something(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with App(sqlite_url) as app:
        settle(app.database, Concurrency(), {"gpu": 1}, actor=SYSTEM, adopt=True)
    words = ("hold", "gpu", "--", "sh", "-c", "echo held; exec sleep 600")
    with running(*words, cwd=cli.folder, database=sqlite_url) as process:
        line_of(process.stdout, "held")
        promote(cli, empty_postgres_url).refused(4, "reservation 1 is active", "`headway hold`")
    promote(cli, empty_postgres_url).done()


def test_not_while_a_webhook_is_being_sent(cli: Here, sqlite_url: str, empty_postgres_url: str) -> None:
    with App(sqlite_url, webhooks={"allow_private": True}) as app, receiver(hang) as hook:
        endpoint = app.client.webhooks.create(hook.url, ["job.run.completed"])
        number = app.client.webhooks.test(endpoint.id).id
        sender = Deliverer(app.database, render=webhooks.render, guard=Guard(allow_private=True))
        sender.start()
        try:
            hook.await_received(1)
            promote(cli, empty_postgres_url).refused(4, f"delivery {number} is being sent", "try again")
        finally:
            hook.over.set()
            sender.stop()
            sender.join(60)
    promote(cli, empty_postgres_url).done()


# --- a backup from before -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [None, SEALED, LANDED])
def test_a_backup_over_a_moved_file_takes_more_than_yes(
    cli: Here, sqlite_url: str, empty_postgres_url: str, place: str | None
) -> None:
    fill(sqlite_url)
    cli("db", "backup", "before").done()
    if place is None:
        promote(cli, empty_postgres_url).done()
    else:
        killed(cli, empty_postgres_url, place)
    data = f"its data {'are' if place is None else 'may be'} in {empty_postgres_url}"
    words = data, "every waiting job would run in both"
    cli("db", "restore", "before", "--yes").refused(4, *words, "--although-moved")
    cli("db", "restore", "before", "--although-moved").refused(2, "this would replace", *words, "--yes")
    assert len(seals(sqlite_url)) == 1
    assert data in cli("db", "restore", "before", "--yes", "--although-moved").done().err
    assert seals(sqlite_url) == []


# --- processes that go on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("roles", "part"), [("api,scheduler", "scheduler"), ("api", "recovery")])
def test_a_process_that_serves_says_that_it_is_over_and_ends(
    cli: Here, sqlite_url: str, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch, roles: str, part: str
) -> None:
    """Also one that only reads."""
    monkeypatch.setenv("HEADWAY_RECOVERY_INTERVAL", "1s")
    with App(sqlite_url) as app:
        steps = [{"task": "command", "params": {"argv": ["true"]}}]
        app.client.schedules.create("often", {"interval": "1s", "steps": steps})
    words = ("up", "--roles", roles, "--json")
    with running(*words, cwd=cli.folder, database=sqlite_url) as process:
        address = json.loads(line_of(process.stdout, "started"))["url"]
        assert httpx.get(f"{address}/readyz", timeout=PATIENCE, trust_env=False).json()["ready"] is True
        promote(cli, empty_postgres_url).done()
        line = line_of(process.stderr, f"{part}: ")
        assert empty_postgres_url in line
        assert "This part ends" in line
        _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4
    assert "Traceback" not in rest
    assert f"{part}: " not in rest
