"""Traces (OpenTelemetry, W3C): a job carries the trace of its caller.

The run of the job is a span of that trace.

OpenTelemetry is never imported first here: a tracing process has loaded it already, and others pay one dict lookup.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from headway.errors import BadInput
from headway.model.jobs.job import Claim, NewJob, Options
from headway.model.jobs.outcome import Failed, Outcome, StoppedByRequest

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

VARIABLE = "TRACEPARENT"
_API = "opentelemetry.trace"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_NAME = '"traceparent"'

Stamp = Callable[[NewJob], NewJob]


class _Provider:
    """Detects a configured tracer provider.

    A provider stays once it is set. Until then it is looked up at most once per second, because the lookup is slow.
    """

    def __init__(self) -> None:
        self.real = False
        self.asked_at = float("-inf")

    def look(self) -> bool:
        now = time.monotonic()
        if not self.real and now - self.asked_at > 1.0:
            from opentelemetry import trace

            self.asked_at = now
            self.real = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        return self.real


_provider = _Provider()


def on() -> bool:
    """True if spans are recorded."""
    return _API in sys.modules and _provider.look()


def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("headway")


def valid(text: str | None) -> str | None:
    """Returns a valid traceparent, or None; the standard ignores invalid ones."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


def check(text: str) -> str:
    if valid(text) is None:
        raise BadInput("traceparent must look like 00-<32 hex digits>-<16 hex digits>-01", field="traceparent")
    return text


def here() -> str | None:
    """Returns the caller's current span as a traceparent."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 1:02x}"


# --- enqueueing ---------------------------------------------------------------------------------------------------


def enqueueing(task: str, count: int = 1) -> AbstractContextManager[Stamp]:
    """Returns a context whose value stamps new jobs with the current span."""
    if _API not in sys.modules:
        return _UNTRACED
    return _enqueueing(task, count) if on() else nullcontext(stamped)


@contextmanager
def _enqueueing(task: str, count: int) -> Iterator[Stamp]:
    from opentelemetry.trace import SpanKind

    facts: dict[str, str | int] = {"headway.task": task, "headway.count": count}
    with _tracer().start_as_current_span("headway.enqueue", kind=SpanKind.PRODUCER, attributes=facts):
        yield stamped


def stamped(job: NewJob) -> NewJob:
    """Returns the job with the current span, unless its caller gave another one."""
    options = carry(job.options)
    return job if options is job.options else job._replace(options=options)


def carry(options: str) -> str:
    """Returns the options of a job or a direct call with the current span."""
    parent = here()
    if parent is None or _NAME in options:
        return options
    comma = "" if options == "{}" else ","
    return f'{options[:-1]}{comma}{_NAME}:"{parent}"}}'


def _unchanged(job: NewJob) -> NewJob:
    return job


_UNTRACED: AbstractContextManager[Stamp] = nullcontext(_unchanged)


# --- running ------------------------------------------------------------------------------------------------------


class RunSpan:
    """The span of one running claim, current in the thread or task that began it."""

    def __init__(self, span: Span, token: Token[Context]) -> None:
        self.span = span
        self.token = token

    def end(self, outcome: Outcome) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        word = "stopped" if isinstance(outcome, StoppedByRequest) else type(outcome).__name__.lower()
        self.span.set_attribute("headway.outcome", word)
        if isinstance(outcome, Failed):
            self.span.set_attribute("headway.failure_kind", outcome.kind.value)
            self.span.set_status(Status(StatusCode.ERROR, outcome.error.partition("\n")[0]))
        context.detach(self.token)
        self.span.end()


def begin(claim: Claim) -> RunSpan | None:
    """Begins the span of a claim. None if spans are not recorded."""
    if _API not in sys.modules or not _provider.look():
        return None
    from opentelemetry import context, trace

    # A direct call is not a job. Its reservation id stands in for the fence.
    number = {"headway.job_id": claim.job_id, "headway.fence": claim.fence}
    reserved = {"headway.reservation_id": claim.fence}
    facts: dict[str, str | int] = {"headway.task": claim.task, "headway.attempt": claim.attempt}
    facts.update(number if claim.job_id else reserved)
    parent = _remote(Options.parse(claim.options).traceparent if _NAME in claim.options else None)
    span = _tracer().start_span("headway.run", context=parent, kind=trace.SpanKind.CONSUMER, attributes=facts)
    return RunSpan(span, context.attach(trace.set_span_in_context(span)))


def carried(given: str | None) -> str | None:
    """Returns the traceparent that running work passes on: its own span, or the job's."""
    return here() if on() else given


def within(traceparent: str | None) -> AbstractContextManager[None]:
    """Makes the traceparent current, for spans of another process."""
    if traceparent is None or _API not in sys.modules:
        return nullcontext()
    return _within(traceparent)


@contextmanager
def _within(traceparent: str) -> Iterator[None]:
    from opentelemetry import context

    token = context.attach(_remote(traceparent))
    try:
        yield
    finally:
        context.detach(token)


def _remote(traceparent: str | None) -> Context:
    from opentelemetry import context, trace

    if valid(traceparent) is None or traceparent is None:
        return context.Context()
    _, trace_id, span_id, flags = traceparent.split("-")
    origin = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
    return trace.set_span_in_context(trace.NonRecordingSpan(origin), context.Context())
