"""Tasks that look for what belongs to Headway: its address, its tokens, its secrets. Real processes, not root."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway import App, Job
from headway.testing import isolated
from tests.support import tasks_for_intruders
from tests.support.cli import environment, program, running
from tests.support.waiting import PATIENCE, until

CANARY = "canary-secret-4711"
NOBODY = 65534
# Not root, as a service is. The one capability lets it read an interpreter in a home folder that is closed to others.
READS = "-all,+dac_read_search"
AS_NOBODY = [
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *(f"--inh-caps={READS}", f"--ambient-caps={READS}", f"--bounding-set={READS}"),
]
AS_USER = AS_NOBODY if os.getuid() == 0 else []
# Reads all that the system shows of the process that started it, of the worker above, and of the worker's children.
INTRUDER = """
import ctypes, os, re, subprocess, sys
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(") ")[2].split()[1])
child = os.getppid()
worker = parent(child)
def all_processes():
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and (int(name) == worker or parent(name) == worker):
                yield int(name)
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
for pid in all_processes():
    kind = "worker" if pid == worker else "child" if pid == child else "sibling"
    found = ["seen", kind]
    for what in ("environ", "maps"):
        try:
            print(open(f"/proc/{pid}/{what}", errors="replace").read().replace(chr(0), chr(10)))
            found.append(what)
        except OSError:
            pass
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            print(os.readlink(f"/proc/{pid}/fd/{number}"))
            found.append("fd")
    except OSError:
        pass
    if pid != child:
        try:
            open(f"/proc/{pid}/mem", "rb").close()
            found.append("mem")
        except OSError:
            pass
        if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE
            found.append("ptrace")
    print(" ".join(dict.fromkeys(found)))
ended = subprocess.run(
    [sys.executable, "-m", "headway", "tokens", "create", "evil", "--role", "admin", "--system"],
    capture_output=True, text=True,
)
print("tokens", ended.returncode, ended.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path, database_url: str) -> Path:
    """The working folder of the worker, and the files that are its user's."""
    home = [] if "://" in database_url else [Path(database_url).parent]
    if os.getuid() == 0:
        for path in (tmp_path, *home, *(file for folder in home for file in folder.iterdir())):
            os.chown(path, NOBODY, NOBODY)
    return tmp_path


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with isolated(tasks_for_intruders.app, database_url) as app:
        yield app


