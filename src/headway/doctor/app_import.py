"""Imports the app for `doctor` in a child process.

The app may hang, exit or write to stdout; the other checks still run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from headway.cli.database.open import load_app
from headway.errors import BadInput, HeadwayError
from headway.model.checks import Answer, broken, look, ok

# An app may import slow libraries.
SECONDS = 20.0
# The child searches for modules where this process does.
_PROGRAM = """\
import sys
where, *sys.path = sys.argv[1:]
del sys.argv[1:]
from headway.doctor.app_import import tell
tell(where)
"""


def app(where: str | None, own: set[str]) -> Answer:
    """Checks that the app can be imported; adds the names of its tasks to `own`."""
    if where is None:
        return ok("no app is named: a worker started here has the built-in tasks only")
    try:
        report = _imported(where)
    except subprocess.TimeoutExpired:
        return broken(f"importing {where} takes longer than {SECONDS:g} s", "find out what its import waits for")
    if report is None:
        return broken(
            f"{where} ends its process when it is imported", "put the code that it runs under `if __name__ == …`"
        )
    if "error" in report:
        raise BadInput(report["error"], hint=report["hint"], field="app")
    mine = len(set(report["tasks"]) - own)
    own.update(report["tasks"])
    if not mine:
        return look(f"{where} has no tasks of its own", "declare them with `@app.task`")
    return ok(f"{where} has {mine} task{'s' if mine > 1 else ''}")


def _imported(where: str) -> dict[str, Any] | None:
    """Imports the app in a child process; returns None if the app exited."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, where, *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    return json.loads(ended.stdout) if ended.stdout else None


def tell(where: str) -> None:
    """Writes the names of the app's tasks, or its error, to stdout as JSON.

    Output of the app itself goes to stderr, so that stdout holds nothing but the report.
    """
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        report: dict[str, Any] = {"tasks": sorted(load_app(where).tasks)}
    except HeadwayError as error:
        report = {"error": error.problem, "hint": error.hint}
    except SystemExit:
        return
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        report = {"error": f"{where} cannot be imported: {type(error).__name__}", "hint": "correct it"}
    os.write(answer, json.dumps(report).encode())
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the app may have closed or replaced them
            stream.flush()
    os._exit(0)  # threads of the app may never end
