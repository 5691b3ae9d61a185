"""What a task can say through its context, and what becomes of what it does: no process is needed for these."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from pathlib import Path

import pytest

from headway import errors
from headway.engine.execution.context import BudgetExceeded, Context, StopFlag, WorkItem
from headway.engine.execution.outcome import (
    CommandFailed,
    completed,
    failure_of,
    outcome_from_dict,
    outcome_of,
    outcome_to_dict,
    wants_context,
)
from headway.engine.execution.output import OutputLines, clean
from headway.model.jobs.outcome import (
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    Outcome,
    Skipped,
    StoppedByRequest,
)

WORK = WorkItem(job_id=7, task="story.generate", fence=3, attempt=2, params={"topic": "fog"})


class Recorder:
    def __init__(self) -> None:
        self.reports: list[tuple] = []

    def progress(self, done: float, total: float | None, label: str) -> None:
        self.reports.append(("progress", done, total, label))

    def log(self, level: str, message: str, at: int) -> None:
        self.reports.append(("log", level, message))

    def spend(self, amounts: dict[str, float]) -> None:
        self.reports.append(("spend", amounts))

    def checkpoint(self, text: str) -> None:
        self.reports.append(("checkpoint", text))

    def attach(self, path: str, name: str) -> None:
        self.reports.append(("attach", path, name))


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


@pytest.fixture
def ctx(sink: Recorder) -> Context:
    return Context(WORK, sink)


def context(sink: Recorder, *, budget: dict[str, float], spent: dict[str, float] | None = None) -> Context:
    return Context(WorkItem(7, "t", 3, 2, {}, budget=budget, spent=spent or {}), sink)


# --- the work -----------------------------------------------------------------------------------------------------


def test_work_survives_a_journey():
    work = WorkItem(7, "t", 3, 2, {"a": [1]}, {"c": 1}, {"usd": 1.5}, {"usd": 0.5}, {"step": None}, "my.module")

    assert WorkItem.from_json(work.to_json()) == work
    assert json.loads(WORK.to_json())["module"] is None


def test_a_context_shows_its_work(ctx: Context):
    assert (ctx.job_id, ctx.task, ctx.attempt, ctx.fence) == (7, "story.generate", 2, 3)
    assert (ctx.stopping, ctx.last_checkpoint, dict(ctx.results)) == (False, None, {})


# --- progress and stopping ----------------------------------------------------------------------------------------


def test_progress_counts_the_items(ctx: Context, sink: Recorder):
    assert list(ctx.progress("abc", "letter")) == ["a", "b", "c"]
    assert sink.reports == [("progress", n, 3, "letter") for n in range(4)]


def test_progress_goes_on_where_an_earlier_try_ended(ctx: Context, sink: Recorder):
    assert list(ctx.progress(range(13, 15), "page", start=13)) == [13, 14]
    assert sink.reports == [("progress", n, 15, "page") for n in (13, 14, 15)]
    assert list(ctx.progress(iter("ab"), start=2)) == ["a", "b"]
    assert [report[1:3] for report in sink.reports[3:]] == [(2, None), (3, None), (4, None)]
    assert list(ctx.progress("ab", total=9, start=2)) == ["a", "b"], "a total that is given is the whole"
    assert [report[1:3] for report in sink.reports[6:]] == [(2, 9), (3, 9), (4, 9)]
    with pytest.raises(errors.BadInput, match="start must be a number of at least 0"):
        next(ctx.progress("ab", start=-1))


def test_progress_without_a_length_has_no_total(ctx: Context, sink: Recorder):
    assert list(ctx.progress(iter("ab"))) == ["a", "b"]
    assert list(ctx.progress(iter("ab"), total=2)) == ["a", "b"]
    assert {report[2] for report in sink.reports[:3]} == {None}
    assert {report[2] for report in sink.reports[3:]} == {2}


def test_progress_is_a_stop_point(sink: Recorder):
    stop = StopFlag()
    ctx = Context(WORK, sink, stop)
    items = ctx.progress(itertools.count())
    assert [next(items), next(items)] == [0, 1]

    stop.asked = True
    with pytest.raises(errors.Stopped):
        next(items)

    assert ctx.stopping
    for stop_point in (ctx.check, lambda: ctx.report(1), lambda: ctx.checkpoint(1)):
        with pytest.raises(errors.Stopped):
            stop_point()
    assert sink.reports[-1] == ("checkpoint", "1")


@pytest.mark.parametrize("done", [-1, float("nan"), float("inf"), 10**400, "3", None, True])
def test_progress_is_a_number(ctx: Context, sink: Recorder, done: float):
    with pytest.raises(errors.BadInput, match="done must be a number of at least 0"):
        ctx.report(done)
    assert sink.reports == []


def test_a_label_is_kept_short_and_storable(ctx: Context, sink: Recorder):
    ctx.report(1, 2, "a\x00" + "b" * 500)

    assert sink.reports == [("progress", 1, 2, "a\ufffd" + "b" * 198)]


# --- log ----------------------------------------------------------------------------------------------------------


def test_the_log_has_levels_and_templates(ctx: Context, sink: Recorder):
    ctx.log.debug("%s of %d", "a", 2)
    ctx.log.info("100 %")
    ctx.log.warning({"not": "text"})
    ctx.log.error("e")
    ctx.log.critical("c")
    ctx.log.log(25, "between")

    levels = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "INFO"]
    assert [report[1] for report in sink.reports] == levels
    assert [report[2] for report in sink.reports] == ["a of 2", "100 %", "{'not': 'text'}", "e", "c", "between"]


def test_a_template_that_does_not_fit_ends_nothing(ctx: Context, sink: Recorder):
    ctx.log.info("%d apples", "no")

    assert sink.reports == [("log", "INFO", "%d apples ('no',)")]


def test_a_log_line_is_bounded(ctx: Context, sink: Recorder):
    ctx.log.info("x" * 100_000)

    assert len(sink.reports[0][2]) == 8192


def test_the_log_is_the_job_s_own(ctx: Context, sink: Recorder, caplog: pytest.LogCaptureFixture):
    assert ctx.log is ctx.log
    ctx.log.error("only here")

    assert "headway.job" not in logging.root.manager.loggerDict
    assert caplog.records == []


# --- budget -------------------------------------------------------------------------------------------------------


def test_spending_counts_with_the_chain_before(sink: Recorder):
    ctx = context(sink, budget={"tokens": 500_000}, spent={"tokens": 400_000, "usd": 9})

    ctx.spend(tokens=100_000, usd=100)
    with pytest.raises(BudgetExceeded, match=r"^budget for tokens used up: 512000 of 500000$") as caught:
        ctx.spend(tokens=12_000)

    assert (caught.value.meter, caught.value.total, caught.value.cap) == ("tokens", 512_000, 500_000)
    assert sink.reports == [("spend", {"tokens": 100_000, "usd": 100}), ("spend", {"tokens": 12_000})]


def test_fractions_are_written_as_people_do(sink: Recorder):
    ctx = context(sink, budget={"usd": 0.25})
    ctx.spend(usd=0.1)

    with pytest.raises(BudgetExceeded, match=r"0\.3 of 0\.25"):
        ctx.spend(usd=0.2)


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "3", None, False])
def test_spending_is_a_number(ctx: Context, sink: Recorder, amount: float):
    with pytest.raises(errors.BadInput) as caught:
        ctx.spend(tokens=1, usd=amount)
    assert caught.value.field == "usd"
    assert sink.reports == []


# --- checkpoints and files ----------------------------------------------------------------------------------------


def test_the_last_checkpoint_is_the_newest(sink: Recorder):
    ctx = Context(WorkItem(7, "t", 3, 2, {}, {"chapter": 1}), sink)
    assert ctx.last_checkpoint == {"chapter": 1}

    value = {"chapter": [2]}
    ctx.checkpoint(value)
    value["chapter"].append(3)

    assert ctx.last_checkpoint == {"chapter": [2]}
    assert sink.reports == [("checkpoint", '{"chapter":[2]}')]


@pytest.mark.parametrize(
    ("value", "problem"), [({1, 2}, "of type set"), ("x" * 65_536, "the limit is 64 KiB"), (float("nan"), "NaN")]
)
def test_a_checkpoint_is_json_of_moderate_size(ctx: Context, sink: Recorder, value: object, problem: str):
    with pytest.raises(errors.BadInput, match=problem):
        ctx.checkpoint(value)
    assert sink.reports == []


def test_a_checkpoint_that_was_not_stored_is_not_the_last(ctx: Context, sink: Recorder):
    def refuse(text: str) -> None:
        raise errors.LeaseLost("stale")

    sink.checkpoint = refuse  # type: ignore[method-assign]

    with pytest.raises(errors.LeaseLost):
        ctx.checkpoint(1)
    assert ctx.last_checkpoint is None


def test_a_file_is_attached_by_its_whole_path(ctx: Context, sink: Recorder, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("story.md").write_text("fog")

    ctx.attach("story.md")
    ctx.attach(Path("story.md"), "other.md")

    assert sink.reports == [("attach", str(tmp_path / "story.md"), name) for name in ("story.md", "other.md")]
    with pytest.raises(errors.BadInput, match="there is no file"):
        ctx.attach("missing.md")


# --- lines --------------------------------------------------------------------------------------------------------


def test_lines_come_out_whole_however_they_come_in():
    text = "one\n\ntwo ✓\r\nthree"
    for size in range(1, 12):
        data, lines, got = text.encode(), OutputLines(), []
        for n in range(0, len(data), size):
            got += lines.feed(data[n : n + size])
        assert got + lines.end() == ["one", "", "two ✓", "three"]
        assert lines.end() == []


def test_of_a_progress_bar_the_end_is_kept():
    lines = OutputLines()

    got = [line for n in range(5000) for line in lines.feed(b"\r%d %%" % n)]
    got += lines.feed(b"\rdone\n")

    assert got == ["done"]


def test_long_lines_come_in_pieces_of_whole_characters():
    lines = OutputLines()

    got = lines.feed("✓".encode() * 10_000) + lines.end()

    assert "".join(got) == "✓" * 10_000
    assert max(len(piece.encode()) for piece in got) <= 8192


def test_whatever_is_not_text_becomes_text():
    assert OutputLines().feed(b"a\x00\xff\n") == ["a\ufffd\ufffd"]
    assert clean("\ud800ok\x00") == "\ufffdok\ufffd"


# --- outcomes -----------------------------------------------------------------------------------------------------


def raising(exc: BaseException) -> Outcome:
    def call() -> object:
        raise exc

    return outcome_of(call)


def test_a_value_is_a_completion():
    assert outcome_of(lambda: None) == Completed("null")
    assert outcome_of(lambda: {"a": (1, 2)}) == Completed('{"a":[1,2]}')
    assert completed(1) == Completed("1")


@pytest.mark.parametrize(
    ("exc", "outcome"),
    [
        (errors.Retry(), Failed(FailureKind.EXCEPTION, "the task asked for a retry")),
        (errors.Retry("later", after="1m"), Failed(FailureKind.EXCEPTION, "later", retry_after=60.0)),
        (errors.Fail("no"), Failed(FailureKind.EXCEPTION, "no", final=True)),
        (errors.Fail(), Failed(FailureKind.EXCEPTION, "the task failed", final=True)),
        (errors.Skip("empty"), Skipped("empty")),
        (errors.Skip(), Skipped("nothing to do")),
        (errors.Stopped("asked"), StoppedByRequest()),
        (errors.Stopped(-15), StoppedByRequest(-15)),
        (asyncio.CancelledError(), StoppedByRequest()),
        (BudgetExceeded("usd", 2, 1), Failed(FailureKind.BUDGET, "budget for usd used up: 2 of 1")),
        (errors.BadInput("params.a is odd", code="bad_params"), Failed(FailureKind.BAD_PARAMS, "params.a is odd")),
        (CommandFailed(3), Failed(FailureKind.EXIT_CODE, "the command exited with code 3", exit_code=3)),
        (
            CommandFailed(-9, "last\nlines"),
            Failed(FailureKind.EXIT_CODE, "the command was killed by SIGKILL\nlast\nlines", exit_code=-9),
        ),
        (CommandFailed(-200), Failed(FailureKind.EXIT_CODE, "the command was killed by signal 200", exit_code=-200)),
        (SystemExit(), Completed()),
        (SystemExit(0), Completed()),
        (SystemExit(2), Failed(FailureKind.EXIT_CODE, "the task exited with code 2", exit_code=2)),
        (SystemExit("why"), Failed(FailureKind.EXIT_CODE, "why", exit_code=1)),
    ],
)
def test_exceptions_of_a_task_have_a_meaning(exc: BaseException, outcome: Outcome):
    assert raising(exc) == outcome
    assert failure_of(exc) == outcome
    assert outcome_from_dict(json.loads(json.dumps(outcome_to_dict(outcome)))) == outcome


@pytest.mark.parametrize("outcome", [Interrupted("x"), Lost("y", remains=True)])
def test_every_outcome_survives_a_journey(outcome: Outcome):
    assert outcome_from_dict(json.loads(json.dumps(outcome_to_dict(outcome)))) == outcome


@pytest.mark.parametrize("exc", [MemoryError("no room"), KeyboardInterrupt(), ExceptionGroup("two", [ValueError("a")])])
def test_any_other_exception_is_a_failure(exc: BaseException):
    outcome = raising(exc)

    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.EXCEPTION
    assert outcome.error.startswith(type(exc).__name__)
    assert "in call" in outcome.error
    assert "calling.py" not in outcome.error


def test_a_bad_delay_is_said_and_not_followed():
    outcome = raising(errors.Retry("later", after="tomorrow"))

    assert isinstance(outcome, Failed)
    assert outcome.retry_after is None
    assert outcome.error.startswith("later (Retry.after is not a duration")


def test_endless_recursion_fits():
    def call() -> object:
        return call()

    outcome = outcome_of(call)

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("RecursionError: maximum recursion depth exceeded")
    assert len(outcome.error.encode()) <= 16 * 1024


def test_an_error_text_can_be_stored():
    outcome = raising(ValueError("\ud800 and \x00"))

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("ValueError: \ufffd and \ufffd")


def test_who_wants_the_context():
    def by_name(ctx, a): ...

    def by_type(context: Context): ...

    def without(a, ctx_of_a=None): ...

    assert wants_context(by_name)
    assert wants_context(by_type)
    assert not wants_context(without)
    assert not wants_context(lambda: None)
