"""The database itself: made, checked, copied and put back, on both kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.app import App
from headway.store.migrations import versions
from tests.support.cli import Here, line_of, running, until
from tests.support.postgres import client_programs


@pytest.fixture
def pg_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{client_programs()}{os.pathsep}{os.environ['PATH']}")


def test_migrate(here: Here, empty_url: str) -> None:
    newest = versions()[-1]
    assert f"now has schema {newest}" in here("db", "migrate", database=empty_url).done().out
    again = here("db", "migrate", database=empty_url).done()
    assert f"is up to date: schema {newest}" in again.out
    assert here("db", "migrate", "--json", database=empty_url).done().data["migrated"] == []
    assert "no jobs yet" in here("jobs", "ls", database=empty_url).done().err


def test_check(cli: Here) -> None:
    assert cli("db", "check").done().out.endswith(" is intact\n")
    assert cli("db", "check", "--json").done().data["problems"] == []


def test_backup_and_restore(cli: Here, app: App, pg_programs: None) -> None:
    app.enqueue("shop.greet", {"name": "kept"})
    assert "copy.backup: " in cli("db", "backup", "copy.backup").done().out
    assert sorted(path.name for path in cli.folder.iterdir()) == ["copy.backup"]
    cli("db", "backup", "copy.backup").refused(4, "copy.backup exists already")
    cli("db", "backup", "no/folder/x").refused(4, "there is no folder")
    app.enqueue("shop.greet", {"name": "lost"})
    app.close()
    cli("db", "restore", "copy.backup").refused(2, "this would replace", "--yes")
    assert len(cli("jobs", "ls", "--json").data["items"]) == 2
    restored = cli("db", "restore", "copy.backup", "--yes", "--json").done().data
    assert [job["params"] for job in cli("jobs", "ls", "--json").data["items"]] == [{"name": "kept"}]
    assert cli("verify", "--json").done().data["findings"] == []
    assert app.enqueue("shop.greet", {"name": "goes on"}).id == 3, "a client may know job 2, which is lost"
    if restored["kept"]:
        assert len(cli("jobs", "ls", "--json", database=restored["kept"]).data["items"]) == 2


def test_restore_is_refused_while_a_worker_lives(cli: Here, pg_programs: None) -> None:
    cli("db", "backup", "copy").done()
    with running("work", "--json", cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "started")
        until(lambda: cli("workers", "ls", "--json").data["items"])
        cli("db", "restore", "copy", "--yes").refused(4, "1 worker is alive", f"pid {process.pid}", "stop them first")
    cli("db", "restore", "copy", "--yes").done()


def test_restore_refuses_what_is_no_backup(cli: Here, app: App, pg_programs: None) -> None:
    app.enqueue("shop.greet", {"name": "kept"})
    app.close()
    (cli.folder / "text").write_text("this is no database " * 100)
    (cli.folder / "empty").write_bytes(b"")
    cli("db", "restore", "nothing", "--yes").refused(3, "there is no file nothing", "headway db backup")
    for name in ("text", "empty"):
        cli("db", "restore", name, "--yes").refused(4)
    assert len(cli("jobs", "ls", "--json").data["items"]) == 1
    assert sorted(path.name for path in cli.folder.iterdir()) == ["empty", "text"]


def test_restore_over_a_damaged_file_and_where_there_is_none(here: Here, sqlite_url: str) -> None:
    with App(sqlite_url) as app:
        app.enqueue("command", {"argv": ["true"]})
    here("db", "backup", "copy", database=sqlite_url).done()
    Path(sqlite_url).write_bytes(b"ruined" * 1000)
    here("db", "restore", "copy", "--yes", database=sqlite_url).done()
    here("db", "restore", "copy", "--yes", database="new.db").done()
    for url in (sqlite_url, "new.db"):
        assert len(here("jobs", "ls", "--json", database=url).data["items"]) == 1


def test_without_the_programs_it_says_which_to_run(
    here: Here, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("db", "migrate", database=empty_postgres_url).done()
    monkeypatch.setenv("PATH", str(here.folder))
    here("db", "backup", "copy", database=empty_postgres_url).refused(
        4, "pg_dump is not installed here", "pg_dump --format=custom"
    )
    (here.folder / "some").write_bytes(b"x")
    here("db", "restore", "some", "--yes", database=empty_postgres_url).refused(
        4, "pg_restore is not installed", "--clean"
    )
