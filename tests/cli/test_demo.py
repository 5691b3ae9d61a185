"""The demo: it tells its story with or without a terminal, ends by itself, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from datetime import datetime
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.cli import PATIENCE, line_of, program, running, until
from tests.support.terminal import terminal

pytestmark = pytest.mark.shown


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its folder, and nobody else does."""
    place = folder / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def nothing_is_left(temporary: Path) -> bool:
    """Neither files nor processes."""
    return not list(temporary.iterdir()) and not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(temporary) in " ".join(process.info["cmdline"] or [])
    ]


def test_the_whole_story(temporary: Path, folder: Path) -> None:
    (folder / "headway.toml").write_text("slots = 0\n")  # the demo has settings of its own
    said = program("demo", "--fast", cwd=folder, HEADWAY_DATABASE="elsewhere.db").done()
    assert said.err == ""
    story = said.out
    for line in (
        r"dashboard http://127\.0\.0\.1:\d+/ui/",
        r"job 1 demo.bake COMPLETED",
        r"job 2 demo.flaky FAILED: ConnectionError: the oven did not answer \(attempt 1\)",
        r"job 3 demo.flaky FAILED: ConnectionError: the oven did not answer \(attempt 2\)",
        r"job 4 demo.flaky COMPLETED",
        r"They started in this order: priority 90, priority 50, priority 0.",
        r"\$ headway limits ls",
        r"oven +resource +2 +2 +0 +2",
        r"job 12 demo.step COMPLETED",
        r"job 13 demo.visit ERROR: RuntimeError: desk-1 stopped halfway",
        r"\$ headway targets ls",
        r"desk-1 +held +job 13 +\d+[sm] +1 +RuntimeError: desk-1 stopped halfway",
        r"desk-2 +free +0\n",
        r"\$ headway targets release desk-1",
        r"job 14 demo.visit COMPLETED",
        r"It returned 'direct'. They began in this order: job 16, the direct call, job 17.",
        r"It fires at 02:30, Monday to Friday, Berlin time; next at",
        r"job 20 demo.step \(AD export\) COMPLETED",
        r"job 21 demo.step \(LDAP export\) COMPLETED",
        r"Execution 1 is COMPLETED",
        r"\$ headway jobs cancel 24",
        r"job 24 demo.endless CANCELLED: cancelled by ",
        r"\$ kill -9 \d+",
        r"job 25 demo.journey FAILED: Scheduler crash recovery",
        r"job 26 demo.journey COMPLETED",
        r'its checkpoint: \{"began_at_stage":[1-9],"stages":10\}',
        r"26 jobs checked, 0 promises broken",
        r"headway up ",
    ):
        assert re.search(line, story), f"{line!r} is not in\n{story}"
    until(lambda: nothing_is_left(temporary))
    assert sorted(path.name for path in folder.iterdir()) == ["headway.toml", "tmp"]


def test_as_json(temporary: Path, folder: Path) -> None:
    scenes = program("demo", "--fast", "--json", cwd=folder).done().records
    assert [len(scene["jobs"]) for scene in scenes] == [1, 3, 4, 4, 3, 2, 6, 1, 1, 2]
    loaves, visits = scenes[3]["jobs"], scenes[4]["jobs"]
    assert {tuple(job["resources"]) for job in loaves} == {("oven",)}
    assert [(job["target"], job["status"]) for job in visits] == [
        ("desk-1", "FAILED"),
        ("desk-1", "COMPLETED"),
        ("desk-2", "COMPLETED"),
    ]
    exports = [job for job in scenes[6]["jobs"] if "export" in job["step"]]
    assert [job["step"] for job in exports] == ["AD export", "LDAP export"]
    begun, ended = ([datetime.fromisoformat(job[name]) for job in exports] for name in ("started_at", "finished_at"))
    assert max(begun) < min(ended), "side by side"
    assert scenes[-1]["jobs"][0]["failure_kind"] == "LOST"


def test_in_a_terminal(temporary: Path, folder: Path) -> None:
    with terminal("demo", "--fast", cwd=folder) as screen:
        assert screen.ended() == 0
    for words in ("##############", "COMPLETED", "CANCELLED", "desk-1  held", "0 promises broken", "Next steps"):
        assert words in screen.text
    assert all(len(line) <= 80 for line in screen.lines)
    until(lambda: nothing_is_left(temporary))


def test_its_dashboard_shows_what_runs(temporary: Path, folder: Path) -> None:
    """The address is said before the first job, and answers while the scenes go on."""
    with running("demo", cwd=folder, PYTHONUNBUFFERED="1") as process:
        address = line_of(process.stdout, "  dashboard ").split()[-1]
        with httpx.Client(base_url=address.removesuffix("/ui/"), timeout=PATIENCE, trust_env=False) as http:
            until(lambda: "demo.bake" in http.get("/ui/", follow_redirects=True).text)
            until(lambda: http.get("/api/jobs/1").json()["progress"] is not None)
            assert http.get("/ui/workers").status_code == 200
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    until(lambda: nothing_is_left(temporary))


def test_at_a_terminal_the_dashboard_stays_until_it_is_ended(
    temporary: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole story takes a minute there: this one has two scenes."""
    short = (
        "import sys; from headway.cli import main; from headway.cli.demo import scenes;"
        " scenes.SCENES = scenes.SCENES[:2]; sys.exit(main.main())"
    )
    monkeypatch.setattr("tests.support.terminal.PROGRAM", (sys.executable, "-c", short))
    with terminal("demo", cwd=folder, DISPLAY="", WAYLAND_DISPLAY="") as screen:
        screen.until("Ctrl-C ends the demo.")
        (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+", screen.text))
        with httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as http:
            until(lambda: [one for one in http.get("/api/workers").json()["items"] if one["state"] == "live"])
        screen.type("\x03")
        assert screen.ended() == 0
    until(lambda: nothing_is_left(temporary))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped(temporary: Path, folder: Path, number: signal.Signals) -> None:
    with running("demo", cwd=folder, PYTHONUNBUFFERED="1") as process:
        line_of(process.stdout, "demo.bake RUNNING")
        os.kill(process.pid, number)
        line_of(process.stderr, "the demo was stopped; its folder was removed")
        assert process.wait(PATIENCE) == 130
    until(lambda: nothing_is_left(temporary))
