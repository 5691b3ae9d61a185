"""A program that enqueues throughout the chaos run: `chaos_client.py '{"name": …, "rate": …, "seed": …}'`.

It writes into a file what it was told about each job, before and after. A line on its standard input makes it fork, or
block a loop, or end.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from headway import Job
from headway.errors import CommitUnknown, HeadwayError
from tests.support.deadlines import read_line
from tests.system.support.chaos_tasks import AGAIN, BLOCK_SECONDS, app

KINDS = ("walk.async", "walk.async", "walk.thread", "walk.process")
FORKED_JOBS = 8
# A forked client that has not finished its few jobs by then hangs.
HUNG_SECONDS = 40.0


@dataclass
class Diary:
    """What a client knows of its jobs: `begun WORD`, then `acked WORD JOB`, `unknown WORD` or `refused WORD`."""

    path: Path

    def __post_init__(self) -> None:
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *words: object) -> None:
        os.write(self.file, (" ".join(map(str, words)) + "\n").encode())


@dataclass
class Client:
    """Enqueues at a pace of its own, and catches up after it was held up."""

    name: str
    rate: float
    seed: int
    folder: str
    count: int = 0
    forks: int = 0
    children: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.seed} {self.name}")
        self.diary = Diary(Path(self.folder) / f"diary-{self.name}")

    def run(self) -> None:
        began, made = time.monotonic(), 0
        while True:
            due = began + made / self.rate
            if not self._obey(max(0.0, due - time.monotonic())):
                break
            if time.monotonic() >= due:
                made += 1
                self.enqueue()
            self._reap()
        while self.children:
            self._reap()
            time.sleep(0.05)

    def _obey(self, seconds: float) -> bool:
        """Waits, and does what it is told meanwhile. False: it was told to end."""
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return True
        match read_line(sys.stdin).strip():
            case "fork":
                self.fork()
            case "block":
                self.store(lambda word: app.tasks["block"].enqueue(word=word, seconds=BLOCK_SECONDS))
            case "":
                return False
        return True

    # --- one job ---

    def enqueue(self) -> None:
        dice = self.rng.random()
        if dice < 0.02:
            self.plan()
        elif dice < 0.05:
            self.keyed()
        else:
            job = self.store(lambda word: self._single(word, dice))
            if job is not None:
                self._meddle(job)

    def _single(self, word: str, dice: float) -> Job:
        task = self.rng.choice(KINDS)
        wishes: dict[str, Any] = {"priority": self.rng.randint(0, 3)}
        lane, steps = "-", 0
        if dice < 0.15:
            lane = f"target:{self.rng.randrange(8)}"
            held = self.rng.random() < 0.1
            wishes |= {"target": lane, "retry": 0 if held else AGAIN, "on_error": "hold" if held else "fail"}
            steps = self.rng.randint(0, 8)
        elif dice < 0.25:
            lane, steps = "resource:one", self.rng.randint(0, 2)
            wishes |= {"resources": ["one"]}
        elif dice < 0.30:
            lane, steps = "resource:two", self.rng.randint(0, 4)
            wishes |= {"resources": ["two"]}
        elif dice < 0.40:
            steps = self.rng.randint(10, 60)
        elif dice < 0.45:
            return app.tasks["stumble"].using(**wishes).enqueue(word=word)
        return app.tasks[task].using(**wishes).enqueue(word=word, lane=lane, steps=steps)

    def _meddle(self, job: Job) -> None:
        """A few jobs are cancelled or interrupted, whatever they do at that moment."""
        dice = self.rng.random()
        verb = "cancel" if dice < 0.02 else "interrupt" if dice < 0.03 else None
        if verb is not None:
            try:
                getattr(job, verb)()
            except HeadwayError as error:
                self.diary.write("meddled", job.id, verb, type(error).__name__)

    def keyed(self) -> None:
        """With a key it may be tried again until it is acknowledged."""
        task = app.tasks[self.rng.choice(KINDS)]
        self.count += 1
        word = f"{self.name}-{self.count}"
        for _ in range(20):
            if self.store(lambda word: task.using(key=word).enqueue(word=word), word=word) is not None:
                return

    def plan(self) -> None:
        def start(word: str) -> Any:
            steps = [app.tasks[kind].step(word=f"{word}.{n}", steps=n) for n, kind in enumerate(KINDS)]
            return app.plan(f"plan {word}").then(*steps[:2]).then(*steps[2:]).start()

        self.store(start)

    def store(self, make: Callable[[str], Any], *, word: str | None = None) -> Any:
        """Makes one job or one group under a word of its own, and notes what came of it."""
        if word is None:
            self.count += 1
            word = f"{self.name}-{self.count}"
        self.diary.write("begun", word)
        try:
            made = make(word)
        except CommitUnknown:
            self.diary.write("unknown", word)
            return None
        except HeadwayError as error:
            self.diary.write("refused", word, type(error).__name__)
            return None
        self.diary.write("acked", word, made.id)
        return made

    # --- forks ---

    def fork(self) -> None:
        """The child enqueues with the app that it inherited while the parent goes on, or after a parent has ended."""
        self.forks += 1
        orphan = self.rng.random() < 0.5
        pid = os.fork()
        if pid:
            self.children[pid] = time.monotonic()
            return
        status = 1
        try:
            self._live_on(f"{self.name}f{self.forks}", orphan=orphan)
            status = 0
        finally:
            os._exit(status)

    def _live_on(self, name: str, *, orphan: bool) -> None:
        self.children = {}
        if orphan and (pid := os.fork()):
            app.close()
            self.diary.write("orphan", pid)
            os.waitpid(pid, 0)
            return
        twin = Client(name, self.rate, self.seed, self.folder)
        for _ in range(FORKED_JOBS):
            twin.enqueue()
        app.close()
        twin.diary.write("forked", name)
        if orphan:
            os._exit(0)

    def _reap(self) -> None:
        for pid, since in list(self.children.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self.children[pid]
                if status:
                    self.diary.write("fork-failed", pid, status)
            elif time.monotonic() - since > HUNG_SECONDS:
                self.diary.write("fork-hung", pid)
                os.kill(pid, 9)


if __name__ == "__main__":
    Client(**json.loads(sys.argv[1])).run()
    app.close()
