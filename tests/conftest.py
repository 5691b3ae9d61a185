"""Databases for every test. Ask for `database_url` and the test runs on both kinds; a missing one is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.scratch import scratch_directory


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """An admin dsn: the server named in HEADWAY_TEST_POSTGRES, or one started for this session."""
    if named := os.environ.get("HEADWAY_TEST_POSTGRES"):
        yield named
    else:
        with postgres.postgres_server() as dsn:
            yield dsn


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    with postgres.fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory for this session, in memory if possible."""
    with scratch_directory() as path:
        yield path


@pytest.fixture
def sqlite_url(scratch: Path) -> Iterator[str]:
    with scratch_directory(root=scratch) as path:
        yield str(path / "headway.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh, empty database of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
