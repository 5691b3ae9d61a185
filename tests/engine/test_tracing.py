"""Traces: from whoever makes a job, through the job, into its run and whatever that calls."""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headway import App
from headway.engine import tracing
from headway.errors import BadInput
from headway.model.jobs.job import Options
from tests.engine.test_http_task import Server
from tests.engine.test_http_task import server as server
from tests.engine.test_worker import at_work
from tests.support import tasks_for_traces

SECONDS = 55.0
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[App]:
    app = App(database=database_url, artifacts=str(tmp_path / "artifacts"))
    for spec in tasks_for_traces.app.registry:
        if spec.name not in app.tasks:
            isolation = None if spec.isolation == "async" else spec.isolation
            app.task(spec.name, isolation=isolation, retry=0)(spec.function)
    yield app
    app.close()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A real provider for one test; OpenTelemetry itself would keep the first one for good."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(tracing, "_provider", tracing._Provider())
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}"


def options(app: App, job_id: int) -> Options:
    return Options.parse(app.client.get(job_id).options)


def test_a_run_is_a_child_of_the_span_that_enqueued_it(app: App, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("web").start_as_current_span("request") as request:
        job = app.tasks["traced.async"].enqueue()
    with at_work(app):
        passed_on = job.result(SECONDS)
    (enqueue,), (run,), (mine,) = (named(spans, name) for name in ("headway.enqueue", "headway.run", "mine"))
    assert enqueue.parent == request.get_span_context()
    assert options(app, job.id).traceparent == f"00-{ids(enqueue)}-01"
    assert run.parent is not None
    assert (run.parent.span_id, run.parent.is_remote) == (enqueue.context and enqueue.context.span_id, True)
    assert mine.parent == run.context
    assert passed_on == f"00-{ids(run)}-01"
    assert dict(run.attributes or {}) == {
        "headway.job_id": job.id,
        "headway.task": "traced.async",
        "headway.attempt": 1,
        "headway.fence": 1,
        "headway.outcome": "completed",
    }
    assert run.status.status_code is StatusCode.UNSET


def test_a_child_process_and_what_it_starts_belong_to_the_run(app: App, spans: InMemorySpanExporter) -> None:
    jobs = [app.tasks["traced.plain"].enqueue(), app.tasks["traced.within"].enqueue()]
    command = app.enqueue("command", {"argv": ["sh", "-c", "echo $TRACEPARENT"]})
    with at_work(app):
        plain, within = (job.result(SECONDS) for job in jobs)
        command.result(SECONDS)
    runs = {(span.attributes or {})["headway.job_id"]: ids(span) for span in named(spans, "headway.run")}
    assert plain == {"env": f"00-{runs[jobs[0].id]}-01", "ctx": f"00-{runs[jobs[0].id]}-01"}
    assert within == runs[jobs[1].id]
    with app.database.read() as tx:
        (chunk,) = tx.run("read_log", job_id=command.id, after=0, limit=10)
    assert f"00-{runs[command.id]}-01" in chunk[2]


def test_a_request_of_the_built_in_task_carries_it(app: App, spans: InMemorySpanExporter, server: Server) -> None:
    server.answers["/"] = lambda request: request.say(200)
    url = f"http://127.0.0.1:{server.server_port}/"
    first = app.enqueue("http", {"url": url})
    second = app.enqueue("http", {"url": url, "headers": {"Traceparent": PARENT}})
    with at_work(app):
        first.result(SECONDS)
        second.result(SECONDS)
    run = next(span for span in named(spans, "headway.run") if (span.attributes or {})["headway.job_id"] == first.id)
    seen = [{name.lower(): value for name, value in headers.items()} for _, _, headers, _ in server.seen]
    assert [headers["traceparent"] for headers in seen] == [f"00-{ids(run)}-01", PARENT]


def test_how_a_run_ended(app: App, spans: InMemorySpanExporter) -> None:
    failed = app.tasks["traced.plain"].enqueue(fail=True)
    skipped = app.tasks["traced.thread"].enqueue()
    with at_work(app):
        for job in (failed, skipped):
            with pytest.raises(Exception, match=r"FAILED|SKIPPED"):
                job.result(SECONDS)
    runs = {(span.attributes or {})["headway.job_id"]: span for span in named(spans, "headway.run")}
    one = runs[failed.id]
    assert one.status.status_code is StatusCode.ERROR
    assert one.status.description == "ValueError: broken by a secret word"
    assert (one.attributes or {})["headway.failure_kind"] == "EXCEPTION"
    assert (runs[skipped.id].attributes or {})["headway.outcome"] == "skipped"


def test_a_retry_belongs_to_the_same_trace(app: App, spans: InMemorySpanExporter) -> None:
    job = app.tasks["traced.plain"].using(retry={"max_attempts": 1, "base_delay": 0}).enqueue(fail=True)
    with at_work(app), pytest.raises(Exception, match="FAILED"):
        job.result(SECONDS)
    (enqueue,) = named(spans, "headway.enqueue")
    runs = named(spans, "headway.run")
    assert [(span.attributes or {})["headway.attempt"] for span in runs] == [1, 2]
    assert {span.parent and span.parent.span_id for span in runs} == {enqueue.context and enqueue.context.span_id}


def test_groups_many_jobs_and_direct_calls(app: App, spans: InMemorySpanExporter) -> None:
    plain = app.tasks["traced.plain"]
    many = plain.enqueue_many([{}, {}])
    app.group([plain.step(), plain.step()], mode="parallel").start()
    assert [(span.attributes or {})["headway.count"] for span in named(spans, "headway.enqueue")] == [2, 2]
    assert len({options(app, job.id).traceparent for job in many}) == 1
    with app.database.read() as tx:
        traced = {Options.parse(row[0]).traceparent for row in _options(tx)}
    assert len(traced) == 2
    assert None not in traced
    with trace.get_tracer("web").start_as_current_span("request") as request:
        told = app.tasks["traced.plain"].call()
    (run,) = named(spans, "headway.run")
    assert run.parent is not None
    assert run.parent.span_id == request.get_span_context().span_id
    assert told["ctx"] == f"00-{ids(run)}-01"
    assert "headway.reservation_id" in (run.attributes or {})


def _options(tx: Any) -> list[tuple[str]]:
    found: list[tuple[str]] = tx.connection.execute("select options from hw_job").fetchall()
    return found


def test_a_trace_from_outside_is_carried_without_an_sdk(app: App) -> None:
    assert not tracing.on()
    job = app.tasks["traced.plain"].using(traceparent=PARENT).enqueue()
    with at_work(app):
        assert job.result(SECONDS) == {"env": PARENT, "ctx": PARENT}


def test_a_job_without_a_trace_has_none_after_one_that_had(app: App) -> None:
    """They share a warm child."""
    traced = app.tasks["traced.plain"].using(traceparent=PARENT).enqueue()
    bare = app.tasks["traced.plain"].enqueue()
    with at_work(app, slots=1):
        assert traced.result(SECONDS)["env"] == PARENT
        assert bare.result(SECONDS) == {"env": None, "ctx": None}


def test_a_named_trace_is_not_overruled(app: App, spans: InMemorySpanExporter) -> None:
    job = app.tasks["traced.plain"].using(traceparent=PARENT).enqueue()
    assert options(app, job.id).traceparent == PARENT


@pytest.mark.parametrize(
    "text",
    ["", "00", PARENT + "-x", PARENT.upper(), "ff" + PARENT[2:], "00-" + "0" * 32 + PARENT[35:], PARENT + "\n"],
)
def test_what_is_no_traceparent_is_refused_here_and_ignored_from_outside(app: App, text: str) -> None:
    with pytest.raises(BadInput) as refused:
        app.tasks["traced.plain"].using(traceparent=text)
    assert refused.value.field == "traceparent"
    assert tracing.valid(text) is None
    assert tracing.valid(PARENT) == PARENT


def test_nothing_is_loaded_and_next_to_nothing_spent_when_nobody_traces() -> None:
    """In a program of its own, because this one has loaded OpenTelemetry."""
    code = (
        "import sys, timeit; import headway.app, headway.engine.worker.worker; from headway.engine import tracing;"
        "from headway.model.jobs.job import NewJob; job = NewJob('a', '{}', '{}');\n"
        "def one():\n"
        "    with tracing.enqueueing('a') as stamp: stamp(job)\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')];"
        "print(min(timeit.repeat(one, number=20000, repeat=5)) / 20000 * 1e9,"
        " min(timeit.repeat(lambda: tracing.begin(None), number=20000, repeat=5)) / 20000 * 1e9)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    enqueue, run = map(float, told.stdout.split())
    print(f"\nnanoseconds without OpenTelemetry: enqueue {enqueue:.0f}, run {run:.0f}")
    assert enqueue < 20_000
    assert run < 20_000


def test_an_api_without_an_sdk_costs_little() -> None:
    assert not tracing.on()
    spent = min(timeit.repeat(lambda: tracing.begin(None), number=20_000, repeat=5)) / 20_000  # type: ignore[arg-type]
    print(f"\nnanoseconds with the API alone: run {spent * 1e9:.0f}")
    assert spent < 20e-6
