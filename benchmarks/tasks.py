"""The tasks that our contenders run, at the top of a module so that child processes can import them."""

from __future__ import annotations

import time

from headway import App

app = App()


@app.task("noop")
async def noop() -> None:
    pass


@app.task("plain")
def plain() -> None:
    pass


@app.task("stamp")
async def stamp() -> float:
    return time.time()


@app.task("stamp.other")
async def other_stamp() -> float:
    return time.time()


def app_at(url: str, *, kinds: int = 0) -> App:
    """The same tasks on a database; `kinds` adds more of them that do nothing."""
    other = App(database=url)
    for task in app.tasks.values():
        other.task(task.name)(task.function)
    for kind in range(kinds):
        other.task(f"kind.{kind}")(noop.function)
    return other
