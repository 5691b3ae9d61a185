"""Tasks that tell which trace they belong to. At the top of a module, so that child processes find them."""

from __future__ import annotations

import os
from typing import Any

from opentelemetry import trace

from headway import App, Context, Skip

app = App()


@app.task("traced.plain", retry=0)
def plain(ctx: Context, fail: bool = False) -> dict[str, Any]:
    if fail:
        raise ValueError("broken by a secret word\nsecond line")
    return {"env": os.environ.get("TRACEPARENT"), "ctx": ctx.traceparent}


@app.task("traced.within")
def within() -> str | None:
    """What user code that traces in a child sees."""
    found = trace.get_current_span().get_span_context()
    return f"{found.trace_id:032x}-{found.span_id:016x}" if found.is_valid else None


@app.task("traced.async")
async def traced_async(ctx: Context) -> str | None:
    with trace.get_tracer("mine").start_as_current_span("mine"):
        return ctx.traceparent


@app.task("traced.thread", isolation="thread")
def thread() -> None:
    raise Skip("nothing to do")
