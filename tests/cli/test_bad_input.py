"""Whatever is wrong is said in one line with its remedy and the right exit code, and nothing is changed by it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headway.app import App
from headway.store.db import Database, Tx, open_database
from headway.store.migrations import migrate
from tests.support.cli import Here, program
from tests.support.life import Life

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")
LARGE = json.dumps({"name": "x" * 300 * 1024})


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["shop.gret", "name=x"], 2, ["no task is named 'shop.gret'", "did you mean shop.greet?"]),
        (["nothing.like.it"], 2, ["no task is named 'nothing.like.it'", "check the spelling"]),
        (["not a name"], 2, ["task must consist of letters"]),
        (["shop.greet"], 2, ["params.name is missing"]),
        (["shop.greet", "name=x", "tims=2"], 2, ["params.tims is not a parameter of the task", "times"]),
        (["shop.greet", "name=5"], 2, ["params.name must be str, not int"]),
        (["shop.greet", "name"], 2, ["'name' is not a param", "name=value"]),
        (["shop.greet", "name=x", "name=y"], 2, ["params.name is given twice"]),
        (["shop.greet", "--params", "{oops"], 2, ["params is not JSON"]),
        (["shop.greet", "--params", "[1]"], 2, ["params must be a JSON object"]),
        (["shop.greet", "--params", '{"name": "a", "name": "b"}'], 2, ["has the key", "name", "twice"]),
        (["shop.greet", "--params", '{"name": NaN}'], 2, ["params.name is NaN or infinite", "use null"]),
        (["shop.greet", "name=NaN"], 2, ["params.name is NaN or infinite"]),
        (["shop.greet", "--params", r'{"name": "a\u0000b"}'], 2, ["params.name", "NUL"]),
        (["shop.greet", "name=99999999999999999999999"], 2, ["params.name is an integer outside 64 bits"]),
        (["shop.greet", "--params", "@nothing.json"], 2, ["nothing.json cannot be read", "name another file"]),
        (["shop.greet", "--params", "@large.json"], 2, ["params", "256 KiB", "store the data elsewhere"]),
        (["shop.greet", "name=x", "--priority", "101"], 2, ["priority must be a whole number from 0 to 100"]),
        (["shop.greet", "name=x", "--priority", "high"], 2, ["Invalid value for '--priority'", "headway run --help"]),
        (["shop.greet", "name=x", "--delay", "soon"], 2, ["delay is not a duration", "write it like 10s"]),
        (["shop.greet", "name=x", "--delay=-5s"], 2, ["delay must not be negative"]),
        (["shop.greet", "name=x", "--timeout", "0s"], 2, ["timeout must be more than 0"]),
        (["shop.greet", "name=x", "--delay", "1s", "--not-before", "2099-01-01T00:00:00Z"], 2, ["not both"]),
        (["shop.greet", "name=x", "--not-before", "tomorrow"], 2, ["not_before is not an RFC 3339 time"]),
        (["shop.greet", "name=x", "--retries", "-1"], 2, ["retry.max_attempts must be a whole number from 0"]),
        (["shop.greet", "name=x", "--budget", "tokens"], 2, ["--budget 'tokens' is not a cap", "tokens=500000"]),
        (["shop.greet", "name=x", "--on-lost", "cry"], 2, ["on_lost must be one of retry, hold, fail"]),
        (["shop.greet", "name=x", "--key", "a\nb"], 2, ["key must not contain control characters"]),
        (["shop.greet", "name=x", "--target", ""], 2, ["target must have 1 to 200 characters, not 0"]),
        (["shop.greet", "name=x", "--target", "t" * 201], 2, ["target must have 1 to 200 characters, not 201"]),
        (["shop.greet", "name=x", "--target", "desk\x1b[31m"], 2, ["target must not contain control characters"]),
        (["shop.greet", "name=x", "--on-error", "cry"], 2, ["on_error must be one of hold, fail"]),
        (
            ["shop.greet", "name=x", "--resource", "gpu"],
            2,
            ["no resource is named 'gpu'", "in the settings: [resources]"],
        ),
        (["shop.greet", "name=x", "--resource", ""], 2, ["resources must have 1 to 200 characters, not 0"]),
        (["shop.greet", "name=x", "--prority", "1"], 2, ["No such option: --prority", "--priority"]),
        ([], 2, ["no task given", "--template"]),
    ],
)
def test_run_refuses(here: Here, args: list[str], code: int, words: list[str]) -> None:
    (here.folder / "large.json").write_text(LARGE)
    here("run", *args, *SHOP).refused(code, *words)
    assert sorted(path.name for path in here.folder.iterdir()) == ["large.json"]  # not even a database was made
    error = here("run", *args, *SHOP, "--json")
    assert (error.code, error.out, error.error["exit_code"]) == (code, "", code)


def test_run_refuses_on_either_database(cli: Here, database: Database) -> None:
    for args in (["shop.greet", "name=5"], ["shop.gret"], ["shop.greet", "name=x", "--priority", "101"]):
        cli("run", *args, *SHOP).refused(2)
    with database.read() as tx:
        assert tx.run("last_job") == []


def test_params_from_stdin_too_large(folder: Path) -> None:
    program("run", "shop.greet", "--params", "-", *SHOP, cwd=folder, stdin=LARGE).refused(2, "params", "256 KiB")
    assert list(folder.iterdir()) == []


def test_an_argument_that_is_not_text(folder: Path) -> None:
    bad = os.fsdecode(b"name=\xff")
    program("run", "shop.greet", bad, cwd=folder).refused(2, "not UTF-8")


REFUSALS: list[tuple[list[str], list[str]]] = [
    (["jobs", "ls", "--status", "FALED"], ["there is no status 'FALED'", "did you mean FAILED?"]),
    (["jobs", "ls", "--limit", "0"], ["limit must be from 1 to 200"]),
    (["jobs", "ls", "--cursor", "what"], ["cursor is not valid: list again"]),
    (["jobs", "ls", "--since", "yesterday"], ["--since 'yesterday' is not a time", "write 2h (ago), 2026-03-01"]),
    (["jobs", "ls", "--since", "2026-13-01"], ["since is not a time that exists"]),
    (["jobs", "ls", "--failure-kind", "BAD"], ["there is no kind 'BAD'", "TIMEOUT"]),
    (["jobs", "show", "0"], ["Invalid value for 'ID'"]),
    (["jobs", "show", "99999999999999999999"], ["Invalid value for 'ID'"]),
    (["jobs", "show", "one"], ["Invalid value for 'ID'", "one is not a job number", "headway jobs ls"]),
    (["jobs", "cancel", "1", "two"], ["two is not a job number"]),
    (["jobs", "wait", "1.5"], ["1.5 is not a job number"]),
    (
        ["jobs", "retry", "1", "two"],
        ["Invalid value for 'ID|NAME=VALUE'", "two is not a job number", "jobs retry --help"],
    ),
    (["jobs", "retry", "1", "=two"], ["'=two' is not a param", "name=value"]),
    (["jobs", "logs", "1", "--tail", "-1"], ["--tail must be 0 or more"]),
    (["jobs", "wait", "1", "--timeout", "x"], ["timeout is not a duration"]),
    (["jobs", "resolve", "1", "--result", "{oops"], ["result is not JSON"]),
    (["jobs", "ls", "--target", "a\nb"], ["target must not contain control characters"]),
    (["targets", "ls", "--state", "hold"], ["there is no target state 'hold'", "did you mean held?"]),
    (["targets", "ls", "--cursor", "what"], ["cursor is not valid: list again"]),
    (["targets", "ls", "--cursor", "aWQ6OTk"], ["cursor is not valid: list again"]),
    (["targets", "ls", "-n", "201"], ["limit must be from 1 to 200"]),
    (["targets", "show", ""], ["target must have 1 to 200 characters"]),
    (["targets", "pause", "t" * 201], ["target must have 1 to 200 characters, not 201"]),
    (["targets", "resume", "desk\x07"], ["target must not contain control characters"]),
    (["targets", "release"], ["Missing argument 'NAME'"]),
    (["limits", "set", "global", "0"], ["a limit must be a whole number from 1, or none, not 0"]),
    (["limits", "set", "global", "many"], ["a limit must be a whole number from 1, or none, not 'many'"]),
    (["limits", "set", "global", "1.5"], ["a limit must be a whole number from 1, or none"]),
    (["limits", "set", "global", "1000001"], ["a limit must be a whole number from 1"]),
    (["limits", "set", "global", "9" * 30], ["a limit must be a whole number from 1"]),
    (["schedules", "show", "9" * 30], ["999 is larger than the largest number, 9223372036854775807"]),
    (["templates", "show", "9" * 5_000], ["99999… is larger than the largest number"]),
    (["queue", "pause", "--for", "ever"], ["--for is not a duration"]),
    (["queue", "pause", "--for", "0s"], ["--for must be more than 0"]),
    (["top", "--interval", "x"], ["interval is not a duration"]),
    (["nonsense"], ["No such command 'nonsense'", "headway --help"]),
    (["jobs", "lst"], ["No such command 'lst'"]),
    (["up", "--roles", "worker,king"], ["there is no role 'king'", "api, scheduler, worker"]),
    (["work", "--slots", "0"], ["--slots: must be at least 1"]),
    (["work", "--tasks", "nope.*"], ["no task matches 'nope.*'", "known are command"]),
    (["up", "--app", "shop"], ["--app must name a module and the app in it"]),
    (["up", "--app", "no.such.module:app"], ["there is no module no.such.module"]),
    (["up", "--app", "nothing.py:app"], ["there is no file nothing.py"]),
    (["up", "--app", "tests.support.shop:ap"], ["has no App named ap", "did you mean tests.support.shop:app?"]),
    (["up", "--app", "tests.support.cli:app"], ["has no App named app", "app = App()"]),
    (["up", "--app", "broken.py:app"], ["broken cannot be imported: ZeroDivisionError", "(broken.py, line 2)"]),
    (["up", "--app", "unparsed.py:app"], ["unparsed cannot be imported: SyntaxError"]),
    (["up", "--app", "needy.py:app"], ["needy cannot be imported: ModuleNotFoundError: No module named 'nope'"]),
    (["up", "--app", "json.py:app"], ["another module has the name json", "rename json.py"]),
]


def events(database: Database) -> int:
    """How much has ever happened there."""
    with database.read() as tx:
        found = tx.connection.execute("select count(*) from hw_event").fetchall()  # type: ignore[attr-defined]
    return int(found[0][0])


def test_every_command_refuses(cli: Here, database: Database) -> None:
    (cli.folder / "broken.py").write_text("x = 1\n1 / 0\n")
    (cli.folder / "unparsed.py").write_text("def\n")
    (cli.folder / "needy.py").write_text("import nope\n")
    (cli.folder / "json.py").write_text("app = 1\n")
    for args, words in REFUSALS:
        cli(*args).refused(2, *words)
    assert events(database) == 0


NOWHERE: list[tuple[list[str], str]] = [
    (["targets", "show", "desk-9"], "there is no target 'desk-9': a target is created with its first job"),
    (["targets", "pause", "desk-9"], "there is no target 'desk-9'"),
    (["targets", "resume", "desk-9"], "there is no target 'desk-9'"),
    (["targets", "release", "desk-9"], "there is no target 'desk-9'"),
    (["jobs", "ls", "--target", "desk-9"], "there is no target 'desk-9'"),
    (["jobs", "cancel", "--target", "desk-9", "--yes"], "there is no target 'desk-9'"),
    (["runs", "ls", "--target", "desk-9"], "there is no target 'desk-9'"),
    (["limits", "set", "ollama", "2"], "there is no lane 'ollama': see `headway limits ls`"),
    (["limits", "set", "globl", "2"], "there is no lane 'globl': did you mean global?"),
]


def test_missing_things(cli: Here, database: Database) -> None:
    for args, words in NOWHERE:
        cli(*args).refused(3, words)
    assert events(database) == 0


def test_a_resource_nobody_defined(cli: Here, database: Database) -> None:
    """Not even the lane of the one that is defined came into being."""
    (cli.folder / "headway.toml").write_text("[resources]\nollama = 1\n")
    args = ("sh", "--resource", "ollama", "--resource", "olama", "--", "true")
    cli(*args).refused(2, "no resource is named 'olama'", "did you mean ollama?")
    cli("sh", "--resource", "printer", "--", "true").refused(2, "no resource is named 'printer'", "define it first")
    assert events(database) == 0
    with database.read() as tx:
        assert [row[3] for row in tx.run("lanes")] == ["global"]


def test_a_resource_must_have_a_capacity(cli: Here, database: Database) -> None:
    (cli.folder / "headway.toml").write_text("[resources]\nollama = 1\n")
    cli("sh", "--resource", "ollama", "--", "true").done()
    before = events(database)
    for limit in ("0", "none"):
        cli("limits", "set", "ollama", limit).refused(2, "must be a", "number from 1")
    assert events(database) == before


def test_a_job_that_runs_cannot_be_resumed(cli: Here, app: App, database: Database) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    assert cli.database is not None
    with Life(cli.database) as life:
        life.claim(1)
        before = life.everything()
        cli("jobs", "resume", 1).refused(4, "job 1 is RUNNING: cannot resume it", "only a PAUSED or ERROR job")
        cli("jobs", "resolve", 1, "--result", "{}").refused(4, "job 1 is RUNNING: cannot resolve it")
        assert life.everything() == before


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[resources]\nollama = 0", ["headway.toml:2: resources.ollama: must be at least 1"]),
        ('[resources]\nollama = "none"', ["resources.ollama: must be a whole number"]),
        ('[resources]\n"a\\nb" = 1', ["headway.toml:2: resources", "must not contain control characters"]),
        ('[concurrency]\npolicy = "per_tsk"', ["concurrency.policy", "did you mean per_task?"]),
        ('[concurrency]\npolicy = "no.such.Policy"', ["no.such.Policy cannot be imported", "No module named 'no'"]),
        ('[concurrency]\npolicy = "own.Missing"', ["own.Missing cannot be imported", "has no attribute 'Missing'"]),
        ('[concurrency]\npolicy = "own.Needy"', ["own.Needy cannot be imported: TypeError", "correct it"]),
        ('[concurrency]\npolicy = "own.Empty"', ["own.Empty is not a policy", "per_task", "`lanes(task, resources)`"]),
        ('[concurrency]\npolicy = "own.Wordy"', ["own.Wordy for the task command must return a list of lanes"]),
        ('[concurrency]\npolicy = "own.Broken"', ["own.Broken for the task command failed with KeyError"]),
        ("[concurrency]\nlimit = 0", ["headway.toml:2: concurrency.limit: must be at least 1"]),
        ('[concurrency]\ntargets = "all"', ["concurrency.targets: must be 'own' or 'global'"]),
        ("aging = 0", ["headway.toml:1: aging: must be at least 1ms", '(or "none")']),
        ("aging = 0.0000001", ["headway.toml:1: aging: must be at least 1ms"]),
    ],
)
def test_settings_that_cannot_work_start_nothing(here: Here, toml: str, words: list[str]) -> None:
    (here.folder / "headway.toml").write_text(toml + "\n")
    (here.folder / "own.py").write_text(
        "class Needy:\n    def __init__(self, x): ...\n"
        "class Empty: ...\n"
        "class Wordy:\n    def lanes(self, task, resources): return 'words'\n"
        "class Broken:\n    def lanes(self, task, resources): return {}[task]\n"
    )
    program("work", "--burst", cwd=here.folder).refused(2, *words)
    assert sorted(path.name for path in here.folder.iterdir() if path.suffix) == ["headway.toml", "own.py"]


def test_a_command_that_is_not_finished_shows_its_help(here: Here) -> None:
    for args in ([], ["jobs"], ["db"]):
        said = here(*args)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(" ".join(["Usage: headway", *args]))
        assert "\nCommands:\n" in said.err


# --- databases that are not what they should be -------------------------------------------------------------------

LOOKING = (
    ["jobs", "ls"],
    ["jobs", "show", "1"],
    ["jobs", "cancel", "1"],
    ["runs", "ls"],
    ["queue", "ls"],
    ["queue", "pause"],
    ["targets", "ls"],
    ["targets", "pause", "desk-1"],
    ["limits", "ls"],
    ["limits", "set", "global", "2"],
    ["status"],
    ["top"],
    ["workers", "ls"],
    ["verify"],
    ["db", "check"],
    ["db", "backup", "copy.db"],
)
USING = (
    ["run", "command", 'argv=["true"]'],
    ["sh", "--", "true"],
    ["up", "--no-wait"],
    ["work", "--no-wait"],
    ["db", "migrate"],
)


# Processes that stay, so that a password among their arguments would be there to read.
SERVING = ("up", "work")


def test_looking_makes_no_database(here: Here) -> None:
    for args in LOOKING:
        here(*args).refused(5, "no database at ./headway.db", "headway up", "--database")
    assert list(here.folder.iterdir()) == []


def test_a_folder_that_is_missing(here: Here) -> None:
    for args in (*USING, ["run", "shop.greet"]):
        here(*args, database="no/such/folder/headway.db").refused(5, "no/such/folder", "does not exist", "create it")
    here("status", database="no/such/folder/headway.db").refused(5, "no database at no/such/folder/headway.db")
    assert list(here.folder.iterdir()) == []


def test_a_folder_instead_of_a_file(here: Here) -> None:
    (here.folder / "headway.db").mkdir()
    for args in (*LOOKING, *USING):
        here(*args).refused(5, "./headway.db is ", "--database")


def test_a_file_that_is_no_database(here: Here) -> None:
    path = here.folder / "headway.db"
    path.write_bytes(b"this is a text, and not a short one either: " * 50)
    before = path.read_bytes()
    for args in (*LOOKING, *USING):
        here(*args).refused(5, "the database file is damaged", "headway db restore")
    assert path.read_bytes() == before


def test_a_database_of_others(here: Here) -> None:
    connection = apsw.Connection(str(here.folder / "headway.db"))
    connection.execute("create table theirs (n integer)")
    connection.close()
    here("jobs", "ls").refused(5, "is a database of another program", "name another file")


def test_a_damaged_page(here: Here, sqlite_url: str) -> None:
    with App(sqlite_url) as app:
        app.tasks["command"].enqueue_many([{"argv": ["true"]}] * 200)
    path = Path(sqlite_url)
    damaged = bytearray(path.read_bytes())
    for offset in range(3 * 4096, len(damaged) - 4096, 4096):
        damaged[offset : offset + 2048] = b"\xff" * 2048
    path.write_bytes(damaged)
    checked = here("db", "check", database=sqlite_url)
    assert checked.code == 5
    assert "damaged" in checked.err
    here("jobs", "ls", database=sqlite_url).refused(5, "the database file is damaged", "headway db check")


def _make_newer(url: str) -> None:
    database = open_database(url)
    migrate(database)

    def newer(tx: Tx) -> None:
        tx.run("record_migration", version=999)

    database.transact("newer", newer)
    database.close()


def test_a_newer_schema(here: Here, database_url: str) -> None:
    _make_newer(database_url)
    for args in (*LOOKING, *USING):
        here(*args, database=database_url).refused(4, "has schema 999", "install the newer Headway")


def test_no_postgres_at_the_address(here: Here) -> None:
    url = "postgresql://headway:s3cret@127.0.0.1:1/headway"
    for args in (*LOOKING, *USING):
        answer = here(*args, database=url)
        if args[0] in SERVING:
            answer.refused(2, "--database holds a password", "HEADWAY_DATABASE")
        else:
            answer.refused(5, "PostgreSQL cannot be reached", "Connection refused", "start it", "--database")
        assert "s3cret" not in answer.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://headway:gehe im@/hw1?host=/tmp",
        "postgresql://headway:geheim@/hw1?hos=/tmp",
        "postgresql://headway:geheim%zz@/hw1",
        "postgresql://headway:geheim/1@127.0.0.1:1/hw1",  # the password is read as a port
        "postgresql://headway:1@geheim@127.0.0.1:1/hw1",  # and here as a host
    ],
)
def test_an_address_that_nobody_can_read(here: Here, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (*LOOKING, *USING):
        wrong = "holds a password" if args[0] in SERVING else "is not a valid PostgreSQL address"
        answer = here(*args, database=url).refused(2, "--database", wrong)
        assert "gehe" not in answer.err
    monkeypatch.setenv("HEADWAY_LISTEN", url)
    answer = here("jobs", "ls", database="postgresql://127.0.0.1:1/x")
    answer.refused(2, "HEADWAY_LISTEN: is not a valid PostgreSQL address", "postgresql://user@host:5432/name", "%20")
    assert "gehe" not in answer.err


def test_a_user_that_postgres_does_not_know(here: Here, empty_postgres_url: str) -> None:
    answer = here("jobs", "ls", database=empty_postgres_url + "&user=headway_nobody")
    answer.refused(5, "refused the login", "headway_nobody", "check the user and the password")
    assert "start it" not in answer.err


def test_a_postgres_without_a_schema(here: Here, empty_postgres_url: str) -> None:
    for args in LOOKING:
        here(*args, database=empty_postgres_url).refused(5, "has no Headway schema yet", "headway db migrate")


def _like_others() -> list[str]:
    """Root may write everywhere, unless it gives that right up first."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "root needs setpriv for this test: install util-linux"
    return [setpriv, "--bounding-set", "-dac_override,-dac_read_search"]


@pytest.fixture
def read_only(sqlite_url: str) -> Iterator[Path]:
    """A database that one may read and not write, in a folder likewise."""
    with App(sqlite_url) as app:
        app.enqueue("command", {"argv": ["true"]})
    path = Path(sqlite_url)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    yield path
    path.parent.chmod(0o755)


def test_a_file_one_may_only_read(read_only: Path, folder: Path) -> None:
    before = read_only.read_bytes()
    for args in (
        ["jobs", "ls"],
        ["jobs", "cancel", "1"],
        ["sh", "--", "true"],
        ["db", "migrate"],
        ["work", "--no-wait"],
    ):
        answer = program(*args, cwd=folder, database=str(read_only), prefix=_like_others())
        answer.refused(5, "read-only", "make both writable")
    assert read_only.read_bytes() == before
    assert [one.name for one in read_only.parent.iterdir()] == ["headway.db"]
