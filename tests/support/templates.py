"""Databases with the schema in them and nothing else, for others to be copied from: that is much quicker than to make
the schema anew for every test. What the migrations do is tested on empty ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.store.db import open_database
from headway.store.migrations import migrate
from tests.support.postgres import fresh_database, name_of
from tests.support.scratch import scratch_directory


def make_template(url: str) -> None:
    """A migrated database, closed again."""
    database = open_database(url)
    migrate(database)
    database.close()


@contextmanager
def postgres_template(admin_dsn: str) -> Iterator[str]:
    """Its name on the server."""
    with fresh_database(admin_dsn) as url:
        make_template(url)
        yield name_of(url)


@contextmanager
def sqlite_copy(template: Path, *, root: Path) -> Iterator[str]:
    with scratch_directory(root=root) as path:
        shutil.copy(template, path / "headway.db")  # with its mode
        yield str(path / "headway.db")
