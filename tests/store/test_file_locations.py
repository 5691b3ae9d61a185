"""Where a SQLite file may be: not on a network file system; and a disk that is full, in every phase."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from headway.errors import Refused
from headway.model.values.file_systems import is_network, mounted
from headway.store.db import open_database

DEADLINE = 60.0

MOUNTING = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, place: str, kind: str, options: str) -> None:
        done = libc.mount(source.encode(), place.encode(), kind.encode(), 0, options.encode())
        assert done == 0, os.strerror(ctypes.get_errno())
"""


def in_a_namespace(text: str, *args: str) -> str:
    """A program with mounts of its own: they go with it, and no other process sees them."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", dedent(MOUNTING) + dedent(text), *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- network file systems ---


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        *((kind, True) for kind in ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "afs", "ocfs2", "gpfs")),
        *((kind, True) for kind in ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph-fuse")),
        *(
            (kind, False)
            for kind in ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "9p", "virtiofs", "fuse.bindfs")
        ),
    ],
)
def test_which_file_systems_are_of_a_network(kind: str, network: bool) -> None:
    assert is_network(kind) is network


def test_a_file_on_a_network_file_system_is_refused_without_a_look_at_it(tmp_path: Path) -> None:
    """A real mount, whose server never answers: a look at any file there would not come back."""
    text = """
        from headway.errors import Refused
        from headway.store.db import open_database

        folder = sys.argv[1]
        os.mkdir(folder + "/there")
        os.symlink(folder + "/there", folder + "/link")
        waiting = os.open("/dev/fuse", os.O_RDWR)
        mount("server:/export", folder + "/there", "fuse.sshfs", f"fd={waiting},rootmode=40000,user_id=0,group_id=0")
        for path in ("/there/headway.db", "/there/deeper/headway.db"):
            try:
                open_database(folder + path)
            except Refused as error:
                assert error.code == "network_file_system"
                print(error)
    """
    lines = in_a_namespace(text, str(tmp_path)).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "is on fuse.sshfs, a network file system" in line
        assert "move the file to a local disk, or use PostgreSQL" in line


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is the kernel's, with one line more: nothing here serves NFS."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    table = Path("/proc/self/mountinfo").read_text() + f"99 27 0:99 / {tmp_path}/there rw - nfs4 server:/export rw\n"
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: table if str(self) == "/proc/self/mountinfo" else read(self, *a, **k)
    )
    for place in ("there", "link"):
        with pytest.raises(Refused, match="is on nfs4, a network file system"):
            open_database(str(tmp_path / place / "headway.db"))
    assert list((tmp_path / "there").iterdir()) == []


def test_local_file_systems_are_named_as_they_are_and_taken(sqlite_url: str, tmp_path: Path) -> None:
    table = Path("/proc/self/mountinfo").read_text()
    assert mounted(table, "/proc/self/status") == "proc"
    for url in (sqlite_url, str(tmp_path / "headway.db")):
        kind = mounted(table, url)
        assert kind is not None
        assert not is_network(kind)
        open_database(url).close()


# --- a full disk ---

SMALL_DISK = """
    from pathlib import Path
    from headway import App
    from headway.errors import Unreachable
    from headway.store.db import open_database
    from headway.testing import drain

    folder = Path(sys.argv[1])
    mount("small", str(folder), "tmpfs", "size=14m")
    path = str(folder / "headway.db")
    ran = []

    def run(value):
        ran.append(value)

    def app_of(path: str) -> App:
        app = App(database=path)
        app.task("t", isolation="thread")(run)
        return app

    def fill(leave: int = 0) -> None:
        with open(folder / "ballast", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        if leave:
            os.truncate(folder / "ballast", (folder / "ballast").stat().st_size - leave)

    def free() -> None:
        (folder / "ballast").unlink()

    def full(act) -> None:
        try:
            act()
        except Unreachable as error:
            assert "the disk is full: free some space" in str(error), error
        else:
            raise AssertionError("it was not full")
"""

# What goes on by itself. A snapshot keeps SQLite from beginning its log anew: each commit needs more of the disk.
LIVING = """
    import apsw
    from headway.model.jobs.outcome import Completed
    from headway.verify import check
    from tests.support.life import Life
    from tests.support.templates import make_template

    make_template(path)
    life = Life(path)
    bulk = '"' + "z" * 300_000 + '"'
    reader = apsw.Connection(path)
    reader.execute("begin")
    reader.execute("select count(*) from hw_job").fetchall()

    def refused(act) -> None:
        before = life.everything()
        fill()
        full(act)
        assert life.everything() == before
        free()

    def in_order() -> None:
        assert [str(finding) for finding in check(life.database).findings] == []
        assert life.database.check() == []
"""

PHASES = {
    "enqueue": """
        app = app_of(path)
        made = [app.tasks["t"].enqueue(value=n).id for n in range(20)]
        fill()
        full(lambda: [app.tasks["t"].enqueue(value="y" * 2000) for _ in range(2000)])
        with app.database.read() as tx:
            ids = [row[0] for row in tx.connection.execute("select id from hw_job order by id").fetchall()]
        assert ids[: len(made)] == made
        free()
        assert app.tasks["t"].enqueue(value=1).id == ids[-1] + 1
        assert app.database.check() == []
    """,
    "claim and finish": """
        app = app_of(path)
        for n in range(30):
            app.tasks["t"].enqueue(value=n)
        fill()
        full(lambda: [drain(app) or app.tasks["t"].enqueue(value=n) for n in range(2000)])
        free()
        drain(app)
        with app.database.read() as tx:
            left = tx.connection.execute("select count(*) from hw_job where status = 'QUEUED'").get
        assert left == 0, left
        assert set(range(30)) <= set(ran), ran
        assert app.database.check() == []
    """,
    "checkpoint": """
        app = app_of(path)
        made = [app.tasks["t"].enqueue(value="z" * 3000).id for _ in range(300)]
        fill()
        try:
            app.close()  # its last act is a checkpoint, for which there is no room
        finally:
            free()
        again = app_of(path)
        with again.database.read() as tx:
            assert tx.connection.execute("select count(*) from hw_job").get == len(made)
        assert again.database.check() == []
        again.tasks["t"].enqueue(value=1)
    """,
    "migration": """
        fill(leave=40960)
        full(lambda: app_of(path).database)
        free()
        app = app_of(path)
        assert app.tasks["t"].enqueue(value=1).id == 1
        assert app.database.check() == []
    """,
    "backup": """
        from headway.cli.database.backup import backup
        app = app_of(path)
        for n in range(200):
            app.tasks["t"].enqueue(value="w" * 3000)
        fill(leave=200_000)
        full(lambda: backup(app.database, folder / "copy"))
        assert {one.name.removeprefix("headway.db") for one in folder.iterdir()} == {"ballast", "", "-shm", "-wal"}
        free()
        backup(app.database, folder / "copy")
        copy = open_database(str(folder / "copy"))
        assert copy.check() == []
    """,
}


LIFE_PHASES = {
    "renewal": """
        from headway.store import workers

        def renew() -> bool:
            return life.database.transact("renew", lambda tx: workers.beat(tx, life.worker_id, 60.0))

        refused(lambda: [renew() for _ in range(5000)])
        assert renew()
        in_order()
    """,
    "recovery": """
        from headway.engine.execution import process_tree
        from headway.engine.maintenance.recovery import Recovery
        from headway.store import workers

        who = workers.Identity(77, process_tree.host(), process_tree.boot_id(), 2**22 - 1, 1)
        life.database.transact(
            "register", lambda tx: workers.register(tx, who, life.actor(77), slots=1, tasks=[], lease=60.0)
        )
        lost = life.enqueue(params=bulk)
        assert life.take(lost, worker_id=77)
        recovery = Recovery(life.database)
        recovery._give_up_the_dead()
        refused(recovery.tick)
        assert life.status(lost) == "RUNNING"
        recovery.tick()
        assert life.status(lost) == "FAILED"
        assert life.sql(f"select count(*) from hw_job where retry_of = {lost}") == [(1,)]
        in_order()
    """,
    "tick": """
        from tests.support.schedules import Clockwork

        clockwork = Clockwork(life)
        steps = [{"task": "sync", "name": f"s{n}", "params": {"source": "z" * 30_000}} for n in range(8)]
        schedule = clockwork.create(cron="* * * * *", steps=steps)
        life.clock.advance(60)
        refused(clockwork.scheduler.tick)
        assert clockwork.ticks(schedule.id) == []
        clockwork.round()
        assert clockwork.ticks(schedule.id) == [(1, 1, "FIRED")]
        in_order()
    """,
    "delivery": """
        from dataclasses import replace
        from headway.api.schemas.webhooks import render
        from headway.engine.webhooks.deliverer import Deliverer
        from headway.engine.webhooks.http_client import Guard
        from headway.model.jobs.job import Options
        from tests.support.receivers import receiver

        with receiver() as ours:
            options = replace(Options.parse(life.new().options), webhook_url=ours.url).text()
            life.client.allow_private = True
            job = life.client.enqueue(life.new(params=bulk)._replace(options=options))[0]
            life.run(job, Completed("7"))
            deliverer = Deliverer(life.database, render=render, guard=Guard(allow_private=True, deadline=30.0))
            refused(deliverer.tick)
            assert ours.received == []
            deliverer.tick()
            assert deliverer.settle(30.0)
            deliverer.tick()
            assert len(ours.received) == 1
        assert life.sql(f"select status, tries, lost from hw_delivery where job_id = {job}") == [("DELIVERED", 1, 0)]
        in_order()
    """,
    "pruning": """
        from headway.engine.maintenance.pruner import Pruner

        for _ in range(40):
            life.run(life.enqueue(), Completed("7"))
        life.clock.advance(86_401)
        pruner = Pruner(life.database, retention=86_400.0, artifacts=folder / "artifacts")
        refused(pruner.tick)
        assert life.sql("select active from hw_pruning") == [(0,)]
        for _ in range(2):  # what a full disk refused goes with the next pass
            while pruner.tick() == 0.0:
                pass
        assert life.sql("select count(*) from hw_job") == [(0,)]
        in_order()
    """,
}


@pytest.mark.parametrize("phase", LIFE_PHASES)
def test_what_goes_on_by_itself_waits_for_space(tmp_path: Path, phase: str) -> None:
    in_a_namespace(dedent(SMALL_DISK) + dedent(LIVING) + dedent(LIFE_PHASES[phase]), str(tmp_path))


@pytest.mark.parametrize("phase", PHASES)
def test_a_full_disk_loses_nothing_and_is_over_when_there_is_space(tmp_path: Path, phase: str) -> None:
    in_a_namespace(dedent(SMALL_DISK) + dedent(PHASES[phase]), str(tmp_path))
