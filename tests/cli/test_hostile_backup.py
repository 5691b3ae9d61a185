"""Backups that somebody else wrote: triggers, views, virtual tables, a forged schema. None is restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.schema_trust import TRIGGERS
from headway.store.statements import sql_text
from tests.support.cli import Here
from tests.support.promotion import fill

WROTE = "use a backup or a file that Headway wrote"
TOKEN = (
    "insert into hw_token (name, role, hash, hint, created_at, created_by) values ('evil', 'admin', 'h', 'h', 1, '{}')"
)


def rewrite(table: str, old: str, new: str) -> str:
    """The text of a table is changed behind SQLite's back."""
    return (
        "pragma writable_schema = 1;"
        f"update sqlite_schema set sql = replace(sql, '{old}', '{new}') where name = '{table}';"
        "pragma writable_schema = reset"
    )


FORGED = {
    "a trigger": f"create trigger evil after insert on hw_job begin {TOKEN}; end",
    "a trigger under a known name": "drop trigger hw_job_kept;"
    f"create trigger hw_job_kept after insert on hw_job begin {TOKEN}; end",
    "a trigger in the outbox's name": f"create trigger hw_event_outbox after insert on hw_event begin {TOKEN}; end",
    "a trigger that a deletion reaches": "create table evil (job_id references hw_job (id) on delete cascade);"
    f"create trigger evil_gone after delete on evil begin {TOKEN}; end",
    "no guard": "drop trigger hw_run_frozen",
    "a view in place of a table": "alter table hw_setting rename to kept;"
    "create view hw_setting as select name, load_extension('/tmp/evil.so') as value from kept",
    "a view of our name": "create view hw_more as select 1",
    "a virtual table": "drop table hw_touched; create virtual table hw_touched using fts5(target_id)",
    "a generated column": "alter table hw_job add column evil text generated always as (upper(params)) virtual",
    "a generated column that calls a function with effects": rewrite(
        "hw_setting", "value text not null", "value text not null, evil generated always as (load_extension(name))"
    ),
    "a default": rewrite(
        "hw_token", "version integer not null default 1", "version integer not null default (random())"
    ),
    "a comment in a text, which hides the end of a guard": rewrite(
        "hw_run_frozen",
        "a run is a record: its fixed columns never change",
        "a run--'') where 0; select (''\nis a record: its fixed columns never change",
    ),
    "an index with an expression": "create index hw_evil on hw_job (upper(task))",
    "an index of another name": "create index evil on hw_job (upper(task))",
    "no index": "drop index hw_artifact_path",
    "a number of another program": "pragma application_id = 7",
}


@pytest.fixture
def cli(here: Here, sqlite_url: str) -> Here:
    here.database = sqlite_url
    fill(sqlite_url)
    here("db", "backup", "good.backup").done()
    return here


def tampered(folder: Path, text: str) -> Path:
    file = folder / "evil.backup"
    shutil.copyfile(folder / "good.backup", file)
    connection = apsw.Connection(str(file))
    connection.execute(text)
    connection.close()
    return file


def test_a_forged_backup_is_refused_and_nothing_is_changed(cli: Here) -> None:
    for what, text in FORGED.items():
        file = tampered(cli.folder, text)
        answer = cli("db", "restore", file, "--yes")
        assert answer.code == 4, (what, answer)
        assert any(words in answer.err for words in (WROTE, "is not a usable backup")), (what, answer)
        assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5, what
        assert list(Path(str(cli.database)).parent.glob("*.restoring*")) == [], what


def test_a_file_that_is_no_database_is_refused(cli: Here) -> None:
    good = (cli.folder / "good.backup").read_bytes()
    makers: dict[str, Callable[[], bytes]] = {
        "text": lambda: b"select 1",
        "nothing": lambda: b"",
        "half": lambda: good[: len(good) // 2],
        "a broken schema": lambda: good.replace(b"CREATE TABLE hw_job", b"CREATE TABLE hw_\xff\xff\xff"),
        "pages of noise": lambda: good[:4096] + bytes(reversed(good[4096:])),
    }
    for what, make in makers.items():
        (cli.folder / "odd.backup").write_bytes(make())
        answer = cli("db", "restore", "odd.backup", "--yes")
        assert answer.code == 4, (what, answer)
        assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5, what


def test_a_good_backup_is_restored_with_what_its_owner_added(cli: Here) -> None:
    """Headway never reads other tables and views, so those of a report do no harm."""
    own = "create table notes (text); create view report as select count(*) from hw_job; analyze;"
    file = tampered(cli.folder, own + sql_text("triggers", "arm.sqlite.sql"))
    cli("db", "restore", file, "--yes").done()
    assert len(cli("jobs", "ls", "--json").done().data["items"]) == 5
    cli("verify").done()


def test_a_forged_file_is_not_opened(cli: Here) -> None:
    for what in ("a trigger", "a view in place of a table", "a view of our name", "a virtual table"):
        file = tampered(cli.folder, FORGED[what])
        for args in (("jobs", "ls"), ("db", "migrate"), ("verify",), ("run", "command", "argv=[]")):
            answer = cli(*args, database=str(file))
            assert answer.code == 4, (what, args, answer)
            assert WROTE in answer.err, (what, args)


def test_code_in_a_file_gets_no_power(cli: Here) -> None:
    """What the names do not tell, SQLite itself keeps from functions with effects."""
    text = "create view report as select load_extension('/tmp/evil.so')"
    database = SqliteDatabase(str(tampered(cli.folder, text)))
    try:
        for refused in ("select * from report", "pragma writable_schema = 1; delete from sqlite_schema"):
            with pytest.raises(apsw.Error):
                list(database.writer.execute(refused))
        assert database.writer.execute("pragma trusted_schema").get == 0
    finally:
        database.close()


def test_the_known_triggers_are_those_of_the_migrations(cli: Here) -> None:
    file = tampered(cli.folder, sql_text("triggers", "arm.sqlite.sql"))
    connection = apsw.Connection(str(file))
    assert {name for (name,) in connection.execute("select name from sqlite_schema where type = 'trigger'")} == TRIGGERS
    connection.close()
