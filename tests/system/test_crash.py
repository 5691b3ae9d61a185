"""kill -9 at every commit boundary and around every outside effect; then a restart, and nothing may be wrong.

Each test prints its figure. `HEADWAY_PROOF=1` makes about ten times as many histories.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.figures import Figure
from tests.system.support import (  # noqa: F401 (they add theirs)
    access_scripts,
    hook_scripts,
    labels,
    plan_scripts,
    sabotage,
    scripts,
)
from tests.system.support.crash import Answer, Case
from tests.system.support.servers import Servers, servers

pytestmark = pytest.mark.alone

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
SEEDS = range(1, 161) if PROOF else range(1, 9)


@dataclass
class Tally:
    """What a run of many histories came to."""

    cases: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, case: Case, answer: Answer) -> None:
        self.cases += 1
        self.killed.update(answer.killed)
        where = f"{case.script} killed at {case.kills} ({', '.join(answer.killed)}), style {case.style}"
        self.wrong += [f"{where}: {text}" for text in answer.wrong]

    @property
    def kills(self) -> int:
        return self.killed.total()

    def report(self, figure: Figure, what: str) -> None:
        figure(f"{what}: {self.kills:,} kills in {self.cases:,} histories, {len(self.wrong)} findings")
        assert not self.wrong, "\n".join(self.wrong[:20])


class Scene(NamedTuple):
    """One kind of database, and which points each script passes there when nobody disturbs it."""

    base: Case
    points: dict[str, list[str]]

    def every_point(self, *, every: int = 1) -> Iterator[Case]:
        """A kill at each point of each script (or at each `every`-th, beginning at another one in each script)."""
        wanted = {name: points for name, points in self.points.items() if PROOF or not name.startswith("mixed")}
        for n, (name, points) in enumerate(wanted.items()):
            for kill in range(1 + n % every, len(points) + 1, every):
                if points[kill - 1].startswith("migrate.") and name not in scripts.FROM_NOTHING:
                    continue  # in a database that has its schema these change nothing: one script dies at them
                stepping = name in scripts.STEPPING_ONLY or kill % 3 != 0
                yield replace(self.base, script=name, kills=(kill,), style=kill, stepping=stepping)

    def again_and_again(self, how_many: int) -> Iterator[Case]:
        """Crash, restart, crash in the restart, up to three times in a row."""
        rng = Random(17)
        for n in range(how_many):
            name = rng.choice(["crowd", *self.points] if n % 2 else [f"mixed-{seed}" for seed in SEEDS])
            first = 0 if name == "crowd" else rng.randint(1, len(self.points[name]))
            again = tuple(rng.randint(1, 24) for _ in range(rng.randint(1, 3)))
            yield replace(self.base, script=name, kills=(first, *again), style=n)


@pytest.fixture(scope="module")
def forks(scratch: Path) -> Iterator[Servers]:
    with servers(scratch) as running:
        yield running


@pytest.fixture(scope="module")
def sqlite(sqlite_template: Path, forks: Servers) -> Scene:
    return undisturbed(forks, Case("", template=str(sqlite_template)))


@pytest.fixture(scope="module")
def postgres(postgres_server: str, postgres_template: str, forks: Servers) -> Scene:
    return undisturbed(forks, Case("", server=postgres_server, template=postgres_template))


def undisturbed(forks: Servers, base: Case) -> Scene:
    names = [*scripts.SCRIPTS, *(f"mixed-{seed}" for seed in SEEDS)]
    tally = Tally()
    cases = [replace(base, script=name, style=n) for n, name in enumerate(names)]
    points = {case.script: answer.points for case, answer in run(forks, tally, cases)}
    assert not tally.wrong, "\n".join(tally.wrong[:20])
    return Scene(base, points)


def run(forks: Servers, tally: Tally, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
    for case, answer in forks.run(cases):
        tally.add(case, answer)
        yield case, answer


def run_all(forks: Servers, cases: Iterable[Case]) -> Tally:
    tally = Tally()
    for _ in run(forks, tally, cases):
        pass
    return tally


def test_sqlite_survives_a_kill_at_every_point(forks: Servers, sqlite: Scene, figure: Figure) -> None:
    tally = run_all(forks, sqlite.every_point())
    tally.report(figure, "SQLite, every point")
    assert tally.kills >= (10_000 if PROOF else 1_000)
    never = {point for name in scripts.SCRIPTS for point in sqlite.points[name]} - tally.killed.keys()
    assert not never, f"nothing was killed at {sorted(never)}"


def test_sqlite_survives_one_crash_after_the_other(forks: Servers, sqlite: Scene, figure: Figure) -> None:
    tally = run_all(forks, sqlite.again_and_again(3000 if PROOF else 120))
    tally.report(figure, "SQLite, crash after crash")


def test_postgres_survives_a_kill_at_any_point(forks: Servers, postgres: Scene, figure: Figure) -> None:
    tally = run_all(forks, postgres.every_point(every=1 if PROOF else 6))
    tally.report(figure, "PostgreSQL, every point" if PROOF else "PostgreSQL, every sixth point")
    assert tally.kills >= (2_000 if PROOF else 200)


def test_postgres_survives_one_crash_after_the_other(forks: Servers, postgres: Scene, figure: Figure) -> None:
    tally = run_all(forks, postgres.again_and_again(600 if PROOF else 30))
    tally.report(figure, "PostgreSQL, crash after crash")


def test_the_scripts_pass_every_fault_point_of_the_source(sqlite: Scene, postgres: Scene) -> None:
    everywhere, alone = labels.labels()
    assert everywhere
    assert alone
    for scene, not_here in ((sqlite, labels.POSTGRES_ONLY), (postgres, set())):
        passed = {point for points in scene.points.values() for point in points}
        never = (everywhere | alone) - passed - not_here
        assert not never, f"no script passes {sorted(never)}"


@pytest.mark.parametrize("bug", sabotage.ALL)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_known_bug_is_caught(
    forks: Servers, request: pytest.FixtureRequest, kind: str, bug: str, figure: Figure
) -> None:
    scene: Scene = request.getfixturevalue(kind)
    name = sabotage.WHERE[bug]
    base = replace(scene.base, script=name, sabotage=bug)
    tally = Tally()
    worst = [scene.points[name].index(sabotage.AT[bug]) + 1] if bug in sabotage.AT else [0]
    for kill in (*worst, *range(1, len(scene.points[name]) + 1, 5)):
        for _, answer in run(forks, tally, [replace(base, kills=(kill,), style=kill)]):
            assert not any("sabotage.py" in text for text in answer.broken), "\n".join(answer.broken)
        if tally.wrong:
            break
    figure(f"{bug} ({kind}): found in {tally.cases} histories of {name}: {tally.wrong[0].splitlines()[-1][-150:]}")
    assert tally.wrong
