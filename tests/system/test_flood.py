"""Floods of half-sent requests and of answers that are not read, against a whole Headway with few descriptors."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headway.api.http.sse import StreamLimits
from headway.app import App
from headway.testing import isolated
from tests.support import shop
from tests.support.cli import PATIENCE, line_of, running
from tests.support.figures import Figure
from tests.support.scratch import scratch_directory
from tests.support.sockets import HALF_BODY, HALF_HEAD, ask, connect, connected, still_open
from tests.support.waiting import until

FLOOD = 1_100
# What the connections of a wave send, in turns. Each leaves its place to a whole request.
LONG_ANSWER = b"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
WAVES = {
    "head": [HALF_HEAD],
    "body": [HALF_BODY],
    "nothing": [b""],
    "reader": [LONG_ANSWER],
    "readers and heads": [LONG_ANSWER, HALF_HEAD],
    "all": [LONG_ANSWER, HALF_BODY, b"", HALF_HEAD],
}
ROUNDS = 20 if os.environ.get("HEADWAY_PROOF") else 1
FLOODED = "half-sent requests, silent connections and stalled readers"
DESCRIPTORS = 400
# So few that a quarter of them, and the places beyond the limit, are all that can be spared.
FEW = 128
SLOTS, JOBS = 4, 12


def limited(descriptors: int) -> tuple[str, ...]:
    """Starts a program with a soft limit below the hard one, as many systems have it."""
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors // 2}, {descriptors}));"
    return (sys.executable, "-c", f"import os, resource, sys;{limit}os.execv(sys.argv[1], sys.argv[1:])")


@pytest.fixture
def folder(scratch: Path) -> Iterator[Path]:
    with scratch_directory(root=scratch) as path:
        yield path


@pytest.fixture
def app(sqlite_url: str) -> Iterator[App]:
    with isolated(shop.app, sqlite_url) as app:
        yield app


@pytest.fixture
def descriptors() -> Iterator[None]:
    """This process may have as many connections as a wave."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, FLOOD + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers_soon(url: str, path: str) -> None:
    began = time.monotonic()
    assert ask(url, path, peer="127.1.0.1").startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 5


@pytest.mark.alone
@pytest.mark.usefixtures("descriptors")
def test_waves_of_every_kind_stop_nothing(app: App, sqlite_url: str, folder: Path, figure: Figure) -> None:
    """Two peers take every place in each wave. Each address sends one wave, as its closed ports stay taken."""
    args = ("up", "--json", "--app", "tests.support.shop:app")
    with running(*args, cwd=folder, database=sqlite_url, prefix=limited(DESCRIPTORS)) as process:
        url = json.loads(line_of(process.stdout, "started"))["url"]
        for number, (kind, sent) in enumerate(list(WAVES.items()) * ROUNDS):
            peers = [f"127.{place}.{number // 250}.{number % 250 + 1}" for place in (2, 3)]
            with ExitStack() as stack:
                flood = []
                for each in sent:
                    buffer = 4096 if each is LONG_ANSWER else None
                    for peer in peers:
                        wave = connected(url, FLOOD // 2 // len(sent), each, peer=peer, buffer=buffer)
                        flood += stack.enter_context(wave)
                    for path in ("/healthz", "/api/jobs"):
                        answers_soon(url, path)
                assert app.enqueue("shop.greet", {"name": kind}).result(timeout=PATIENCE)
                # Connections that the kernel has taken count until the server has closed them, too.
                until(lambda flood=flood: still_open(flood) <= DESCRIPTORS // 4, "that a quarter is open")  # type: ignore[misc]
            figure(FLOODED, len(flood))
            until(lambda: ask(url, "/api/jobs", peer="127.1.0.1").startswith(b"HTTP/1.1 200"), "that there is room")
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    assert len(said) < 10_000 * ROUNDS, said[:2_000]


@pytest.mark.alone
@pytest.mark.usefixtures("descriptors")
def test_a_flood_of_half_sent_requests_stops_nothing(app: App, sqlite_url: str, folder: Path, figure: Figure) -> None:
    """1,100 half-sent heads once stopped the API, the probes and the worker, and wrote 4 MB of log a second."""
    args = ("up", "--json", "--app", "tests.support.shop:app")
    with running(*args, cwd=folder, database=sqlite_url, prefix=limited(DESCRIPTORS)) as process:
        url = json.loads(line_of(process.stdout, "started"))["url"]
        with connected(url, FLOOD, HALF_HEAD) as flood:
            for path in ("/healthz", "/api/jobs"):
                began = time.monotonic()
                assert ask(url, path).startswith(b"HTTP/1.1 200")
                assert time.monotonic() - began < 5
            assert app.enqueue("shop.greet", {"name": "Ada"}).result(timeout=PATIENCE)
            assert still_open(flood) <= DESCRIPTORS // 4
            deadline = time.monotonic() + 15
            while still_open(flood):
                assert time.monotonic() < deadline, "half-sent requests are closed after 10 s"
                time.sleep(0.2)
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    assert len(said) < 10_000, said[:2_000]
    figure(FLOODED, FLOOD)


@pytest.mark.alone
def test_a_full_server_leaves_descriptors_for_the_worker(
    app: App, sqlite_url: str, folder: Path, figure: Figure
) -> None:
    """Every connection is taken, some of them by streams, while every slot starts a process: no job is interrupted."""
    stream = b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    args = ("up", "--json", "--app", "tests.support.shop:app", "--slots", str(SLOTS))
    with running(*args, cwd=folder, database=sqlite_url, prefix=limited(FEW)) as process, ExitStack() as stack:
        url = json.loads(line_of(process.stdout, "started"))["url"]
        for n in range(StreamLimits.under(FEW // 4).caller):
            follower = stack.enter_context(connect(url, stream, peer=f"127.0.0.{n % 2 + 1}"))
            assert follower.recv(12) == b"HTTP/1.1 200"
        for n in (1, 2):
            stack.enter_context(connected(url, FEW // 2, HALF_HEAD, peer=f"127.0.0.{n}"))
        jobs = [app.enqueue("shop.greet", {"name": str(n), "times": 3}) for n in range(JOBS)]
        used = 0
        for job in jobs:
            until(lambda: job.row.status.terminal, "that the job has ended")  # noqa: B023
            used = max(used, len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
        assert [job.status for job in jobs] == ["COMPLETED"] * JOBS
    figure(FLOODED, FEW + StreamLimits.under(FEW // 4).caller)
    figure(f"a full server with {SLOTS} slots uses {used} of {FEW} descriptors")
