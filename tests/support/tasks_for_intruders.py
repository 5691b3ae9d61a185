"""Tasks that look around in their process: what they inherit, and what the programs they start inherit."""

from __future__ import annotations

import os
import subprocess
import sys

from headway import App, Context

app = App()


@app.task("look.around")
def look_around() -> dict[str, dict[str, str]]:
    told = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True).stdout
    with open("/proc/self/environ") as file:
        started = file.read()
    return {
        "python": dict(os.environ),
        "program": dict(line.split("=", 1) for line in told.split("\0") if line),
        "process": dict(line.split("=", 1) for line in started.split("\0") if line),
    }


@app.task("place.another", retry=0)
def place_another(ctx: Context) -> int:
    """Uses the app by its own object, which finds the database of the worker."""
    return app.enqueue("look.around").id


@app.task("ask.outside", retry=0)
def ask_outside() -> list[object]:
    """Uses the command line, which is another program."""
    ended = subprocess.run([sys.executable, "-m", "headway", "jobs", "ls"], capture_output=True, text=True, check=False)
    return [ended.returncode, ended.stderr]
