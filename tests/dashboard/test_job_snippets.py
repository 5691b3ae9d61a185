"""What can be pasted elsewhere: whatever a job holds, a shell and Python read it back as the same values."""

from __future__ import annotations

import ast
import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.dashboard.job_snippets import Copies, copies, json_text
from headway.model.jobs.job import Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.model.values.times import instant
from tests.support.hostile import PAYLOADS
from tests.support.job_rows import a_job
from tests.support.properties import examples
from tests.support.service import Site

pytestmark = pytest.mark.shown

HOSTILE = [
    "it's", 'say "hi"', "$(touch /tmp/x)", "`id`", "a;b|c&d", "--flag", "-x", "@file", "new\nline", "tab\t", "\\slash",
    "\\", "'\"'\"'", "${HOME}", "!!", "*", "~", "#", "\x1b[31mred", "\x9b31m", "\u202eevil", "\u2028", "日本",
]  # fmt: skip
BASE = "http://127.0.0.1:8642"
NOW = instant("2030-01-01T00:00:00Z", field="now")
BARE = {
    "priority": 0,
    "retry_policy": {"max_attempts": 3, "base_delay": 10},
    "on_lost": "retry",
    "on_error": "hold",
}


def of(params: dict[str, Any], *, task: str = "story.generate", target: str | None = None, **fields: Any) -> Copies:
    options = fields.pop("options", Options()).text()
    job = a_job(State.QUEUED, task=task, params=json.dumps(params), options=options, **fields)
    return copies(job, target, BASE, now=NOW, with_token=False)


def run(program: str, text: str) -> list[str]:
    """What a program is given by a shell that reads this text."""
    script = f'{program}() {{ for one in "$@"; do printf "%s\\0" "$one"; done; }}\n{text}'
    found = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={"HEADWAY_TOKEN": "hw_secret"})
    assert not found.stderr
    return found.stdout.decode().split("\0")[:-1]


