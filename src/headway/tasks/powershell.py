"""The built-in task `powershell`: runs a script with `pwsh`, like a command."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from headway.engine.execution.context import Context
from headway.engine.tasks.signature import Rule
from headway.errors import BadInput
from headway.tasks.command import run_command
from headway.tasks.common import BuiltIn, check

# A job sends no telemetry, and does not wait for an update check.
_QUIET = {"POWERSHELL_TELEMETRY_OPTOUT": "1", "POWERSHELL_UPDATECHECK": "Off"}


def _script_problem(script: str) -> str | None:
    return None if script.strip() else "is empty: give the text of the script"


def run_powershell(
    ctx: Context,
    script: Annotated[str, Rule(_script_problem)],
    args: list[str] | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    ok_exit_codes: list[int] | None = None,
) -> dict[str, int]:
    """Runs a PowerShell script to its end. `args` are passed unchanged."""
    check("script", _script_problem(script))
    program = shutil.which("pwsh")
    if program is None:
        raise BadInput(
            "PowerShell is not installed here: no program named pwsh is on the worker's PATH; install it, or let a"
            " worker that has it serve the task (headway work --tasks powershell)",
            code="bad_params",
        )
    # The script is a file, because arguments after -Command would become part of the script.
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        file = Path(folder, "script.ps1")
        file.write_text(script, "utf-8")
        argv = [program, "-NoLogo", "-NoProfile", "-NonInteractive", "-File", str(file), *(args or [])]
        return run_command(ctx, argv, cwd, {**_QUIET, **(env or {})}, ok_exit_codes=ok_exit_codes)


powershell = BuiltIn("powershell", run_powershell)
