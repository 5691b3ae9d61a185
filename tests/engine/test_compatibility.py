"""Promises about words and edges: statuses as others see them, what this version refuses, what SQLite must accept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import headway
from headway import App
from headway.api.schemas.jobs import job_json, queue_status
from headway.errors import BadInput, Refused, WrongState
from headway.model.jobs.states import State
from headway.model.values import state_names
from headway.store.db import open_database
from headway.store.jobs import views as job_views
from headway.store.queue.lanes import resources
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.version import refuse_affected
from headway.testing import FrozenClock, drain, isolated
from tests.support.life import Life

app = App(database="never-opened.db")


@app.task("word.say")
def say(word: str) -> str:
    return word


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock("2026-03-01T09:00:00Z")


@pytest.fixture
def here(database_url: str, clock: FrozenClock) -> Iterator[App]:
    with isolated(app, database_url, clock=clock) as one:
        yield one


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


# --- one set of words ---


def test_three_queue_states_cover_all_ten() -> None:
    held = {State.WAITING, State.SCHEDULED, State.QUEUED, State.PAUSED, State.ERROR}
    expected = {state: "QUEUED" if state in held else None for state in State}
    expected |= {State.RUNNING: "RUNNING", State.CANCELLED: "CANCELLED"}
    assert {state: queue_status(state) for state in State} == expected


@pytest.mark.parametrize(
    ("how", "status", "queue", "outcome"),
    [
        ("queued", "QUEUED", "QUEUED", None),
        ("running", "RUNNING", "RUNNING", None),
        ("paused", "PAUSED", "QUEUED", None),
        ("completed", "COMPLETED", None, "COMPLETED"),
        ("failed", "FAILED", None, "FAILED"),
        ("skipped", "SKIPPED", None, "SKIPPED"),
        ("expired", "SKIPPED", None, "SKIPPED"),
        ("cancelled", "CANCELLED", "CANCELLED", None),
        ("stopped", "CANCELLED", "CANCELLED", "FAILED"),
    ],
)
def test_a_job_is_shown_with_the_unified_words(
    life: Life, how: str, status: str, queue: str | None, outcome: str | None
) -> None:
    job_id = life.in_state(how)
    with life.database.read() as tx:
        shown = job_json(job_views.view(tx, life.client.tenant_id, job_id))
    assert (shown["status"], shown["queue_status"], shown["outcome"]) == (status, queue, outcome)
    assert json.loads(json.dumps(shown)) == shown


def test_old_spellings_are_understood_and_unknown_ones_refused() -> None:
    assert state_names.states(["canceled,success", "processing"]) == {State.CANCELLED, State.COMPLETED, State.RUNNING}
    assert state_names.states(["succeeded", "WaitingForPreviousStep"]) == {State.COMPLETED, State.WAITING}
    assert state_names.states(["ERROR"]) == {State.ERROR}
    with pytest.raises(BadInput, match=r"no status 'FAILD': did you mean FAILED\?"):
        state_names.states(["FAILD"])


# --- what a task and a call may ask for ---


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"resources": "ollama"}, "resources must be a list of names, not 'ollama'"),
        ({"resources": 7}, "resources must be a list of names, not 7"),
        ({"resources": [7]}, "resources must be text, not int"),
        ({"resources": [""]}, "resources must have 1 to 200 characters, not 0"),
        ({"resources": ["a\x00"]}, "resources must not contain control characters"),
        ({"direct": "story/generate"}, "direct must be a path like /story/generate"),
        ({"on_error": "cry"}, "on_error must be one of hold, fail"),
    ],
)
def test_an_impossible_task_is_refused_at_declaration(options: dict[str, object], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        App().task("word.other", **options)(say.function)


@pytest.mark.parametrize("target", ["", "t" * 201, "desk\n1", "desk\x7f", 7])
def test_a_target_has_a_name_that_can_be_shown(here: App, target: Any) -> None:
    with pytest.raises(BadInput, match="target must"):
        say.using(target=target)
    job = say.using(target="t" * 200).enqueue(word="long")
    assert (drain(here), job.status) == (1, "COMPLETED")


def test_a_resource_has_to_be_defined_before_it_is_named(here: App) -> None:
    here.client.lanes.defined = {"ollama": 1, "remote": 2}
    with pytest.raises(BadInput, match=r"no resource is named 'olama': did you mean ollama\?"):
        say.using(resources=["ollama", "olama"]).enqueue(word="a")
    with here.database.read() as tx:
        assert [row[3] for row in tx.run("lanes")] == ["global"]  # nothing was made
    job = say.using(resources=["remote", "ollama", "remote"]).enqueue(word="b")
    with here.database.read() as tx:
        shown = job_json(job_views.view(tx, here.client.tenant_id, job.id))
        assert {name: capacity for name, (_, capacity) in resources(tx).items()} == {"ollama": 1, "remote": 2}
    assert (shown["target"], shown["resources"]) == (None, ["ollama", "remote"])
    assert drain(here) == 1


def test_one_job_at_a_time_unless_told_otherwise(here: App) -> None:
    assert here.settings.concurrency.limit == 1
    assert here.settings.retry.max_attempts == 3


# --- changing what waits ---


@pytest.mark.parametrize("when", ["2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)])
def test_times_are_edited_as_they_are_given_to_using(here: App, clock: FrozenClock, when: object) -> None:
    job = say.using(delay="1h").enqueue(word="later")
    job.edit(not_before=when, expires_at="2026-03-01T13:00:00Z")
    assert ((job.row.not_before or 0) - clock.now(), (job.row.expires_at or 0) - clock.now()) == (
        3 * 3600 * 1_000_000,
        4 * 3600 * 1_000_000,
    )
    clock.advance("3h")
    assert drain(here) == 1


def test_a_time_without_a_zone_is_refused_and_changes_nothing(here: App) -> None:
    job = say.using(delay="1h").enqueue(word="later")
    before = job.row
    with pytest.raises(BadInput, match="no time zone"):
        job.edit(not_before="2026-03-01T12:00:00")
    assert job.row == before


def test_a_reader_of_an_older_version_is_refused(here: App) -> None:
    job = say.using(delay="1h").enqueue(word="later")
    version = job.row.version
    job.edit(priority=3, if_version=version)
    with pytest.raises(WrongState, match="has changed since"):
        job.edit(priority=4, if_version=version)
    assert job.row.priority == 3


@pytest.mark.parametrize("caps", [{"tokens": "many"}, {"tokens": -1}, {"tokens": True}, {"": 1}, ["tokens"]])
def test_a_budget_that_cannot_be_compared_is_refused_wherever_it_is_given(here: App, caps: Any) -> None:
    """Stored, it would fail in the transaction that ends the job, again and again."""
    held = say.using(hold=True).enqueue(word="a")
    failed = say.using(hold=True).enqueue(word="b")
    for give in (lambda: say.using(budget=caps), lambda: held.resume(budget=caps), lambda: failed.retry(budget=caps)):
        with pytest.raises(BadInput, match="budget"):
            give()
    assert held.status == "WAITING"


def test_every_public_name_is_there_without_importing_more() -> None:
    code = "import headway; print([name for name in headway.__all__ if not getattr(headway, name)])"
    env = {"PYTHONPATH": str(Path(headway.__file__).parents[1])}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("[]\n", "")


# --- SQLite ---


def test_sqlite_writes_ahead_and_syncs_every_commit(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "headway.db"))
    assert isinstance(database, SqliteDatabase)
    try:
        assert database.writer.execute("pragma journal_mode").get == "wal"
        assert database.writer.execute("pragma synchronous").get == 2
    finally:
        database.close()


def test_an_sqlite_that_can_corrupt_the_file_is_refused() -> None:
    for version in ((3, 7, 0), (3, 45, 1), (3, 51, 2)):
        with pytest.raises(Refused, match="can corrupt"):
            refuse_affected(version)
    refuse_affected((3, 51, 3))
    refuse_affected(tuple(map(int, apsw.sqlite_lib_version().split(".")[:3])))  # type: ignore[arg-type]
