"""Plans and groups as their author writes them, run by a real worker on both databases."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.client import limits
from headway.engine.tasks.plan import Started, Step
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.errors import BadInput, HeadwayError, JobFailed, WrongState
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.testing import drain
from headway.verify import check
from tests.support import tasks_for_plans
from tests.support.waiting import until
from tests.system.support.started import Site, site

SECONDS = 55.0


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[App]:
    app = App(database=database_url, artifacts=str(tmp_path / "artifacts"))
    for spec in tasks_for_plans.app.registry:
        if spec.name not in app.tasks:
            isolation = None if spec.isolation == "async" else spec.isolation
            app.task(spec.name, isolation=isolation, retry=spec.retry)(spec.function)
    yield app
    findings = check(app.database, quiet=True).findings
    app.close()
    assert not findings


@contextmanager
def at_work(app: App, **wishes: Any) -> Iterator[Worker]:
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts, **wishes))
    worker.register()
    worker.start()
    try:
        yield worker
    finally:
        worker.drain()
        worker.interrupt_all("the test is over", grace=0.0)
        until(lambda: not worker.pool.running)
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def step(
    app: App, task: str, name: str | None = None, /, *, using: dict[str, Any] | None = None, **params: Any
) -> Step:
    wishes = {**(using or {}), **({"name": name} if name else {})}
    return app.tasks[task].using(**wishes).step(**params)


def states(made: Started) -> dict[str, str]:
    return {name: job.status for name, job in made.jobs.items()}


def sql(app: App, text: str) -> list[tuple[Any, ...]]:
    with app.database.read() as tx:
        found: list[tuple[Any, ...]] = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
    return found


def unlimited(app: App, **resources: int) -> None:
    limits.settle(app.database, Concurrency(limit=None), resources, actor=SYSTEM, adopt=True)


# --- results of earlier steps ---


def test_a_step_sees_the_results_of_earlier_ones_however_it_runs(app: App) -> None:
    plan = app.plan("seeing").then(step(app, "give", "one", value={"n": 1}), step(app, "skips", "none"))
    plan.then(*(step(app, f"seen.{kind}", kind) for kind in ("async", "thread", "child")))
    plan.then(step(app, "seen.child", "all"))
    with at_work(app):
        results = plan.start().result(SECONDS)
    for kind in ("async", "thread", "child"):
        assert results[kind] == {"one": {"n": 1}}
    assert results["all"].keys() == {"one", "async", "thread", "child"}
    assert results["all"]["child"] == {"one": {"n": 1}}


def test_a_single_job_and_a_first_step_see_no_results(app: App) -> None:
    made = app.plan("first").then(step(app, "seen.async")).start()
    job = app.tasks["seen.child"].enqueue()
    with at_work(app):
        assert made.result(SECONDS) == {"seen.async": {}}
        assert job.result(SECONDS) == {}


def test_results_are_filled_into_the_params_that_the_function_gets(app: App) -> None:
    plan = app.plan("filling").then(step(app, "add", "sum", a=1, b=2))
    plan.then(step(app, "add", "next", a={"$result": "sum"}), step(app, "give", "list", value=[{"$result": "sum"}, 0]))
    made = plan.then(step(app, "give", "last", value={"$result": "next"})).start()
    waiting = made.jobs["next"].row
    assert json.loads(waiting.params) == {"a": {"$result": "sum"}}
    with at_work(app):
        assert made.result(SECONDS) == {"sum": 3, "next": 4, "list": [3, 0], "last": 4}
    snapshots = dict(sql(app, "select j.step, r.params from hw_run r join hw_job j on j.id = r.job_id"))
    assert json.loads(snapshots["next"]) == {"a": 3}
    assert json.loads(snapshots["list"]) == {"value": [3, 0]}
    assert json.loads(made.jobs["next"].row.unfilled or "") == {"a": {"$result": "sum"}}


def test_a_result_of_another_kind_than_the_function_takes_is_bad_params(app: App) -> None:
    made = app.plan("wrong").then(step(app, "give", "text", value="x")).then(step(app, "add", a={"$result": "text"}))
    with at_work(app):
        started = made.start()
        assert started.wait(SECONDS) == "PARTIAL"
    (kind,) = sql(app, "select failure_kind from hw_job where step = 'add'")[0]
    assert kind == "BAD_PARAMS"


def test_drain_runs_a_plan_to_its_end(app: App) -> None:
    made = app.plan("here").then(step(app, "give", "one", value=1)).then(step(app, "seen.async", "two")).start()
    assert drain(app) == 2
    assert made.result(0) == {"one": 1, "two": {"one": 1}}


# --- the three modes ---


def test_all_steps_are_there_from_the_start(app: App) -> None:
    plan = app.plan("nightly").then(step(app, "give", "a"))
    made = plan.then(step(app, "give", "b"), step(app, "give", "c")).then(step(app, "give", "d")).start()
    assert states(made) == {"a": "QUEUED", "b": "WAITING", "c": "WAITING", "d": "WAITING"}
    assert (made.row.mode, made.row.stages, made.status) == ("staged", 3, "RUNNING")
    assert [blocker.kind for blocker in made.jobs["d"].explain().blockers][:1] == ["stage"]
    with at_work(app):
        assert made.wait(SECONDS) == "COMPLETED"
    assert begun_before_ended(app, made) == []


def begun_before_ended(app: App, made: Started) -> list[tuple[Any, ...]]:
    """Claims that came before the end of a job of an earlier stage."""
    text = (
        "select j.id, k.id from hw_job j join hw_job k on k.group_id = j.group_id and k.stage < j.stage "
        f"where j.group_id = {made.id} and j.started_at < k.finished_at"
    )
    return sql(app, text)


def test_a_sequential_group_runs_one_after_the_other(app: App) -> None:
    unlimited(app)
    made = app.group([step(app, "give", value=n) for n in range(4)]).start()
    assert (made.row.mode, made.row.stages) == ("sequential", 4)
    with at_work(app, slots=4):
        assert made.result(SECONDS) == {"give": 0, "give 2": 1, "give 3": 2, "give 4": 3}
    assert begun_before_ended(app, made) == []


def test_a_parallel_group_runs_all_at_once_on_a_lane_of_one(app: App) -> None:
    made = app.group([step(app, "waits", f"w{n}") for n in range(3)], mode="parallel").start()
    with at_work(app, slots=4) as worker:
        until(lambda: len(worker.pool.running) == 3, "three members side by side")
        made.cancel()
        assert made.wait(SECONDS) == "CANCELLED"


def test_a_staged_group_is_given_in_lists(app: App) -> None:
    first, rest = [step(app, "give", "a"), step(app, "give", "b")], step(app, "give", "c")
    made = app.group([first, rest], mode="staged", name="by hand").start()
    assert states(made) == {"a": "QUEUED", "b": "QUEUED", "c": "WAITING"}
    assert made.row.name == "by hand"
    with at_work(app):
        assert made.wait(SECONDS) == "COMPLETED"


# --- what is refused, before anything is stored ---


def test_a_wrong_step_is_refused_and_nothing_is_stored(app: App) -> None:
    give, add = app.tasks["give"], app.tasks["add"]
    wrong: list[tuple[Any, str]] = [
        (lambda: add.step(a="one"), "a"),
        (lambda: add.step(), "a"),
        (lambda: add.step(a=1, c=2), "c"),
        (lambda: add.step(1), "params by name"),
        (lambda: app.plan("p").then(give.using(key="k").step()).start(), "key"),
        (lambda: give.using(name="").step(), "name"),
        (lambda: app.plan("p").then(), "at least one step"),
        (lambda: app.plan("p").then(give), "task.step"),  # type: ignore[arg-type]
        (lambda: app.plan("p", on_failure="stopp"), "did you mean stop"),
        (lambda: app.group([], mode="parallel").start(), "at least one step"),
        (lambda: app.group([], mode="sequential").start(), "at least one step"),
        (lambda: app.group([give.step()], mode="parrallel").start(), "did you mean parallel"),
        (lambda: app.plan("p").start(), "at least one step"),
        (lambda: app.plan("p").then(add.step(a={"$result": "nobody"})).start(), "no step is named"),
        (lambda: app.plan("p").then(give.step()).then(app.step("no.such.task")).start(), "no.such.task"),
        (lambda: app.plan("p").then(give.using(resources=["gpu"]).step()).start(), "gpu"),
        (lambda: give.using(name="x").enqueue(), "for steps"),
        (lambda: give.using(continue_on_failure=True).enqueue(), "for steps"),
    ]
    for make, words in wrong:
        with pytest.raises(BadInput) as refused:
            make()
        assert words in str(refused.value)
    assert sql(app, "select count(*) from hw_job") == [(0,)]
    assert sql(app, "select count(*) from hw_group") == [(0,)]


# --- failures, and what people do ---


def test_a_failure_stops_what_comes_after(app: App) -> None:
    plan = app.plan("stops").then(step(app, "give", "a", value=1))
    plan.then(step(app, "fails", "b"), step(app, "give", "c")).then(step(app, "give", "d"))
    with at_work(app, slots=2):
        made = plan.start()
        with pytest.raises(JobFailed, match="PARTIAL"):
            made.result(SECONDS)
    assert states(made) == {"a": "COMPLETED", "b": "FAILED", "c": "COMPLETED", "d": "CANCELLED"}
    assert made.results.keys() == {"a", "c"}


def test_a_tolerated_failure_and_a_retried_one_do_not(app: App) -> None:
    tolerated = step(app, "fails", "b", using={"continue_on_failure": True})
    made = app.plan("goes on").then(tolerated, step(app, "flaky", "c")).then(step(app, "seen.async", "d")).start()
    with at_work(app, slots=2):
        assert made.wait(SECONDS) == "PARTIAL"
    assert states(made) == {"b": "FAILED", "c": "COMPLETED", "d": "COMPLETED"}
    assert made.results == {"c": 2, "d": {"c": 2}}


def test_a_retry_of_a_group_runs_what_failed_and_sees_what_succeeded(app: App, tmp_path: Path) -> None:
    file = tmp_path / "needed"
    plan = app.plan("again").then(step(app, "give", "a", value=7))
    made = plan.then(step(app, "needs", "b", file=str(file))).then(step(app, "seen.child", "c")).start()
    with at_work(app):
        assert made.wait(SECONDS) == "PARTIAL"
        file.write_text("here")
        again = made.retry()
        assert again.result(SECONDS) == {"a": 7, "b": "here", "c": {"a": 7, "b": "here"}}
    assert states(again).keys() == {"b", "c"}
    assert (again.row.retry_of, made.status) == (made.id, "PARTIAL")
    with pytest.raises(WrongState, match="nothing in it failed"):
        again.retry()


def test_a_cancelled_group_stops_what_runs(app: App) -> None:
    unlimited(app)
    made = (
        app.plan("stopped").then(step(app, "waits", "a"), step(app, "waits.child", "b")).then(step(app, "give")).start()
    )
    with at_work(app, slots=2) as worker:
        until(lambda: len(worker.pool.running) == 2)
        until(lambda: sql(app, "select count(*) from hw_report where checkpoint is not null") == [(1,)])
        assert made.cancel().wait(SECONDS) == "CANCELLED"
    assert set(states(made).values()) == {"CANCELLED"}
    assert sql(app, "select count(*) from hw_run where status = 7 and error like '%cancel%'") == [(2,)]
    with pytest.raises(WrongState, match="already ended"):
        made.cancel()


def test_waiting_for_a_group_ends_in_time(app: App) -> None:
    made = app.plan("long").then(step(app, "waits")).start()
    with pytest.raises(TimeoutError, match="still RUNNING"):
        made.wait(0.01)
    made.cancel()
    assert made.wait(0) == "CANCELLED"


def test_a_person_lets_a_held_step_go(app: App) -> None:
    held = step(app, "fails", "at the desk", using={"target": "desk"})
    made = app.plan("held").then(held).then(step(app, "seen.async", "after")).start()
    with at_work(app):
        until(lambda: states(made)["at the desk"] == "ERROR")
        assert (states(made)["after"], made.status) == ("WAITING", "RUNNING")
        made.jobs["at the desk"].resolve({"by": "hand"})
        assert made.result(SECONDS)["after"] == {"at the desk": {"by": "hand"}}


# --- what each step asks for ---


def test_each_step_has_its_own_timeout_retry_target_and_resources(app: App) -> None:
    unlimited(app, gpu=1)
    steps = [
        step(app, "waits", "late", using={"timeout": 0.05, "retry": {"max_attempts": 1, "base_delay": 0}}),
        step(app, "give", "there", using={"target": "desk", "priority": 7}),
        step(app, "give", "here", using={"resources": ["gpu"], "on_error": "fail"}),
    ]
    made = app.group(steps, mode="parallel").start()
    with at_work(app, slots=3):
        assert made.wait(SECONDS) == "PARTIAL"
    assert states(made) == {"late": "FAILED", "there": "COMPLETED", "here": "COMPLETED"}
    kinds = sql(app, "select failure_kind from hw_job where step = 'late' order by id")
    assert kinds == [("TIMEOUT",), ("TIMEOUT",)]
    assert sql(app, "select name from hw_target") == [("desk",)]
    assert made.jobs["there"].row.priority == 7
    options = {name: json.loads(job.row.options) for name, job in made.jobs.items()}
    assert options["here"]["resources"] == ["gpu"]
    assert "resources" not in options["late"]


def test_a_built_in_task_can_be_a_step(app: App) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))"]
    plan = app.plan("commands").then(app.step("command", {"argv": [*argv, "0"]}, name="good"))
    plan.then(app.step("command", {"argv": [*argv, "3"]}, name="bad", retry=0)).then(step(app, "give", "never"))
    made = plan.start()
    with at_work(app):
        assert made.wait(SECONDS) == "PARTIAL"
    assert states(made) == {"good": "COMPLETED", "bad": "FAILED", "never": "CANCELLED"}
    run = made.jobs["bad"].run
    assert run is not None
    assert run.exit_code == 3


# --- no delay between steps ---


TRANSACTION = {"sqlite": "e.at", "postgres": "e.xmin"}


@pytest.mark.parametrize("task", ["give", "seen.thread", "seen.child"])
def test_the_next_step_is_claimed_in_the_transaction_that_ends_the_one_before(app: App, task: str) -> None:
    plan = app.plan("swift")
    for n in range(6):
        plan.then(step(app, task, f"step {n}"))
    with at_work(app):
        made = plan.start()
        assert made.wait(SECONDS) == "COMPLETED"
    text = (
        f"select j.stage, e.kind, cast({TRANSACTION[app.database.dialect]} as text) from hw_event e join hw_job j "
        f"on j.id = e.thing_id where e.thing = 'job' and j.group_id = {made.id} "
    )
    ended = {stage: when for stage, _, when in sql(app, text + "and e.kind = 'job.completed'")}
    released = {stage: when for stage, _, when in sql(app, text + "and e.kind = 'job.released'")}
    claimed = {stage: when for stage, _, when in sql(app, text + "and e.kind = 'job.claimed'")}
    assert len(ended) == len(claimed) == 6
    for stage in range(5):
        assert ended[stage] == released[stage + 1] == claimed[stage + 1]
    assert len(set(ended.values())) == 6


def test_the_group_ends_in_the_transaction_of_its_last_step(app: App) -> None:
    made = app.plan("end").then(step(app, "give", "a"), step(app, "give", "b")).start()
    with at_work(app):
        made.wait(SECONDS)
    where = TRANSACTION[app.database.dialect]
    text = f"select cast({where} as text) from hw_event e where e.kind = 'group.finished'"
    ended = sql(app, text)
    assert len(ended) == 1
    last = sql(app, f"select cast({where} as text) from hw_event e where e.kind = 'job.completed' order by e.id desc")
    assert last[0] == ended[0]


# --- a worker that dies ---


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def test_a_member_that_dies_with_its_worker_is_retried_and_the_group_goes_on(here: Site) -> None:
    task, file = here.app.tasks["waits.process"], str(here.folder / "step")
    retry = {"max_attempts": 2, "base_delay": 0.05}
    plan = here.app.plan("survives").then(task.using(name="a", retry=retry).step(file=file))
    made = plan.then(here.app.tasks["load.async"].using(name="b").step()).start()
    first = here.start(slots=2)
    here.await_began("step")
    lost = made.jobs["a"]
    first.kill()
    here.start(slots=2)
    here.await_began("step", 2)
    assert lost.row.failure_kind == "LOST"
    assert lost.status == "FAILED"
    assert made.jobs["a"].id != lost.id
    assert (states(made)["b"], made.status) == ("WAITING", "RUNNING")
    here.go("step")
    assert made.wait(SECONDS) == "COMPLETED"
    run = lost.run
    assert run is not None
    assert (run.error or "").startswith("Scheduler crash recovery")
    assert here.findings() == []


def test_a_worker_that_dies_for_good_fails_the_step_and_stops_the_plan(here: Site) -> None:
    task, file = here.app.tasks["waits.async"], str(here.folder / "step")
    plan = here.app.plan("ends").then(task.using(name="a", retry=0).step(file=file))
    made = plan.then(here.app.tasks["load.async"].using(name="b").step()).start()
    first = here.start(slots=2)
    here.await_began("step")
    first.kill()
    here.start(slots=0)  # it only watches over the others
    assert made.wait(SECONDS) == "PARTIAL"
    assert states(made) == {"a": "FAILED", "b": "CANCELLED"}
    assert here.findings() == []


def test_an_error_of_a_group_says_what_it_is(app: App) -> None:
    with pytest.raises(HeadwayError, match="there is no group 99"):
        app.client.groups.cancel(99)
