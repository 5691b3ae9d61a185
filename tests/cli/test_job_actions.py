"""What people do to jobs: one by number, or many by filter after a question."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headway.app import App
from headway.model.jobs.states import State
from headway.store.db import Database, Tx
from headway.testing import drain
from tests.support.cli import Here

pytestmark = pytest.mark.shown


def hold(database: Database, job_id: int, state: State) -> None:
    """Puts a job that ran where only a crash or an interrupt brings it: held, with its run open."""

    def work(tx: Tx) -> None:
        run = "insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at)"
        database.execute_script(tx, f"{run} select id, 1, task, params, 1, 1 from hw_job where id = {job_id}")
        columns = "gate = 0, fence = 1, started_at = 1, reason = 'by hand', failure_kind = 'INTERRUPTED'"
        database.execute_script(tx, f"update hw_job set status = {int(state)}, {columns} where id = {job_id}")

    database.transact("hold", work)


@pytest.fixture
def held(app: App, database: Database) -> list[int]:
    """Two PAUSED jobs and one in ERROR."""
    ids = [app.enqueue("shop.greet", {"name": name}).id for name in ("a", "b", "c")]
    for job_id, state in zip(ids, (State.PAUSED, State.PAUSED, State.ERROR), strict=True):
        hold(database, job_id, state)
    return ids


def statuses(cli: Here) -> dict[int, str]:
    return {job["job_id"]: job["status"] for job in cli("jobs", "ls", "--json").done().data["items"]}


def test_cancel(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    assert cli("jobs", "cancel", 1).done().out.startswith("job 1 cancelled: now CANCELLED (cancelled by ")
    cli("jobs", "cancel", 1).refused(4, "job 1 is CANCELLED", "it has already ended")
    job = cli("jobs", "show", 1, "--json").data
    assert (job["queue_status"], job["outcome"], job["run"]) == ("CANCELLED", None, None)


def test_interrupt_and_resume_a_waiting_job(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    assert "now WAITING (hold)" in cli("jobs", "interrupt", 1).done().out
    assert cli("jobs", "show", 1, "--json").data["queue_status"] == "QUEUED"
    assert "now QUEUED" in cli("jobs", "resume", 1).done().out
    cli("jobs", "resume", 1).refused(4, "job 1 is QUEUED")


def test_a_held_job_is_resumed_resolved_released(cli: Here, held: list[int]) -> None:
    assert cli("jobs", "show", 3, "--json").data["queue_status"] == "QUEUED"
    assert "is ERROR (by hand)" in cli("jobs", "explain", 3).done().out
    assert "now QUEUED" in cli("jobs", "resume", 1, "--budget", "tokens=5").done().out
    answer = cli("jobs", "resolve", 2, "--result", '{"by": "hand"}', "--json").done().data
    assert answer["items"][0]["run"]["result"] == {"by": "hand"}
    assert "now FAILED (released by " in cli("jobs", "release", 3).done().out
    assert statuses(cli) == {1: "QUEUED", 2: "COMPLETED", 3: "FAILED"}


def test_retry_a_held_job_and_a_failed_one(cli: Here, app: App, held: list[int]) -> None:
    said = cli("jobs", "retry", 1, "--priority", 9).done().out
    assert "is the retry: now QUEUED" in said
    job = cli("jobs", "show", said.split()[1], "--json").data
    assert (job["retry_of"], job["priority"]) == (1, 9)
    again = cli("jobs", "retry", 2, "--params", '{"name": "other"}', "--budget", "usd=1", "--json").done().data
    assert again["items"][0]["params"] == {"name": "other"}
    assert again["items"][0]["budget"] == {"usd": 1}


def test_retry_with_single_params(cli: Here, app: App) -> None:
    for name in ("a", "b"):
        app.enqueue("shop.fail", {"error": name}, retry=0)
    drain(app)
    cli("jobs", "retry", "name=value").refused(2, "no jobs given")
    both = cli("jobs", "retry", 1, "error=rain", 2, "--json").done().data["items"]
    assert [job["params"] for job in both] == [{"error": "rain"}] * 2


def test_single_params_go_over_those_of_the_job_or_the_given_ones(cli: Here, held: list[int]) -> None:
    (kept,) = cli("jobs", "retry", 1, "times=3", "--json").done().data["items"]
    assert kept["params"] == {"name": "a", "times": 3}
    (anew,) = cli("jobs", "retry", 2, "times=3", "--params", '{"name": "z"}', "--json").done().data["items"]
    assert anew["params"] == {"name": "z", "times": 3}


def test_new_params_are_checked_by_the_app_of_the_settings(cli: Here, app: App, held: list[int]) -> None:
    waiting = app.enqueue("shop.greet", {"name": "a"}).id
    (cli.folder / "headway.toml").write_text('app = "tests.support.shop:app"\n')
    cli("jobs", "retry", 1, "--params", '{"name": 5}').refused(2, "params.name must be str, not int")
    cli("jobs", "retry", 1, "tims=3").refused(2, "params.tims is not a parameter of the task", "times")
    cli("jobs", "edit", waiting, "nme=3").refused(2, "params.nme is not a parameter of the task", "name")
    assert statuses(cli) == {1: "PAUSED", 2: "PAUSED", 3: "ERROR", waiting: "QUEUED"}
    assert cli("jobs", "show", waiting, "--json").data["params"] == {"name": "a"}


def test_edit(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a", "times": 2})
    assert "job 1 changed: now QUEUED" in cli("jobs", "edit", 1, "times=3", "--priority", 5).done().out
    assert cli("jobs", "show", 1, "--json").data["params"] == {"name": "a", "times": 3}
    cli("jobs", "edit", 1, "--params", '{"name": "z"}').done()
    assert cli("jobs", "show", 1, "--json").data["params"] == {"name": "z"}
    job = app.enqueue("shop.greet", {"name": "b"}, delay="1h")
    later = cli("jobs", "edit", job.id, "--not-before", "2h", "--expires-at", "3h", "--json").done().data["items"][0]
    assert later["status"] == "SCHEDULED"
    assert later["expires_at"] > later["not_before"]
    cli("jobs", "edit", 1).refused(2, "no change given", "--priority")
    cli("jobs", "cancel", 1).done()
    cli("jobs", "edit", 1, "times=4").refused(4, "Cannot modify params after dispatch")


def test_move(cli: Here, app: App) -> None:
    for name in "abcd":
        app.enqueue("shop.greet", {"name": name})

    def order() -> list[int]:
        return [job["job_id"] for job in cli("queue", "ls", "--json").done().data["items"]]

    for move, expected in (
        (["4", "--to", "top"], [4, 1, 2, 3]),
        (["4", "--to", "bottom"], [1, 2, 3, 4]),
        (["3", "--before", "1"], [3, 1, 2, 4]),
        (["3", "--after", "2"], [1, 2, 3, 4]),
        (["4", "--rank", "2"], [1, 4, 2, 3]),
        (["3", "--to", "front"], [3, 1, 4, 2]),
    ):
        assert "moved: now QUEUED" in cli("jobs", "move", *move).done().out
        assert order() == expected
    cli("jobs", "move", 1, "--to", "left").refused(2, "top, bottom or front")
    cli("jobs", "move", 1).refused(2, "exactly one of to, before, after and rank")


def test_many_by_number(cli: Here, app: App) -> None:
    for name in "abc":
        app.enqueue("shop.greet", {"name": name})
    cli("jobs", "cancel", 2).done()
    some = cli("jobs", "cancel", 1, 2, 3, 99)
    assert some.code == 4
    assert "there is no job 99" in some.err
    assert some.out.count("now CANCELLED") == 2
    again = cli("jobs", "cancel", 1, 99, "--json")
    assert [error["code"] for error in again.data["errors"]] == ["wrong_state", "not_found"]


def test_many_by_filter_ask_first(cli: Here, app: App) -> None:
    for name in "abc":
        app.enqueue("shop.greet", {"name": name})
    app.enqueue("shop.skip")
    cli("jobs", "cancel", "--task", "shop.greet").refused(2, "this would cancel 3 jobs", "--yes")
    assert set(statuses(cli).values()) == {"QUEUED"}
    done = cli("jobs", "cancel", "--task", "shop.greet", "--since", "1h", "--yes", "--json").done().data
    assert [job["job_id"] for job in done["items"]] == [1, 2, 3]
    assert statuses(cli) == {1: "CANCELLED", 2: "CANCELLED", 3: "CANCELLED", 4: "QUEUED"}
    none = cli("jobs", "cancel", "--task", "shop.greet", "--yes").done()
    assert "no job matches: nothing was changed" in none.err
    cli("jobs", "cancel").refused(2, "no jobs given")
    cli("jobs", "cancel", 1, "--task", "x").refused(2, "by number or by filter, not both")


class _Typing(io.StringIO):
    """A person at a terminal who answers."""

    def isatty(self) -> bool:
        return True


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> Iterator[Any]:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin", _Typing(text))
        yield


def test_the_answer_counts(cli: Here, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    with answering(monkeypatch, "n\n"):
        no = cli("jobs", "cancel", "--status", "queued")
    assert no.code == 4
    assert no.err == "cancel 1 job? [y/N] headway: nothing was changed\n"
    with answering(monkeypatch, "y\n"):
        cli("jobs", "cancel", "--status", "queued").done()
    assert statuses(cli) == {1: "CANCELLED"}


def test_retry_by_filter_takes_the_end_of_each_chain(cli: Here, app: App) -> None:
    app.enqueue("shop.fail", {"error": "one"}, retry=0)
    app.enqueue("shop.fail", {"error": "two"}, retry=0)
    drain(app)
    cli("jobs", "retry", 1).done()
    drain(app)
    retried = cli("jobs", "retry", "--task", "shop.fail", "--yes", "--json").done().data["items"]
    assert sorted(job["retry_of"] for job in retried) == [2, 3]
