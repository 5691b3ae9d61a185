"""Tasks that tell a secret in every way a task can. At the top of a module, so that child processes find them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from headway import App, Context, Fail, Skip

app = App()


def _tell(ctx: Context, token: str) -> None:
    ctx.log.info("the token is %s", token)
    ctx.log.warning({"token": token})
    ctx.report(1, 2, f"using {token}")
    ctx.checkpoint({"token": token, token: [f"<{token}>"]})


@app.task("tell")
def tell(ctx: Context, token: str, deep: dict[str, Any]) -> dict[str, Any]:
    _tell(ctx, token)
    print("printed", token)
    print("printed to stderr", token, file=sys.stderr)
    print(token * 2000)
    ctx.log.info("x" * 8190 + token)
    subprocess.run(["sh", "-c", 'echo "from below $0"; echo "$0" >&2', token], check=True)
    path = f"{os.environ['TOLD']}/{os.getpid()}.txt"
    with open(path, "w") as file:
        file.write("nothing")
    ctx.attach(path, f"{token}.txt")
    return {"token": token, "deep": deep, "key": {token: 1}, "length": len(token)}


@app.task("tell.async")
async def tell_async(ctx: Context, token: str) -> list[str]:
    _tell(ctx, token)
    return [token, token[::-1]]


@app.task("tell.bare")
async def tell_bare(token: str) -> str:
    return token


@app.task("tell.thread", isolation="thread")
def tell_thread(ctx: Context, token: str) -> str:
    _tell(ctx, token)
    return token


@app.task("fail", retry=0)
def fail(token: str, how: str) -> None:
    match how:
        case "raise":
            raise ValueError(f"bad token {token}", {"token": token})
        case "key":
            raise KeyError(token)
        case "long":
            raise ValueError("x" * 4080 + token)
        case "fail":
            raise Fail(f"no use of {token}")
        case "skip":
            raise Skip(f"nothing with {token}")
        case "exit":
            sys.exit(f"bye {token}")
        case "die":
            print("last words", token, file=sys.stderr, flush=True)
            os.kill(os.getpid(), 9)


@app.task("count", retry=0)
def count(number: int) -> int:
    return number
