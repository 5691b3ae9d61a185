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

import pytest

from tests.support.postgres import fresh_database
from tests.system.support import labels, scripts
from tests.system.support.crash import Answer, Case, make_template
from tests.system.support.servers import Servers, servers

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
SEEDS = range(1, 61) if PROOF else range(1, 5)
# Scripts that start child processes take several times as long.
SLOW = {"processes"}


@dataclass
class Tally:
    """What a run of many histories came to."""

    cases: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    passed: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def add(self, case: Case, answer: Answer) -> None:
        self.cases += 1
        self.killed.update(answer.killed)
        self.passed.update(answer.points)
        where = f"{case.script} killed at {case.kills} ({', '.join(answer.killed)}), style {case.style}"
        self.wrong += [f"{where}: {text}" for text in answer.wrong]

    @property
    def kills(self) -> int:
        return self.killed.total()

    def report(self, capsys: pytest.CaptureFixture[str], what: str) -> None:
        with capsys.disabled():
            print(f"\n{what}: {self.kills:,} kills in {self.cases:,} histories, {len(self.wrong)} findings")
        assert not self.wrong, "\n".join(self.wrong[:20])


@pytest.fixture(scope="module")
def forks(scratch: Path) -> Iterator[Servers]:
    with servers(scratch) as running:
        yield running


@pytest.fixture(scope="module")
def sqlite(scratch: Path) -> Case:
    """A case on SQLite, still without a script."""
    template = scratch / "template.db"
    make_template(str(template))
    return Case("", template=str(template))


@pytest.fixture(scope="module")
def postgres(postgres_server: str) -> Iterator[Case]:
    with fresh_database(postgres_server) as url:
        make_template(url)
        name = url.removeprefix("postgresql:///").partition("?")[0]
        yield Case("", server=postgres_server, template=name)


def names() -> list[str]:
    return [*scripts.SCRIPTS, *(f"mixed-{seed}" for seed in SEEDS)]


def run(forks: Servers, tally: Tally, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
    for case, answer in forks.run(cases):
        tally.add(case, answer)
        yield case, answer


def undisturbed(forks: Servers, tally: Tally, base: Case) -> dict[str, int]:
    """Every script without a kill: how many points it passes."""
    cases = [replace(base, script=name, style=n) for n, name in enumerate(names())]
    return {case.script: len(answer.points) for case, answer in run(forks, tally, cases)}


def every_point(base: Case, counts: dict[str, int], *, every: int = 1) -> Iterator[Case]:
    """A kill at each point of each script (or at each `every`-th, beginning at another one in each script)."""
    for n, (name, count) in enumerate(counts.items()):
        for kill in range(1 + n % every, count + 1, every):
            stepping = name in scripts.STEPPING_ONLY or kill % 3 != 0
            yield replace(base, script=name, kills=(kill,), style=kill, stepping=stepping)


def repeated(base: Case, counts: dict[str, int], how_many: int) -> Iterator[Case]:
    """Crash, restart, crash in the restart, up to three times in a row."""
    rng = Random(17)
    for n in range(how_many):
        name = "crowd" if n % 2 else rng.choice(list(counts))
        first = 0 if name == "crowd" and n % 4 else rng.randint(1, counts[name])
        again = tuple(rng.randint(1, 24) for _ in range(rng.randint(1, 3)))
        yield replace(base, script=name, kills=(first, *again), style=n)


def test_sqlite_survives_a_kill_at_every_point(
    forks: Servers, sqlite: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    counts = undisturbed(forks, tally, sqlite)
    for _ in run(forks, tally, every_point(sqlite, counts)):
        pass
    tally.report(capsys, "SQLite, every point")
    assert tally.kills >= (10_000 if PROOF else 1_000)


def test_sqlite_survives_crashes_inside_recovery(
    forks: Servers, sqlite: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    counts = undisturbed(forks, Tally(), sqlite)
    for _ in run(forks, tally, repeated(sqlite, counts, 3000 if PROOF else 150)):
        pass
    tally.report(capsys, "SQLite, crash after crash")
