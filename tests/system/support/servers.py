"""Runs many cases on a few fork servers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from tests.support.deadlines import read_line
from tests.system.support.crash import Answer, Case

ROOT = Path(__file__).parents[3]
COUNT = 2
SECONDS = 300.0  # for one case


class Servers:
    """Fork servers, each for one case at a time."""

    def __init__(self, scratch: Path, count: int = COUNT) -> None:
        self.idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self.all = [_start(scratch) for _ in range(count)]
        for server in self.all:
            self.idle.put(server)

    def run(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        with ThreadPoolExecutor(len(self.all)) as pool:
            yield from pool.map(self._one, cases)

    def _one(self, case: Case) -> tuple[Case, Answer]:
        server = self.idle.get()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(asdict(case)) + "\n")
            server.stdin.flush()
            return case, Answer(**json.loads(read_line(server.stdout, f"the answer to {case}", seconds=SECONDS)))
        finally:
            self.idle.put(server)

    def close(self) -> None:
        for server in self.all:
            server.communicate(timeout=60)


def _start(scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.system.support.crash", str(scratch)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@contextmanager
def servers(scratch: Path) -> Iterator[Servers]:
    running = Servers(scratch)
    try:
        yield running
    finally:
        running.close()
