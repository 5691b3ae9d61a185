"""The example `stories` as a newcomer runs it: `headway up` in its folder, beside a server that speaks like Ollama."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.errors import Fail, Retry
from tests.docs import test_code_blocks as code_blocks
from tests.docs.pages import blocks
from tests.examples.ollama import MODEL, Ollama, ollama
from tests.support.cli import ROOT, Answer, line_of, program, running, until
from tests.support.deadlines import join
from tests.support.postgres import fresh_database
from tests.support.receivers import receiver
from tests.support.scratch import scratch_directory

FOLDER = ROOT / "examples" / "stories"
STORY = "Once there was fog."


@dataclass(frozen=True)
class Stories:
    """A process of the example, the model beside it, and somebody who speaks to it."""

    model: Ollama
    http: httpx.Client
    database: str
    folder: Path

    def headway(self, *args: object) -> Answer:
        return program(*args, cwd=FOLDER, database=self.database).done()

    def enqueue(self, task: str, params: dict[str, Any], **wishes: Any) -> int:
        made = self.http.post("/api/jobs", json={"task": task, "params": params, **wishes})
        assert made.status_code == 201, made.text
        return int(made.json()["job_id"])

    def job(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/api/jobs/{job_id}").json()
        return found

    def ended(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = until(lambda: (job := self.job(job_id))["finished_at"] and job, f"the end of {job_id}")
        return found


@contextmanager
def address(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "stories.db")
    else:
        with fresh_database(request.getfixturevalue("postgres_server")) as url:
            yield url


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def process(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Stories]:
    """One process for all tests on a kind of database: each makes jobs of its own."""
    with (
        scratch_directory(root=scratch) as folder,
        address(request.param, request, folder) as database,
        ollama() as model,
    ):
        more = {
            "OLLAMA_URL": model.url,
            "HEADWAY_ARTIFACTS": str(folder / "files"),
            "HEADWAY_RETRY__BASE_DELAY": "200ms",
            "HEADWAY_SHUTDOWN_GRACE": "5s",
        }
        with (
            running("up", "--json", cwd=FOLDER, database=database, **more) as up,
            httpx.Client(base_url=_url(up), timeout=60.0, trust_env=False) as http,
        ):
            yield Stories(model, http, database, folder)


def _url(up: subprocess.Popen[str]) -> str:
    facts = json.loads(line_of(up.stdout, "started"))
    assert {"research.run", "story.generate"} <= set(facts["tasks"])
    return str(facts["url"])


@pytest.fixture
def stories(process: Stories) -> Iterator[Stories]:
    process.model.asked.clear()
    yield process
    process.model.go_on.set()


# --- one at a time ------------------------------------------------------------------------------------------------


def test_a_job_writes_a_story_and_tells_how_far_it_is(stories: Stories) -> None:
    stories.model.go_on.clear()
    job_id = stories.enqueue("story.generate", {"topic": "fog", "chapters": 2, "words": 50})
    progress = until(lambda: stories.job(job_id)["progress"], "progress after the first piece")
    assert (progress["done"], progress["total"], progress["label"]) == (1, 100, "chapter 1 of 2")
    stories.model.go_on.set()
    job = stories.ended(job_id)
    assert job["status"] == "COMPLETED", job
    assert job["run"]["result"] == {"title": "Fog", "chapters": [STORY, STORY]}
    assert job["meters"] == {"tokens": 2 * stories.model.tokens}
    kept = stories.http.get(f"/api/jobs/{job_id}/artifacts/story.md").text
    assert kept == f"# Fog\n\n## 1\n\n{STORY}\n\n## 2\n\n{STORY}\n"
    first, second = stories.model.asked
    assert (first["model"], first["stream"], first["options"]) == (MODEL, True, {"num_predict": 100})
    assert STORY not in first["prompt"]
    assert STORY in second["prompt"]


def test_direct_calls_go_before_the_queue_and_nobody_shares_the_model(stories: Stories) -> None:
    stories.model.go_on.clear()
    running_one = stories.enqueue("story.generate", {"topic": "first", "chapters": 1})
    until(lambda: stories.model.asked, "the first job at the model")
    waiting = stories.enqueue("story.generate", {"topic": "last", "chapters": 1})
    answers: list[httpx.Response] = []
    call = threading.Thread(target=lambda: answers.append(stories.http.post("/research/run", json={"topic": "direct"})))
    call.start()
    until(lambda: stories.http.get("/api/reservations?status=ACTIVE").json()["items"], "the reservation")
    stories.model.go_on.set()
    join(call)
    assert (answers[0].status_code, answers[0].json()) == (200, {"topic": "direct", "notes": STORY})
    assert [stories.ended(one)["status"] for one in (running_one, waiting)] == ["COMPLETED", "COMPLETED"]
    topics = [
        next(word for word in ("first", "direct", "last") if word in one["prompt"]) for one in stories.model.asked
    ]
    assert topics == ["first", "direct", "last"]
    assert stories.model.most_at_once == 1
    told = stories.http.post("/story/generate", json={"topic": "fog", "chapters": 1})
    assert told.json() == {"title": "Fog", "chapters": [STORY]}
    assert stories.http.post("/story/generate", json={"words": 3}).status_code == 422


def test_clients_of_the_system_before(stories: Stories) -> None:
    told = stories.http.post("/jobs/story/trigger", json={"topic": "fog", "chapters": 1})
    assert told.status_code == 202
    assert "Deprecation" in told.headers
    job_id = int(told.json()["job_id"])
    assert stories.ended(job_id)["status"] == "COMPLETED"
    shown = stories.http.get(f"/jobs/{job_id}").json()
    assert (shown["type"], shown["status"]) == ("story", "succeeded")
    assert [Path(str(one)).name for one in shown["artifacts"]] == ["story.md"]
    told = stories.http.post("/jobs/research/trigger", json={"topic": "fog"})
    assert stories.ended(int(told.json()["job_id"]))["task"] == "research.run"


def test_the_night_researches_and_then_writes_and_somebody_is_told(stories: Stories) -> None:
    with receiver() as room:
        file = stories.folder / "webhooks.toml"
        text = (FOLDER / "webhooks.toml").read_text("utf-8")
        file.write_text(text.replace("http://127.0.0.1:9000/hooks/stories", room.url), "utf-8")
        assert "+ webhook http://127.0.0.1:9000" in stories.headway("apply", "webhooks.toml", "--dry-run").out
        assert "the secret of" in stories.headway("apply", file).out
        said = stories.headway("schedules", "run", "nightly story", "--follow")
        assert "COMPLETED" in said.out + said.err
        got = {one.headers["x-job-event"]: json.loads(one.body) for one in room.await_received(3)}
        stories.headway("webhooks", "delete", stories.http.get("/api/webhooks").json()["items"][0]["webhook_id"])
    assert sorted(one.headers["x-job-event"] for one in room.received) == [
        "execution.finished",
        "job.run.completed",
        "job.run.completed",
    ]
    assert got["execution.finished"]["data"]["status"] == "COMPLETED"
    research, story = stories.model.asked[0], stories.model.asked[1]
    assert "lighthouses" in research["prompt"]
    assert f"Be true to these notes:\n{STORY}" in story["prompt"]


# --- when something is wrong --------------------------------------------------------------------------------------


def test_a_budget_ends_a_story_and_a_retry_goes_on_after_the_last_chapter(stories: Stories) -> None:
    cap = 2 * stories.model.tokens - 1
    job_id = stories.enqueue("story.generate", {"topic": "fog", "chapters": 3}, budget={"tokens": cap})
    job = stories.ended(job_id)
    assert (job["status"], job["failure_kind"], job["exhausted"]) == ("FAILED", "BUDGET", True)
    assert "tokens" in job["run"]["error"]
    assert len(stories.model.asked) == 2
    told = stories.http.post(f"/api/jobs/{job_id}/retry", json={"budget": {"tokens": 1_000}})
    assert stories.ended(int(told.json()["job_id"]))["run"]["result"]["chapters"] == [STORY] * 3
    assert len(stories.model.asked) == 3


def test_a_server_that_is_down_is_tried_again(stories: Stories) -> None:
    stories.model.stop()
    job_id = stories.enqueue("research.run", {"topic": "fog"})
    job = stories.ended(job_id)
    assert (job["status"], job["failure_kind"], job["exhausted"]) == ("FAILED", "EXCEPTION", False)
    assert "cannot be used: ConnectError" in job["run"]["error"]
    stories.model.start()
    until(lambda: stories.http.get(f"/jobs/{job_id}").json()["status"] == "succeeded", "the retry")


@pytest.mark.parametrize(
    ("behave", "said"), [("busy", "answered 503"), ("broken", "cannot be used"), ("error", "Ollama gave up: an error")]
)
def test_a_passing_failure_is_tried_again(stories: Stories, behave: str, said: str) -> None:
    stories.model.behave.append(behave)
    job_id = stories.enqueue("research.run", {"topic": "fog"})
    assert said in stories.ended(job_id)["run"]["error"]
    until(lambda: stories.http.get(f"/jobs/{job_id}").json()["status"] == "succeeded", "the retry")
    assert len(stories.model.asked) == 2


def test_a_missing_model_and_too_many_words_fail_at_once(stories: Stories) -> None:
    missing = stories.ended(stories.enqueue("research.run", {"topic": "fog", "model": "gpt-7"}))
    assert (missing["status"], missing["exhausted"]) == ("FAILED", True)
    assert "Try `ollama pull gpt-7`" in missing["run"]["error"]
    assert len(stories.model.asked) == 1
    long = stories.ended(stories.enqueue("story.generate", {"topic": "fog", "words": 5_000}))
    assert "at most 5000 words" in long["run"]["error"]
    called = stories.http.post("/research/run", json={"topic": "fog", "model": "gpt-7"})
    assert called.status_code == 424
    assert "ollama pull gpt-7" in called.text


def test_the_history_is_sound(stories: Stories) -> None:
    assert stories.headway("verify").out == ""


# --- without a process --------------------------------------------------------------------------------------------


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.stories import stories as example

    with ollama() as model:
        monkeypatch.setenv("OLLAMA_URL", model.url)
        monkeypatch.setenv("OLLAMA_TIMEOUT", "0.1")
        model.behave.append("hang")
        with pytest.raises(Retry, match="ReadTimeout"):
            list(example.pieces(MODEL, "hello", 10))
        monkeypatch.setenv("OLLAMA_TIMEOUT", "30")
        assert [one["response"] for one in example.pieces(MODEL, "hello", 10)] == [*model.words, ""]
        with pytest.raises(Fail):
            list(example.pieces("gpt-7", "hello", 10))


def test_importing_it_opens_nothing(tmp_path: Path) -> None:
    code = "import stories; assert stories.app._settings is None; assert stories.app._database is None"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": f"{FOLDER}"}, check=True)
    assert list(tmp_path.iterdir()) == []


def test_the_settings_and_the_commands_of_the_page_are_right() -> None:
    assert program("config", "check", cwd=FOLDER).code == 0
    shell = [block for block in blocks(FOLDER / "README.md") if block.language == "sh"]
    lines = [line for block in shell for line in block.text.splitlines()]
    assert len([line for line in lines if line.startswith("headway ")]) > 7
    for line in lines:
        if line.startswith("headway "):
            code_blocks.test_commands_can_be_given("examples/stories/README.md", line)
