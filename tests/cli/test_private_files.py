"""Files that Headway writes are its user's alone, whatever the umask; `doctor` looks at older ones."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

from headway import App
from tests.cli.test_db import pg_programs
from tests.support.cli import Here, environment, line_of, program, running, until
from tests.support.doctor import looked

__all__ = ["pg_programs"]

OPEN = ["sh", "-c", 'umask 0; exec "$@"', "sh"]
JOBS = """
from headway import App, Context

app = App()

@app.task("leave")
def leave(ctx: Context) -> None:
    with open("made.txt", "w") as file:
        file.write("private")
    ctx.attach("made.txt")
"""


def modes(folder: Path) -> dict[str, int]:
    """The modes of all files and folders below, but for those that the test made."""
    found = sorted(path for path in folder.rglob("*") if path.name not in ("jobs.py", "made.txt", "__pycache__"))
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in found if path.suffix != ".pyc"}


def test_up_and_its_jobs_write_private_files(folder: Path) -> None:
    (folder / "jobs.py").write_text(JOBS)
    with running("up", "--app", "jobs.py:app", cwd=folder, prefix=OPEN) as up:
        line_of(up.stderr, "HTTP API")
        program("run", "leave", "--app", "jobs.py:app", "--follow", cwd=folder, prefix=OPEN).done()
        found = modes(folder)
    kept = {name: mode for name, mode in found.items() if name.startswith("headway-artifacts")}
    assert sorted(kept.values()) == [0o600, 0o700, 0o700], kept
    rest = {name: mode for name, mode in found.items() if name not in kept}
    assert rest == {"headway.db": 0o600, "headway.db-shm": 0o600, "headway.db-wal": 0o600}


def test_backups_restored_and_promoted_files_are_private(
    here: Here, folder: Path, empty_postgres_url: str, pg_programs: None
) -> None:
    def run(*args: object) -> None:
        program(*args, cwd=folder, prefix=OPEN, PATH=os.environ["PATH"]).done()

    run("db", "migrate")
    run("db", "backup", "one.backup")
    os.chmod(folder / "headway.db", 0o644)  # of an earlier version
    run("db", "restore", "one.backup", "--yes")
    found = modes(folder)
    assert [mode for name, mode in found.items() if ".before-" in name] == [0o600]
    assert {name: mode for name, mode in found.items() if ".before-" not in name} == {
        "headway.db": 0o600,
        "one.backup": 0o600,
    }
    run("db", "promote", empty_postgres_url, "--yes")
    run("db", "backup", "two.backup", "--database", empty_postgres_url)
    assert {mode for name, mode in modes(folder).items() if ".before-" not in name} == {0o600}


def test_a_backup_follows_no_link_that_was_left_for_it(here: Here, folder: Path) -> None:
    here("db", "migrate").done()
    for name in (".copy.part", "headway.db.restoring"):
        (folder / name).symlink_to(folder / "victim")
    (folder / "victim").write_text("precious")
    here("db", "backup", "copy").done()
    here("db", "restore", "copy", "--yes").done()
    assert (folder / "victim").read_text() == "precious"


def wide(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Which of the two checks complain of other users."""
    checks = {name: found[name] for name in ("database_file", "artifacts")}
    return {name: check["state"] for name, check in checks.items() if "other users" in check["detail"]}


def test_doctor_looks_at_the_group_and_others(here: Here, folder: Path) -> None:
    here("db", "migrate").done()
    here.database = "headway.db"
    assert wide(looked(here)) == {}
    (folder / "headway-artifacts").mkdir()
    for name, mode, check in (
        ("headway.db", 0o640, "database_file"),
        ("headway.db", 0o604, "database_file"),
        ("headway.db.before-1", 0o644, "database_file"),
        ("headway-artifacts", 0o750, "artifacts"),
        ("headway-artifacts", 0o701, "artifacts"),
    ):
        path = folder / name
        if not path.exists():
            path.touch()
        os.chmod(folder / "headway-artifacts", 0o700)
        os.chmod(path, mode)
        found = looked(here)
        assert wide(found) == {check: "look"}, (name, oct(mode))
        finding = found[check]
        assert f"{name} (mode {mode:04o})" in finding["detail"]
        command = finding["remedy"].split("`")[1]
        subprocess.run(shlex.split(command), cwd=folder, env=environment(), check=True)
        assert wide(looked(here)) == {}, command
    os.chmod(folder, 0o777)
    assert "every user may replace files" in str(looked(here))
    os.chmod(folder, 0o700)


def test_an_existing_file_keeps_the_mode_that_its_owner_gave_it(folder: Path) -> None:
    """Two users of one group may share a database; Headway does not lock one of them out."""
    with App(str(folder / "x.db")) as app:
        app.enqueue("command", {"argv": ["true"]})
    os.chmod(folder / "x.db", 0o660)
    with App(str(folder / "x.db")) as app:
        app.enqueue("command", {"argv": ["true"]})
        until(lambda: (folder / "x.db-wal").exists())
        assert set(modes(folder).values()) == {0o660}
