"""`doctor` where things are odd: settings nobody can read, apps and servers that misbehave, files of somebody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest

from headway.clock import SystemClock
from headway.doctor.database import integrity
from headway.doctor.server import Readiness, judged
from headway.errors import Unreachable
from headway.store.sqlite.read_only import SqliteToLookAt
from headway.testing import FrozenClock
from tests.support.cli import PATIENCE, Here, line_of, program, running, until
from tests.support.deadlines import join
from tests.support.doctor import checks, kill, looked
from tests.support.life import Life, raw_connection

NOBODY = 65_534


@pytest.fixture(autouse=True)
def _no_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may serve on the usual one."""
    monkeypatch.setenv("HEADWAY_PORT", "0")


# --- settings nobody can read -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["slots = = 3\n", 'database = "mysql://x"\n', "database = 7\n", "\udcff"])
def test_no_other_installation_is_looked_at(here: Here, folder: Path, text: str) -> None:
    program("db", "migrate", cwd=folder).done()  # what the defaults would lead to
    (folder / "headway.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    said = here("doctor", "--json")
    found = checks(said)
    assert said.code == 4
    assert found["settings"]["state"] == "broken"
    assert found["versions"]["state"] == "ok"
    rest = {one["state"] for name, one in found.items() if name not in ("settings", "versions")}
    assert rest == {"skipped"}
    assert {"app", "artifacts", "database", "schema", "workers", "server"} <= found.keys()
    assert found["schema"]["detail"] == "the settings cannot be read"


def test_an_empty_variable_for_the_database(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATABASE", "")
    said = here("doctor", "--json")
    assert (said.code, checks(said)["schema"]["state"]) == (4, "skipped")


def test_a_policy_that_fails(cli: Here, folder: Path) -> None:
    (folder / "odd_policy.py").write_text(
        "class P:\n    def lanes(self, task, resources):\n        raise KeyError(1)\n"
    )
    (folder / "headway.toml").write_text('[concurrency]\npolicy = "odd_policy.P"\n')
    said = program("doctor", "--json", cwd=folder, database=cli.database, PYTHONPATH=str(folder))
    assert said.code == 4
    assert checks(said)["settings"]["state"] == "broken"


# --- the app ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; print('{}', flush=True); os._exit(0)", "ends its process"),
        ("raise SystemExit(3)", "ends its process"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ends its process"),
        ("raise GeneratorExit", "GeneratorExit"),
    ],
)
def test_an_app_that_takes_its_process_with_it(sqlite_url: str, folder: Path, text: str, word: str) -> None:
    (folder / "odd_app.py").write_text(f"{text}\n")
    said = program("doctor", "--json", "--app", "odd_app:app", cwd=folder, database=sqlite_url)
    assert said.code == 4
    assert word in checks(said)["app"]["detail"]
    assert checks(said)["schema"]["state"] == "ok"


def test_an_app_that_writes_past_python(sqlite_url: str, folder: Path) -> None:
    text = "import os\nos.write(1, b'noise')\nos.system('echo more noise')\nfrom headway import App\napp = App()\n"
    (folder / "loud.py").write_text(text)
    said = program("doctor", "--json", "--app", "loud.py:app", cwd=folder, database=sqlite_url)
    assert "no tasks of its own" in checks(said)["app"]["detail"]
    assert "more noise" in said.err


def test_an_app_that_never_ends(sqlite_url: str, here: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.doctor.app_import.SECONDS", 1.0)
    (folder / "slow_app.py").write_text("import threading\nthreading.Event().wait()\n")
    found = looked(here, "--app", "slow_app:app", database=sqlite_url)
    assert "takes longer than 1 s" in found["app"]["detail"]
    assert found["schema"]["state"] == "ok"


# --- the server ---------------------------------------------------------------------------------------------------


@contextmanager
def answering(body: bytes) -> Iterator[int]:
    """Somebody's server, with one answer for all."""

    class Same(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Same) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            join(thread)


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"ready": true}', b'{"ready": true, "reasons": 1, "warnings": null}', b'{"reasons": [], "warnings": []}'),
        *(b"[1]", b"hello", b"\xff", b'{"ready": "yes", "reasons": [], "warnings": []}'),
    ],
)
def test_another_program_on_the_port(sqlite_url: str, here: Here, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    with answering(body) as port:
        monkeypatch.setenv("HEADWAY_PORT", str(port))
        said = here("doctor", "--json", database=sqlite_url)
    found = checks(said)["server"]
    assert (found["state"], "another program answers" in found["detail"]) == ("look", True)
    assert said.code in (0, 4)


def test_a_headway_that_stands_still(sqlite_url: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("up", "--json", cwd=here.folder, database=sqlite_url) as process:
        facts = json.loads(line_of(process.stdout, "started"))
        monkeypatch.setenv("HEADWAY_PORT", facts["url"].rpartition(":")[2])
        until(lambda: looked(here, database=sqlite_url)["server"]["state"] == "ok", "the server")
        process.send_signal(signal.SIGSTOP)
        try:
            found = looked(here, database=sqlite_url)["server"]
        finally:
            process.send_signal(signal.SIGCONT)
    assert found["state"] == "look"
    assert "does not answer within 5 s" in found["detail"]
    assert "kill -CONT" in found["remedy"]


def test_a_host_without_an_address(sqlite_url: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PORT", "8321")
    monkeypatch.setenv("HEADWAY_HOST", "no-such-host.invalid")
    found = looked(here, database=sqlite_url)["server"]
    assert found["state"] == "broken"
    assert "no-such-host.invalid" in found["detail"]
    assert "`host`" in found["remedy"]


def test_what_a_headway_says_of_itself() -> None:
    for wall in ("wall_off", "the wall between tenants is off: there is no role: make it"):
        fine = judged(Readiness(True, [], [wall]), "here")  # another check says it
        assert (fine.mark, "another one" in fine.detail) == ("ok", True)
    both = judged(Readiness(True, [], ["wall_off", "no_worker"]), "here")
    assert (both.mark, "wall" in both.detail, "no_worker" in both.detail) == ("look", False, True)
    assert "another installation" in (both.remedy or "")
    unready = judged(Readiness(False, ["schema"], []), "here")
    assert (unready.mark, "another installation" in (unready.remedy or "")) == ("broken", True)


# --- files of somebody else ---------------------------------------------------------------------------------------

LOOK = """
import os, sys
from headway.store.sqlite.read_only import SqliteToLookAt
from headway.errors import Unreachable
os.setegid({nobody}); os.seteuid({nobody})
try:
    found = SqliteToLookAt(sys.argv[1])
    with found.read() as tx:
        tx.run("schema_version")
    found.close()
    print("read")
except Unreachable as error:
    print(error)
"""


def look_as_nobody(path: Path) -> str:
    text = LOOK.format(nobody=NOBODY)
    ended = subprocess.run(
        [sys.executable, "-c", text, str(path)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended
    return ended.stdout


@pytest.fixture
def shared(sqlite_url: str) -> Iterator[Path]:
    """A database that all may read, in a folder where all may make files."""
    with tempfile.TemporaryDirectory() as folder:  # the folders of pytest are closed to others
        Path(folder).chmod(0o777)
        path = Path(folder) / "headway.db"
        shutil.copy(sqlite_url, path)
        path.chmod(0o644)
        yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_looking_leaves_nothing_beside_a_file_of_somebody_else(shared: Path) -> None:
    assert "run this as its owner" in look_as_nobody(shared)
    assert os.listdir(shared.parent) == ["headway.db"]
    with raw_connection(str(shared)) as raw:  # while its owner has it open, it can be read
        raw.execute("create table if not exists theirs (x)")
        assert look_as_nobody(shared) == "read\n"
        Path(f"{shared}-shm").rename(f"{shared}-kept")
        assert "run this as its owner" in look_as_nobody(shared)
        Path(f"{shared}-kept").rename(f"{shared}-shm")
        raw.execute("insert into theirs values (1)")
    assert os.listdir(shared.parent) == ["headway.db"]


def test_a_file_that_is_locked(sqlite_url: str) -> None:
    with raw_connection(sqlite_url) as raw:
        raw.execute("pragma locking_mode = exclusive")
        raw.execute("begin exclusive")
        with pytest.raises(Unreachable, match="keeps the database locked: end it"):
            SqliteToLookAt(sqlite_url)


def test_damage_is_told_in_one_line(sqlite_url: str) -> None:
    class Damaged(SqliteToLookAt):
        def check_for(self, seconds: float) -> list[str] | None:
            return ["*** in database main ***\nTree 5 page 3: never used", "more"]

    with closing(Damaged(sqlite_url)) as found:
        answer = integrity(found)
    assert answer.detail == "the file is damaged: *** in database main *** Tree 5 page 3: never used"


def test_the_room_of_one_disk_is_told_once(sqlite_url: str, here: Here, folder: Path) -> None:
    (folder / "headway.toml").write_text(f'artifacts = "{Path(sqlite_url).parent}/files"\n')
    found = looked(here, database=sqlite_url)
    assert "free in" in found["disk_space"]["detail"]
    assert "free in" not in found["artifacts"]["detail"]


# --- what a killed worker leaves ----------------------------------------------------------------------------------


def test_a_worker_that_was_killed(cli: Here) -> None:
    assert cli.database is not None
    with Life(cli.database, clock=FrozenClock(SystemClock().now())) as life:
        life.claim(life.enqueue())
        life.enqueue()
        kill(life, life.worker_id)
        found = looked(cli)
        assert found["workers"]["state"] == "broken"
        assert "and jobs wait; dead: " in found["workers"]["detail"]
        assert found["tasks"]["state"] == "skipped"  # the dead serve nobody
        assert (found["recovery"]["state"], found["recovery"]["detail"]) == (
            "look",
            "1 job waits for the next recovery",
        )
        life.new_worker()
        assert looked(cli)["recovery"]["state"] == "ok"


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["postgresql://127.0.0.1:1/x", "postgresql://no-such-host.invalid/x"])
def test_a_wrong_address_has_no_listener(postgres_url: str, here: Here, folder: Path, listen: str) -> None:
    """`up` works there, by looking: so does the rest of the examination."""
    (folder / "headway.toml").write_text(f'database = "{postgres_url}"\nlisten = "{listen}"\n')
    said = here("doctor", "--json")
    found = checks(said)
    assert found["notifications"]["state"] == "look"
    assert "`listen`" in found["notifications"]["remedy"]
    assert (found["clock"]["state"], found["schema"]["state"]) == ("ok", "ok")
    assert said.code != 5


def test_one_tenant_needs_no_wall(postgres_url: str, here: Here) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute("revoke all on hw_job from headway_tenant")
        assert looked(here, database=postgres_url)["wall"]["state"] == "ok"
        here("tenants", "create", "shop", "--default-allow", "none", database=postgres_url).done()
        assert looked(here, database=postgres_url)["wall"]["state"] == "look"
