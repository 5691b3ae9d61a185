"""Files that jobs attach, when they are none: links, pipes, devices, folders; and forged paths."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Context
from headway.engine.execution.artifacts import keep
from headway.engine.maintenance.pruner import Pruner
from headway.errors import BadInput
from tests.support.life import raw_connection
from tests.support.service import Site, running, shop
from tests.support.waiting import PATIENCE


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Iterator[Site]:
    app = shop(database_url, artifacts=str(tmp_path / "artifacts"))

    @app.task("attaches", retry=1)
    async def attaches(ctx: Context, path: str) -> None:
        ctx.attach(path, "it")

    with app, running(app) as found:
        yield found


def attached(site: Site, path: object) -> dict[str, object]:
    made = site.http.post("/api/jobs", json={"task": "attaches", "params": {"path": str(path)}})
    site.drain()
    job = site.http.get(f"/api/jobs/{made.json()['job_id']}").json()
    job["error"] = site.http.get(f"/api/job-runs/{job['job_id']}").text
    job["files"] = site.http.get(f"/api/jobs/{job['job_id']}/artifacts").json()["items"]
    return dict(job)


def test_only_plain_files_are_attached(site: Site, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path, words in {
        tmp_path / "link": "is a symbolic link",
        tmp_path / "dangling": "is a symbolic link",
        tmp_path / "pipe": "is not a file",
        Path("/dev/zero"): "is not a file",
        Path("/dev/tty"): "",
        tmp_path / "folder": "is not a file",
        tmp_path / "nothing": "there is no file",
    }.items():
        job = attached(site, path)
        assert (job["status"], job["files"]) == ("FAILED", []), path
        assert words in str(job["error"]), path
    assert [path for path in tmp_path.glob("artifacts/**/*") if path.is_file()] == []


def test_a_file_that_is_replaced_all_the_time_gives_one_of_its_own_contents(tmp_path: Path) -> None:
    """The name is a file, then a link to a secret, then a pipe: what is kept was a file under that name."""
    name, secret, over = tmp_path / "name", tmp_path / "secret", threading.Event()
    secret.write_text("secret")
    name.write_text("own")

    def replace() -> None:
        while not over.is_set():
            for make in (
                lambda new: new.symlink_to(secret),
                os.mkfifo,
                lambda new: new.write_text("own"),
            ):
                new = tmp_path / "new"
                make(new)
                os.replace(new, name)

    thread = threading.Thread(target=replace)
    thread.start()
    kept = set()
    try:
        for _ in range(300):
            try:
                kept.add(keep(tmp_path / "artifacts", str(name)).sha256)
            except BadInput:
                continue
    finally:
        over.set()
        thread.join(PATIENCE)
    assert kept <= {hashlib.sha256(b"own").hexdigest()}


def test_the_size_and_the_hash_are_those_of_the_copy(tmp_path: Path) -> None:
    """A file of the kernel says that it has 0 bytes; a file may also grow while it is copied."""
    stored = keep(tmp_path, "/proc/self/limits")
    body = (tmp_path / stored.path).read_bytes()
    assert stored.size == len(body) > 0
    assert stored.sha256 == hashlib.sha256(body).hexdigest()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(600 << 20)
    with pytest.raises(BadInput, match="600 MiB, the limit for an artifact is 512 MiB"):
        keep(tmp_path, str(tmp_path / "large"))


def test_a_forged_path_is_neither_sent_nor_deleted(site: Site, tmp_path: Path) -> None:
    """The database may be a restored one that somebody else wrote."""
    (tmp_path / "own").write_text("own")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    job = attached(site, tmp_path / "own")
    file = f"/api/jobs/{job['job_id']}/artifacts/it"
    assert site.http.get(file).text == "own"
    digest = "ab" * 32
    (tmp_path / "artifacts" / "ab").mkdir()
    (tmp_path / "artifacts" / "ab" / digest).symlink_to(victim)
    for path in (str(victim), "../victim", f"ab/../../{victim.name}", f"ab/{digest}", "", ".", "ab"):
        with raw_connection(site.app.database.url) as raw:
            raw.execute(f"update hw_artifact set path = '{path}'")
        answer = site.http.get(file)
        assert (answer.status_code, answer.json()["code"]) == (410, "gone"), path
    for path in (str(victim), "../victim"):
        job = attached(site, tmp_path / "own")
        with raw_connection(site.app.database.url) as raw:
            raw.execute(f"update hw_artifact set path = '{path}'")
        pruner = Pruner(site.app.database, retention=0.0, artifacts=tmp_path / "artifacts")
        assert pruner.prune(site.app.database.clock.now() + 1) > 0
        assert victim.read_text() == "precious", path
