"""Databases with the schema in them. A module's shared one is for tests that look at their own jobs only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.life import Life
from tests.support.postgres import fresh_database
from tests.support.scratch import scratch_directory


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


@pytest.fixture
def postgres_life(postgres_url: str) -> Iterator[Life]:
    with Life(postgres_url) as life:
        yield life


@pytest.fixture
def sqlite_life(sqlite_url: str) -> Iterator[Life]:
    with Life(sqlite_url) as life:
        yield life


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, postgres_server: str, scratch: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield str(stack.enter_context(scratch_directory(root=scratch)) / "headway.db")
        else:
            yield stack.enter_context(fresh_database(postgres_server))


@pytest.fixture(scope="module")
def shared_life(shared_url: str) -> Iterator[Life]:
    with Life(shared_url) as life:
        yield life
