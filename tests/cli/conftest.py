"""A folder of its own for every command, and the app of the tests on the same database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.app import App
from headway.store.db import Database, open_database
from headway.store.migrations import migrate
from headway.testing import isolated
from tests.support import shop
from tests.support.cli import Here
from tests.support.scratch import scratch_directory


@pytest.fixture
def folder(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: empty, and no settings from outside."""
    for name in [name for name in os.environ if name.startswith("HEADWAY_") and not name.startswith("HEADWAY_TEST")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    with scratch_directory(root=scratch) as path:
        monkeypatch.chdir(path)
        yield path


@pytest.fixture
def here(folder: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Commands in this process; each names its database, or takes ./headway.db."""
    return Here(None, folder, capsys)


@pytest.fixture
def cli(database_url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Commands in this process on a database that exists, of each kind in turn."""
    database = open_database(database_url)
    migrate(database)
    database.close()
    return Here(database_url, folder, capsys)


@pytest.fixture
def app(cli: Here) -> Iterator[App]:
    """The tests' own app on the same database: it enqueues, and `drain(app)` runs what waits."""
    assert cli.database is not None
    with isolated(shop.app, cli.database) as app:  # later commands that name this app find it as it was
        app.configure(None, {"artifacts": str(cli.folder / "artifacts"), "webhooks": {"allow_private": True}})
        yield app


@pytest.fixture
def database(cli: Here) -> Iterator[Database]:
    assert cli.database is not None
    opened = open_database(cli.database)
    yield opened
    opened.close()
