"""`doctor`: every fault it promises to see is made for real, on both databases; and it changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headway.clock import SystemClock, micros
from headway.doctor.filesystem import access
from headway.doctor.runner import Examination
from headway.engine.client.limits import settle
from headway.model import checks as model
from headway.model.checks import Access, Answer, ok
from headway.model.queue.policies import Concurrency
from headway.model.values.file_systems import mounted
from headway.store import workers
from headway.testing import FrozenClock
from tests.support.cli import Here, line_of, program, running, until
from tests.support.cramped import WHY, paused_worker
from tests.support.doctor import checks, is_file, kill, looked, odd, states
from tests.support.life import TASK, Life, raw_connection
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.shown

PASSWORD = "hunter2-very-secret"


@pytest.fixture(autouse=True)
def _no_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may serve on the usual one."""
    monkeypatch.setenv("HEADWAY_PORT", "0")


@pytest.fixture
def life(cli: Here) -> Iterator[Life]:
    """The same database by a clock that stands still at this moment."""
    assert cli.database is not None
    with Life(cli.database, clock=FrozenClock(SystemClock().now())) as life:
        yield life


# --- all is well --------------------------------------------------------------------------------------------------


def test_a_fresh_installation(cli: Here) -> None:
    said = cli("doctor", "--json")
    found = checks(said)
    assert odd(found) == {"workers": "look"}
    own = {"sqlite", "journal", "integrity"} if is_file(cli) else {"driver", "notifications", "clock", "rights"}
    assert own <= found.keys()
    assert said.code == (0 if said.data["ok"] else 4)


