"""Tasks that make jobs of their own while they run, and some that wait for them."""

from __future__ import annotations

from headway import App, Context

app = App()


@app.task("leaf")
def leaf(word: str = "done") -> str:
    return word


@app.task("maker")
def maker(word: str) -> int:
    return leaf.enqueue(word=word).id


@app.task("waits.process", retry=0)
def waits_in_process(timeout: float | None = None) -> str:
    return str(leaf.enqueue().result(timeout))


@app.task("waits.thread", isolation="thread", retry=0)
def waits_in_thread() -> str:
    return str(leaf.enqueue().result())


@app.task("waits.async", retry=0)
async def waits_in_loop() -> str:
    return str(leaf.enqueue().result())


@app.task("waits.itself", retry=3)
def waits_for_itself(ctx: Context) -> str:
    return str(app.job(ctx.job_id).result())


@app.task("waits.target", retry=0)
def waits_for_target() -> str:
    return str(leaf.using(target="printer").enqueue().result())


@app.task("hands.on")
def hands_on(ctx: Context, word: str) -> int:
    return ctx.enqueue(leaf.using(priority=5), word=word).id


@app.task("waits.at.desk", retry=0, on_error="fail")
def waits_at_desk() -> str:
    return str(leaf.enqueue().result())


@app.task("waits.for.desk", retry=0)
def waits_for_desk() -> str:
    return str(waits_at_desk.using(target="printer").enqueue().result())
