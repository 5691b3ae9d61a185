"""Everything at once: cuts, freezes, kills, forks, blocked loops, restarts and a pooler in between. Nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.figures import Figure
from tests.system.support.chaos import Plan, run
from tests.system.support.chaos_faults import KINDS

pytestmark = pytest.mark.alone

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
PLAN = Plan(seed=4711, seconds=600.0, jobs=20_000, drain=600.0) if PROOF else Plan(seed=4711)


def test_nothing_is_lost_in_chaos(tmp_path: Path, figure: Figure) -> None:
    result = run(PLAN, tmp_path)
    figure(f"chaos on postgres, seed {PLAN.seed}, {PLAN.seconds:g} s, {PLAN.workers} workers\n{result.table()}")
    assert result.wrong == []
    assert [kind for kind in KINDS if not result.faults[kind]] == []
