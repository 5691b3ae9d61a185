"""Databases for every test. Ask for `database_url` and the test runs on both kinds; a missing one is a failure.

They have the schema and nothing else in them; those of `empty_url` have nothing at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import postgres, templates
from tests.support.scratch import scratch_directory

# An example that took long once is no failure: the machine may be busy with something else.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """An admin dsn: the server named in HEADWAY_TEST_POSTGRES, or one started for this session."""
    if named := os.environ.get("HEADWAY_TEST_POSTGRES"):
        yield named
    else:
        with postgres.postgres_server() as dsn:
            yield dsn


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    with templates.postgres_template(postgres_server) as name:
        yield name


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    with postgres.fresh_database(postgres_server, template=postgres_template) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    with postgres.fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory for this session, in memory if possible."""
    with scratch_directory() as path:
        yield path


@pytest.fixture(scope="session")
def sqlite_template(scratch: Path) -> Path:
    path = scratch / "template.db"
    templates.make_template(str(path))
    return path


@pytest.fixture
def sqlite_url(scratch: Path, sqlite_template: Path) -> Iterator[str]:
    with templates.sqlite_copy(sqlite_template, root=scratch) as url:
        yield url


@pytest.fixture
def empty_sqlite_url(scratch: Path) -> Iterator[str]:
    """Not even a file."""
    with scratch_directory(root=scratch) as path:
        yield str(path / "headway.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh database of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind in turn that Headway has not seen yet."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url
