"""An app and its settings: what task and caller leave open about retries is as the settings say; flags win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.model.jobs.job import Options
from headway.model.jobs.retry import RetryPolicy


async def nothing() -> None: ...


def policy(app: App, task: str, **wishes: Any) -> RetryPolicy:
    return Options.parse(app.enqueue(task, {}, **wishes).row.options).retry


@pytest.fixture
def database(sqlite_url: str) -> str:
    return sqlite_url


def test_retries(database: str) -> None:
    with App(database, retry={"max_attempts": 7, "base_delay": "3s"}) as app:
        app.task("plain")(nothing)
        app.task("some", retry=2)(nothing)
        app.task("slow", retry={"base_delay": "1m", "jitter": 0.5})(nothing)
        app.task("own", retry=RetryPolicy(1, 2.0))(nothing)
        assert policy(app, "plain") == RetryPolicy(7, 3.0)
        assert policy(app, "some") == RetryPolicy(2, 3.0)
        assert policy(app, "slow") == RetryPolicy(7, 60.0, jitter=0.5)
        assert policy(app, "own") == RetryPolicy(1, 2.0)
        assert policy(app, "slow", retry=0) == RetryPolicy(0, 60.0, jitter=0.5)
        assert policy(app, "plain", retry_policy={"base_delay": 1}, timeout="1m") == RetryPolicy(7, 1.0)
        many = app.tasks["plain"].enqueue_many([{}, {}])
        assert {Options.parse(job.row.options).retry for job in many} == {RetryPolicy(7, 3.0)}


def test_without_settings_the_defaults_hold(database: str) -> None:
    with App(database) as app:
        app.task("plain")(nothing)
        assert policy(app, "plain") == RetryPolicy()
        assert policy(app, "plain", timeout=5) == RetryPolicy()


def test_flags_go_over_what_the_app_says(database: str, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('slots = 9\nlease = "70s"\n')
    app = App("elsewhere.db", slots=2, heartbeat=1)
    app.configure(file, {"database": database, "slots": None})
    assert (app.settings.database, app.settings.slots, app.settings.heartbeat, app.settings.lease) == (
        database,
        2,
        1,
        70,
    )
