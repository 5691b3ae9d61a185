"""What was stored by somebody who did not know the task is checked before its code runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headway import App, Context
from headway.engine.tasks.signature import Signature
from headway.model.jobs.outcome import FailureKind
from headway.store.jobs import changes as jobs
from headway.testing import drain

CALLED: list[object] = []


async def in_loop(ctx: Context, n: int, words: list[str] | None = None) -> int:
    CALLED.append(n)
    return n


def in_thread(n: int = 0) -> int:
    CALLED.append(n)
    return n


def in_child(n: int) -> int:
    return n


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    app = App(database=database_url)
    app.task("in.loop")(in_loop)
    app.task("in.thread", isolation="thread")(in_thread)
    app.task("in.child")(in_child)
    CALLED.clear()
    yield app
    app.close()


def stored(app: App, task: str, fitting: dict[str, Any], params: dict[str, Any]) -> int:
    """A job as another program stores it that does not know the task."""
    job_id = app.enqueue(task, fitting).id
    with app.database.transaction("other_params") as tx:
        text = json.dumps(params).replace("'", "''")
        app.database.execute_script(tx, f"update hw_job set params = '{text}' where id = {job_id}")
    return job_id


@pytest.mark.parametrize("task", ["in.loop", "in.thread", "in.child"])
@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"n": "abc"}, "params.n must be int, not str"),
        ({"n": True}, "params.n must be int, not bool"),
        ({"n": 1, "m": 2}, "params.m is not a parameter of the task"),
    ],
)
def test_params_that_do_not_fit_are_bad_params(app: App, task: str, params: dict[str, Any], problem: str) -> None:
    job_id = stored(app, task, {"n": 1}, params)
    drain(app)
    row = app.job(job_id).row
    assert (row.status.name, row.failure_kind) == ("FAILED", FailureKind.BAD_PARAMS)
    with app.database.read() as tx:
        run = jobs.run_of(tx, job_id)
    assert run is not None
    assert problem in str(run.error)
    assert CALLED == [], "no code of the task has run"


def test_missing_params_are_bad_params(app: App) -> None:
    job_id = stored(app, "in.loop", {"n": 1}, {})
    fine = stored(app, "in.thread", {"n": 1}, {})
    drain(app)
    assert app.job(job_id).row.failure_kind is FailureKind.BAD_PARAMS
    assert (app.job(fine).status, CALLED) == ("COMPLETED", [0])


def test_what_was_checked_when_it_was_stored_fits_as_it_comes_back(app: App) -> None:
    job = app.enqueue("in.loop", {"n": 3, "words": ("a", "b")})
    drain(app)
    assert job.result(timeout=0) == 3


def test_nothing_is_resolved_where_nothing_is_to_be_checked() -> None:
    signature = Signature(in_thread, task="in.thread")
    signature.refuse_misfits({})
    assert signature._checks is None