@contextmanager
def worker(database_url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    secrets = json.dumps({"KEY": "env:THE_KEY", "FILE": f"file:{folder}/secret"})
    (folder / "secret").write_text("from a file")
    more = {"HEADWAY_DATABASE": database_url, "HEADWAY_SECRETS": secrets, "THE_KEY": CANARY, "HEADWAY_TOKEN": CANARY}
    user = {"OPENAI_API_KEY": "mine", "CUDA_VISIBLE_DEVICES": "1", "HOME": str(folder)}
    args = ("work", "--app", "tests.support.tasks_for_intruders:app", "--slots", "2")
    with running(*args, cwd=folder, prefix=AS_USER, **more, **user) as process:
        yield process


def ended(app: App, task: str, **params: Any) -> Any:
    job = app.enqueue(task, params, retry=0)
    return job, job.result(60)


def lines(app: App, job_id: int) -> list[str]:
    with app.database.read() as tx:
        chunks = tx.run("read_log", job_id=job_id, after=0, limit=1000)
    return [line[2] for _, _, text in chunks for line in json.loads(text)]


def test_a_command_reads_nothing_of_the_worker_and_makes_no_token(app: App, database_url: str, folder: Path) -> None:
    with worker(database_url, folder):
        job, _ = ended(
            app, "command", argv=[sys.executable, "-c", INTRUDER], env={"PYTHONPATH": os.pathsep.join(sys.path)}
        )
    said = lines(app, job.id)
    text = "\n".join(said)
    seen = {line.split()[1]: line.split()[2:] for line in said if line.startswith("seen ")}
    assert seen.keys() == {"worker", "child", "sibling"}, "the heartbeat is the sibling"
    assert "environ" in seen["child"], "the attack works where nothing prevents it"
    assert seen["worker"] == seen["sibling"] == [], text
    assert database_url not in text
    assert CANARY not in text
    (tried,) = (line for line in said if line.startswith("tokens "))
    assert "HEADWAY_DATABASE: is not passed on to the programs of a job" in text, tried
    assert app.client.tokens.list(everywhere=True) == []


# Reads the arguments of every process of the machine, as a process of any user may, and tells those of Headway.
READER = """
import os
for name in filter(str.isdecimal, os.listdir("/proc")):
    try:
        words = open(f"/proc/{name}/cmdline", errors="replace").read().split(chr(0))
    except OSError:
        continue
    if "headway" in " ".join(words) and words[1:2] != ["-c"]:
        print("arguments", *words)
"""


def test_no_process_has_the_password_of_the_database_in_its_arguments(postgres_url: str, folder: Path) -> None:
    """The attack of every user of the machine: the password opens the database, and makes a token of the system."""
    address = f"{postgres_url}{'&' if '?' in postgres_url else '?'}password={CANARY}"
    for verb in (["up"], ["work", "--burst"], ["dev", "tests.support.tasks_for_intruders:app"]):
        refused = program(*verb, cwd=folder, database=address).refused(2, "--database", "HEADWAY_DATABASE")
        assert CANARY not in refused.out + refused.err
    with isolated(tasks_for_intruders.app, postgres_url) as app, worker(address, folder) as process:
        job, _ = ended(app, "command", argv=[sys.executable, "-c", READER])
        said = lines(app, job.id)
        assert any("work --app" in line for line in said), (process.pid, said)
    assert CANARY not in "\n".join(said)


def test_a_task_keeps_the_users_variables_and_gets_none_of_headways(app: App, database_url: str, folder: Path) -> None:
    with worker(database_url, folder):
        _, found = ended(app, "look.around")
        _, placed = ended(app, "place.another")
        app.job(placed).result(60)
        _, (code, told) = ended(app, "ask.outside")
    for environ in found.values():
        assert environ["OPENAI_API_KEY"] == "mine"
        assert environ["CUDA_VISIBLE_DEVICES"] == "1"
        assert {"HEADWAY_DATABASE", "HEADWAY_TOKEN", "THE_KEY"}.isdisjoint(environ)
        assert CANARY not in str(environ)
        assert database_url not in str(environ)
    assert code == 2
    assert "name the database in headway.toml or with --database" in told


EMBEDDED = """
import asyncio, os, sys
import psutil
from headway import App
app = App(sys.argv[1])
async def main():
    async with app.lifespan():
        below = [child.pid for child in psutil.Process().children()]
        while any(os.stat(f"/proc/{pid}/environ").st_uid for pid in below):
            await asyncio.sleep(0.02)
        print(len(below), open("/proc/self/environ").read().count("canary"), os.stat("/proc/self/environ").st_uid)
asyncio.run(main())
"""


def test_a_program_of_your_own_stays_open_and_its_heartbeat_is_closed(database_url: str, folder: Path) -> None:
    ended = subprocess.run(
        [*AS_USER, sys.executable, "-c", EMBEDDED, database_url],
        cwd=folder,
        env=environment(THE_KEY=CANARY, HEADWAY_SECRETS='{"KEY": "env:THE_KEY"}'),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    user = NOBODY if os.getuid() == 0 else os.getuid()
    assert ended.stdout.split() == ["1", "1", str(user)], (
        "the heartbeat's files are root's, those of the program are not"
    )


def daemon_of(app: App, file: Path, *, stays: bool) -> tuple[int, Job]:
    """A job that leaves a process with a session and an environment of its own behind."""
    start = f"setsid sh -c 'echo $$ > {file}; exec env -i sleep 600' & while ! test -s {file}; do sleep 0.02; done"
    script = f"{start}; sleep 600" if stays else start
    job = app.enqueue("command", {"argv": script, "shell": True}, retry=0)
    until(lambda: file.exists() and file.read_text().strip(), "the daemon runs")
    return int(file.read_text()), job


def test_a_worker_that_nobody_may_look_into_ends_what_its_jobs_leave(app: App, database_url: str, folder: Path) -> None:
    """Headway itself finds processes in /proc: it goes on without the files that are root's now."""
    with worker(database_url, folder) as process:
        for stays in (False, True):
            pid, job = daemon_of(app, folder / f"daemon-{stays}", stays=stays)
            if stays:
                job.cancel()
            until(partial(lambda job: job.row.status.terminal, job), "the job has ended")
            until(partial(lambda pid: not Path(f"/proc/{pid}").exists(), pid), "the daemon has ended")
        waiting = app.enqueue("command", {"argv": ["sleep", "600"]}, retry=0)
        until(lambda: waiting.status == "RUNNING")
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    with worker(database_url, folder):  # recovers at once, because it sees that the first one is gone
        until(lambda: waiting.status != "RUNNING")
