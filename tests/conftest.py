"""Databases for every test. Ask for `database_url` and the test runs on both kinds; a missing one is a failure.

They have the schema and nothing else in them; those of `empty_url` have nothing at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.clock import Clock
from headway.store.postgres.database import PostgresDatabase
from tests.support import figures, pgbouncer, postgres, signals, templates
from tests.support.properties import ExamplesPlugin, load_profile
from tests.support.scratch import scratch_directory
from tests.support.watchdog import WatchdogPlugin

load_profile()
PROOF = bool(os.environ.get("HEADWAY_PROOF"))


def pytest_configure(config: pytest.Config) -> None:
    """In the session's own process and in those of xdist."""
    signals.restore()
    config.pluginmanager.register(WatchdogPlugin(), "headway-watchdog")
    config.pluginmanager.register(ExamplesPlugin(), "headway-examples")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Chooses the tests and brings the longest to the front, so that no process is left alone with one at the end.

    With HEADWAY_TEST_POOLER=1: the tests on PostgreSQL, without those that a pooler changes.
    """
    if os.environ.get("HEADWAY_TEST_POOLER"):
        chosen = [item for item in items if pgbouncer.can_be_pooled(item)]
    else:
        chosen = [item for item in items if PROOF or not _is_shown_twice(item)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted(chosen, key=lambda item: item.get_closest_marker("slow") is None)


def _is_shown_twice(item: pytest.Item) -> bool:
    """Returns True for the PostgreSQL half of a test that is about what people are shown."""
    if item.get_closest_marker("shown") is None or not isinstance(item, pytest.Function):
        return False
    return hasattr(item, "callspec") and item.callspec.params.get("database_url") == "postgres"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found := figures.lines(terminalreporter):
        terminalreporter.section("figures of this run")
        for line in found:
            terminalreporter.line(line)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> figures.Figure:
    """Takes a line that the run prints at its end, or adds a count to the run's sum."""
    return lambda text, count=None: record_property(figures.NAME, (text, count))


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


@pytest.fixture(scope="session")
def pooler(postgres_server: str) -> Iterator[pgbouncer.Pooler]:
    """PgBouncer in transaction mode, in front of the server."""
    with pgbouncer.pooler(postgres_server) as made:
        yield made


@pytest.fixture(autouse=True)
def through_the_pooler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With HEADWAY_TEST_POOLER=1 every database of the test's own process is reached through PgBouncer; a test's other
    connections, and LISTEN, go past it."""
    if os.environ.get("HEADWAY_TEST_POOLER"):
        made: pgbouncer.Pooler = request.getfixturevalue("pooler")
        request.getfixturevalue("postgres_template")  # made past the pooler, which would keep a session in it
        plain = PostgresDatabase.__init__

        def pooled(self: PostgresDatabase, url: str, *, clock: Clock | None = None, listen: str | None = None) -> None:
            plain(self, made.pooled(url) if made.leads(url) else url, clock=clock, listen=listen or url)

        monkeypatch.setattr(PostgresDatabase, "__init__", pooled)


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
