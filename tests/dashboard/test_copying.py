"""What can be pasted elsewhere: whatever a job holds, a shell and Python read it back as the same values."""

from __future__ import annotations

import ast
import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.dashboard.copying import Copies, copies, json_text
from headway.model.job import Options
from headway.model.retry import RetryPolicy
from headway.model.states import State
from tests.model.test_verbs import a_job
from tests.support.hostile import PAYLOADS
from tests.support.service import Site

HOSTILE = [
    "it's", 'say "hi"', "$(touch /tmp/x)", "`id`", "a;b|c&d", "--flag", "-x", "@file", "new\nline", "tab\t", "\\slash",
    "\\", "'\"'\"'", "${HOME}", "!!", "*", "~", "#", "\x1b[31mred", "\x9b31m", "\u202eevil", "\u2028", "日本",
]  # fmt: skip
BASE = "http://127.0.0.1:8642"


def of(params: dict[str, Any], *, task: str = "story.generate", target: str | None = None, **fields: Any) -> Copies:
    options = fields.pop("options", Options()).text()
    job = a_job(State.QUEUED, task=task, params=json.dumps(params), options=options, **fields)
    return copies(job, target, BASE, with_token=False)


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
    found = of({text: [text, None, True, 1.5]}, options=Options(retry=RetryPolicy(max_attempts=0)), **named)
    body = json.loads(run("curl", found.curl)[-1])
    assert body["params"] == {text: [text, None, True, 1.5]}
    command = run("headway", found.cli)
    assert command[:2] == ["run", "story.generate"]
    assert json.loads(command[2].removeprefix("--params=")) == body["params"]
    assert f"--target={body['target']}" in command
    assert f"--key={body['key']}" in command
    assert called(found.python) == (["story.generate", body["params"]], {"target": body["target"], "key": body["key"]})


@given(st.dictionaries(st.text(max_size=12), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)))
@settings(max_examples=100, deadline=None)
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
    text = copies(job, None, BASE, with_token=True).curl
    assert "Authorization: Bearer hw_secret" in run("curl", text)
    assert "hw_" not in text


def test_wishes_are_said_only_where_they_differ() -> None:
    options = Options(
        retry=RetryPolicy(max_attempts=1),
        timeout=90.0,
        budget=(("tokens", 5000.0),),
        resources=("gpu",),
        on_lost="hold",
    )
    found = of({"topic": "fog"}, priority=5, options=options)
    assert run("headway", found.cli)[3:] == [
        "--priority=5",
        "--timeout=1m30s",
        "--retries=1",
        "--on-lost=hold",
        "--resource=gpu",
        "--budget=tokens=5000",
    ]
    assert called(of({"topic": "fog"}).python) == (["story.generate", {"topic": "fog"}], {})


def test_what_is_pasted_makes_a_job_like_it(site: Site) -> None:
    made = site.app.enqueue(
        "story.generate",
        {"topic": 'it\'s "fog"'},
        priority=5,
        target="desk 1",
        resources=["ollama"],
        timeout="90s",
        budget={"tokens": 10},
        retry_policy={"max_attempts": 1, "base_delay": 2},
    )
    job = site.app.client.get(made.id)
    found = copies(job, "desk 1", site.url, with_token=False)
    answer = site.http.post("/api/jobs", json=json.loads(run("curl", found.curl)[-1]))
    assert answer.status_code == 201, answer.text
    given, wishes = called(found.python)
    again = [site.app.client.get(answer.json()["job_id"]), site.app.client.get(site.app.enqueue(*given, **wishes).id)]
    for one in again:
        assert (one.params, one.priority, one.target_id) == (job.params, job.priority, job.target_id)
        assert Options.parse(one.options) == Options.parse(job.options)
