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


@pytest.mark.parametrize("phase", PHASES)
def test_a_full_disk_loses_nothing_and_is_over_when_there_is_space(tmp_path: Path, phase: str) -> None:
    in_a_namespace(dedent(SMALL_DISK) + dedent(PHASES[phase]), str(tmp_path))