def test_with_a_worker_at_work_and_one_that_a_signal_stopped(cli: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("up", "--json", cwd=cli.folder, database=cli.database) as process:
        facts = json.loads(line_of(process.stdout, "started"))
        monkeypatch.setenv("HEADWAY_PORT", facts["url"].rpartition(":")[2])
        until(lambda: looked(cli)["server"]["state"] == "ok", "the server")
        found = looked(cli)
        assert odd(found) == {}
        assert "1 at work with 4 slots" in found["workers"]["detail"]
        page = cli("doctor").out.splitlines()
        assert page[-1].endswith(("passed", " ok"))
        process.send_signal(signal.SIGSTOP)
        try:
            halted = until(lambda: (seen := looked(cli))["workers"]["state"] == "broken" and seen, "the halt")
        finally:
            process.send_signal(signal.SIGCONT)
        assert f"pid {process.pid}" in halted["workers"]["detail"]
        assert "kill -CONT" in halted["workers"]["remedy"]


def test_a_worker_that_cannot_start_work(cli: Here) -> None:
    assert cli.database is not None
    with paused_worker(cli.database) as worker:
        found = looked(cli)["workers"]
        assert found["state"] == "broken"
        assert found["detail"].startswith("no worker is at work, and jobs wait; paused: ")
        assert f"pid {worker.who.pid} ({WHY})" in found["detail"]
        assert found["remedy"].startswith("free processes, memory or file descriptors on its host")
    assert "paused" not in looked(cli)["workers"]["detail"]


def test_for_people(cli: Here, life: Life) -> None:
    cli("queue", "pause", "--note", "the [disk] is full").done()
    page = cli("doctor").out
    assert "look    queue" in page or "look  queue" in page
    assert "(the [disk] is full)" in page
    assert "→ resume it" in page
    assert "to look at" in page.splitlines()[-1]


def test_it_changes_nothing_and_waits_for_nobody(cli: Here, life: Life) -> None:
    life.enqueue()
    life.database.close()
    if not is_file(cli):
        before = looked(cli)["schema"]
        assert looked(cli)["schema"] == before
        return
    assert cli.database is not None
    path = Path(cli.database)
    content, names = hashlib.sha256(path.read_bytes()).digest(), sorted(os.listdir(path.parent))
    assert looked(cli)["schema"]["state"] == "ok"
    assert hashlib.sha256(path.read_bytes()).digest() == content
    assert sorted(os.listdir(path.parent)) == names
    with raw_connection(cli.database) as raw:
        raw.execute("begin immediate")
        assert odd(looked(cli)) == {}


def test_a_log_that_a_crash_left_is_read_and_stays(sqlite_url: str, here: Here) -> None:
    """The last transaction is in the log only: it is seen, and not written back by looking."""
    copy = here.folder / "left.db"
    with raw_connection(sqlite_url) as raw:
        raw.execute("pragma wal_autocheckpoint = 0")
        raw.execute("update hw_tenant set paused_at = 1, pause_note = 'only in the log' where name = 'default'")
        for ending in ("", "-wal"):
            Path(f"{copy}{ending}").write_bytes(Path(f"{sqlite_url}{ending}").read_bytes())
    before = [Path(f"{copy}{ending}").read_bytes() for ending in ("", "-wal")]
    assert "only in the log" in looked(here, database=str(copy))["queue"]["detail"]
    assert [Path(f"{copy}{ending}").read_bytes() for ending in ("", "-wal")] == before


# --- no database --------------------------------------------------------------------------------------------------


def test_no_database_is_told_and_none_is_made(here: Here) -> None:
    said = here("doctor", "--json")
    found = checks(said)
    assert said.code == 5
    assert found["database_file"]["state"] == "broken"
    assert "headway up" in found["database_file"]["remedy"]
    assert found["workers"]["state"] == "skipped"
    assert found["artifacts"]["state"] != "skipped"
    assert os.listdir(here.folder) == []
    page = here("doctor")
    assert page.code == 5
    assert "not checked: schema, workers" in page.out


def test_a_server_that_is_away(here: Here) -> None:
    said = here("doctor", "--json", database=f"postgresql://ann:{PASSWORD}@127.0.0.1:1/x")
    assert said.code == 5
    found = checks(said)
    assert (found["database"]["state"], found["rights"]["state"]) == ("broken", "skipped")
    assert PASSWORD not in said.out + said.err


def test_what_is_no_database_of_headway(here: Here, folder: Path, empty_postgres_url: str) -> None:
    with raw_connection(str(folder / "other.db")) as raw:
        raw.execute("create table theirs (x)")
    (folder / "text.db").write_text("not a database at all, " * 100)
    (folder / "empty.db").touch()
    for name in ("other.db", "text.db", "empty.db", ".", "no/such/folder.db"):
        said = here("doctor", "--json", database=name)
        assert (name, said.code) == (name, 5)
        assert checks(said)["schema"]["state"] == "skipped"
    said = here("doctor", "--json", database=empty_postgres_url)
    found = checks(said)
    assert said.code == 5
    assert "not a Headway database yet" in found["schema"]["detail"]
    # The server can be looked at all the same.
    asked = {name: found[name]["state"] for name in ("database", "notifications", "clock", "rights")}
    assert set(asked.values()) == {"ok"}, asked
    assert not {found[name]["state"] for name in ("durability", "server_connections", "vacuum")} & {"skipped"}
    assert found["workers"]["state"] == "skipped"


def test_a_damaged_file(sqlite_url: str, here: Here) -> None:
    with Path(sqlite_url).open("r+b") as file:
        for page in range(4, 60):
            file.seek(4096 * page)
            file.write(b"\xff" * 512)
    said = here("doctor", "--json", database=sqlite_url)
    assert said.code == 5
    assert "damaged" in json.dumps(said.data)


@pytest.mark.parametrize(("change", "remedy"), [(1, "install the newer Headway"), (-1, "headway db migrate")])
def test_another_schema(cli: Here, change: int, remedy: str) -> None:
    assert cli.database is not None
    with raw_connection(cli.database) as raw:
        if change > 0:
            raw.execute("insert into hw_schema (version, applied_at) select max(version) + 1, 0 from hw_schema")
        else:
            raw.execute("delete from hw_schema where version = (select max(version) from hw_schema)")
    said = cli("doctor", "--json")
    found = checks(said)
    assert said.code == 4
    assert remedy in found["schema"]["remedy"]
    assert found["workers"]["state"] == "skipped"


def test_over_a_server_it_is_refused(here: Here) -> None:
    here("doctor", "--server", "http://127.0.0.1:1").refused(2, "needs the database itself")


# --- settings -----------------------------------------------------------------------------------------------------


def test_broken_settings_do_not_hide_the_rest(cli: Here) -> None:
    (cli.folder / "headway.toml").write_text(
        f'slots = 0\ndatabase = "{cli.database}"\nlimt = 3\nheartbeat = "30s"\nhost = "0.0.0.0"\n'
    )
    said = Here(None, cli.folder, cli.capsys)("doctor", "--json")
    assert said.code == 4
    found = checks(said)
    assert "headway.toml:1: slots: must be at least 1" in found["settings"]["detail"]
    assert "headway.toml:3: limt" in found["settings"]["detail"]
    assert found["schema"]["state"] == "ok"
    assert found["address"]["state"] == "broken"  # what is valid counts


def test_an_app_that_cannot_be_imported_and_one_that_talks(cli: Here, folder: Path) -> None:
    (folder / "loud_app.py").write_text(
        "print('noise')\nfrom headway import App\napp = App()\n@app.task\ndef a(): ...\n"
    )
    (folder / "lost_app.py").write_text("import no_such_module_anywhere\n")
    (folder / "ending_app.py").write_text("raise SystemExit(3)\n")
    said = program("doctor", "--json", "--app", "loud_app:app", cwd=folder, database=cli.database)
    assert checks(said)["app"]["detail"] == "loud_app:app has 1 task"
    assert "noise" in said.err
    for name in ("lost_app", "ending_app"):
        said = cli("doctor", "--json", "--app", f"{name}:app")
        assert said.code == 4
        assert checks(said)["app"]["state"] == "broken"
        assert checks(said)["schema"]["state"] == "ok"


def test_secrets_are_looked_for_and_never_shown(cli: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", PASSWORD)
    (folder / "secret").write_text(PASSWORD)
    (folder / "secret").chmod(0o640)
    (folder / "headway.toml").write_text(f'[secrets]\na = "env:THERE"\nb = "file:{folder}/secret"\n')
    wide = looked(cli)["secrets"]
    assert (wide["state"], "secret (mode 0640)" in wide["detail"]) == ("look", True)
    (folder / "secret").chmod(0o600)
    assert looked(cli)["secrets"]["state"] == "ok"
    (folder / "headway.toml").write_text('[secrets]\na = "env:THERE"\nc = "env:NOT_THERE"\n')
    said = cli("doctor", "--json")
    assert checks(said)["secrets"]["state"] == "look"
    assert "NOT_THERE" in checks(said)["secrets"]["detail"]
    (folder / "headway.toml").write_text(f'[secrets]\na = "env:THERE"\nd = "file:{folder}/gone"\n')
    gone = cli("doctor", "--json")
    assert (gone.code, checks(gone)["secrets"]["state"]) == (4, "broken")
    assert PASSWORD not in said.out + gone.out + cli("doctor").out


def test_settings_with_a_password_are_for_their_owner_alone(cli: Here, folder: Path) -> None:
    settings = folder / "headway.toml"
    settings.write_text(f'[connections]\nshop = "postgresql://me:{PASSWORD}@127.0.0.1:9/shop"\n')
    settings.chmod(0o644)
    wide = looked(cli)["settings"]
    assert (wide["state"], "headway.toml (mode 0644)" in wide["detail"]) == ("look", True)
    settings.chmod(0o600)
    assert looked(cli)["settings"]["state"] == "ok"
    settings.write_text("slots = 2\n")
    settings.chmod(0o644)
    assert looked(cli)["settings"]["state"] == "ok", "nothing in it is secret"


def test_the_owners_of_secrets_exist(cli: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", PASSWORD)
    assert looked(cli)["owners"]["state"] == "ok"
    (folder / "headway.toml").write_text(
        '[secrets]\na = "env:THERE"\nb = { from = "env:THERE", tenants = ["default", "shopp"] }\n'
        'c = { from = "env:THERE", tenants = "*", tasks = ["stry.*"] }\n'
    )
    found = looked(cli)["owners"]
    assert found["state"] == "look"
    assert "b is for the tenant shopp, which does not exist" in found["detail"]
    cli("tenants", "create", "shopp", "--default-allow", "all").done()
    assert "shopp" not in looked(cli)["owners"]["detail"]


def test_connections_of_sql_tasks(cli: Here, folder: Path) -> None:
    (folder / "headway.toml").write_text(f'[connections]\nshop = "{folder}/none.db"\n')
    found = looked(cli)["connections"]
    assert found["state"] == "broken"
    assert "none.db cannot be read" in found["detail"]
    if is_file(cli):
        (folder / "headway.toml").write_text(f'[connections]\nown = "{cli.database}"\n')
        assert "Headway's own database" in looked(cli)["connections"]["detail"]


def test_an_address_that_is_open_to_others(cli: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_HOST", "0.0.0.0")
    found = looked(cli)["address"]
    assert found["state"] == "broken"
    assert "headway tokens create" in found["remedy"]
    cli("tokens", "create", "ann", "--role", "viewer").done()
    assert looked(cli)["address"]["state"] == "ok"


def test_artifacts_that_cannot_be_kept(cli: Here, folder: Path) -> None:
    (folder / "file").touch()
    (folder / "headway.toml").write_text('artifacts = "file/below"\n')
    assert looked(cli)["artifacts"]["state"] == "broken"


# --- what is recorded ---------------------------------------------------------------------------------------------


def test_a_worker_nobody_recovered(cli: Here, life: Life) -> None:
    assert odd(looked(cli)) == {}  # it lives, by the clock of this moment
    life.clock.time -= micros(3600)
    quiet = life.new_worker()
    life.claim(life.enqueue(), worker_id=quiet)
    found = looked(cli)
    assert odd(found) == {"workers": "look", "recovery": "broken"}
    assert workers.worker_name(quiet) in found["workers"]["detail"]
    assert cli("doctor", "--json").code == 4


def test_a_running_job_whose_worker_was_given_up(cli: Here, life: Life) -> None:
    other = life.new_worker()
    job_id = life.enqueue()
    life.claim(job_id, worker_id=other)
    life.database.transact("retire", lambda tx: workers.retire(tx, other, "gone"))
    assert f"job {job_id}" in looked(cli)["recovery"]["detail"]


def test_jobs_wait_and_nobody_works(cli: Here, life: Life) -> None:
    life.enqueue()
    life.database.transact("retire", lambda tx: workers.retire(tx, life.worker_id, "shut down"))
    found = looked(cli)
    assert found["workers"]["state"] == "broken"
    assert "jobs wait" in found["workers"]["detail"]


def test_a_task_that_nobody_serves(cli: Here, life: Life) -> None:
    life.enqueue()
    assert looked(cli)["tasks"]["state"] == "ok"
    life.enqueue(task="story.elsewhere")
    found = looked(cli)["tasks"]
    assert (found["state"], TASK in found["detail"]) == ("look", False)
    assert "story.elsewhere" in found["detail"]


def test_several_machines_on_one_file(cli: Here, life: Life) -> None:
    def move(host: str, boot: str) -> None:
        worker_id = life.new_worker()
        life.sql_write(f"update hw_worker set host = '{host}', boot = '{boot}' where id = {worker_id}")

    move("container", "boot/4026531836")
    if not is_file(cli):
        assert "one_machine" not in looked(cli)
        return
    assert looked(cli)["one_machine"]["state"] == "ok"  # another name on the same kernel
    move("far-away", "other-boot/4026531836")
    found = looked(cli)["one_machine"]
    assert found["state"] == "broken"
    assert "far-away" in found["detail"]


def test_limits_that_are_not_in_force(cli: Here, life: Life) -> None:
    """What `up` would say of them, while another worker lives."""
    settings = cli.folder / "headway.toml"
    assert looked(cli)["limits"]["detail"] == "the limits match the settings"
    settings.write_text("[concurrency]\nlimit = 3\n")
    found = looked(cli)["limits"]
    assert (found["state"], "the limit of global 1, not 3" in found["detail"]) == ("look", True), found
    settings.write_text("[resources]\ngpu = 2\n")
    settle(life.database, Concurrency(), {"gpu": 2}, actor=life.actor())
    assert looked(cli)["limits"]["state"] == "ok"
    cli("limits", "set", "global", "5").done()
    assert "the limit of global 5, not 1" in looked(cli)["limits"]["detail"]
    cli("limits", "set", "global", "1").done()
    settings.write_text("[resources]\ngpu = 7\n")
    assert "the capacity of gpu 2, not 7" in looked(cli)["limits"]["detail"]
    kill(life, life.worker_id)
    dead = looked(cli)["limits"]  # its process is gone: nobody keeps the next one from it
    assert (dead["state"], "gpu 2, not 7" in dead["detail"]) == ("ok", True)


def test_limits_of_lanes_that_do_not_exist_yet(cli: Here, life: Life) -> None:
    (cli.folder / "headway.toml").write_text("[concurrency.limits]\nstory = 3\n")
    assert "concurrency.limits {}, not {'story': 3}" in looked(cli)["limits"]["detail"]


def test_jobs_that_wait_for_a_person(cli: Here, life: Life) -> None:
    job_id = life.in_state("ERROR", target="desk-1")
    life.in_state("PAUSED")
    cli("targets", "pause", "desk-1", "--note", "cleaning").done()
    cli("queue", "pause", "--all").done()
    found = looked(cli)
    assert {"held": "look", "targets": "look", "queue": "look"}.items() <= states(found).items()
    assert f"desk-1 (job {job_id}, ERROR)" in found["held"]["detail"]
    assert "1 PAUSED, 1 ERROR" in found["held"]["detail"]
    assert "desk-1 (cleaning)" in found["targets"]["detail"]
    assert "all tenants" in found["queue"]["detail"]
    assert "--all" in found["queue"]["remedy"]


def test_schedules(cli: Here, life: Life) -> None:
    params = json.dumps({"argv": ["true"]})
    cli("schedules", "create", "night", "--cron", "0 2 * * *", "--task", "command", "--params", params).done()
    assert states(looked(cli))["schedules"] == "ok"
    life.sql_write("update hw_schedule set next_at = next_at - 200000000000")
    late = looked(cli)
    assert late["ticks"]["state"] == "broken"
    assert "role scheduler" in late["ticks"]["remedy"]
    life.sql_write("update hw_schedule set definition = replace(definition, 'UTC', 'Mars/Base')")
    life.sql_write("update hw_schedule set definition = replace(definition, '0 2 * * *', '0 99 * * *')")
    found = looked(cli)["schedules"]
    assert found["state"] == "look"
    assert "night" in found["detail"]


def test_webhooks(cli: Here, life: Life) -> None:
    (cli.folder / "headway.toml").write_text("[webhooks]\nallow_private = true\n")
    cli("webhooks", "create", "http://127.0.0.1:1/hook", "--event", "job.run.completed").done()
    assert looked(cli)["webhooks"]["state"] == "ok"
    life.in_state("COMPLETED")
    life.sql_write("update hw_delivery set due_at = 1")
    assert looked(cli)["webhooks"]["state"] == "broken"
    life.sql_write(
        f"update hw_endpoint set failures = 7, opened_at = {life.clock.now()}, probe_at = {life.clock.now()}"
    )
    found = looked(cli)["webhooks"]
    assert found["state"] == "look"
    assert "failed 7 times in a row" in found["detail"]


# --- SQLite and PostgreSQL ----------------------------------------------------------------------------------------


def test_a_file_without_a_log(sqlite_url: str, here: Here) -> None:
    with raw_connection(sqlite_url) as raw:
        raw.execute("pragma journal_mode = delete")
    found = looked(here, database=sqlite_url)
    assert found["journal"]["state"] == "look"
    with raw_connection(sqlite_url) as raw:
        assert raw.execute("pragma journal_mode").get == "delete"  # looking has not changed it


def test_notifications_that_do_not_arrive(postgres_url: str, postgres_server: str, here: Here, folder: Path) -> None:
    """As behind a pooler: what is told where jobs are made is not heard where workers listen."""
    assert looked(here, database=postgres_url)["notifications"]["state"] == "ok"
    with fresh_database(postgres_server) as elsewhere:
        (folder / "headway.toml").write_text(f'database = "{postgres_url}"\nlisten = "{elsewhere}"\n')
        found = looked(here)["notifications"]
    assert found["state"] == "look"
    assert "`listen`" in found["remedy"]


def test_a_server_that_is_not_set_up_for_it(postgres_url: str, here: Here) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        name = sql.Identifier(raw.info.dbname)
        raw.execute("alter table hw_job set (autovacuum_enabled = false)")
        raw.execute(sql.SQL("alter database {} set synchronous_commit = off").format(name))
        fsync = raw.execute("show fsync").fetchall()[0][0]
    found = looked(here, database=postgres_url)
    assert found["durability"]["state"] == ("broken" if fsync == "off" else "look")
    assert ("fsync" if fsync == "off" else "synchronous_commit") in found["durability"]["detail"]
    assert found["rights"]["state"] == "ok"
    assert "hw_job" in found["vacuum"]["detail"]


def test_a_lock_that_every_worker_waits_for(postgres_url: str, here: Here) -> None:
    assert looked(here, database=postgres_url)["locks"]["state"] == "ok"
    with psycopg.connect(postgres_url, application_name="report") as raw:
        raw.execute("select pg_advisory_xact_lock(7236838302)")
        said = "select clock_timestamp() - state_change > interval '3.5 s' from pg_stat_activity where pid = %s"
        with psycopg.connect(postgres_url, autocommit=True) as other:
            until(lambda: other.execute(said, [raw.info.backend_pid]).fetchall()[0][0])
        found = looked(here, database=postgres_url)["locks"]
        assert found["state"] == "look"
        assert f"pid {raw.info.backend_pid} (report at the server itself), has the claim lock" in found["detail"]
        assert f"pg_terminate_backend({raw.info.backend_pid})" in found["remedy"]


def test_a_user_without_rights(postgres_url: str, here: Here) -> None:
    role = f"reader_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(f"create role {role} login".encode())
        try:
            raw.execute(f"grant select on all tables in schema public to {role}".encode())
            said = here("doctor", "--json", database=f"{postgres_url}&user={role}")
            raw.execute("insert into hw_tenant (id, name, created_at) values (77, 'other', 1)")
            walled = looked(here, database=f"{postgres_url}&user={role}")["wall"]
        finally:
            raw.execute(f"drop owned by {role}; drop role {role}".encode())
    found = checks(said)
    assert said.code == 4
    assert found["rights"]["state"] == "broken"
    assert f"to {role}" in found["rights"]["remedy"]
    assert found["wall"]["state"] == "ok"  # one tenant needs none
    assert walled["state"] == "look"
    assert found["schema"]["state"] == "ok"


def test_a_lock_is_not_waited_for_for_ever(postgres_url: str, here: Here) -> None:
    with psycopg.connect(postgres_url) as raw:
        raw.execute("lock table hw_worker in access exclusive mode")
        said = here("doctor", "--json", database=postgres_url)
    found = checks(said)
    assert said.code == 5
    assert "lock" in found["workers"]["detail"]
    assert found["tasks"]["state"] == "skipped"


# --- the examination ----------------------------------------------------------------------------------------------


def test_a_check_that_hangs_is_left_behind() -> None:
    exam, end = Examination(seconds=0.2), threading.Event()

    def hang() -> Answer:
        end.wait(60)
        return ok("late")

    began = time.monotonic()
    try:
        assert exam.ask("disk", hang).mark == "broken"
        assert exam.ask("next", lambda: ok("fine"), 30.0).mark == "ok"
        assert exam.ask_database("database", hang).unreachable
        assert exam.ask_database("workers", lambda: ok("fine")).mark == "skipped"
        assert time.monotonic() - began < 50
    finally:
        end.set()
    assert exam.hung


def test_what_keeps_a_check_from_being_made_is_its_answer() -> None:
    exam = Examination()
    gone = exam.ask("folder", lambda: ok(str(os.listdir("/no/such/folder"))))
    assert (gone.mark, "/no/such/folder" in gone.detail) == ("broken", True)


@pytest.mark.parametrize("raised", [KeyError("warnings"), KeyboardInterrupt(), SystemExit(3), AssertionError("x")])
def test_a_check_with_a_mistake_in_it_does_not_hide_the_others(raised: BaseException) -> None:
    def fail() -> Answer:
        raise raised

    exam = Examination()
    assert exam.ask_database("one", fail).detail.startswith(f"this check failed: {type(raised).__name__}")
    assert exam.ask_database("next", lambda: ok("fine")).mark == "ok"
    assert [one.answer.mark for one in exam.results] == ["broken", "ok"]


# --- judging ------------------------------------------------------------------------------------------------------

MIB = 1 << 20
NINE = Access("/srv/headway.db", "root", True, True)


@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        (model.judge_space(2048 * MIB, "/"), "ok"),
        (model.judge_space(500 * MIB, "/"), "look"),
        (model.judge_space(10 * MIB, "/"), "broken"),
        (model.judge_log(64 * MIB), "ok"),
        (model.judge_log(300 * MIB), "look"),
        (model.judge_file_system("ext4", "x"), "ok"),
        (model.judge_file_system("zfs", "x"), "ok"),
        (model.judge_file_system("nfs4", "x"), "broken"),
        (model.judge_file_system("cifs", "x"), "broken"),
        (model.judge_file_system("fuse.sshfs", "x"), "broken"),
        (model.judge_file_system("fuse.bindfs", "x"), "look"),
        (model.judge_file_system("9p", "x"), "look"),
        (model.judge_file_system("tmpfs", "x"), "look"),
        (model.judge_file_system("overlay", "x"), "look"),
        (model.judge_access("ann", [NINE]), "ok"),
        (model.judge_access("ann", [NINE, Access("/srv/headway.db-wal", "root", True, False)]), "broken"),
        (model.judge_version(180001, 0.001), "ok"),
        (model.judge_version(120005, 0.001), "look"),
        (model.judge_durability(fsync="on", full_page_writes="on", synchronous_commit="local"), "ok"),
        (model.judge_durability(fsync="off", full_page_writes="on", synchronous_commit="on"), "broken"),
        (model.judge_durability(fsync="on", full_page_writes="off", synchronous_commit="on"), "look"),
        (model.judge_durability(fsync="off", full_page_writes="off", synchronous_commit="on"), "broken"),
        (model.judge_durability(fsync="on", full_page_writes="on", synchronous_commit="off"), "look"),
        (model.judge_locks([("a report", 7, 50.0, False)]), "ok"),
        (model.judge_locks([("a report", 7, 61.0, False)]), "look"),
        (model.judge_locks([("a worker", 7, 2.0, True)]), "ok"),
        (model.judge_locks([("a worker", 7, 4.0, True)]), "look"),
        (model.judge_skew(-4.0), "ok"),
        (model.judge_skew(-6.0), "look"),
        (model.judge_skew(3600.0), "look"),
        (model.judge_connections(87, 97), "ok"),
        (model.judge_connections(88, 97), "look"),
        (model.judge_vacuum(on=True, tables_off=[], oldest=(1, 5.0, "psql")), "ok"),
        (model.judge_vacuum(on=False, tables_off=[], oldest=None), "look"),
        (model.judge_vacuum(on=True, tables_off=["hw_job"], oldest=None), "look"),
        (model.judge_vacuum(on=True, tables_off=[], oldest=(1, 4000.0, "psql")), "look"),
    ],
)
def test_how_it_is_judged(answer: Answer, mark: str) -> None:
    assert answer.mark == mark
    assert (answer.remedy is None) == (mark == "ok")


def test_whose_the_file_is_that_cannot_be_written() -> None:
    answer = model.judge_access("ann", [NINE, Access("/srv/headway.db-shm", "root", True, False)])
    assert "ann may not write /srv/headway.db-shm (owned by root)" in answer.detail
    assert answer.remedy == "make ann the owner, or run Headway as the owner"
    own = model.judge_access("ann", [Access("/srv/my headway.db", "ann", True, False)])
    assert own.remedy == "`chmod u+w '/srv/my headway.db'`"


def test_what_a_user_may_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    seen = access(file)
    assert (seen.readable, seen.writable) == (True, True)
    file.chmod(0o444)
    assert access(file).writable is (os.geteuid() == 0)


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /srv rw,relatime shared:1 - nfs4 host:/x rw
31 30 0:41 / /srv/my\\040data rw - xfs /dev/sdb1 rw
32 31 0:42 / /srv/my\\040data rw - tmpfs tmpfs rw
33 22 0:43 / /srv/größe\\134x rw - btrfs /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", "ext4"),
        ("/srvs/x", "ext4"),
        ("/srv/x", "nfs4"),
        ("/srv/my data/x", "tmpfs"),
        ("/srv", "nfs4"),
        ("/srv/größe\\x/y", "btrfs"),
    ],
)
def test_on_what_file_system_a_path_is(path: str, kind: str) -> None:
    assert mounted(MOUNTS, path) == kind
