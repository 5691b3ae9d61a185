"""Databases with the schema in them. A module's shared one is for tests that look at their own jobs only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.life import Life
from tests.support.postgres import fresh_database
from tests.support.templates import sqlite_copy


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
def shared_url(
    request: pytest.FixtureRequest, postgres_server: str, postgres_template: str, scratch: Path, sqlite_template: Path
) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(sqlite_copy(sqlite_template, root=scratch))
        else:
            yield stack.enter_context(fresh_database(postgres_server, template=postgres_template))


@pytest.fixture(scope="module")
def shared_life(shared_url: str) -> Iterator[Life]:
    with Life(shared_url) as life:
        yield life
