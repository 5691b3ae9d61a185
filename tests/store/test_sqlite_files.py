"""SQLite files: durable on every connection, and a clear word about those that cannot be used."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from headway.errors import HeadwayError, Refused, Unreachable
from headway.store.db import Database, open_database
from headway.store.migrations import migrate
from headway.store.sqlite import busy
from headway.store.sqlite import database as sqlite_database
from headway.store.sqlite.backup import backup
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.version import lib_version, refuse_affected
from tests.support.life import Life, raw_connection
from tests.support.scratch import fresh_path

# --- the library ---


@pytest.mark.parametrize("version", [(3, 7, 0), (3, 7, 17), (3, 45, 1), (3, 51, 0), (3, 51, 2)])
def test_versions_that_can_corrupt_a_wal_database_are_refused(version: tuple[int, int, int]) -> None:
    with pytest.raises(Refused, match=r"SQLite 3\.\d+\.\d+ can corrupt .* install apsw 3\.51\.3 or newer"):
        refuse_affected(version)


@pytest.mark.parametrize("version", [(3, 6, 23), (3, 51, 3), (3, 52, 0), (4, 0, 0)])
def test_other_versions_are_not(version: tuple[int, int, int]) -> None:
    refuse_affected(version)


def test_the_library_in_use_is_not_affected_and_is_the_one_that_is_asked(
    empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ".".join(map(str, lib_version())) == apsw.sqlite_lib_version()
    refuse_affected(lib_version())
    monkeypatch.setattr(sqlite_database, "lib_version", lambda: (3, 51, 2))
    with pytest.raises(Refused, match=r"3\.51\.2"):
        open_database(empty_sqlite_url)
    assert not Path(empty_sqlite_url).exists()


# --- durability ---


def pragma(connection: apsw.Connection, name: str) -> object:
    return connection.execute(f"pragma {name}").fetchall()[0][0]


def test_every_connection_syncs_every_commit(empty_sqlite_url: str) -> None:
    """Read back from each: a string of pragmas that stops at the first one would cost durability unseen."""
    with Life(empty_sqlite_url) as life:
        database = life.database
        assert isinstance(database, SqliteDatabase)
        with database.read(), database.read(), database.read():
            life.enqueue()
        waiter = database.waiter()
        backup(database, empty_sqlite_url + ".copy")
        assert len(database.connections) >= 4
        for connection in database.connections:
            assert pragma(connection, "synchronous") == 2
            assert pragma(connection, "journal_mode") == "wal"
            assert pragma(connection, "foreign_keys") == 1
        waiter.close()
        assert pragma(database.writer, "wal_autocheckpoint") == 0  # beside the commits, not in them
    copy = open_database(empty_sqlite_url + ".copy")
    assert copy.check() == []
    copy.close()


def test_a_pragma_that_is_not_accepted_is_a_refusal(empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sqlite_database.PRAGMAS, "journal_mode", "nonsense")
    with pytest.raises(Refused, match="did not accept journal_mode"):
        open_database(empty_sqlite_url)


def test_commits_are_there_after_the_last_connection_closed(sqlite_url: str) -> None:
    with Life(sqlite_url) as life:
        job_id = life.in_state("RUNNING")
        before = life.everything()
    with Life(sqlite_url) as life:
        assert life.everything()["job"] == before["job"]
        assert life.status(job_id) == "RUNNING"


def test_a_closed_database_says_so(sqlite_url: str) -> None:
    with Life(sqlite_url) as life:
        pass
    for use in (lambda: life.database.begin("x"), life.database.begin_read, lambda: life.database.once("ping")):
        with pytest.raises(HeadwayError, match="closed"):
            use()


# --- files that are none ---


def no_folder(path: Path) -> str:
    return str(path / "nowhere" / "headway.db")


def a_directory(path: Path) -> str:
    (path / "headway.db").mkdir()
    return str(path / "headway.db")


def a_text(path: Path) -> str:
    (path / "headway.db").write_text("[headway]\ndatabase = 'headway.db'\n" * 100)
    return str(path / "headway.db")


def another_program(path: Path) -> str:
    with raw_connection(str(path / "headway.db")) as raw:
        raw.execute("create table photos (id integer)")
        raw.execute("insert into photos values (1)")
    return str(path / "headway.db")


def a_folder_that_is_a_file(path: Path) -> str:
    (path / "file").write_text("")
    return str(path / "file" / "headway.db")


WRONG = [
    (no_folder, "does not exist: create it"),
    (a_folder_that_is_a_file, "does not exist: create it"),
    (a_directory, "cannot"),
    (a_text, "not a database"),
    (another_program, "another program"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_what_cannot_be_a_database_is_refused_in_one_line_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], str], words: str
) -> None:
    url = make(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(Unreachable, match=words) as refusal:
        migrate(open_database(url))
    assert "\n" not in str(refusal.value)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "headway.db").touch()
    with Life(str(tmp_path / "headway.db")) as life:
        assert life.status(life.enqueue()) == "QUEUED"


def test_a_url_means_the_same_as_a_path(tmp_path: Path) -> None:
    with Life(str(tmp_path / "headway.db")) as life:
        job_id = life.enqueue()
    database = open_database(f"sqlite:///{tmp_path}/headway.db")
    with database.read() as tx:
        assert tx.run("read_job", id=job_id)
    database.close()


# --- files that are damaged ---


@pytest.fixture(scope="module")
def whole(scratch: Path) -> bytes:
    """A database with some life in it, closed, so that everything is in the one file."""
    path = Path(fresh_path(scratch))
    with Life(str(path)) as life:
        for state in ("QUEUED", "RUNNING", "PAUSED", "FAILED", "retried", "COMPLETED", "CANCELLED") * 10:
            life.in_state(state, params='{"text":"' + "x" * 300 + '"}')
    assert not Path(f"{path}-wal").exists()
    return path.read_bytes()


def use(url: str) -> str:
    """Opens, migrates, looks at everything and checks; what came of it, in a word. Only our own errors may come out."""
    database: Database | None = None
    try:
        database = open_database(url)
        migrate(database)
        return "found" if database.check() else "fine"
    except (Unreachable, Refused) as error:
        return "refused" if "\n" not in str(error) else str(error)
    finally:
        if database is not None:
            database.close()


@pytest.mark.parametrize("kept", [0.001, 0.02, 0.1, 0.5, 0.9, 1.0])
def test_a_truncated_file_is_noticed(tmp_path: Path, whole: bytes, kept: float) -> None:
    file = tmp_path / "headway.db"
    file.write_bytes(whole[: min(int(len(whole) * kept), len(whole) - 4096)])
    assert use(str(file)) in ("refused", "found")


def test_a_flipped_bit_is_noticed_or_harmless_and_never_an_unknown_error(tmp_path: Path, whole: bytes) -> None:
    rng = random.Random(20261115)
    answers = []
    for n in range(80):
        damaged = bytearray(whole)
        place = rng.randrange(100) if n % 4 == 0 else rng.randrange(len(whole))
        damaged[place] ^= 1 << rng.randrange(8)
        file = tmp_path / f"{n}.db"
        file.write_bytes(damaged)
        answers.append(use(str(file)))
        for left in tmp_path.glob(f"{n}.db*"):
            left.unlink()
    assert set(answers) == {"refused", "found", "fine"}


def test_a_damaged_page_is_said_when_it_is_met(tmp_path: Path, whole: bytes) -> None:
    """Not only at the opening: whoever reads the page later gets the same clear word."""
    file = tmp_path / "headway.db"
    damaged = bytearray(whole)
    page = 4096
    for start in range(3 * page, len(damaged), page):
        damaged[start : start + 8] = b"\xff" * 8
    file.write_bytes(damaged)
    with pytest.raises(Unreachable, match=r"damaged|cannot be read") as refusal:
        look_everywhere(str(file))
    assert "\n" not in str(refusal.value)


def look_everywhere(url: str) -> None:
    with Life(url) as life:
        for job_id in range(1, 50):
            life.client.get(job_id)
        life.enqueue()


def test_a_whole_file_is_fine(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "headway.db").write_bytes(whole)
    assert use(str(tmp_path / "headway.db")) == "fine"


def test_a_lock_that_is_never_let_go_is_said(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "BUSY_SECONDS", 0.05)
    with Life(sqlite_url) as life, raw_connection(sqlite_url) as other:
        other.execute("begin immediate")
        with pytest.raises(Unreachable, match="kept the database locked"):
            life.enqueue()
        other.execute("commit")
        assert life.status(life.enqueue()) == "QUEUED"
