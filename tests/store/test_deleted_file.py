"""A database file that is deleted or replaced under a running process: nothing is written into what nobody can find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway import App
from headway.errors import Unreachable


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
    with pytest.raises(Unreachable, match="was replaced by another one"):
        app.tasks["t"].enqueue()
