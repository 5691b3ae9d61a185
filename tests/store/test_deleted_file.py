"""A database file that is deleted or replaced under a running process: nothing is written into what nobody can find."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway import App
from headway.errors import Unreachable
from headway.store.db import Tx


@pytest.fixture
def app(sqlite_url: str) -> App:
    app = App(database=sqlite_url)
    app.task("t")(_nothing)
    app.tasks["t"].enqueue()
    return app


async def _nothing() -> None:
    pass


def path_of(app: App) -> Path:
    return Path(app.database.url.removeprefix("sqlite:///"))


def test_a_deleted_file_is_refused(app: App):
    path_of(app).unlink()
    with pytest.raises(Unreachable, match="is gone: put it back"):
        app.tasks["t"].enqueue()


def test_a_replaced_file_is_refused(app: App):
    other = path_of(app).with_name("other.db")
    App(database=str(other)).database.close()
    os.replace(other, path_of(app))
    with pytest.raises(Unreachable, match="was replaced: restart"):
        app.tasks["t"].enqueue()


def log_of(app: App) -> Path:
    return Path(f"{path_of(app)}-wal")


def test_a_deleted_log_is_refused(app: App):
    """Whoever deleted it: what is written from now on would be in no file that has a name."""
    log_of(app).unlink()
    with pytest.raises(Unreachable, match=r"log .* was deleted or replaced"):
        app.tasks["t"].enqueue()


def test_a_replaced_log_is_refused(app: App):
    copy = log_of(app).with_name("copy")
    copy.write_bytes(log_of(app).read_bytes())
    os.replace(copy, log_of(app))
    with pytest.raises(Unreachable, match=r"log .* was deleted or replaced"):
        app.tasks["t"].enqueue()


@pytest.mark.parametrize("victim", [path_of, log_of])
def test_a_file_that_goes_in_the_middle_of_a_transaction_is_not_acknowledged(app: App, victim: Callable[[App], Path]):
    def work(tx: Tx) -> None:
        tx.run("time")
        victim(app).unlink()

    with pytest.raises(Unreachable, match=r"is gone|was deleted"):
        app.database.transact("late", work)
