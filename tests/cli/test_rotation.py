"""`db backup --to` with rotation and attached files, and `db restore --try`, on both databases."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from headway import App
from headway.engine.execution.artifacts import keep
from headway.testing import drain
from tests.cli.test_db import pg_programs  # noqa: F401
from tests.support.cli import ROOT, Here

pytestmark = pytest.mark.usefixtures("pg_programs")
OLD = "headway-20200101T030000Z.backup"


@pytest.fixture
def attached(cli: Here, app: App) -> Path:
    """The folder of artifacts, with a file that a job attached."""
    folder = cli.folder / "headway-artifacts"
    (cli.folder / "report.txt").write_text("all is well")
    keep(folder, str(cli.folder / "report.txt"))
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_folder_gets_backups_by_rule_and_new_attached_files(cli: Here, attached: Path) -> None:
    (digest,) = _names(attached)
    first = cli("db", "backup", "--to", "kept", "--json").done().data
    file = Path(first["file"])
    assert (first["files_copied"], first["removed"]) == (1, [])
    assert _names(cli.folder / "kept") == sorted([digest, file.name, f"{file.name}.files"])
    assert (os.stat(file).st_mode & 0o777, os.stat(cli.folder / "kept").st_mode & 0o777) == (0o600, 0o700)
    # An older backup, and a file that only it lists.
    os.rename(cli.folder / file, cli.folder / "kept" / OLD)
    os.rename(cli.folder / f"{file}.files", cli.folder / "kept" / f"{OLD}.files")
    (attached / digest[:2] / digest).unlink()
    (cli.folder / "kept" / "notes.txt").write_text("not a backup")
    second = cli("db", "backup", "--to", "kept", "--keep", "1d", "--json").done().data
    assert second["removed"] == [OLD]
    name = Path(second["file"]).name
    assert _names(cli.folder / "kept") == sorted([name, f"{name}.files", "notes.txt"])


def test_a_damaged_attached_file_is_named(cli: Here, attached: Path) -> None:
    (digest,) = _names(attached)
    (attached / digest[:2] / digest).write_text("something else")
    said = cli("db", "backup", "--to", "kept")
    assert said.code == 5
    assert f"the attached file {digest} is damaged" in said.err
    assert digest not in _names(cli.folder / "kept")


def test_a_restore_brings_attached_files_back(cli: Here, app: App, attached: Path) -> None:
    file = cli("db", "backup", "--to", "kept", "--json").done().data["file"]
    (digest,) = _names(attached)
    (attached / digest[:2] / digest).unlink()
    app.close()
    cli("db", "restore", file, "--yes").done()
    assert (attached / digest[:2] / digest).read_text() == "all is well"


def test_a_trial_proves_a_backup_and_touches_nothing(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "kept"})
    drain(app)
    file = cli("db", "backup", "--to", "kept", "--json").done().data["file"]
    app.enqueue("shop.greet", {"name": "later"})
    proved = cli("db", "restore", "--try", file, "--json").done().data
    assert (proved["counted"]["jobs"], proved["problems"]) == (1, [])
    assert f"{file} can be restored: " in cli("db", "restore", "--try", file).done().out
    assert len(cli("jobs", "ls", "--json").data["items"]) == 2
    assert sorted(path.name for path in cli.folder.iterdir()) == ["kept"]
    if app.database.dialect == "postgres":
        with psycopg.connect(app.database.url) as server:
            left = server.execute("select datname from pg_database where datname like 'headway_trial_%'").fetchall()
        assert left == []


def test_a_trial_refuses_what_is_no_backup(cli: Here) -> None:
    (cli.folder / "junk").write_text("x" * 5_000)
    cli("db", "restore", "--try", "junk").refused(4)
    cli("db", "restore", "--try", "nothing").refused(3, "there is no file nothing")


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "name either a file, or a folder with --to"),
        (("x", "--to", "y"), "name either a file, or a folder with --to"),
        (("x", "--keep", "7d"), "--keep is for a folder"),
        (("--to", "y", "--keep", "7"), "like 7d,4w,6m"),
    ],
)
def test_wrong_arguments_are_refused(cli: Here, args: tuple[str, ...], word: str) -> None:
    cli("db", "backup", *args).refused(2, word)


def test_the_ready_schedule_can_be_applied(cli: Here) -> None:
    """And its command is one that the command line takes: it makes a backup here."""
    cli("apply", ROOT / "examples" / "backup.toml").done()
    (step,) = cli("schedules", "show", "backup", "--json").done().data["steps"]
    program, *args = step["params"]["argv"]
    assert program == "headway"
    cut = args.index("--database")
    moved = [str(cli.folder / "kept") if arg == "/var/backups/headway" else arg for arg in args[:cut]]
    assert cli(*moved).done().out.startswith(str(cli.folder / "kept"))
