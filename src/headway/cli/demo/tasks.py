"""The app whose tasks `headway demo` runs."""

from __future__ import annotations

import os
import time

from headway import App, Context

app = App()


@app.task("demo.bake")
def bake(ctx: Context, loaves: int, seconds: float) -> dict[str, int]:
    """Works for some seconds and reports its progress."""
    for _ in ctx.progress(range(loaves), "loaf"):
        time.sleep(seconds / loaves)
    return {"loaves": loaves}


@app.task("demo.flaky")
def flaky(ctx: Context, succeeds_on: int) -> str:
    """Fails until the given attempt."""
    if ctx.attempt < succeeds_on:
        raise ConnectionError(f"the oven did not answer (attempt {ctx.attempt})")
    return f"it worked on attempt {ctx.attempt}"


@app.task("demo.step")
def step(name: str, seconds: float, until: str | None = None) -> str:
    time.sleep(seconds)
    _await(until)
    return name


@app.task("demo.visit")
def visit(machine: str, seconds: float, broken: bool = False) -> str:
    """Works on a machine that no other job may use meanwhile."""
    time.sleep(seconds)
    if broken:
        raise RuntimeError(f"{machine} stopped halfway")
    return f"{machine} is done"


@app.task("demo.endless")
def endless(ctx: Context) -> None:
    """Runs until it is stopped; each call of `progress` is a stop point."""
    for _ in ctx.progress(range(1_000_000), "round"):
        time.sleep(0.1)


@app.task("demo.journey")
def journey(ctx: Context, stages: int, seconds: float, until: str | None = None) -> dict[str, int]:
    """Stores a checkpoint after each stage, so that a retry continues from there."""
    began = int(ctx.last_checkpoint["stage"]) if isinstance(ctx.last_checkpoint, dict) else 0
    for stage in ctx.progress(range(began, stages), "stage", start=began):
        time.sleep(seconds / stages)
        _await(until if stage + 1 == stages else None)
        ctx.checkpoint({"stage": stage + 1})
    return {"began_at_stage": began, "stages": stages}


def _await(path: str | None) -> None:
    """Waits until a file exists, so that the job still runs during its scene even on a slow machine."""
    while path is not None and not os.path.exists(path):
        time.sleep(0.02)
