"""`{"$secret": "NAME"}`: filled in where the work runs, stored nowhere, masked in all that it reports."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from headway import App, Job
from headway.engine.execution.secrets import Mask, MaskedSink, Vault, password_of
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.errors import BadInput, JobFailed
from headway.model.access.secrets import OwnedSecret
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Skipped, StoppedByRequest
from headway.testing import drain
from tests.engine.test_child import Recorder
from tests.support import tasks_for_secrets
from tests.support.life import raw_connection
from tests.support.waiting import until

SECONDS = 60.0
CANARY = 'canary-7f"3é$ 9b/2+c'
PEM = "-----BEGIN CANARY-----\ncanaryline1AAAA\ncanaryline2BBBB\n-----END CANARY-----"
PASSWORD = "canary-p%40ss"
MARKS = ("canary", "CANARY", '7f\\"3', "7f%223", "p@ss")


@pytest.fixture
def app(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("THE_TOKEN", CANARY)
    monkeypatch.setenv("THE_NUMBER", "4711")
    monkeypatch.setenv("TOLD", str(tmp_path))
    (tmp_path / "pem").write_text(PEM + "\n")
    secrets = {"TOKEN": "env:THE_TOKEN", "PEM": f"file:{tmp_path}/pem", "NUMBER": "env:THE_NUMBER"}
    connections = {"shop": f"postgresql://me:{PASSWORD}@127.0.0.1:1/shop"}
    app = App(database=database_url, artifacts=str(tmp_path / "artifacts"), secrets=secrets, connections=connections)
    for spec in tasks_for_secrets.app.registry:
        if spec.name not in app.tasks:
            isolation = None if spec.isolation == "async" else spec.isolation
            app.task(spec.name, isolation=isolation, retry=spec.options.retry)(spec.function)
    yield app
    app.close()


@contextmanager
def at_work(app: App) -> Iterator[Worker]:
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts, vault=app.vault))
    worker.register()
    worker.start()
    try:
        yield worker
    finally:
        worker.drain()
        until(lambda: not worker.pool.running)
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def secret(name: str = "TOKEN") -> dict[str, str]:
    return {"$secret": name}


def ended(job: Job) -> Job:
    until(lambda: job.status in ("COMPLETED", "FAILED", "SKIPPED"), "the job has ended")
    return job


def all_texts(url: str) -> str:
    """Every value of every row of every table."""
    postgres = url.startswith("postgresql://")
    tables = (
        "select tablename from pg_tables where schemaname = 'public'"
        if postgres
        else "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    )
    with raw_connection(url) as connection:
        names = [name for (name,) in connection.execute(tables).fetchall()]
        assert len(names) > 10
        return "\n".join(f"{name} {row}" for name in names for row in connection.execute(f"select * from {name}"))


def log_of(app: App, job: Job) -> list[str]:
    with app.database.read() as tx:
        chunks = tx.run("read_log", job_id=job.id, after=0, limit=100)
    return [line[2] for _, _, text in chunks for line in json.loads(text)]


# --- no canary comes out ------------------------------------------------------------------------------------------


def test_no_secret_is_stored_or_logged(app: App, database_url: str, caplog: pytest.LogCaptureFixture, capfd: Any):
    caplog.set_level(logging.DEBUG)
    tasks = app.tasks
    params = {"token": secret(), "deep": {"list": [1, {"pem": secret("PEM")}], "pin": secret("NUMBER")}}
    with at_work(app):
        told = tasks["tell"].enqueue(**params)
        jobs = [tasks[name].enqueue(token=secret()) for name in ("tell.async", "tell.bare", "tell.thread")]
        ways = ("raise", "key", "long", "fail", "skip", "exit", "die")
        failed = {how: tasks["fail"].enqueue(token=secret(), how=how) for how in ways}
        script = 'echo "$T"; echo "$T" >&2; cat; exit 3'
        command = tasks["command"].using(retry=0)
        shell = command.enqueue(argv=["sh", "-c", script], env={"T": secret()}, stdin=secret("PEM"))
        sql = tasks["sql"].using(retry=0).enqueue(connection="shop", script="select 1", params=[secret()])
        for job in (told, *jobs, *failed.values(), shell, sql):
            ended(job)
        called = tasks["tell.bare"].call(token=secret())

    assert told.result() == {
        "token": "***",
        "deep": {"list": [1, {"pem": "***"}], "pin": "***"},
        "key": {"***": 1},
        "length": len(CANARY),
    }
    assert told.row.params == json.dumps(params, separators=(",", ":"))
    assert told.run is not None
    assert told.run.params == told.row.params
    lines = log_of(app, told)
    assert {"the token is ***", "{'token': '***'}", "printed ***", "printed to stderr ***", "from below ***"} <= set(
        lines
    )
    assert {job.status for job in jobs} == {"COMPLETED"}
    assert log_of(app, shell)[:2] == ["***", "***"]
    assert errors(failed)["fail"] == "no use of ***"
    assert errors(failed)["exit"] == "bye ***"
    assert "last words ***" in errors(failed)["die"]
    assert failed["skip"].status == "SKIPPED"
    assert "cannot connect" in errors({"sql": sql})["sql"]
    assert called == "***"
    seen = all_texts(database_url) + caplog.text + "".join(capfd.readouterr())
    for mark in MARKS:
        assert mark not in seen, near(seen, mark)


def near(text: str, mark: str) -> str:
    at = text.index(mark)
    return text[max(0, at - 200) : at + 200]


def errors(jobs: dict[str, Job]) -> dict[str, str]:
    return {how: job.run.error or "" for how, job in jobs.items() if job.run is not None}


def test_the_work_itself_gets_the_secret(app: App):
    with at_work(app):
        command = app.tasks["command"].enqueue(argv=["sh", "-c", 'test "$T" = "$1"', "sh", CANARY], env={"T": secret()})
        assert command.result(SECONDS) == {"exit_code": 0}
        result = app.tasks["tell.async"].enqueue(token=secret()).result(SECONDS)
    assert result == ["***", CANARY[::-1]], "what is not the secret any more cannot be known"


def test_both_a_secret_and_the_password_of_a_connection_are_hidden(app: App, postgres_url: str):
    address = f"{postgres_url}{'&' if '?' in postgres_url else '?'}password={PASSWORD}"
    app.configure(None, {"connections": {"here": address}})
    script = "select %s::text as secret, %s::text as password"
    told = app.tasks["sql"].enqueue(connection="here", script=script, params=[secret(), unquote(PASSWORD)])
    drain(app)
    assert told.result()["rows"] == [{"secret": "***", "password": "***"}]


def test_drain_fills_secrets_in_too(app: App):
    jobs = [app.tasks[name].enqueue(token=secret()) for name in ("tell.bare", "tell.thread", "tell.async")]
    unknown = app.tasks["tell.bare"].enqueue(token=secret("NOBODY"))
    assert drain(app) == 4
    assert [job.result() for job in jobs[:2]] == ["***", "***"]
    assert unknown.row.failure_kind is FailureKind.BAD_PARAMS


# --- what is missing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["tell.bare", "tell.thread", "fail"])
def test_an_unknown_secret_is_a_failure_that_names_it(app: App, task: str):
    more = {"how": "skip"} if task == "fail" else {}
    with at_work(app):
        job = ended(app.tasks[task].enqueue(token=secret("TOKEM"), **more))
        assert app.tasks["tell.bare"].enqueue(token="x").result(SECONDS) == "x", "the worker goes on"
    assert (job.status, job.row.failure_kind) == ("FAILED", FailureKind.BAD_PARAMS)
    assert job.run is not None
    assert job.run.error == (
        f"params.token asks for the secret TOKEM, which is unknown, or not for {task} of the tenant default:"
        " add it to secrets in the worker's settings"
    )


def test_a_secret_of_the_wrong_type_is_a_failure_that_names_the_param(app: App):
    with at_work(app):
        job = ended(app.tasks["count"].enqueue(number=secret("NUMBER")))
    assert job.run is not None
    assert (job.row.failure_kind, job.run.error) == (
        FailureKind.BAD_PARAMS,
        "count: params.number must be int, not str",
    )


def test_a_direct_call_without_its_secret_fails(app: App):
    with pytest.raises(JobFailed, match="the secret NOBODY"):
        app.tasks["tell.bare"].call(token=secret("NOBODY"))


def test_a_connection_that_may_not_be_used_is_a_failure_that_says_why(app: App, sqlite_url: str):
    app.configure(None, {"database": sqlite_url, "connections": {"own": sqlite_url}})
    with at_work(app):
        own = ended(app.tasks["sql"].enqueue(connection="own", script="delete from hw_job"))
        unknown = ended(app.tasks["sql"].enqueue(connection="none", script="select 1"))
    said = errors({"own": own, "unknown": unknown})
    assert said["own"] == "params.connection own is Headway's own database, which no job may use"
    assert said["unknown"] == "params.connection is not a connection in the settings"
    assert own.row.failure_kind is unknown.row.failure_kind is FailureKind.BAD_PARAMS


# --- finding them -------------------------------------------------------------------------------------------------


def reveal(vault: Vault, params: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    return vault.reveal(json.dumps(params), task="tell")


def test_only_what_stands_for_a_secret_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("A", "one")
    vault = Vault({"A": OwnedSecret("env:A")})
    params = {"a": [{"$secret": "A"}, {"b": {"$secret": "A"}}], "c": {"$secret": "A", "d": 1}, "e": "$secret"}

    assert reveal(vault, params) == (
        {"a": ["one", {"b": "one"}], "c": {"$secret": "A", "d": 1}, "e": "$secret"},
        ["one", "one"],
    )
    assert reveal(vault, {"a": 1}) == ({"a": 1}, [])


def test_a_file_loses_its_last_line_break_only(tmp_path: Path):
    (tmp_path / "a").write_bytes(b" one\r\n")
    (tmp_path / "b").write_bytes(b"one\n\n")
    vault = Vault({"A": OwnedSecret(f"file:{tmp_path}/a"), "B": OwnedSecret(f"file:{tmp_path}/b")})

    assert reveal(vault, {"a": secret("A"), "b": secret("B")})[0] == {"a": " one", "b": "one\n"}


@pytest.mark.parametrize(
    ("name", "place", "problem"),
    [
        (
            "NOBODY",
            "env:A",
            "asks for the secret NOBODY, which is unknown, or not for tell of the tenant default: add it to",
        ),
        (5, "env:A", 'must name a secret: {"$secret": "NAME"}'),
        ("A", "env:NOT_SET_ANYWHERE", "the variable NOT_SET_ANYWHERE of the worker's environment is empty or not set"),
        ("A", "env:EMPTY", "the variable EMPTY of the worker's environment is empty or not set"),
        ("A", "file:/no/such", "the file /no/such cannot be read: No such file or directory"),
        ("A", "file:EMPTY", "the file EMPTY is empty"),
        ("A", "file:LATIN", "the file LATIN is not UTF-8 text"),
        ("A", "file:LARGE", "the file LARGE is over 64 KiB or not text"),
        ("A", "file:NUL", "the file NUL is over 64 KiB or not text"),
    ],
)
def test_a_secret_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any, place: str, problem: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    for file, data in {"EMPTY": b"\n", "LATIN": b"\xe9", "LARGE": b"x" * 70_000, "NUL": b"a\0b"}.items():
        (tmp_path / file).write_bytes(data)

    with pytest.raises(BadInput) as refused:
        reveal(Vault({"A": OwnedSecret(place)}), {"x": [{"$secret": name}]})

    assert (refused.value.code, refused.value.field) == ("bad_params", "params.x[0]")
    assert problem in str(refused.value)


def test_the_password_of_a_connection_in_all_its_spellings():
    address = "postgresql://me:a%40b@db/x?sslpassword=other&application_name=me"
    assert set(password_of(address)) == {address, "a%40b", "a@b", "other"}
    assert password_of("./shop.db") == password_of("/srv/a:b@c.db") == []


# --- masking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a {CANARY} b {CANARY}", "a *** b ***"),
        (json.dumps({"a": CANARY}), '{"a": "***"}'),
        (json.dumps({"a": CANARY}, ensure_ascii=False), '{"a": "***"}'),
        (repr([CANARY]), "['***']"),
        ("?a=canary-7f%223%C3%A9%24%209b%2F2%2Bc&b", "?a=***&b"),
        ("?a=canary-7f%223%C3%A9%24+9b%2F2%2Bc&b", "?a=***&b"),
        (f"cut {CANARY[:9]}", "cut ***"),
        (f"cut {CANARY[:9]}…", "cut ***…"),
        (f"…{CANARY[-9:]} cut", "…*** cut"),
        (f"first\n{CANARY[-9:]} cut {CANARY[:-1]}\nlast", "first\n*** cut ***\nlast"),
        (f"{CANARY[:5]}", "canar"),
        (f"{CANARY[:9]} in the middle", "canary-7f in the middle"),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_a_secret_is_hidden_however_it_is_spelled(text: str, shown: str):
    assert Mask([CANARY]).text(text) == shown


def test_each_line_of_a_long_secret_is_hidden():
    mask = Mask(["first line\nab\nthird line"])
    assert mask.text("first line\nab\nthird line") == "***"
    assert mask.text("a first line of\nab\nthe third line") == "a *** of\nab\nthe ***"


def test_the_longer_of_two_secrets_is_hidden_whole():
    assert Mask(["abc", "abcdef"]).text("abcdef abc") == "*** ***"
    assert Mask(["def"], Mask(["abc"])).text("abc def") == "*** ***"


def test_json_stays_json():
    mask = Mask(['"', "12", "true", "a"])
    value = {"a": [12, 112, 12.0, True, None, 'say "hi"'], "12 b": "x"}
    hidden = {"***": ["***", 112, 12.0, "***", None, "s***y ***hi***"], "*** b": "x"}
    assert json.loads(mask.json(json.dumps(value))) == hidden


def test_every_end_is_masked():
    mask = Mask(["hidden"])
    assert mask.outcome(Completed('["hidden"]', 3)) == Completed('["***"]', 3)
    failed = Failed(FailureKind.EXCEPTION, "a hidden b", 5, 2.0, True)
    assert mask.outcome(failed) == Failed(FailureKind.EXCEPTION, "a *** b", 5, 2.0, True)
    assert mask.outcome(Skipped("hidden")) == Skipped("***")
    assert mask.outcome(StoppedByRequest(4)) == StoppedByRequest(4)


def test_every_report_is_masked():
    seen = Recorder()
    sink = MaskedSink(seen, Mask(["hidden"]))
    sink.progress(1, 2, "hidden")
    sink.spend({"hidden": 1})
    sink.checkpoint('{"a":"hidden"}')
    sink.attach("/tmp/hidden", "hidden.txt")
    assert seen.reports == [
        ("progress", 1, 2, "***"),
        ("spend", {"***": 1}),
        ("checkpoint", '{"a":"***"}'),
        ("attach", "/tmp/hidden", "***.txt"),
    ]
