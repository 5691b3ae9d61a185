"""Tasks that say once that they ran, with a secret, in a child, a thread and an event loop."""

from __future__ import annotations

from headway import App

app = App()


def _say(file: str, token: str) -> int:
    with open(file, "a") as out:
        out.write("ran\n")
    return len(token)


@app.task("room.child")
def in_child(file: str, token: str) -> int:
    return _say(file, token)


@app.task("room.thread", isolation="thread")
def in_thread(file: str, token: str) -> int:
    return _say(file, token)


@app.task("room.async")
async def in_loop(file: str, token: str) -> int:
    return _say(file, token)
