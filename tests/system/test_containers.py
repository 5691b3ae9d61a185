"""Two containers with the same host name and process numbers on one database: neither takes the other for dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.support.started import FILE, Program, Site, site, until

pytestmark = pytest.mark.alone

LEASE = 6.0
WISHES = {"lease": LEASE, "heartbeat": 0.5, "grace": 5.0, "recovery": 0.3, "slots": 1}
# A process namespace and a host name of its own, as a container has them; the program is process 1 in it.
CONTAINER = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
CONTAINER += ["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-c", 'hostname twin; exec "$@"', "sh"]


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def start(here: Site, name: str) -> Program:
    log = here.folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*CONTAINER, sys.executable, str(FILE), json.dumps(WISHES)],
            env=os.environ | {"HEADWAY_DATABASE": here.url, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=here.folder,
            stdin=subprocess.DEVNULL,
            stderr=out,
        )
    started = Program(process, log)
    here.stack.callback(started.end)
    return started


def workers(here: Site) -> list[tuple[str, int, str, int]]:
    """Host, process number, boot and beats of those that live."""
    with here.app.database.read() as tx:
        rows = tx.connection.execute(  # type: ignore[attr-defined]
            "select host, pid, boot, beat from hw_worker where gone_at is null and kind = 'worker' order by started_at"
        )
        return [(host, pid, boot, beat) for host, pid, boot, beat in rows.fetchall()]


def test_neither_takes_the_other_for_dead_and_none_kills_the_others_processes(here: Site) -> None:
    first = start(here, "first")
    one = here.enqueue("waits.process", "one")
    here.await_began("one")
    start(here, "second")
    two = here.enqueue("waits.process", "two")
    here.await_began("two")
    twins = workers(here)
    assert [(host, pid) for host, pid, _, _ in twins] == [("twin", 1), ("twin", 1)]
    assert len({boot for _, _, boot, _ in twins}) == 2
    assert here.lines("one.began")[0][1] == here.lines("two.began")[0][1], "the tasks have the same process number, too"

    beats = [beat for *_, beat in twins]
    until(lambda: all(now[3] > then + 5 for now, then in zip(workers(here), beats, strict=True)))
    assert (one.status, two.status) == ("RUNNING", "RUNNING"), "several rounds of recovery of both"

    first.kill()
    here.go("one")
    retried = here.await_retry(one)
    assert here.await_state(one, "FAILED") == "FAILED"
    assert one.row.failure_kind == "LOST"
    assert two.status == "RUNNING", "its process has the number of the one that was lost"
    here.go("two")
    assert here.await_state(two, "COMPLETED") == "COMPLETED"
    assert here.await_state(retried, "COMPLETED") == "COMPLETED"
    assert len(here.lines("two.began")) == 1
    assert here.findings() == []
