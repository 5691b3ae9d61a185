"""The app that `doctor` looks at is imported in a process of its own: it may hang, end its process, or write what it
likes, and the examination goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from headway.cli.opening import load_app
from headway.errors import BadInput, HeadwayError
from headway.model.diagnosis import Answer, broken, look, ok

# The tasks of an app may need much that is slow to import.
SECONDS = 20.0
# It finds modules where this process would.
_PROGRAM = """\
import sys
where, *sys.path = sys.argv[1:]
del sys.argv[1:]
from headway.cli.doctor_app import tell
tell(where)
"""


def app(where: str | None, own: set[str]) -> Answer:
    """Whether it can be imported. The names of its tasks are added to `own`."""
    if where is None:
        return ok("none is named: a worker started here has the built-in tasks only")
    try:
        found = _imported(where)
    except subprocess.TimeoutExpired:
        return broken(f"{where} is not imported within {SECONDS:g} s", "see what it waits for when it is imported")
    if found is None:
        return broken(f"{where} ends the program when it is imported", "put what it runs under `if __name__ == …`")
    if "error" in found:
        raise BadInput(found["error"], field="app")
    mine = len(set(found["tasks"]) - own)
    own.update(found["tasks"])
    if not mine:
        return look(f"{where} has no tasks of its own", "declare them with `@app.task`")
    return ok(f"{where} has {mine} task{'s' if mine > 1 else ''}")


def _imported(where: str) -> dict[str, Any] | None:
    """None if the process ended without a word."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, where, *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    return json.loads(ended.stdout) if ended.stdout else None


def tell(where: str) -> None:
    """Says on stdout what was found. What the app itself writes there goes to stderr: it is no data."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        found: dict[str, Any] = {"tasks": sorted(load_app(where).tasks)}
    except HeadwayError as error:
        found = {"error": str(error)}
    except SystemExit:
        return
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        found = {"error": f"{where} cannot be imported: {type(error).__name__}: correct it"}
    os.write(answer, json.dumps(found).encode())
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the app may have closed or replaced them
            stream.flush()
    os._exit(0)  # threads of the app may never end