def called(text: str) -> tuple[list[Any], dict[str, Any]]:
    """What the Python text passes to `enqueue`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "enqueue":
            named = {one.arg or "": ast.literal_eval(one.value) for one in node.keywords}
            return [ast.literal_eval(one) for one in node.args], named
    raise AssertionError(text)


@pytest.mark.parametrize("text", [*HOSTILE, *PAYLOADS[:20]])
def test_a_shell_reads_back_what_the_job_holds(text: str) -> None:
    named = {"target": text.replace("\n", " "), "key": text.replace("\n", " ")}
    found = of({text: [text, None, True, 1.5]}, **named)
    body = json.loads(run("curl", found.curl)[-1])
    assert body["params"] == {text: [text, None, True, 1.5]}
    command = run("headway", found.cli)
    assert command[:2] == ["run", "story.generate"]
    assert json.loads(command[2].removeprefix("--params=")) == body["params"]
    assert f"--target={body['target']}" in command
    assert f"--key={body['key']}" in command
    wishes = {**BARE, "target": body["target"], "key": body["key"]}
    assert called(found.python) == (["story.generate", body["params"]], wishes)


@given(st.dictionaries(st.text(max_size=12), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)))
@settings(max_examples=examples(100), deadline=None)
def test_any_params_survive(params: dict[str, str]) -> None:
    try:
        json.dumps(params, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # what was never stored
    found = of(params)
    assert called(found.python)[0][1] == params
    assert json.loads(json_text(params)) == params
    assert json_text(params).isprintable()


def test_nothing_invisible_reaches_a_terminal() -> None:
    assert json_text({"a": "\x9b2J\u202ex"}) == '{"a": "\\u009b2J\\u202ex"}'
    assert json_text({"a": "日本 😀"}) == '{"a": "日本 😀"}'


def test_a_task_that_looks_like_an_option_is_a_task() -> None:
    assert run("headway", of({}, task="-rf").cli)[-2:] == ["--", "-rf"]


def test_the_token_is_the_shells_to_fill_in() -> None:
    job = a_job(State.QUEUED, options=Options().text())
    text = copies(job, None, BASE, now=NOW, with_token=True).curl
    assert "Authorization: Bearer hw_secret" in run("curl", text)
    assert "hw_" not in text


def test_every_stored_wish_is_said() -> None:
    """Also one that is usual here: where it is pasted, the task or the settings may say something else."""
    options = Options(
        retry=RetryPolicy(max_attempts=1),
        timeout=90.0,
        budget=(("tokens", 5000.0),),
        resources=("gpu",),
        on_lost="hold",
    )
    times: dict[str, Any] = {"not_before": NOW + 1_000_000, "expires_at": NOW + 2_000_000, "hold": 1}
    found = of({"topic": "fog"}, priority=5, options=options, **times)
    assert run("headway", found.cli)[3:] == [
        "--hold",
        "--priority=5",
        "--not-before=2030-01-01T00:00:01Z",
        "--expires-at=2030-01-01T00:00:02Z",
        "--timeout=1m30s",
        "--retries=1",
        "--base-delay=10s",
        "--on-lost=hold",
        "--on-error=hold",
        "--resource=gpu",
        "--budget=tokens=5000",
    ]
    assert found.unsaid == {"cli": []}
    past = of({"topic": "fog"}, not_before=NOW, expires_at=NOW - 1)
    assert called(past.python) == (["story.generate", {"topic": "fog"}], BARE)


def test_what_a_way_cannot_say_is_named() -> None:
    retry = RetryPolicy(max_delay=60.0, jitter=0.5)
    options = Options(
        retry=retry, on_shutdown="pause", webhook_url="https://a.example/x", webhook_events=("job.failed",)
    )
    found = of({}, options=options)
    python, body = called(found.python)[1], json.loads(run("curl", found.curl)[-1])
    assert (python["on_shutdown"], body["on_shutdown"]) == ("pause", "pause")
    assert "--on-shutdown=pause" in run("headway", found.cli)
    assert body["retry_policy"] == {"max_attempts": 3, "base_delay": 10, "max_delay": 60, "jitter": 0.5}
    assert (body["webhook_url"], body["webhook_events"]) == ("https://a.example/x", ["job.failed"])
    unsaid = ["webhook_url", "webhook_events", "retry_policy.max_delay", "retry_policy.jitter"]
    assert found.unsaid["cli"] == unsaid


def test_another_server_is_named() -> None:
    job = a_job(State.QUEUED, options=Options().text())
    there = copies(job, None, "https://jobs.example/in side", now=NOW, with_token=False)
    assert run("headway", there.cli)[-1] == "--server=https://jobs.example/in side"
    assert "--server" not in of({}).cli


def test_a_pasted_snippet_makes_a_job_like_it(site: Site) -> None:
    made = site.app.enqueue(
        "story.generate",
        {"topic": 'it\'s "fog"'},
        priority=5,
        target="desk 1",
        resources=["ollama"],
        timeout="90s",
        budget={"tokens": 10},
        retry_policy={"max_attempts": 1, "base_delay": 2, "max_delay": 60, "jitter": 0.25},
        on_lost="fail",
        on_error="fail",
        webhook_url="https://a.example/x",
        webhook_events=["job.run.failed"],
        not_before="2999-01-01T00:00:00Z",
        expires_at="2999-02-01T00:00:00Z",
        hold=True,
    )
    job = site.app.client.get(made.id)
    found = copies(job, "desk 1", site.url, now=NOW, with_token=False)
    answer = site.http.post("/api/jobs", json=json.loads(run("curl", found.curl)[-1]))
    assert answer.status_code == 201, answer.text
    given, wishes = called(found.python)
    again = [site.app.client.get(answer.json()["job_id"]), site.app.client.get(site.app.enqueue(*given, **wishes).id)]
    for one in again:
        assert (one.params, one.priority, one.target_id) == (job.params, job.priority, job.target_id)
        assert (one.not_before, one.expires_at, one.hold) == (job.not_before, job.expires_at, job.hold)
        assert Options.parse(one.options) == Options.parse(job.options)
