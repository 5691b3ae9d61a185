"""What only a terminal shows: colours, a progress bar, questions, Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.app import App
from headway.testing import drain
from tests.support.cli import PATIENCE, Here, line_of, program, running, until
from tests.support.terminal import terminal

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")
COLOUR = "\x1b[3"


@pytest.fixture
def worker(cli: Here) -> Iterator[None]:
    with running("work", "--json", *SHOP, cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "started")
        until(lambda: cli("workers", "ls", "--json").data["items"])
        yield


def test_colours_in_a_terminal_only_and_not_against_the_users_will(cli: Here, app: App) -> None:
    app.enqueue("shop.fail", {"error": "\x1b[35mevil"}, retry=0)
    drain(app)
    with terminal("jobs", "ls", cwd=cli.folder, database=cli.database) as screen:
        assert screen.ended() == 0
    assert f"{COLOUR}1mFAILED" in screen.raw
    assert "\x1b[35m" not in screen.raw
    with terminal("jobs", "ls", cwd=cli.folder, database=cli.database, NO_COLOR="1") as screen:
        assert screen.ended() == 0
    assert COLOUR not in screen.raw
    assert "FAILED" in screen.text
    assert "\x1b" not in program("jobs", "ls", cwd=cli.folder, database=cli.database).done().out


def test_follow_draws_a_bar_and_leaves_none_behind(cli: Here, worker: None) -> None:
    go_on = cli.folder / "go-on"
    args = ("run", "shop.until", f"path={go_on}", "--follow", *SHOP)
    with terminal(*args, cwd=cli.folder, database=cli.database) as screen:
        screen.until("job 1 RUNNING")
        screen.until("waiting")
        go_on.touch()
        assert screen.ended() == 0
    assert "waiting" in screen.text
    assert '"waited"' in screen.text
    assert screen.text.rstrip().endswith("job 1 COMPLETED")


def test_ctrl_c_ends_the_following_only(cli: Here, app: App, worker: None) -> None:
    with terminal("run", "shop.wait", "--follow", *SHOP, cwd=cli.folder, database=cli.database) as screen:
        screen.until("waiting")
        screen.type("\x03")
        screen.until("job 1 continues")
        assert screen.ended() == 130
    assert app.job(1).status == "RUNNING"
    cli("jobs", "cancel", 1).done()


def test_a_question_is_answered(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    with terminal("jobs", "cancel", "--status", "queued", cwd=cli.folder, database=cli.database) as screen:
        screen.until("cancel 1 job? [y/N] ")
        screen.type("y\n")
        assert screen.ended() == 0
    assert "job 1 cancelled: now CANCELLED" in screen.text


def test_top_refreshes_until_ctrl_c(cli: Here, app: App) -> None:
    with terminal("top", "--interval", "100ms", cwd=cli.folder, database=cli.database) as screen:
        screen.until("jobs       none")
        app.enqueue("shop.greet", {"name": "a"})
        screen.until("1 queued")
        screen.until("shop.greet")
        screen.type("\x03")
        assert screen.ended() == 0
    assert "Traceback" not in screen.text


def test_ctrl_c_stops_up(cli: Here, app: App) -> None:
    with terminal("up", *SHOP, cwd=cli.folder, database=cli.database) as screen:
        screen.until("Ctrl-C stops it")
        assert app.enqueue("shop.greet", {"name": "a"}).result(timeout=PATIENCE)["greeted"] == "a"
        screen.type("\x03")
        screen.until("stopped; 1 job ended here")
        assert screen.ended() == 0


def test_help_fits_the_terminal(cli: Here) -> None:
    for args in (["--help"], ["run", "--help"], ["jobs", "retry", "--help"]):
        with terminal(*args, cwd=cli.folder) as screen:
            assert screen.ended() == 0
        assert all(len(line) <= 80 for line in screen.lines)
