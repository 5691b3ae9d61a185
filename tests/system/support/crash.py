"""A warm fork server: it has imported everything and opened no database. Each case is run in processes forked from it.

`python -m tests.system.support.crash` reads one case per line from its standard input and answers each with one line.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import psycopg
from psycopg import sql

# Now, so that no forked process has to.
import headway.config
import headway.store.postgres.database
import headway.store.sqlite.database  # noqa: F401
from headway import fault_points
from headway.engine.worker import heartbeat
from headway.store.postgres import fragments as postgres
from headway.store.sqlite import fragments as sqlite
from tests.support.postgres import _address
from tests.system.support import access_scripts, hook_scripts, plan_scripts, promises, sabotage, scripts  # noqa: F401 (they add theirs)
from tests.system.support.world import Fact, World

HANGS = 60.0


@dataclass(frozen=True)
class Case:
    """One history: a script, killed at its point number `kills[0]`, restarts killed at theirs, and a last restart.

    A kill of 0 lets the process run to its end. `server` is an admin dsn of PostgreSQL; without one it is SQLite.
    """

    script: str
    kills: tuple[int, ...] = (0,)
    style: int = 0
    stepping: bool = True
    server: str | None = None
    template: str | None = None
    sabotage: str | None = None


@dataclass
class Answer:
    """What came of a case. `points` are those the first process passed, `killed` where the processes died."""

    points: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return self.findings + self.broken


class Trail:
    """Passes points, telling each, and dies at the n-th."""

    def __init__(self, count: int, say: Callable[[Fact], None]) -> None:
        self.left = count
        self.say = say

    def __call__(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.say({"killed": name})
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(HANGS)  # the signal is on its way: nothing more may happen
        self.say({"point": name})


class Ground:
    """Where a case takes place: a folder in memory, and in it, or on a server, a database of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.name = f"headway_crash_{os.getpid()}_{folder.name.rpartition('-')[2].lower()}"
        self.url = _address(case.server, self.name) if case.server else str(folder / "headway.db")

    def prepare(self, answer: Answer, facts: list[Fact]) -> None:
        """The file of another database is copied, never opened: this process has to stay without one."""
        empty = self.case.script in scripts.FROM_NOTHING
        if self.case.server is None:
            if not empty:
                assert self.case.template is not None
                shutil.copyfile(self.case.template, self.url)
            return
        template = "template0" if empty else self.case.template or "template0"
        text = sql.SQL("create database {} template {}").format(sql.Identifier(self.name), sql.Identifier(template))
        _forked(answer, facts, lambda _: self._administer(text))

    def clear(self, answer: Answer, facts: list[Fact]) -> None:
        if self.case.server is not None:
            text = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(self.name))
            _forked(answer, facts, lambda _: self._administer(text))

    def _administer(self, text: sql.Composed) -> None:
        assert self.case.server is not None
        with psycopg.connect(self.case.server, autocommit=True) as admin:
            admin.execute(text)


def run_case(case: Case, root: Path) -> Answer:
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=root))
    ground = Ground(case, folder)
    answer = Answer()
    facts: list[Fact] = []
    try:
        ground.prepare(answer, facts)
        for phase, kill in enumerate(case.kills):
            _forked(answer, facts, lambda say, p=phase, k=kill: _phase(case, ground, say, p, k))  # type: ignore[misc]
        _forked(answer, facts, lambda say: _last(case, ground, say, facts))
        ground.clear(answer, facts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return answer


def _world(case: Case, ground: Ground, say: Callable[[Fact], None], phase: int) -> World:
    if case.sabotage is not None:
        sabotage.ALL[case.sabotage]()
    return World(ground.url, ground.folder, say=say, phase=phase, stepping=case.stepping)


def _phase(case: Case, ground: Ground, say: Callable[[Fact], None], phase: int, kill: int) -> None:
    world = _world(case, ground, say, phase)
    fault_points.arm(Trail(kill, say))
    if phase == 0:
        scripts.find(case.script)(world)
    else:
        scripts.restart(world, case.style + phase)


def _last(case: Case, ground: Ground, say: Callable[[Fact], None], facts: list[Fact]) -> None:
    """The last restart, which nobody disturbs, and the judgement."""
    known = list(facts)
    world = _world(case, ground, known.append, len(case.kills))
    scripts.restart(world, case.style)
    wrong = [f"job {job_id} was left undone" for job_id in scripts.unfinished(world)]
    found: list[str] = []
    if scripts.held(world):
        found += promises.findings(world, quiet=False)
        scripts.let_go(world)
    found += promises.findings(world, quiet=True)
    wrong += promises.judge(world, known)
    for text in found:
        say({"finding": text})
    for text in wrong:
        say({"wrong": text})


def _forked(answer: Answer, facts: list[Fact], act: Callable[[Callable[[Fact], None]], None]) -> None:
    """Runs one process to its end or its death, and takes down what it said."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _live(writing, act)
    os.close(writing)
    said, hung = _listen(reading)
    os.close(reading)
    if hung:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    for fact in said:
        _take_down(answer, facts, fact)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if hung or not (killed or status == 0):
        answer.broken.append(f"a process {'hung' if hung else f'ended with status {status}'}")


def _take_down(answer: Answer, facts: list[Fact], fact: Fact) -> None:
    match fact:
        case {"point": str(name)}:
            answer.points.append(name)
        case {"killed": str(name)}:
            answer.points.append(name)
            answer.killed.append(name)
        case {"finding": str(text)}:
            answer.findings.append(text)
        case {"wrong": str(text)}:
            answer.broken.append(text)
        case _:
            facts.append(fact)


def _live(writing: int, act: Callable[[Callable[[Fact], None]], None]) -> NoReturn:
    def say(fact: Fact) -> None:
        os.write(writing, json.dumps(fact).encode() + b"\n")

    code = 0
    try:
        faulthandler.dump_traceback_later(HANGS - 10, exit=True)
        act(say)
    except BaseException:  # noqa: BLE001 (whatever ends the process is part of the answer)
        say({"wrong": traceback.format_exc()})
        code = 1
    os._exit(code)


def _listen(reading: int) -> tuple[list[Fact], bool]:
    data = b""
    deadline = time.monotonic() + HANGS
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(reading, 1 << 16) if ready else b""
        if not chunk:
            whole, _, _ = data.rpartition(b"\n")
            return [json.loads(line) for line in whole.splitlines()], not ready
        data += chunk


def serve(root: Path) -> None:
    heartbeat.say = lambda message: None  # a beat without a process has nobody to tell
    for made in (sqlite.texts(), postgres.texts(frozen=False), postgres.texts(frozen=True)):
        assert made  # once, for every process that will be forked
    gc.freeze()  # what is here now is not looked at, and so not copied, in the forked processes
    for line in sys.stdin:
        fields: dict[str, Any] = json.loads(line)
        answer = run_case(Case(**{**fields, "kills": tuple(fields["kills"])}), root)
        print(json.dumps(asdict(answer)), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
