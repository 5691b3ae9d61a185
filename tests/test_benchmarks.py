"""One tiny iteration of every benchmark, so that they do not rot. It measures nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_benchmark_still_runs():
    command = [sys.executable, "-m", "benchmarks", "--quick", "--roles", "ours,raw"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not built" not in done.stdout
