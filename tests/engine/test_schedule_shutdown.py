"""Steps that a shutdown pauses: what a schedule, a plan and a step say about it, and how `doctor` reports the stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway import App
from headway.engine.monitoring.check import Expected, Scope
from headway.engine.monitoring.checks import CHECKS
from headway.errors import BadInput
from headway.model.checks import Answer
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Interrupted
from headway.testing import FrozenClock
from headway.text.schedules import shutdown_words
from tests.support.life import Life
from tests.support.schedules import Clockwork


@pytest.fixture
def clockwork(database_url: str) -> Iterator[Clockwork]:
    with Life(database_url) as life:
        yield Clockwork(life)


EXPORT = {"task": "sync", "name": "export", "target": "directory"}


def schedules_check(clockwork: Clockwork) -> Answer:
    with clockwork.life.database.read() as tx:
        (check,) = [check for check in CHECKS if check.name == "schedules"]
        return check.answer(Scope(tx, expected=Expected({"sync"})))


def deploy(clockwork: Clockwork, job_id: int) -> None:
    """A worker that has the step runs it, and is shut down."""
    assert clockwork.life.end(clockwork.life.claim(job_id), Interrupted())


def test_after_a_deploy_a_paused_step_skips_every_tick_and_doctor_says_so(clockwork: Clockwork) -> None:
    made = clockwork.create(steps=[EXPORT])
    clockwork.advance("5m")
    ((job_id,),) = clockwork.life.sql("select id from hw_job")
    deploy(clockwork, job_id)
    assert clockwork.life.status(job_id) == "PAUSED"
    clockwork.advance("5m")
    clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "FIRED"), (10, 1, "SKIPPED: overlap"), (15, 1, "SKIPPED: overlap")]
    found = schedules_check(clockwork)
    assert found.mark == "look"
    assert found.detail == (
        f"nightly skips every tick: execution 1 waits for job {job_id} (step export, PAUSED since a shutdown)"
    )
    assert found.remedy is not None
    assert f"headway jobs resume {job_id}" in found.remedy
    assert 'on_shutdown = "resume"' in found.remedy
    clockwork.life.client.resume(job_id)
    assert schedules_check(clockwork).mark == "ok"
    assert clockwork.schedules.get(made.id).enabled


def test_a_step_that_failed_on_its_target_is_told_without_the_shutdown(clockwork: Clockwork) -> None:
    clockwork.create(steps=[EXPORT], overlap="queue")
    clockwork.advance("5m")
    ((job_id,),) = clockwork.life.sql("select id from hw_job")
    clockwork.life.in_state("ERROR")  # a job of no schedule changes nothing
    clockwork.life.claim(job_id)
    clockwork.life.client.interrupt(job_id)
    clockwork.life.end(clockwork.life.held(job_id), Interrupted())
    found = schedules_check(clockwork)
    assert found.detail == f"nightly starts no execution: execution 1 waits for job {job_id} (step export, PAUSED)"
    assert found.remedy == f"resume, resolve, retry, release or cancel it: `headway jobs show {job_id}`"


@pytest.mark.parametrize("where", ["schedule", "step"])
def test_resume_lets_the_plan_continue_by_itself(clockwork: Clockwork, where: str) -> None:
    given = {"on_shutdown": "resume"}
    clockwork.create(
        **{"steps": [EXPORT | (given if where == "step" else {})], **(given if where == "schedule" else {})}
    )
    clockwork.advance("5m")
    ((job_id,),) = clockwork.life.sql("select id from hw_job")
    deploy(clockwork, job_id)
    assert clockwork.life.status(job_id) == "QUEUED"
    assert schedules_check(clockwork).mark == "ok"
    assert clockwork.life.pick(1) == [job_id]


def test_a_step_goes_before_its_schedule_and_a_schedule_before_the_template(clockwork: Clockwork) -> None:
    clockwork.life.client.templates.create("export", "sync", target="directory", retry_policy={"max_attempts": 0})
    clockwork.create(steps=[{"template": "export"}, EXPORT | {"on_shutdown": "pause"}], on_shutdown="resume")
    clockwork.advance("5m")
    found = [
        Options.parse(text).on_shutdown for (text,) in clockwork.life.sql("select options from hw_job order by id")
    ]
    assert found == ["resume", "pause"]


def test_another_word_is_refused_where_it_is_written(clockwork: Clockwork) -> None:
    with pytest.raises(BadInput, match="on_shutdown must be retry, pause or resume, not 'resum': did you mean resume"):
        clockwork.create(on_shutdown="resum")


def test_the_definition_says_which_steps_a_shutdown_pauses(clockwork: Clockwork) -> None:
    parsed = clockwork.create("a", steps=[EXPORT, {"task": "sync"}]).parsed
    assert "The step export is PAUSED" in (shutdown_words(parsed) or "")
    assert "every tick is SKIPPED until a person resumes it" in (shutdown_words(parsed) or "")
    parsed = clockwork.create("b", steps=[EXPORT], overlap="allow").parsed
    assert "SKIPPED" not in (shutdown_words(parsed) or "")
    parsed = clockwork.create("c", steps=[EXPORT], on_shutdown="resume").parsed
    assert (shutdown_words(parsed) or "").startswith("Steps that a shutdown stops are queued again")
    assert shutdown_words(clockwork.create("d").parsed) is None
    assert "; steps of a, b are PAUSED when their worker is shut down" in schedules_check(clockwork).detail


# --- in code ------------------------------------------------------------------------------------------------------


def test_a_plan_says_it_for_all_its_steps(database_url: str) -> None:
    app = App(database=database_url, clock=FrozenClock())

    @app.task("desk.export")
    async def export() -> None: ...

    def plan(name: str) -> list[str | None]:
        made = app.plan(name, on_shutdown="resume").then(export.using(target="desk").step())
        made.then(export.using(on_shutdown="pause").step())
        jobs = made.start().jobs
        return [Options.parse(job.row.options).on_shutdown for job in jobs.values()]

    assert plan("started") == ["resume", "pause"]
    app.plan("nightly", on_shutdown="resume").then(export.step()).schedule("0 3 * * *")
    (stored,) = [declared for name, declared in app.schedules.items() if name == "nightly"]
    assert stored.definition.on_shutdown == "resume"
    with pytest.raises(BadInput, match="on_shutdown must be one of retry, pause, resume"):
        app.plan("wrong", on_shutdown="later")
    assert [
        Options.parse(job.row.options).on_shutdown
        for job in app.group([export.step()], on_shutdown="retry").start().jobs.values()
    ] == ["retry"]
