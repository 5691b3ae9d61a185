"""Plain functions for child processes, which import them from here."""

from __future__ import annotations

from headway.app import App
from headway.engine.execution.context import Context

APP = App()


@APP.task("plain")
def plain(ctx: Context, steps: int = 1) -> dict[str, int]:
    """Goes on from its last checkpoint."""
    done = (ctx.last_checkpoint or {"step": 0})["step"]
    for step in range(done + 1, steps + 1):
        ctx.checkpoint({"step": step})
    return {"fence": ctx.fence}
